// Light and dark: the system's choice until the reader makes one, which is remembered.
"use strict";
(() => {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("bertkit-theme");
  } catch {
    // A browser that keeps nothing for local files: the choice lasts as long as the page.
  }

  const isDark = () => (chosen ? chosen === "dark" : system.matches);

  function apply() {
    if (chosen) document.documentElement.style.colorScheme = chosen;
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    document.dispatchEvent(new Event("themechange"));
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("bertkit-theme", chosen);
    } catch {
      // As above.
    }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
})();
