"""A real browser without a network, spoken to through chromedriver's HTTP interface with the standard library."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


class Page:
    """One page of a browser."""

    def __init__(self, address: str) -> None:
        self._address = address

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def tell(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show(self, path: Path, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Open a file at a width in CSS pixels, as by day or by night."""
        scale = 2 if width < 600 else 1
        self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])
        self._post("/url", {"url": path.absolute().as_uri()})
        deadline = time.monotonic() + 60
        while not self.ask("document.readyState === 'complete' && document.body !== null"):  # on a busy machine
            assert time.monotonic() < deadline, f"{path} was not loaded"
            time.sleep(0.05)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        found = self.tell("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console has said since it was last asked."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def picture(self) -> bytes:
        """The whole page as a PNG."""
        found = self.tell("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A headless Chromium that resolves no names."""
    arguments = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
    ]  # fmt: skip
    options = {"args": arguments, "binary": shutil.which("chromium")}
    wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert driver.stdout is not None
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        home = Page(f"http://127.0.0.1:{port}")
        session = home._post("/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        address = f"http://127.0.0.1:{port}/session/{session}"
        try:
            yield Page(address)
        finally:
            urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=60).close()
    finally:
        driver.terminate()
        driver.wait()
        if driver.stdout is not None:
            driver.stdout.close()
