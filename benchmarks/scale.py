"""Sample stores larger than memory: seconds against merely reading them, peak memory, two workers against one.

    python -m benchmarks scale                          # 1, 4 and 12 GB
    PIXELBOUNDS_SCALE=0.2 python -m benchmarks scale    # gigabytes, with commas
    PIXELBOUNDS_SCALE_DIR=/big python -m benchmarks scale

Stores are uncompressed zarr, one chunk per image of 64 samples of 256 x 256 in float32, read twice before anything is
timed. Every size runs in a process of its own, which compiles or loads its kernels on a small store first. Steps and
reading are the best of two: pages that a virtual machine has given back to its host are dear when first used again.
"Reading with zarr" is a plain loop over the images; beside it stands the same loop in as many threads as the steps use.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
import zarr

from pixelbounds.calibration.paths import path
from pixelbounds.kernels.entry_scores import weigh_missed

SAMPLES = 64
SIZE = 256
MEMORY = "512M"
IMAGE_BYTES = SAMPLES * SIZE * SIZE * 4
CHOICES: dict[str, Any] = {"risk_level": 0.2, "failure_prob": 0.1}
ENVIRONMENT = dict(os.environ)  # before Dask sets malloc and threads for its workers, and so for every later child
STEPS = ("samples to bands", "bands to calibration", "apply", "evaluate", "calibration with learned groups")

WORKERS = ("bands", "apply with learned groups")


def make_store(folder: Path, n: int, size: int = SIZE) -> None:
    """Truth and samples of n images, of a sampler that is too sure of itself."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((SAMPLES + 16, size, size), np.float32)  # a window of it for every image
    chunks: dict[str, Any] = {"dtype": "float32", "compressors": None}
    truth = zarr.create_array(folder / "truth.zarr", shape=(n, size, size), chunks=(16, size, size), **chunks)
    shape = SAMPLES, size, size
    samples = zarr.create_array(folder / "samples.zarr", shape=(n, *shape), chunks=(1, *shape), **chunks)
    for i in range(n):
        level = rng.uniform(0.1, 0.9, (size, size)).astype(np.float32)
        deviation = np.exp(rng.normal(-3, 0.6, (size, size))).astype(np.float32)
        truth[i] = np.clip(level + deviation * rng.standard_normal((size, size), np.float32), 0, 1)
        draws = noise[i % 16 : i % 16 + SAMPLES]
        samples[i] = level + 0.7 * deviation * np.roll(draws, i // 16, axis=-1)


# ---------------------------------------------------------------- one size, in a process of its own


def timed(function: Callable[[], Any]) -> float:
    begin = perf_counter()
    function()
    return perf_counter() - begin


def status(word: str) -> int:
    """Bytes that the kernel tells of this process: VmRSS, or VmHWM for the peak so far."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(word))
    return int(line.split()[1]) * 1024


def read_zarr(path: Path) -> None:
    """Every chunk, with zarr."""
    samples = zarr.open_array(path, mode="r")
    for i in range(samples.shape[0]):
        samples[i]


def read_in_threads(path: Path) -> None:
    """The same, in as many threads as the steps use."""
    samples = zarr.open_array(path, mode="r")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) + 1) as pool:
        for _ in pool.map(lambda i: samples[i].shape, range(samples.shape[0])):
            pass


def read_files(path: Path) -> None:
    """Every chunk's file, as bytes."""
    for file in sorted(path.rglob("c/*/*")):
        file.read_bytes() if file.is_file() else [x.read_bytes() for x in file.rglob("*") if x.is_file()]


def steps(folder: Path) -> dict[str, float]:
    """Seconds of every step through files."""
    from pixelbounds.execution.runner import running
    from pixelbounds.samplers import bands_to
    from pixelbounds.workflows import HeldOutFiles, Request, Resources, apply_files, calibrate_files, evaluate_files

    truth = folder / "truth.zarr"
    samples = folder / "samples.zarr"
    bands = folder / "bands.zarr"
    cal = folder / "cal.safetensors"
    out = folder / "intervals.zarr"
    means = Resources(memory=MEMORY)

    def make_bands() -> None:
        with running(memory=MEMORY):
            bands_to(zarr.open_array(samples, mode="r"), bands, 0.1)

    return {
        STEPS[0]: timed(make_bands),
        STEPS[1]: timed(lambda: calibrate_files(truth, bands, cal, Request(groups="band", **CHOICES), resources=means)),
        STEPS[2]: timed(lambda: apply_files(cal, bands, out, resources=means)),
        STEPS[3]: timed(lambda: evaluate_files(HeldOutFiles(truth, out), resources=means)),
        STEPS[4]: timed(
            lambda: calibrate_files(
                truth, bands, cal, Request(groups="learned", **CHOICES), resources=means, replace=True
            )
        ),
    }


def child(folder: Path) -> None:
    """Print what a process measures on a store."""
    steps(folder / "small")
    base = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    points: list[int] = []
    with patch.object(path, "weigh_missed", lambda *x: points.append(x[4]) or weigh_missed(*x)):
        first = steps(folder)
        for name in ("bands.zarr", "intervals.zarr"):
            shutil.rmtree(folder / name)
        (folder / "cal.safetensors").unlink()
        second = steps(folder)
    found: dict[str, Any] = {"base": base, "peak": status("VmHWM")}
    found["seconds"] = {step: min(first[step], second[step]) for step in STEPS}
    found["points"] = max(points)
    samples = folder / "samples.zarr"
    read_files(samples)
    ways = {"zarr": read_zarr, "threads": read_in_threads, "files": read_files}
    found["reading"] = {name: min(timed(lambda: way(samples)) for _ in range(2)) for name, way in ways.items()}  # noqa: B023
    print(json.dumps(found))


# ---------------------------------------------------------------- workers


def with_workers(folder: Path, workers: int) -> dict[str, float]:
    """Seconds on a cluster of so many processes, the best of two: bands, and intervals with learned groups."""
    from distributed import Client, LocalCluster

    from pixelbounds.execution.runner import running
    from pixelbounds.samplers import bands_to
    from pixelbounds.workflows import Resources, apply_files

    samples = zarr.open_array(folder / "samples.zarr", mode="r")
    out = folder / "workers.zarr"
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="2GiB"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def make_bands() -> None:
            with running(client, memory=MEMORY):
                bands_to(samples, out, 0.1)

        def make_intervals() -> None:
            means = Resources(scheduler=client, memory=MEMORY)
            apply_files(folder / "cal.safetensors", folder / "bands.zarr", out, resources=means)

        best = {}
        for what, function in zip(WORKERS, (make_bands, make_intervals), strict=True):
            spent = []
            for _ in range(3):
                spent.append(timed(function))
                shutil.rmtree(out)
            best[what] = min(spent[1:])  # the first loads the kernels
    return best


def bare(folder: Path, processes: int) -> float:
    """Seconds in which so many bare processes read the files of the samples, the best of three."""
    names = [str(x) for x in sorted((folder / "samples.zarr").rglob("c/*/*/*/*"))]
    code = f"import sys; b = bytearray({IMAGE_BYTES}); [open(x, 'rb', buffering=0).readinto(b) for x in sys.argv[1:]]"

    def read() -> None:
        for done in [subprocess.Popen([sys.executable, "-c", code, *names[i::processes]]) for i in range(processes)]:
            if done.wait():
                raise RuntimeError("a reading process failed")

    return min(timed(read) for _ in range(3))


# ---------------------------------------------------------------- the table


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pixelbounds-scale.", dir=os.environ.get("PIXELBOUNDS_SCALE_DIR")) as name:
        yield Path(name)


def run() -> list[dict[str, object]]:
    sizes = [float(x) for x in os.environ.get("PIXELBOUNDS_SCALE", "1,4,12").split(",")]
    rows: list[dict[str, object]] = []

    def row(what: str, gigabytes: float, spent: float, against: float, peak: object = "") -> None:
        rate = 1000 * gigabytes / spent
        rows.append(
            {"what": what, "GB": gigabytes, "seconds": spent, "MB/s": rate, "times": spent / against, "peak MB": peak}
        )

    for wanted in sizes:
        with workplace() as folder:
            n = max(48, round(wanted * 1e9 / IMAGE_BYTES))
            gigabytes = n * IMAGE_BYTES / 1e9
            make_store(folder, n)
            (folder / "small").mkdir()
            make_store(folder / "small", 48, 32)
            read_files(folder / "samples.zarr")
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.scale", str(folder)],
                check=True,
                capture_output=True,
                text=True,
                env=ENVIRONMENT,
            )
            found = json.loads(done.stdout.splitlines()[-1])
            reading = found["reading"]["zarr"]
            row("reading with zarr", gigabytes, reading, reading)
            row("reading with zarr in threads", gigabytes, found["reading"]["threads"], reading)
            row("reading files as bytes", gigabytes, found["reading"]["files"], reading)
            for what in STEPS:
                row(what, gigabytes, found["seconds"][what], reading)
            both = found["seconds"][STEPS[0]] + found["seconds"][STEPS[1]]
            row("samples to calibration", gigabytes, both, reading, round(found["peak"] / 1e6))
            rows.append({**rows[-1], "what": "memory before", "peak MB": round(found["base"] / 1e6)})
            rows.append({**rows[-1], "what": f"points of the path: {found['points']}", "peak MB": ""})
            if wanted == sizes[:2][-1]:
                one = {**with_workers(folder, 1), "reading by bare processes": bare(folder, 1)}
                two = {**with_workers(folder, 2), "reading by bare processes": bare(folder, 2)}
                for what in one:
                    row(f"{what}, 1 worker process", gigabytes, one[what], one[what])
                    row(f"{what}, 2 worker processes", gigabytes, two[what], one[what])
    return rows


if __name__ == "__main__":
    child(Path(sys.argv[1]))
