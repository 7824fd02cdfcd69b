"""Run the benchmarks, or one, print their tables and write a JSON of each to benchmarks/results.

python -m benchmarks [NAME [ARGUMENT ...]]
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

NAMES = ("quantiles", "krcps", "frontier", "learned", "promises", "cpu_sampling")
RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, str]:
    """Where and on what a figure was measured."""
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True).stdout.strip()
    cpu = next(
        (s.split(":")[1].strip() for s in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in s), ""
    )
    packages = {name: version(name) for name in ("numpy", "numba", "scipy", "lightgbm")}
    return {
        "commit": commit + ("+" if changed else ""),
        "cpu": cpu,
        "cores": str(len(__import__("os").sched_getaffinity(0))),
        "python": platform.python_version(),
        **packages,
    }


def show(name: str, rows: list[dict[str, object]]) -> None:
    """Print rows of equal keys as a table."""
    from rich.console import Console  # the rest serves GPU machines, too
    from rich.table import Table

    table = Table(title=name, title_justify="left")
    for key in rows[0]:
        table.add_column(key, justify="left" if isinstance(rows[0][key], str) else "right", overflow="fold")
    for row in rows:
        table.add_row(*(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.values()))
    Console().print(table)


def main() -> None:
    """Run the named benchmark with its arguments, or all that need none."""
    RESULTS.mkdir(exist_ok=True)
    for name in sys.argv[1:2] or NAMES:
        module = import_module(f"benchmarks.{name}")
        measured = module.run(*sys.argv[2:])  # rows, or several parts by name
        parts = measured if isinstance(measured, dict) else {"rows": measured}
        for rows in parts.values():
            tables = isinstance(rows, list) and isinstance(rows[0], dict)
            for _, alike in groupby(rows, tuple) if tables else ():
                show((module.__doc__ or name).splitlines()[0], list(alike))
        text = json.dumps({"benchmark": name, "machine": machine(), **parts}, indent=1)
        (RESULTS / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
