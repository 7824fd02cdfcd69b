"""The model card: it says what the calibration says, and nothing of people."""

import hashlib

import numpy as np
import pytest
from commands import call, done, flat

import pixelbounds as pb

HEADINGS = [  # what FDA's draft of January 2025 wants to be said to users
    "Intended use", "Model inputs", "Model outputs", "Model architecture", "Model development data",
    "Performance data and metrics", "Performance monitoring", "Known limitations", "Version, dates and checksum",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.3, 0.7, (120, 8, 8))
    truth = centre + 0.05 * rng.standard_normal(centre.shape)
    band = pb.Band(centre - 0.05, centre + 0.05, source=pb.Source("calibrated quantiles", samples=19, steps=12))
    promises = [pb.share(0.3), pb.share(0.35, within=truth > 0.5, name="liver"), pb.tail(0.5, above=0.4)]
    people = [f"Doe^Jane{i // 2}" for i in range(120)]
    units, measure = pb.Units(people, name="patient"), pb.Measure.of_window((400, 40))
    how = {"units": units, "measure": measure, "method": "rcps", "failure_prob": 0.2}
    cal = pb.calibrate(truth, band, promises=promises, **how)
    cal.save(folder / "cal.safetensors")
    return folder, cal


def test_the_card_says_what_the_calibration_says(made, tmp_path):
    folder, cal = made
    words = "card", folder / "cal.safetensors", "--intended-use", "Denoised CT, for research.", "--note", "Scanner A."
    said = done(*words, "--out", tmp_path / "card.md")
    assert said["files"] == [str(tmp_path / "card.md")]
    text = (tmp_path / "card.md").read_text()
    assert cal.guarantee in text
    assert "Denoised CT, for research." in text
    assert "Scanner A." in text
    assert hashlib.sha256((folder / "cal.safetensors").read_bytes()).hexdigest() in text
    assert f"| liver | 35% | {cal.promises[1].risk:.2%} | 60 patients |" in text
    assert "| samples | 19 |" in text
    assert "window of -160 to 240 HU" in text
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == HEADINGS
    assert "- Another source of images: scanner" in text  # among what voids it
    assert "- Nothing is promised about other regions than those named above" in text
    assert "Doe" not in text
    assert "Not stated" in _without_use(folder, tmp_path)
    assert "card.md exists" in flat(call(*words, "--out", tmp_path / "card.md").stderr)


def _without_use(folder, tmp_path):
    done("card", folder / "cal.safetensors", "--out", tmp_path / "bare.md")
    return (tmp_path / "bare.md").read_text()


def test_a_name_from_the_file_is_never_markup(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.3, 0.7, (60, 4, 4))
    hostile = "<img src=x onerror=alert(1)> [a](javascript:b) `c` | d"
    promises = [pb.share(0.5), pb.share(0.5, within=truth > 0.5, name=hostile)]
    cal = pb.calibrate(truth, pb.Band(truth - 0.1, truth + 0.1), promises=promises, method="rcps")
    cal.save(tmp_path / "cal.safetensors")
    done("card", tmp_path / "cal.safetensors", "--out", tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text()
    assert "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt; \\[a\\](javascript:b) \\`c\\` \\| d") == 3  # clause twice


def test_what_is_no_calibration_has_no_card(made, tmp_path):
    folder, cal = made
    pb.save_monitor(pb.Monitor(cal), tmp_path / "monitor.safetensors")
    result = call("card", tmp_path / "monitor.safetensors", "--out", tmp_path / "card.md")
    assert result.exit_code == 2
    assert "holds the state of a monitor; give a calibration file" in flat(result.stderr)
    assert "end it in .md" in flat(call("card", folder / "cal.safetensors", "--out", tmp_path / "card.doc").stderr)
