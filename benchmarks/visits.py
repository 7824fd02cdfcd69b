"""Through how many files a call walks: `python -m benchmarks.visits`.

A reader who follows a calibration through the package opens every file that has a function on the way. Counted are
files of the package with a Python function that is entered. Bodies of classes and modules are not counted, nor what
runs while a module is loaded, and neither are compiled loops: a dispatcher of numba shows up in a profile under the
function that it was compiled from, but no reader steps into it.
"""

import argparse
import contextlib
import inspect
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

import numpy as np

Visits = dict[str, list[str]]  # file of the package -> functions entered there


def compiled_codes() -> set[CodeType]:
    """Code of every function of the package that numba compiled."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "pixelbounds"]
    values = [value for module in modules for value in vars(module).values()]
    return {value.py_func.__code__ for value in values if hasattr(value, "py_func")}


class Recorder(threading.local):
    """A profile function that notes the code that is entered; each thread knows whether it is loading a module."""

    entered: ClassVar[set[CodeType]]
    loading = 0  # modules whose bodies are on the stack of this thread

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call, unless a module is being loaded."""
        code = frame.f_code
        if code.co_name == "<module>":
            self.loading += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self.loading:
            self.entered.add(code)


def visits_of(call: Callable[[], Any]) -> Visits:
    """Functions of the package that `call` enters, in this thread and in those that it starts, by file."""
    note = Recorder()
    Recorder.entered = set()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    functions = {code for code in Recorder.entered if code.co_flags & inspect.CO_OPTIMIZED}  # bodies of classes are not
    return by_file(functions - compiled_codes())


def by_file(codes: set[CodeType]) -> Visits:
    """Names of the functions of the package among `codes`, under the file that holds them."""
    import pixelbounds

    source = Path(pixelbounds.__file__).parent
    found: dict[str, set[str]] = {}
    for code in codes:
        file = Path(code.co_filename)
        if file.is_relative_to(source):
            found.setdefault(str(file.relative_to(source)), set()).add(code.co_name)
    return {file: sorted(names) for file, names in sorted(found.items())}


def images() -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Centres of bands and truth around them, both (300, 16, 16): enough for learned groups to be tried."""
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.3, 0.7, (300, 16, 16)).astype(np.float32)
    truth = centre + 0.05 * rng.standard_normal(centre.shape).astype(np.float32)
    return centre, np.clip(truth, 0, 1), rng


def in_memory(**settings: Any) -> Visits:
    """Files that `pb.calibrate` and `.apply` visit."""
    import pixelbounds as pb

    centre, truth, _ = images()
    band = pb.Band(centre - 0.05, centre + 0.05)
    calibrate = pb.calibrate  # looked up here: the package loads its names when they are first used
    return visits_of(lambda: calibrate(truth, band, risk_level=0.1, **settings).apply(band))


def on_files() -> Visits:
    """Files that `pixelbounds calibrate truth.npy samples.zarr --risk-level 0.1 --out cal.safetensors` visits."""
    import zarr

    from pixelbounds import cli

    centre, truth, rng = images()
    samples = centre[:, None] + 0.04 * rng.standard_normal((300, 19, 16, 16)).astype(np.float32)
    arguments = ["calibrate", "truth.npy", "samples.zarr", "--risk-level", "0.1", "--out", "cal.safetensors"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        np.save("truth.npy", truth)
        store = zarr.create_array("samples.zarr", shape=samples.shape, chunks=(10, 19, 16, 16), dtype="f4")
        store[:] = samples
        return visits_of(lambda: run_command(cli.main, arguments))


def run_command(main: Callable[[], object], arguments: list[str]) -> None:
    """Run a command in this process as the shell would, without its output; raise where it fails."""
    said = io.StringIO()
    before = sys.argv
    sys.argv = ["pixelbounds", *arguments]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as exit:
        if exit.code:
            raise RuntimeError(f"pixelbounds {' '.join(arguments)} failed:\n{said.getvalue()}") from None
    finally:
        sys.argv = before


CALLS = {
    "pb.calibrate(truth, band, risk_level=0.1).apply(band)": in_memory,
    'pb.calibrate(truth, band, risk_level=0.1, method="rcps").apply(band)': partial(in_memory, method="rcps"),
    "pixelbounds calibrate truth.npy samples.zarr --risk-level 0.1 --out cal.safetensors": on_files,
}


def in_fresh_process(name: str) -> Visits:
    """Visits of the call `name`, measured where nothing has been loaded and no cache is warm."""
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.visits", "--only", name], capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise RuntimeError(process.stderr)
    return json.loads(process.stdout)


def show_visits() -> None:
    """Print the files that each call visits, and their number."""
    for name in CALLS:
        visits = in_fresh_process(name)
        print(f"{name}: {len(visits)} files")
        for file, functions in visits.items():
            print(f"  {file}: {', '.join(functions)}")


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.visits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=list(CALLS), help="the visits of one call, as JSON")
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(CALLS[chosen.only]()))
    else:
        show_visits()


if __name__ == "__main__":
    main()
