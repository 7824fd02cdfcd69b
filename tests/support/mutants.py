"""Deliberate faults, one at a time, in a copy of the source: which tests catch them. `make mutants`, see mutants.md.

    python tests/support/mutants.py [--only WORD] [--tests FILE ...] [--part 0/2] [--whole] [--write]

Each fault meets the doctests of its file and, without --tests, the quick tests of its room (`QUICK`), in one process
that stops at the first failure; with --whole those that survive meet all of `make test`. Results are kept in
build/mutants.json, and --write makes the table of mutants.md of them.
A fault is a text that its file holds exactly once, which `tests/test_house.py` checks, and what replaces it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pixelbounds"
LIMIT = 400  # seconds for one fault; more means that it hangs, and it counts as caught
RESULTS = ROOT / "build" / "mutants.json"


class Fault(NamedTuple):
    """What is wrong, in which file, and how."""

    what: str
    file: str
    text: str
    replacement: str


EXACT, WORLDS, BOUNDS = "properties/test_exactness.py", "properties/test_guarantees.py", "calibration/test_bounds.py"
MASKS = "calibration/test_mask_promises.py"
QUICK = {  # room -> tests below tests/, the fastest first
    "bands.py": [EXACT],
    "calibration": [BOUNDS, "calibration/test_certify.py", "properties/test_promises.py", EXACT, WORLDS, MASKS],
    "evaluation": ["evaluation/test_unit_means.py", "evaluation/test_kept_promises.py"],
    "federated": ["federated/test_suppression.py", "federated/test_federated.py"],
    "kernels": [
        "kernels",
        BOUNDS,
        "calibration/test_paths.py",
        "monitoring/test_anytime_calibration.py",
        EXACT,
        "calibration/test_families.py",
    ],
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
    """The first test that fails, "" where none does, and after how many seconds of processor time."""
    begin = sum(os.times()[:4])
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_with(fault, Path(folder))
        paths = os.pathsep.join([str(copy), str(ROOT / "tests/support"), str(ROOT)])
        command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
        command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(copy / "pixelbounds" / fault.file)]
        command += ["-m", "not slow", *(str(ROOT / "tests" / test) for test in tests)]
        try:
            run = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT if tests[0] else 9 * LIMIT,
                env=os.environ | {"PYTHONPATH": paths},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "it hangs", sum(os.times()[:4]) - begin
    first = next((line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    assert first or run.returncode == 0, run.stdout + run.stderr
    test = first.removeprefix("FAILED ").removeprefix("ERROR ").split(" - ")[0].removeprefix("tests/")
    return f"doctest of {fault.file}" if "::pixelbounds." in test else test, sum(os.times()[:4]) - begin


def kept() -> dict[str, list]:
    """What is known of each fault: the test that catches it, and after how many seconds."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(fault: Fault, test: str, seconds: float) -> None:
    """Note it; two processes may write in turns."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({**kept(), fault.what: [test, round(seconds)]}, indent=1) + "\n")
    print(f"{fault.what}: {test or 'survives'} ({seconds:.0f} s)", flush=True)


def write() -> None:
    """The table of mutants.md."""
    rows, found = [], kept()
    for fault in FAULTS:
        test, seconds = found.get(fault.what, ["not run", 0])
        rows.append(f"| {fault.what} | `{fault.file}` | {test or '**survives**'} | {seconds} |")
    page = Path(__file__).with_suffix(".md")
    head = page.read_text().split("| fault |")[0]
    page.write_text(head + "\n".join(["| fault | file | caught by | seconds |", "|---|---|---|---|", *rows]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults of files, or with words, that hold this")
    parser.add_argument("--tests", nargs="*", help="below tests/; by default the quick tests of the fault's room")
    parser.add_argument("--part", default="0/1", help="every second fault, from the first on: 0/2")
    parser.add_argument("--whole", action="store_true", help="those that survived, with all of `make test`")
    parser.add_argument("--write", action="store_true", help="write mutants.md of what is kept, and run nothing")
    asked = parser.parse_args()
    if asked.write:
        return write()
    wrong = broken_texts()
    assert not wrong, "\n".join(wrong)
    first, step = map(int, asked.part.split("/"))
    for fault in FAULTS[first::step]:
        named = asked.only in fault.what or asked.only in fault.file
        if not named or (asked.whole and kept().get(fault.what, [""])[0]):
            continue
        keep(fault, *caught_by(fault, [""] if asked.whole else asked.tests or QUICK[fault.file.split("/")[0]]))
    return None


if __name__ == "__main__":
    main()
