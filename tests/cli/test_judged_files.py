"""`evaluate` and `report` on files: who may judge, which mean is judged, and what is said where it cannot be."""

import numpy as np
import pytest
import zarr
from commands import call, done, flat

N, SIZE = 120, 8


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Truth and bands to calibrate on and (`new`) to judge by, patients of 6 and 2 images, and both calibrations."""
    folder = tmp_path_factory.mktemp("judged")
    rng = np.random.default_rng(0)
    for name in ("", "new_"):
        centre = rng.uniform(0.3, 0.7, (N, SIZE, SIZE))
        truth = np.clip(centre + 0.05 * rng.standard_normal(centre.shape), 0, 1).astype(np.float32)
        np.save(folder / f"{name}truth.npy", truth)
        np.savez(folder / f"{name}band.npz", lower=centre - 0.05, upper=centre + 0.05)
    units = np.repeat(np.arange(30), [6, 2] * 15)
    (folder / "units.txt").write_text("\n".join(f"p{x}" for x in units))
    words = "--risk-level", 0.1, "--failure-prob", 0.2, "--method", "rcps"
    pair = folder / "truth.npy", folder / "band.npz"
    done("calibrate", *pair, *words, "--units", "each", "--out", folder / "images.safetensors")
    done("calibrate", *pair, *words, "--units", folder / "units.txt", "--out", folder / "units.safetensors")
    return folder


def judged(files, command, tmp_path, calibration, *words, truth="new_truth.npy", band="new_band.npz"):
    out = ("--out", tmp_path / "page.html", "--examples", 2) if command == "report" else ()
    return command, files / truth, files / band, "--calibration", files / f"{calibration}.safetensors", *out, *words


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_images_that_calibrated_do_not_judge(files, tmp_path, command):
    result = call(*judged(files, command, tmp_path, "images", truth="truth.npy", band="band.npz"))
    assert result.exit_code == 2
    said = flat(result.stderr)
    assert f"{N} of {N} images calibrated (0, 1, 2, 3, 4, 5, 6, 7 and {N - 8} more)" in said
    assert "leave them out" in said
    assert not (tmp_path / "page.html").exists()


def test_others_are_said_not_to_have_calibrated_and_nobody_says_held_out(files, tmp_path):
    result = call(*judged(files, "evaluate", tmp_path, "images", "--units", "each"))
    assert result.exit_code == 0
    assert "none of these images calibrated" in flat(result.stdout)
    done(*judged(files, "report", tmp_path, "images", "--units", "each"))
    page = (tmp_path / "page.html").read_text()
    assert "None of these images calibrated" in page
    assert "held-out" not in flat(result.stdout) + page
    assert "each image, as is assumed here (else give --units)" in flat(result.stdout)
    done("apply", files / "images.safetensors", files / "new_band.npz", "--out", tmp_path / "i.zarr")
    alone = call("evaluate", files / "new_truth.npy", tmp_path / "i.zarr")
    assert "was not checked" in flat(alone.stdout)
    assert "none of these images calibrated" not in flat(alone.stdout)


@pytest.mark.parametrize("command", ["evaluate", "report"])
@pytest.mark.parametrize("calibration, units, words", [
    ("units", "each", "The calibration is by units, and here each image counts for itself"),
    ("images", "units.txt", "The calibration took images as independent, and here they are of 30 units"),
])  # fmt: skip
def test_units_on_one_side_only_are_flagged(files, tmp_path, command, calibration, units, words):
    option = "--units", units if units == "each" else files / units
    result = call(*judged(files, command, tmp_path, calibration, *option))
    assert result.exit_code == 0
    assert words in flat(result.stdout)
    if command == "report":
        assert words in (tmp_path / "page.html").read_text()


def shifted(files, tmp_path, count, by=0.3):
    """New images of which some lie far from their bands."""
    truth = np.load(files / "new_truth.npy")
    truth[:count] = np.clip(truth[:count] + by, 0, 1)
    np.save(tmp_path / "shifted.npy", truth)
    return tmp_path / "shifted.npy"


def test_intervals_carry_what_was_claimed_and_old_ones_are_not_judged(files, tmp_path):
    out = tmp_path / "i.zarr"
    done("apply", files / "units.safetensors", files / "new_band.npz", "--out", out)
    truth = shifted(files, tmp_path, 100)
    assert call("evaluate", truth, out, "--units", files / "units.txt").exit_code == 1
    group = zarr.open_group(out, mode="r+")
    about = dict(group.attrs["pixelbounds"])
    del about["claim"]
    group.attrs["pixelbounds"] = about
    old = done("evaluate", truth, out, "--units", files / "units.txt")
    assert not old["contradicted"]
    assert "apply the calibration again" in old["cautions"][0]
