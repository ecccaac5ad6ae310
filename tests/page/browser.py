"""Chromium without a window, controlled over its debugging pipe, with the standard library only.

The protocol (https://chromedevtools.github.io/devtools-protocol) is JSON messages ended by a zero
byte: commands go to the browser's descriptor 3, answers and events come from its descriptor 4. One
page is open at a time, in a profile of its own that goes with it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TIMEOUT_S = 60.0


class BrowserError(Exception):
    """The browser reported an error or did not answer."""


def find() -> str | None:
    """The browser's path: $CHROMIUM, else the first that is installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page; a context manager."""

    def __init__(self, path: str, *, size: tuple[int, int] = (1440, 1280), dark: bool = False):
        self.folder = tempfile.mkdtemp(prefix="genesis-page-")
        ours_in, theirs_out = os.pipe()
        theirs_in, self.out = os.pipe()
        self.input = ours_in
        arguments = [
            path,
            "--headless",
            "--remote-debugging-pipe",
            f"--user-data-dir={self.folder}",
            f"--window-size={size[0]},{size[1]}",
            "--no-first-run",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            "about:blank",
        ]
        # The shell gives the descriptors the numbers that the browser uses.
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", *arguments],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.received = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.input)
        os.close(self.out)
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, method: str, **parameters: Any) -> Any:
        """Sends a command and returns its answer; events that arrive first are kept."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while b"\0" not in self.received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.input], [], [], left)[0]:
                raise BrowserError(f"no answer within {TIMEOUT_S:.0f} s")
            part = os.read(self.input, 1 << 20)
            if not part:
                raise BrowserError("the browser has ended")
            self.received += part
        line, _, self.received = self.received.partition(b"\0")
        return json.loads(line)

    def open(self, path: Path) -> None:
        """Opens a file and waits until the page is ready."""
        self.events.clear()
        self.command("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT_S
        while not self.evaluate("document.readyState === 'complete' && !!window.genesis"):
            if time.monotonic() > deadline:
                raise BrowserError("the page did not load")
            time.sleep(0.01)
        self.evaluate("window.genesis.ready.then(() => true)")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; for a promise, its result."""
        result = self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            raise BrowserError(f"{expression}: {text}")
        return result["result"].get("value")

    def problems(self) -> list[str]:
        """The problems of the page since it was opened: errors, warnings, exceptions, and every
        request except the one for the page itself."""
        self.command("Runtime.evaluate", expression="0")
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"]))
            elif method == "Log.entryAdded":
                found.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
            elif method == "Runtime.consoleAPICalled":
                found.append(f"console: {json.dumps(parameters['args'])}")
            elif method == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                found += [f"request: {url}"] if url != parameters["documentURL"] else []
        return found

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Sends a mouse event: moved, pressed, released or wheel."""
        names = {"moved": "mouseMoved", "pressed": "mousePressed", "released": "mouseReleased"}
        self.command(
            "Input.dispatchMouseEvent", type=names.get(kind, "mouseWheel"), x=x, y=y, **more
        )

    def drag(self, start: tuple[float, float], end: tuple[float, float], **more: Any) -> None:
        """Presses the left button at one point and releases it at another."""
        self.mouse("moved", *start, **more)
        self.mouse("pressed", *start, button="left", buttons=1, clickCount=1, **more)
        self.mouse("moved", (start[0] + end[0]) / 2, end[1], button="left", buttons=1, **more)
        self.mouse("moved", *end, button="left", buttons=1, **more)
        self.mouse("released", *end, button="left", clickCount=1, **more)

    def key(self, key: str) -> None:
        """Presses and releases a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.command("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.command("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path) -> None:
        """Writes a picture of the whole page."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))
