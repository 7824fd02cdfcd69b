"""The draws of a session on its own machine, of the arrays in WORK/material: numbers, which come home.

python -m reproduce.gpu.draws table SET WORK WORKERS      # WORK/results.json, written anew with more and more draws
python -m reproduce.gpu.draws promises SET WORK           # WORK/organs.json: `benchmarks.chest`, row by row
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks import chest
from pixelbounds.storage.files import replace_file
from reproduce.experiment import load_experiment, miniature
from reproduce.material import load_material
from reproduce.results import run_experiment

TOYS = {"faces16": "faces128", "chest16": "chest512"}
FIRST, DRAWS = 4, 6  # draws of the first table; of the promises for organs


def table(name: str, work: Path, workers: int) -> None:
    """The rows of the experiment."""
    plan = miniature(load_experiment(TOYS[name])) if name in TOYS else load_experiment(name)
    material = load_material(work / "material")
    for count in sorted({min(FIRST, plan.draws.count), plan.draws.count}):
        run_experiment(plan.changed(draws={"count": count}), material, work, workers=workers, tell=print)


def promises(name: str, work: Path) -> None:
    """Promises for organs, jointly."""
    study, found, rows = "toy" if name in TOYS else "few", chest.read(work / "material", body=False), []
    for row in chest.draws(found, study, range(DRAWS), chest.TAKEN[study], lambda: rows):
        rows.append(row)
        told = {"study": study, "slices": len(found.truth), "patients": len(np.unique(found.patients)), "rows": rows}
        replace_file(work / "organs.json", (json.dumps(told, indent=1) + "\n").encode())
        print({key: x for key, x in row.items() if key != "lengths"}, flush=True)


if __name__ == "__main__":
    kind, name, work = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if kind == "promises":
        promises(name, work)
    else:
        table(name, work, int(sys.argv[4]))
