"""The table of structures: what it says of each is what a plain count over its pixels says."""

import csv

import numpy as np
import pytest
from commands import done, world

import pixelbounds as pb

RISK = ("--failure-prob", 0.2, "--units", "each", "--groups", "band")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("structures")
    for name, n, seed in (("old", 160, 0), ("new", 30, 1)):
        truth, samples = world(n, seed)
        band = pb.calibrated_quantiles(samples, 0.1)
        np.save(folder / f"{name}.npy", truth)
        np.savez(folder / f"{name}.npz", lower=band.lower, upper=band.upper)
        labels = np.random.default_rng(seed).integers(0, 4, truth.shape)
        labels[: n // 2][labels[: n // 2] == 3] = 0  # half of the images have no label 3
        np.save(folder / f"{name}_labels.npy", labels)
    promises = "--promise", "share:0.3", "--promise", f"share:0.4,within={folder / 'old_labels.npy'}:2,name=heart"
    done("calibrate", folder / "old.npy", folder / "old.npz", *RISK, *promises, "--out", folder / "cal.safetensors")
    done("apply", folder / "cal.safetensors", folder / "new.npz", "--out", folder / "i.zarr")
    return folder


def rows_of(path):
    with path.open() as file:
        return {row["structure"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize("made", ["evaluate", "report"])
def test_each_row_is_what_its_pixels_say(files, tmp_path, made):
    out = tmp_path / "structures.csv"
    words = files / "new.npy", files / "new.npz", "--calibration", files / "cal.safetensors", "--units", "each"
    said = ("--promise", "share:0.3", "--promise", f"share:0.4,within={files / 'new_labels.npy'}:2,name=heart")
    more = ("--out", tmp_path / "page.html", "--examples", 1) if made == "report" else ()
    told = done(made, *words, *said, *more, "--structures", files / "new_labels.npy", "--table", out)
    assert str(out) in told["files"]
    rows = rows_of(out)
    assert list(rows) == ["all pixels", "heart", "label 1", "label 2", "label 3"]
    band = np.load(files / "new.npz")
    interval = pb.load_calibration(files / "cal.safetensors").apply(pb.Band(band["lower"], band["upper"]))
    truth, labels = np.load(files / "new.npy"), np.load(files / "new_labels.npy")
    above, below = truth > interval.upper, truth < interval.lower
    for name, inside in {
        "all pixels": labels >= 0,
        "heart": labels == 2,
        **{f"label {i}": labels == i for i in (1, 2, 3)},
    }.items():
        row = rows[name]
        having = inside.any(axis=(1, 2))
        assert (int(row["images"]), int(row["pixels"])) == (having.sum(), inside.sum())
        assert float(row["missed_above"]) == pytest.approx(above[inside].mean(), rel=1e-5)
        assert float(row["missed_below"]) == pytest.approx(below[inside].mean(), rel=1e-5)
        assert float(row["mean_length"]) == pytest.approx(interval.length[inside].mean(), rel=1e-5)
        own = [(above | below)[i][inside[i]].mean() for i in np.flatnonzero(having)]
        assert float(row["missed_mean_of_images"]) == pytest.approx(np.mean(own), rel=1e-5)
    assert int(rows["label 3"]["images"]) == 15
    assert (rows["heart"]["certified"], rows["heart"]["level"], rows["heart"]["promise"]) == ("yes", "0.4", "share")
    assert float(rows["heart"]["seen"]) == pytest.approx(float(rows["heart"]["missed_mean_of_images"]), rel=1e-5)
    assert (rows["label 2"]["promise"], rows["label 2"]["certified"], rows["label 2"]["level"]) == ("none", "no", "")


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_whole_numbers_of_nifti_are_labels(tmp_path, dtype):
    nib = pytest.importorskip("nibabel")
    rng = np.random.default_rng(0)

    def write(name, values):
        nib.save(nib.Nifti1Image(values, np.eye(4)), tmp_path / name)
        return tmp_path / name

    def scan(name, slices):
        values = rng.uniform(-100, 200, (16, 16, slices)).astype(np.float32)
        (tmp_path / f"{name}_band").mkdir()
        write(f"{name}_band/lower.nii.gz", values - 20)
        write(f"{name}_band/upper.nii.gz", values + 25)
        return write(f"{name}.nii.gz", values), tmp_path / f"{name}_band"

    how = "--units", "each", "--window", 400, 40
    words = "--risk-level", 0.2, "--method", "rcps", "--out", tmp_path / "cal.safetensors"
    done("calibrate", *scan("old", 40), *how, *words)
    labels = rng.integers(0, 3, (16, 16, 10)).astype(dtype)
    out = tmp_path / "structures.csv"
    given = "--structures", write("labels.nii.gz", labels), "--table", out
    done("evaluate", *scan("new", 10), *how, "--calibration", tmp_path / "cal.safetensors", *given)
    rows = rows_of(out)
    assert [int(rows[f"label {i}"]["pixels"]) for i in (1, 2)] == [(labels == i).sum() for i in (1, 2)]
    assert {row["promise"] for row in rows.values()} == {"share", "none"}  # no name of a function
