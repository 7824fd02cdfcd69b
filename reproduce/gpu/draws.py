"""The draws of a session: python -m reproduce.gpu.draws SET WORK WORKERS, of the arrays in WORK/material."""

from __future__ import annotations

import sys
from pathlib import Path

from reproduce.experiment import load_experiment, miniature
from reproduce.material import load_material
from reproduce.results import run_experiment

TOYS = {"faces16": "faces128", "chest16": "chest512"}

if __name__ == "__main__":
    name, work, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    plan = miniature(load_experiment(TOYS[name])) if name in TOYS else load_experiment(name)
    run_experiment(plan, load_material(work / "material"), work, workers=workers, tell=print)
