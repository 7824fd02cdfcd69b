"""An empty Orthanc on loopback, with its DICOMweb plugin where there is one."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
MISSING = [name for name in ("Orthanc", "storescu") if shutil.which(name) is None]


class Archive(NamedTuple):
    """Where it listens."""

    web_port: int
    dicom_port: int

    @property
    def dicomweb(self) -> str:
        return f"http://127.0.0.1:{self.web_port}/dicom-web"

    def ask(self, path: str, raw: bool = False) -> Any:
        """What its REST interface says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/{path}", timeout=10) as answer:
            return answer.read() if raw else json.loads(answer.read())

    def store(self, *files: Path) -> None:
        """Send files by C-STORE."""
        words = ["storescu", "-R", "127.0.0.1", str(self.dicom_port), *map(str, files)]
        sent = subprocess.run(words, capture_output=True, text=True)
        assert sent.returncode == 0, sent.stderr[-2000:]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def running_archive(folder: Path, **settings: Any):
    """Orthanc with its data in a folder, until the block ends."""
    archive = Archive(free_port(), free_port())
    plugins = [str(PLUGIN)] if PLUGIN.exists() else []
    said = {
        "StorageDirectory": str(folder / "store"), "IndexDirectory": str(folder / "store"),
        "HttpPort": archive.web_port, "DicomPort": archive.dicom_port, "RemoteAccessAllowed": False,
        "AuthenticationEnabled": False, "Plugins": plugins, **settings,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orthanc.json").write_text(json.dumps(said))
    with (folder / "orthanc.log").open("wb") as log:
        process = subprocess.Popen(["Orthanc", str(folder / "orthanc.json")], stdout=log, stderr=log)
        try:
            for _ in range(600):  # both ports, of which the DICOM one comes last
                try:
                    with suppress(urllib.error.HTTPError):  # it is up, and wants a password
                        archive.ask("system")
                    socket.create_connection(("127.0.0.1", archive.dicom_port)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield archive
        finally:
            process.terminate()
            process.wait()
