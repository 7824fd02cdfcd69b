"""What a GPU machine runs, run here with none but its packages: draws, and a whole session at toy size."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from reproduce.results import load_results

ROOT = Path(__file__).parents[2]
BARE = ROOT / "tests" / "support" / "bare"  # on the path first: refuses what such a machine lacks
DRAWS = """
import sys
from pathlib import Path
from reproduce.experiment import load_experiment, miniature
from reproduce.material import load_material
from reproduce.results import run_experiment
run_experiment(miniature(load_experiment(sys.argv[1])), load_material(sys.argv[2]), Path(sys.argv[3]), tell=print)
"""


def bare(words, **more):
    """What a command prints on such a machine."""
    path = os.pathsep.join([str(BARE), str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(words, env=environment | more, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def test_draws_need_no_more_than_a_gpu_machine_has(material, tmp_path):
    (tmp_path / "material").mkdir()
    for name, x in {**material.arrays, "unit": material.unit}.items():
        np.save(tmp_path / "material" / f"{name}.npy", x)
    bare([sys.executable, "-c", DRAWS, "chest512", str(tmp_path / "material"), str(tmp_path)])
    rows = {record["row"] for record in load_results(tmp_path)["records"]}
    assert {
        "calibrated/frontier/betting",
        "printed/krcps_chosen/betting",
        "calibrated/rcps/betting/scan 0.2 cap 0.8",
    } <= rows


def test_a_machine_without_a_package_says_which():
    script = "try:\n import scipy\nexcept ModuleNotFoundError as error:\n print(error)"
    assert bare([sys.executable, "-c", script]) == "scipy is not on a GPU machine\n"
