# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that a test drives through its debugging pipe.

Messages are JSON objects that end with a zero byte: commands on descriptor 3 of the browser,
answers and events on its descriptor 4.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

# Longer than any action of a browser takes on a busy machine.
PATIENCE = 120.0


def find() -> str | None:
    """The path of an installed browser."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser of its own."""

    def __init__(self, program: str) -> None:
        # Processes of the browser may still write into it when the first one has ended.
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # Out of the way of 3 and 4, over which they are copied in the child.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]

        def place() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",  # It may run as root, and shows only pages of the test.
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._profile.name}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=place,
        )
        for end in (commands, answers, *high):
            os.close(end)
        self._watchdog = threading.Timer(PATIENCE, self._process.kill)
        self._watchdog.start()
        self._unread = b""
        self._sent = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        self.call("Page.enable")
        self.call("Network.enable")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._watchdog.cancel()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            more = os.read(self._from, 1 << 16)
            if not more:
                raise AssertionError("the browser has ended")
            self._unread += more
        message, self._unread = self._unread.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events that come first are kept."""
        self._sent += 1
        command = {"id": self._sent, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") != self._sent:
                self.events.append(message)
                continue
            if "error" in message:
                raise AssertionError(f"{method}: {message['error']}")
            result: dict[str, Any] = message["result"]
            return result

    def await_event(self, method: str) -> dict[str, Any]:
        """The next event of this kind; those before it are forgotten."""
        while True:
            event = self.events.pop(0) if self.events else self._next()
            if event.get("method") == method:
                return event

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.await_event("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return done["result"].get("value")

    def text(self) -> str:
        return str(self.evaluate("document.body.innerText"))

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """The whole page, also below the window."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))
