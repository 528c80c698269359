// The weights enter; small maps of all heads leave, and one of them large, with words on both sides.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const words = data.words;
  const size = words.length;
  const weights = unpack(data.weights);
  const buttons = [...document.querySelectorAll("#heads button")];
  const chosenText = document.getElementById("chosen");
  const sentence = document.getElementById("sentence");
  const mapPlace = document.getElementById("map");
  const pair = document.getElementById("pair");
  const strongest = document.getElementById("strongest");
  let chosen = buttons[0];
  let from = Math.min(1, size - 1);
  let to = from;
  let map = null;

  const chips = words.map((word, index) => {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.className = "chip";
    chip.textContent = word;
    chip.addEventListener("click", () => look(index, likeliest(index)));
    chip.addEventListener("focus", () => look(index, likeliest(index)));
    sentence.append(chip, " ");
    return chip;
  });

  document.getElementById("heads").style.setProperty("--heads", data.heads);
  for (const button of buttons) button.addEventListener("click", () => choose(button));
  document.getElementById("heads").addEventListener("keydown", (event) => {
    const place = buttons.indexOf(document.activeElement);
    const [row, column] = [Math.floor(place / data.heads), place % data.heads];
    const moves = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      Home: [row, 0],
      End: [row, data.heads - 1],
    };
    if (place < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const [newRow, newColumn] = moves[event.key];
    if (newRow < 0 || newRow >= data.layers || newColumn < 0 || newColumn >= data.heads) return;
    const button = buttons[newRow * data.heads + newColumn];
    button.focus();
    choose(button);
  });

  function choose(button) {
    chosen = button;
    for (const other of buttons) {
      other.setAttribute("aria-pressed", String(other === button));
      other.tabIndex = other === button ? 0 : -1;
    }
    const [layer, head] = [Number(button.dataset.layer) + 1, Number(button.dataset.head) + 1];
    chosenText.textContent = `Layer ${layer}, head ${head}`;
    drawMap();
    look(from, likeliest(from));
    listStrongest();
  }

  // The weight from one token to another, in the chosen head.
  function weight(row, column, button = chosen) {
    const head = Number(button.dataset.layer) * data.heads + Number(button.dataset.head);
    return weights[(head * size + row) * size + column] / 65535;
  }

  function likeliest(row) {
    let best = 0;
    for (let column = 1; column < size; column++) if (weight(row, column) > weight(row, best)) best = column;
    return best;
  }

  function look(row, column) {
    [from, to] = [row, column];
    chips.forEach((chip, index) => {
      chip.style.setProperty("--share", `${Math.round(100 * shade(weight(row, index)))}%`);
      chip.classList.toggle("from", index === row);
      chip.title = `${percent(weight(row, index))} of the attention from “${words[row]}”`;
    });
    pair.textContent = `From “${words[row]}” ${percent(weight(row, column))} of the attention goes to “${words[column]}”.`;
    if (map) map.mark(row, column);
  }

  // Small weights matter, and would be invisible on a straight scale.
  function shade(value) {
    return Math.sqrt(value);
  }

  function paint(canvas, button, [red, green, blue]) {
    canvas.width = canvas.height = size;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(size, size);
    for (let row = 0; row < size; row++) {
      for (let column = 0; column < size; column++) {
        const at = 4 * (row * size + column);
        image.data.set([red, green, blue, Math.round(255 * shade(weight(row, column, button)))], at);
      }
    }
    pen.putImageData(image, 0, 0);
  }

  // The accent colour of the theme as three numbers, whatever way the style writes it.
  function accent() {
    const shown = document.createElement("i");
    shown.className = "accent";
    document.body.append(shown);
    const pen = document.createElement("canvas").getContext("2d");
    pen.fillStyle = getComputedStyle(shown).color;
    shown.remove();
    pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data;
  }

  // The chosen head, large: words beside the rows and above the columns, a frame around the cell one points at.
  function drawMap() {
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const ruler = document.createElement("canvas").getContext("2d");
    ruler.font = font;
    const longest = Math.min(Math.max(...words.map((word) => ruler.measureText(word).width)), 110);
    const left = Math.ceil(longest) + 10;
    const top = left;
    const room = mapPlace.clientWidth - left - 4;
    const cell = Math.min(Math.max(Math.floor(room / size), 13), 30);
    const side = cell * size;
    const svg = make("svg", {
      width: left + side + 4,
      height: top + side + 4,
      tabindex: 0,
      role: "application",
      "aria-label": "Attention map: rows look at columns; arrow keys move",
    });
    const marks = make("g", {});
    const labels = words.map((word, index) => {
      const middle = (index + 0.5) * cell;
      const row = make("text", { x: left - 8, y: top + middle + 4, class: "end" }, [cut(word, ruler, longest)]);
      const column = make("text", { transform: `translate(${left + middle + 4} ${top - 8}) rotate(-90)` }, [
        cut(word, ruler, longest),
      ]);
      svg.append(row, column);
      return { row, column };
    });
    svg.append(make("rect", { x: left, y: top, width: side, height: side, class: "frame" }), marks);
    const canvas = document.createElement("canvas");
    paint(canvas, chosen, accent());
    Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${side}px`, height: `${side}px` });
    mapPlace.replaceChildren(canvas, svg);

    const cellOf = (event) => {
      const box = svg.getBoundingClientRect();
      const [row, column] = [event.clientY - box.top - top, event.clientX - box.left - left].map((place) =>
        Math.floor(place / cell),
      );
      if (row >= 0 && row < size && column >= 0 && column < size) look(row, column);
    };
    svg.addEventListener("pointermove", cellOf);
    svg.addEventListener("pointerdown", cellOf);
    svg.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const [down, right] = moves[event.key];
      look(Math.min(Math.max(from + down, 0), size - 1), Math.min(Math.max(to + right, 0), size - 1));
    });

    map = {
      mark(row, column) {
        marks.replaceChildren(
          make("rect", { x: left, y: top + row * cell, width: side, height: cell, class: "line" }),
          make("rect", { x: left + column * cell, y: top, width: cell, height: side, class: "line" }),
          make("rect", { x: left + column * cell, y: top + row * cell, width: cell, height: cell, class: "point" }),
        );
        labels.forEach((label, index) => {
          label.row.classList.toggle("on", index === row);
          label.column.classList.toggle("on", index === column);
        });
      },
    };
  }

  function cut(word, ruler, longest) {
    let text = word;
    while (text.length > 1 && ruler.measureText(text === word ? text : `${text}…`).width > longest) text = text.slice(0, -1);
    return text === word ? word : `${text}…`;
  }

  // The same for those who read tables: from every word the three it looks at most.
  function listStrongest() {
    const table = document.createElement("table");
    table.className = "numbers";
    const body = table.createTBody();
    words.forEach((word, row) => {
      const line = body.insertRow();
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = word;
      line.append(name);
      const order = words.map((_, index) => index).sort((a, b) => weight(row, b) - weight(row, a));
      for (const column of order.slice(0, 3)) {
        line.insertCell().textContent = `${words[column]} ${percent(weight(row, column))}`;
      }
    });
    const head = table.createTHead().insertRow();
    for (const title of ["from", "most", "second", "third"]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title;
      head.append(cell);
    }
    strongest.replaceChildren(table);
  }

  function unpack(text) {
    const bytes = atob(text);
    const numbers = new Uint16Array(bytes.length / 2);
    for (let i = 0; i < numbers.length; i++) numbers[i] = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
    return numbers;
  }

  function percent(share) {
    return `${(100 * share).toFixed(1)}%`;
  }

  function make(name, attributes, children = []) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function drawAll() {
    const colour = accent();
    for (const button of buttons) paint(button.firstElementChild, button, colour);
    drawMap();
    look(from, to);
  }

  choose(chosen);
  drawAll();
  document.addEventListener("themechange", drawAll);
  let known = mapPlace.clientWidth;
  new ResizeObserver(() => {
    if (mapPlace.clientWidth === known) return;
    known = mapPlace.clientWidth;
    drawMap();
    look(from, to);
  }).observe(mapPlace);
})();
