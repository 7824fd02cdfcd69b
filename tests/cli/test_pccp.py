"""A protocol is written before any image is seen; a calibration that departs from it in any way is told from one that
follows it.
"""

import tomllib

import numpy as np
import pytest
from commands import call, done, flat, world

ASKED = ("--promise", "share:0.3", "--promise", "tail:0.4,above=0.35", "--failure-prob", "0.2", "--method", "rcps")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("protocol")
    truth, samples = world(120)
    np.save(folder / "truth.npy", truth)
    np.savez(folder / "band.npz", lower=samples.min(axis=1), upper=samples.max(axis=1))
    done("protocol", "write", "--out", folder / "ct.toml", "--images", 120, *ASKED)
    return folder


def calibrated(folder, *asked, name="cal.safetensors"):
    words = "calibrate", folder / "truth.npy", folder / "band.npz", "--units", "each", "--force"
    done(*words, *asked, "--out", folder / name)
    return folder / name


def test_the_page_has_the_headings_of_fda_and_every_number(folder):
    table = tomllib.loads((folder / "ct.toml").read_text())
    assert table["protocol"]["images"] == 120
    assert table["calibration"]["promises"] == ["share:0.3", "tail:0.4,above=0.35"]
    page = (folder / "ct.md").read_text()
    headings = ["Description of Modifications", "Modification Protocol", "Impact Assessment"]
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == headings
    for words in ("at least 80%", "at most 30% of all pixels", "at most 40% of future images miss more than 35%"):
        assert words in page
    assert "--promise share:0.3 --promise tail:0.4,above=0.35 --failure-prob 0.2 --method rcps --out" in page


def test_a_calibration_that_follows_its_protocol_passes(folder):
    result = call("protocol", "check", folder / "ct.toml", calibrated(folder, *ASKED))
    assert result.exit_code == 0, result.output
    assert "follows its protocol" in flat(result.stdout)


OTHER = {  # what was asked instead, and the difference
    ("--seed", "1"): "seed 0 in the protocol, 1 in the calibration",
    ("--bound", "hoeffding_bentkus"): "bound betting in the protocol",
    ("--failure-prob", "0.3"): "failure_prob 0.2 in the protocol, 0.3",
    ("--method", "frontier", "--groups", "band"): "method rcps in the protocol, frontier",
    ("--promise", "share:0.5,name=more"): "of more lie outside",
}


@pytest.mark.parametrize("other", OTHER, ids=lambda x: x[0])
def test_every_departure_is_named(folder, other):
    made = calibrated(folder, *ASKED, *other, name="other.safetensors")
    result = call("protocol", "check", folder / "ct.toml", made)
    assert result.exit_code == 1
    assert OTHER[other] in flat(result.stdout)


def test_other_images_than_planned_are_named(folder, tmp_path):
    done("protocol", "write", "--out", tmp_path / "more.toml", "--images", 200, *ASKED)
    result = call("protocol", "check", tmp_path / "more.toml", calibrated(folder, *ASKED))
    assert result.exit_code == 1
    assert "images (units) 200 in the protocol, 120 in the calibration" in flat(result.stdout)


def test_the_split_is_fixed_and_units_are_counted(folder, tmp_path):
    """Patients of two images: how many fit stands in the protocol, so that one patient less is seen."""
    asked = *ASKED[:-2], "--groups", "band"
    done("protocol", "write", "--out", tmp_path / "ct.toml", "--images", 60, "--unit-name", "patient", *asked)
    fit = tomllib.loads((tmp_path / "ct.toml").read_text())["calibration"]["n_fit"]
    assert f"--n-fit {fit} " in (tmp_path / "ct.md").read_text()
    for images, said in ((120, "follows"), (118, "images (units) 60 in the protocol, 59 in the calibration")):
        (tmp_path / "units.txt").write_text("".join(f"{i // 2}\n" for i in range(images)))
        np.save(tmp_path / "truth.npy", np.load(folder / "truth.npy")[:images])
        band = np.load(folder / "band.npz")
        np.savez(tmp_path / "band.npz", lower=band["lower"][:images], upper=band["upper"][:images])
        files = tmp_path / "truth.npy", tmp_path / "band.npz", "--units", tmp_path / "units.txt", "--force"
        done(
            "calibrate", *files, "--unit-name", "patient", "--n-fit", fit, *asked, "--out", tmp_path / "cal.safetensors"
        )
        result = call("protocol", "check", tmp_path / "ct.toml", tmp_path / "cal.safetensors")
        assert said in flat(result.stdout)


def test_an_edited_protocol_is_seen_by_its_page(folder, tmp_path):
    for name in ("ct.toml", "ct.md"):
        (tmp_path / name).write_bytes((folder / name).read_bytes().replace(b"images = 120", b"images = 120 "))
    result = call("protocol", "check", tmp_path / "ct.toml", calibrated(folder, *ASKED))
    assert result.exit_code == 1
    assert "ct.md has another SHA-256" in flat(result.stdout)


def test_a_protocol_that_cannot_be_kept_is_not_written(tmp_path):
    result = call("protocol", "write", "--out", tmp_path / "p.toml", "--images", 12, "--risk-level", 0.05)
    assert result.exit_code == 1
    assert "plan at least" in flat(result.stderr)
    words = "--images", 60, "--risk-level", 0.1, "--groups", "band", "--n-fit", 55
    assert "55 of 60 images (units) fit" in flat(call("protocol", "write", "--out", tmp_path / "p.toml", *words).stderr)
    assert not list(tmp_path.iterdir())
    (tmp_path / "edited.toml").write_text("[protocol]\nimages = 3\n[calibration]\nrisk = 0.1\n")
    assert call("protocol", "check", tmp_path / "edited.toml", tmp_path / "none.safetensors").exit_code == 2
