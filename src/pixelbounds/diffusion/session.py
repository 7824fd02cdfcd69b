"""What surrounds a training loop: processes, the folder, signals, the log. No learning here."""

from __future__ import annotations

import atexit
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ..storage.files import exclusive, replace_file

Progress = Callable[[dict[str, Any]], None]  # called with what is known of a run; see `Log`

_AGREE_EVERY = 10  # steps between two looks at the common clock, where there are several processes


@dataclass
class Group:
    """The processes of a run: this one's rank, their number, this one's device."""

    rank: int
    size: int
    device: torch.device
    _seconds: float | None = None

    def wrap(self, network: nn.Module) -> nn.Module:
        """The network with averaged gradients; all processes start from the weights and buffers of the first."""
        if self.size == 1:
            return network
        devices = [self.device.index] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(network, device_ids=devices)

    def agree(self, step: int, seconds: float, stop: bool) -> tuple[float, bool]:
        """One clock and one decision for all processes: seconds and stop, the latter known every few steps."""
        if self.size == 1:
            return seconds, stop
        if self._seconds is None or step % _AGREE_EVERY == 0:
            common = torch.tensor([seconds, float(stop), step, -step], dtype=torch.float64, device=self.device)
            dist.all_reduce(common, dist.ReduceOp.MAX)
            self._seconds, stop = float(common[0]), bool(common[1] > 0)
            if common[2] != -common[3]:
                raise ValueError(
                    f"the processes stand at steps {-int(common[3])} to {int(common[2])}: they do not see the same "
                    "folder; give all of them one on a shared file system"
                )
            return self._seconds, stop
        return self._seconds, False

    def wait(self) -> None:
        """Go on when all processes are here."""
        if self.size > 1:
            dist.barrier()

    def mean(self, *values: float) -> list[float]:
        """The averages of numbers over processes: last bits may differ, and all must decide alike."""
        common = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(common)
        return (common / self.size).tolist()


def processes(device: Any = None) -> Group:
    """Join the processes that torchrun has announced in the environment, or stay alone where it has not.

    They stay joined until the program ends, so that several networks can be trained one after the other.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if size == 1:
        return Group(0, 1, device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    return Group(dist.get_rank(), dist.get_world_size(), device)


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
