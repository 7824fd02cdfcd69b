"""What a GPU machine runs, run here with none but its packages: draws, and a whole session at toy size."""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reproduce.results import load_results
from reproduce.summaries import markdown

pytest.importorskip("torch")

from pixelbounds.diffusion.checkpoint import load_network
from reproduce.gpu import sizes
from reproduce.gpu.sets import SETS

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


def pictures(path, count, size, colours):
    """A zip of tiny pictures: faces that stand alone, or slices in the folders of patients."""
    rng = np.random.default_rng(0)
    mode, label = "RGB" if colours else "L", io.BytesIO()
    Image.fromarray(rng.integers(0, 4, (size, size), np.uint8)).save(label, "PNG")
    organs = label.getvalue()
    with zipfile.ZipFile(path, "w") as zipped:
        for i in range(count):
            values = rng.integers(0, 256, (size, size, 3) if colours else (size, size), np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(values, mode).save(buffer, "PNG")
            zipped.writestr(
                f"{i:05d}.png" if colours else f"chest/images/patient{i // 6:02d}/{i}.webp", buffer.getvalue()
            )
            if not colours:
                zipped.writestr(f"chest/labels/patient{i // 6:02d}/{i}.png", organs)


@pytest.mark.parametrize("name, count", [("chest16", 108), ("faces16", 2700)])
def test_a_session_brings_home_its_results_and_its_network(name, count, tmp_path, monkeypatch):
    folder = tmp_path / "carried"
    folder.mkdir()
    (folder / "commit").write_text("abc1234\n")
    pictures(folder / "toy.zip", count, 16, name == "faces16")
    out, job = tmp_path / "out", tmp_path / "job"
    out.mkdir()
    places = {"OUT": str(out), "JOB": str(job), "WORKERS": "1", "PIECE": "8K", "PYTHONPATH": str(BARE)}
    print(bare(["bash", "reproduce/gpu/session.sh", name, str(folder), "1"], **places))
    assert not (job / name / "all_done").exists()  # a call ends, its queue goes on
    print(bare(["bash", "reproduce/gpu/session.sh", "fetch", "200"], **places))
    with tarfile.open(out / f"{name}.tar.gz") as packed:
        packed.extractall(tmp_path / "home", filter="data")
    results = load_results(tmp_path / "home")
    assert results["material"]["pixels"] == ([3, 16, 16] if name == "faces16" else [16, 16])
    assert "| Calibrated quantiles, Algorithm 3 as printed | K-RCPS" in markdown(results)
    monkeypatch.setattr(sizes, "result", lambda file: results)
    assert "| the paper's way, 19 samples | " in sizes.ends([name])
    if name == "chest16":
        rows = json.loads((tmp_path / "home" / "organs.json").read_text())["rows"]
        assert {(row["way"], row["draw"]) for row in rows} >= {("plain 5%", 0), ("ours, labels", 5)}
        assert set(results["material"]["figures"]["segmentation"]["dice"]) == {"trachea", "heart", "lung"}
    pieces = sorted(out.glob(f"{name}-network.safetensors.*"))  # at most 16 MiB each, all of one size but the last
    assert len(pieces) > 1
    joined = tmp_path / "network.safetensors"
    joined.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    network, _, meta = load_network(joined, kind="score")
    assert (network.config.design, meta["extra"]["sigma_0"]) == ("lean", SETS[name].sigma_0)
