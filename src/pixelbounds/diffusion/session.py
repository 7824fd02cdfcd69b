"""What surrounds a training loop: the folder, signals, the log. No learning here."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..storage.files import exclusive, replace_file

Progress = Callable[[dict[str, Any]], None]  # called with what is known of a run; see `Log`


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder of a run against other runs, cleared of what a killed process left half written."""
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        for stale in folder.glob(".pixelbounds.*.part"):
            stale.unlink(missing_ok=True)
        yield


@contextmanager
def signals() -> Iterator[list[int]]:
    """A list that receives SIGINT and SIGTERM in place of the process, so that a step can end; a second one strikes."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def receive(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Log:
    """Lines of numbers about a run, appended to `log.jsonl`.

    `progress` receives every line, and on `tell` the state between two of them: step, images, seconds, images per
    second, loss, the last validation loss and the least so far, the fraction `done` and the seconds `remaining`.
    """

    def __init__(self, folder: Path | None, step: int, images_per_step: int, progress: Progress | None) -> None:
        self._path = folder / "log.jsonl" if folder is not None else None
        self._progress, self._images = progress, images_per_step
        self._step, self._time = step, time.monotonic()
        self._validation: dict[str, float] = {}
        self.last: dict[str, Any] = {}
        self.reported = -1.0  # seconds of the run at which `progress` was called last
        if self._path is not None and self._path.exists():  # without what a resumed run will write again
            kept = [line for line in _lines(self._path) if line["step"] <= step]
            replace_file(self._path, "".join(json.dumps(line) + "\n" for line in kept).encode())
            for self.last in kept:
                self._remember(self.last)

    def write(self, step: int, seconds: float, done: float, **numbers: float) -> None:
        """Add a line."""
        self.last = self._line(step, seconds) | numbers
        self._step, self._time = step, time.monotonic()
        self._remember(self.last)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(self.last) + "\n")
        self._pass_on(self.last, seconds, done)

    def tell(self, step: int, seconds: float, done: float, loss: float | None) -> None:
        """Tell `progress` where the run stands, between two lines."""
        self._pass_on(self._line(step, seconds) | ({} if loss is None else {"loss": loss}), seconds, done)

    def _line(self, step: int, seconds: float) -> dict[str, Any]:
        speed = (step - self._step) * self._images / max(time.monotonic() - self._time, 1e-9)
        images = step * self._images
        return {"step": step, "images": images, "seconds": round(seconds, 3), "images_per_second": round(speed, 1)}

    def _pass_on(self, line: dict[str, Any], seconds: float, done: float) -> None:
        self.reported = seconds
        if self._progress is not None:
            remaining = {"remaining": seconds * (1 - done) / done} if done > 0 else {}
            self._progress({**self._validation, **line, "done": done, **remaining})

    def _remember(self, line: dict[str, Any]) -> None:
        if "validation" in line:
            least = min(line["validation"], self._validation.get("least", line["validation"]))
            self._validation = {"validation": line["validation"], "least": least}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text().splitlines():
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            return


def read_log(folder: str | Path) -> dict[str, np.ndarray]:
    """The log of a run as columns, ready to plot; NaN where a line lacks a number."""
    lines = list(_lines(Path(folder) / "log.jsonl"))
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: np.array([line.get(name, np.nan) for line in lines]) for name in names}
