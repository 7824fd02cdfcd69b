"""Deliberate faults, one at a time, in a copy of the source: which tests catch them. `make mutants`, see mutants.md.

    python tests/support/mutants.py [--only WORD] [--tests FILE ...] [--json FILE]

Each fault meets the doctests of its file and, without --tests, the quick tests of its room (`QUICK`), in one process
that stops at the first failure.
A fault is a text that its file holds exactly once, which `tests/test_house.py` checks, and what replaces it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pixelbounds"
LIMIT = 400  # seconds for one fault; more means that it hangs, and it counts as caught


class Fault(NamedTuple):
    """What is wrong, in which file, and how."""

    what: str
    file: str
    text: str
    replacement: str


EXACT, WORLDS, BOUNDS = "properties/test_exactness.py", "properties/test_guarantees.py", "calibration/test_bounds.py"
QUICK = {  # room -> tests below tests/, the fastest first
    "bands.py": ["test_bands.py"],
    "calibration": [BOUNDS, "calibration/test_certify.py", EXACT, "calibration/test_methods.py", WORLDS],
    "evaluation": ["evaluation/test_unit_means.py", "evaluation/test_kept_promises.py"],
    "federated": ["federated/test_suppression.py", "federated/test_federated.py"],
    "kernels": ["kernels", BOUNDS, EXACT, "calibration/test_families.py", "test_bands.py", WORLDS],
    "monitoring": ["monitoring"],
}

FAULTS = [Fault(*row) for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["faults"]]


def broken_texts(source: Path = SOURCE) -> list[str]:
    """Faults whose text their file does not hold exactly once."""
    counts = {fault: (source / fault.file).read_text().count(fault.text) for fault in FAULTS}
    return [f"{fault.what}: {fault.file} holds its text {n} times" for fault, n in counts.items() if n != 1]


def copy_with(fault: Fault, folder: Path) -> Path:
    """The source with a fault; compiled kernels come along unless the fault may lie within them."""
    skipped = ["*.nbi", "*.nbc"] if "njit" in (SOURCE / fault.file).read_text() else []
    shutil.copytree(SOURCE, folder / "pixelbounds", ignore=shutil.ignore_patterns(*skipped))
    file = folder / "pixelbounds" / fault.file
    file.write_text(file.read_text().replace(fault.text, fault.replacement))
    return folder


def caught_by(fault: Fault, tests: list[str]) -> tuple[str, float]:
    """The first test that fails, "" where none does, and after how many seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_with(fault, Path(folder))
        paths = os.pathsep.join([str(copy), str(ROOT / "tests/support"), str(ROOT)])
        command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
        command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(copy / "pixelbounds" / fault.file)]
        command += ["-m", "not slow", *(str(ROOT / "tests" / test) for test in tests)]
        try:
            run = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, env=os.environ | {"PYTHONPATH": paths}
            )
        except subprocess.TimeoutExpired:
            return "it hangs", time.monotonic() - begin
    first = next((line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    assert first or run.returncode == 0, run.stdout + run.stderr
    test = first.removeprefix("FAILED ").removeprefix("ERROR ").split(" - ")[0]
    return f"doctest of {fault.file}" if "::pixelbounds." in test else test, time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="faults of files, or with words, that hold this")
    parser.add_argument("--tests", nargs="*", help="below tests/; by default the quick tests of the fault's room")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "mutants.json")
    asked = parser.parse_args()
    wrong = broken_texts()
    assert not wrong, "\n".join(wrong)
    rows = []
    for fault in FAULTS:
        if asked.only not in fault.what and asked.only not in fault.file:
            continue
        test, seconds = caught_by(fault, asked.tests or QUICK[fault.file.split("/")[0]])
        rows.append({"fault": fault.what, "file": fault.file, "caught by": test, "seconds": round(seconds)})
        print(
            f"| {fault.what} | `{fault.file}` | {test.removeprefix('tests/') or '**survives**'} | {seconds:.0f} |",
            flush=True,
        )
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{sum(bool(row['caught by']) for row in rows)} of {len(rows)} faults are caught")


if __name__ == "__main__":
    main()
