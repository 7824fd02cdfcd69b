"""Each of the five experiments, in miniature, from written files to the table: train, sample, calibrate, draw."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from pixelbounds.cli import app
from pixelbounds.data.phantom import phantoms
from pixelbounds.experiments import pictures
from pixelbounds.experiments.material import IMAGES, load_material
from pixelbounds.experiments.plan import load_plan, toy
from pixelbounds.experiments.results import load_results
from pixelbounds.experiments.rows import all_rows
from pixelbounds.experiments.tables import summaries

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Two threads that wait for each other are slower than one on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def colour_faces(folder):
    """CelebA as it is published: pictures of 178 x 218, and which part each belongs to."""
    (folder / "img_align_celeba").mkdir(parents=True)
    rng, lines = np.random.default_rng(0), []
    for i in range(70):
        pixels = rng.integers(0, 256, (28, 22, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((178, 218)).save(folder / "img_align_celeba" / f"{i + 1:06d}.jpg")
        lines.append(f"{i + 1:06d}.jpg {0 if i < 20 else 2}")
    (folder / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    return folder


def ct_scans(folder):
    """AbdomenCT-1K as it is published: NIfTI volumes in Hounsfield units."""
    nibabel = pytest.importorskip("nibabel")
    folder.mkdir()
    for case in range(30):
        volume = phantoms(4, 16, 1, first=4 * case, slices_per_patient=4).hounsfield
        image = nibabel.Nifti1Image(np.transpose(volume, (2, 1, 0)).astype(np.int16), np.diag([2.0, 2.0, 5.0, 1.0]))
        nibabel.save(image, folder / f"Case_{case + 1:05d}_0000.nii.gz")
    return folder


def one_archive(folder):
    """One .npz with faces, slices, and the scan of each slice, 8 bits each."""
    folder.mkdir()
    slices = phantoms(120, 16, 1, slices_per_patient=4)
    pixels = np.rint(255 * slices.images).astype(np.uint8)
    np.savez(folder / "data.npz", faces=pixels, ct=pixels, scan=slices.units)
    return folder / "data.npz"


@pytest.mark.parametrize(
    "name, written",
    [
        ("celeba", colour_faces),
        ("abdomen", ct_scans),
        ("faces64", one_archive),
        ("ct64", one_archive),
        ("phantom", None),
    ],
)
def test_an_experiment_runs_from_files_to_the_table(name, written, tmp_path, monkeypatch):
    out, source = tmp_path / "out", ["--train"] if written is None else ["--data", str(written(tmp_path / "data"))]
    words = [name, "--toy", "--out", str(out), "--device", "cpu", "--no-figures", *source]
    ran = CliRunner().invoke(app, ["reproduce", *words])
    assert ran.exit_code == 0, ran.output
    results, plan = load_results(out), toy(load_plan(name))
    material = load_material(out / "work" / "material")
    printed = plan.sampling.printed_steps is not None
    assert set(material.arrays) == {*(x for x in IMAGES if printed or "printed" not in x), "samples"}
    assert material.truth.shape == (40, *((3,) if name == "celeba" else ()), 16, 16)
    assert 0 <= material.truth.min() < material.truth.max() <= 1
    scans = plan.scans.risk_levels if plan.scans else []
    rows = [row.key for row in all_rows(scans) if printed or row.band != "printed"]
    assert [s.row.key for s in summaries(results)] == rows
    assert all(len(s.length) == plan.draws.count for s in summaries(results))
    assert "K-RCPS, chosen on fitting images" in (out / "table.md").read_text()
    assert results["material"]["figures"]["score"]["samples"] == plan.task.samples
    if plan.scans:
        assert material.has_units
        assert json.loads((out / "work" / "prepared.json").read_text())["data"]["reader"] == plan.data.reader
    if name == "phantom":  # samples of the packaged network, here of the one just trained
        monkeypatch.setattr(pictures, "network_file", lambda: out / "work" / "score" / "score.safetensors")
        assert {path.stem for path in pictures.live_samples(material, tmp_path / "figures", 0)} == {"samples"}
