"""Firefox for tests of the page, by its own protocol (Marionette: lengths and JSON over a local socket)."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from waiting import PATIENCE, wait_until

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
_QUIET = {
    "network.proxy.type": 1, "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9,  # nothing leaves
    "network.proxy.ssl": "127.0.0.1", "network.proxy.ssl_port": 9, "network.dns.disabled": True,
    "app.update.auto": False, "app.update.enabled": False, "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False, "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False, "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False, "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False, "browser.shell.checkDefaultBrowser": False, "marionette.port": 0,
}  # fmt: skip


class Firefox:
    """A browser without a window in a folder of its own, for as long as the `with` lasts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def __enter__(self) -> Firefox:
        self.folder.mkdir(exist_ok=True)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _QUIET.items()]
        (self.folder / "user.js").write_text("\n".join(lines))
        command = [FIREFOX, "--headless", "--marionette", "--no-remote", "--profile", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        place = self.folder / "MarionetteActivePort"
        wait_until(lambda: place.is_file() and place.read_text().strip(), self.process)
        self.socket = socket.create_connection(("127.0.0.1", int(place.read_text())), timeout=PATIENCE)
        self.stream = self.socket.makefile("rb")
        self._read()  # its greeting
        self.aggregate("WebDriver:NewSession")
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()
        self.socket.close()
        self.process.terminate()
        self.process.wait()

    def _read(self) -> Any:
        length = b""
        while (byte := self.stream.read(1)) != b":":
            assert byte, "Firefox has gone"
            length += byte
        return json.loads(self.stream.read(int(length)))

    def aggregate(self, command: str, **values: Any) -> Any:
        """What a command gives."""
        self.count += 1
        text = json.dumps([0, self.count, command, values]).encode()
        self.socket.sendall(b"%d:%s" % (len(text), text))
        _, number, error, result = self._read()
        assert number == self.count
        assert error is None, error
        return result

    def open(self, page: Path) -> None:
        """Open a page from disk, and wait until its viewer shows an image."""
        self.aggregate("WebDriver:Navigate", url=page.as_uri())
        wait_until(lambda: self.run("return document.querySelector('#picture').dataset.image"), self.process)

    def run(self, script: str) -> Any:
        """What a function body returns in the page."""
        return self.aggregate("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def press(self, selector: str, key: str) -> None:
        """Press a key on an element."""
        event = f"new KeyboardEvent('keydown', {{ key: {json.dumps(key)}, bubbles: true }})"
        self.run(f"document.querySelector({json.dumps(selector)}).dispatchEvent({event})")
