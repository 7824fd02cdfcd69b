"""Each of the experiments, in miniature, from written files to the table: train, sample, calibrate, draw."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from pixelbounds.demo.phantom import phantoms
from pixelbounds.diffusion.checkpoint import load_network
from reproduce import image_figures
from reproduce.__main__ import app
from reproduce.experiment import load_experiment, miniature
from reproduce.material import IMAGE_ARRAYS, load_material
from reproduce.pipeline import _parts
from reproduce.results import load_results
from reproduce.rows import all_rows
from reproduce.summaries import summaries

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
        lines.append(f"{i + 1:06d}.jpg {0 if i < 20 else 1 if i < 30 else 2}")
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
    """One .npz with faces, slices, and the scan or patient of each slice, 8 bits each."""
    folder.mkdir()
    slices = phantoms(120, 16, 1, slices_per_patient=4)
    pixels = np.rint(255 * slices.images).astype(np.uint8)
    np.savez(folder / "data.npz", faces=pixels, ct=pixels, images=pixels, scan=slices.units, patients=slices.units)
    return folder / "data.npz"


def zip_of_scans(folder, name="ct/scan{unit:03d}/{i:05d}.png"):
    """The same slices as pictures in a zip, one folder per scan."""
    with np.load(one_archive(folder)) as data, zipfile.ZipFile(folder / "ct.zip", "w") as archive:
        for i, (pixels, unit) in enumerate(zip(data["ct"], data["scan"], strict=True)):
            picture = io.BytesIO()
            Image.fromarray(pixels).save(picture, "png")
            archive.writestr(name.format(unit=unit, i=i), picture.getvalue())
    return folder / "ct.zip"


@pytest.mark.parametrize(
    "name, written",
    [
        ("celeba", colour_faces),
        ("abdomen", ct_scans),
        ("faces64", one_archive),
        ("ct64", zip_of_scans),
        ("chest128", one_archive),
        ("phantom", None),
    ],
)
def test_an_experiment_runs_from_files_to_the_table(name, written, tmp_path, monkeypatch):
    out, source = tmp_path / "out", ["--train"] if written is None else ["--data", str(written(tmp_path / "data"))]
    words = [name, "--toy", "--out", str(out), "--device", "cpu", "--no-figures", *source]
    words += [] if name == "phantom" else ["--workers", "1"]  # processes of their own take longer to start than to work
    ran = CliRunner().invoke(app, list(words))
    assert ran.exit_code == 0, ran.output
    results, plan = load_results(out), miniature(load_experiment(name))
    material = load_material(out / "work" / "material")
    printed = plan.sampling.printed_steps is not None
    both = plan.sampling.sampler != "euler_maruyama"  # else the plan's own sampler is Algorithm 3
    baselines = "regressor" in plan.training
    needs_baselines = ("qr", "dropout", "conffusion", "multiplicative")
    wanted = {"samples", *(["samples_printed"] * both)}
    wanted |= {x for x in IMAGE_ARRAYS if (printed or "printed" not in x)}
    wanted -= set() if baselines else {x for x in wanted if x.startswith(needs_baselines)}
    wanted -= {"ours_lower", "ours_upper"}  # written by reproduce.gpu.end_to_end alone
    assert set(material.arrays) == wanted
    assert material["samples"].shape == (4, 4, *material.truth.shape[1:])
    if both:
        assert not np.allclose(material["samples_printed"], material["samples"])
    assert material.truth.shape == (40, *((3,) if name == "celeba" else ()), 16, 16)
    assert 0 <= material.truth.min() < material.truth.max() <= 1
    scans = all_rows([]) if plan.scans is None else all_rows(plan.scans.risk_levels, plan.scans.unit, plan.scans.cap)
    rows = [row.key for row in scans if row.band != "ours" and (printed or row.band != "printed")]
    rows = rows if baselines else [key for key in rows if not key.startswith(needs_baselines)]
    assert [s.row.key for s in summaries(results)] == rows
    assert all(len(s.length) == plan.draws.count for s in summaries(results))
    assert "K-RCPS, chosen on fitting images" in (out / "table.md").read_text()
    assert results["material"]["figures"]["score"]["samples"] == plan.task.samples
    if plan.sampling.networks > 1:
        members = load_network(out / "work" / "ensemble.safetensors", kind="score")[2]["extra"]["networks"]
        assert len(set(members)) == plan.sampling.networks
        assert (out / "work" / "score1" / "score.safetensors").is_file()
    if plan.scans:
        assert material.has_units
        assert f"The unit is the {plan.scans.unit}" in (out / "table.md").read_text()
        assert json.loads((out / "work" / "prepared.json").read_text())["data"]["reader"] == plan.data.reader
    if name == "phantom":  # samples of the packaged network, here of the one just trained
        monkeypatch.setattr(image_figures, "network_file", lambda: out / "work" / "score" / "score.safetensors")
        assert {path.stem for path in image_figures.live_samples(material, tmp_path / "figures", 0)} == {"samples"}


def test_scans_are_found_as_folders_of_a_zip_or_as_an_array_and_stay_whole(tmp_path):
    plan = miniature(load_experiment("ct64"))
    pictures_in_folders, array = zip_of_scans(tmp_path / "zip"), one_archive(tmp_path / "npz")
    parts, same = (_parts(plan, path, tmp_path) for path in (pictures_in_folders, array))
    scans = {}
    for name, (images, numbers) in parts.items():
        assert np.array_equal(numbers, same[name][1])
        assert np.array_equal(images.pixels[numbers], same[name][0].pixels[numbers])
        scans[name] = set(images.units[numbers])
    assert len(parts["held_out"][1]) == plan.data.held_out
    assert len(set.union(*scans.values())) == sum(map(len, scans.values()))  # no scan is in two parts
    images, tuned = parts["tune"]
    assert set(np.flatnonzero(np.isin(images.units, sorted(scans["tune"])))) == set(tuned)
