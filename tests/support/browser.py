"""A headless Chromium for the tests, driven through its debugging pipe: pages enter, what they did leaves."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str:
    """The browser to run; the test is skipped where there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser found: none of {', '.join(_NAMES)} is installed")
    return found


class Browser:
    """One browser with one tab. `requests`, `problems` hold what the page did since it was opened."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._number, self._buffer, self._session = 0, b"", ""
        self._answers: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # The browser reads commands from 3 and answers on 4; numbers above 9 cannot be in the way of these.
        high_in, high_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out))
        self._in, self._out = ours_in, ours_out
        flags = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            f"--user-data-dir={self._profile.name}",
        ]
        self._process = subprocess.Popen(
            [find_browser(), *flags, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=lambda: (os.dup2(high_in, 3), os.dup2(high_out, 4)),
        )
        for end in (theirs_in, theirs_out, high_in, high_out):
            os.close(end)
        tab = next(tab for tab in self.call("Target.getTargets")["targetInfos"] if tab["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def open(self, path: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Show a file and wait until it has drawn itself."""
        mode = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": mode}])
        self.resize(width, height)
        self.requests.clear()
        self.problems.clear()
        answer = self.call("Page.navigate", url=path.absolute().as_uri())
        assert "errorText" not in answer, answer
        self.wait_for("document.readyState === 'complete'")
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def resize(self, width: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        deadline = time.monotonic() + 30
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS.get(key, 0))

    def screenshot(self, path: Path) -> None:
        """The whole page, as high as it is."""
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(image["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; what happens in between is noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while self._number not in self._answers:
            self._receive()
        answer = self._answers.pop(self._number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _receive(self) -> None:
        readable, _, _ = select.select([self._in], [], [], 60)
        assert readable, "the browser does not answer"
        data = os.read(self._in, 1 << 20)
        assert data, "the browser is gone"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._note(message["method"], message.get("params", {}))

    def _note(self, event: str, facts: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.problems.append(str(facts["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning"):
            self.problems.append(str(facts["args"]))
        elif event == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.problems.append(facts["entry"]["text"])


_KEYS = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "End": 35,
    "Home": 36,
    "Tab": 9,
    "Escape": 27,
}
