"""The model card: it says what the calibration says, in Markdown and in print, and nothing of people."""

import hashlib
import zlib

import numpy as np
import pytest
from commands import call, done, flat

import pixelbounds as pb
from pixelbounds.report.model_card import VOIDED_BY


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.3, 0.7, (120, 8, 8))
    truth = centre + 0.05 * rng.standard_normal(centre.shape)
    band = pb.Band(centre - 0.05, centre + 0.05, source=pb.Source("calibrated quantiles", samples=19, steps=12))
    promises = [pb.share(0.3), pb.share(0.35, within=truth > 0.5, name="liver"), pb.tail(0.5, above=0.4)]
    people = [f"Doe^Jane{i // 2}" for i in range(120)]
    cal = pb.calibrate(
        truth, band, promises=promises, units=people, unit_name="patient", method="rcps", failure_prob=0.2,
        measure=pb.Measure.of_window((400, 40)),
    )  # fmt: skip
    cal.save(folder / "cal.safetensors")
    return folder, cal


def words_of(pdf):
    """The text of a PDF that matplotlib wrote: glyphs of its streams, as far as they are letters."""
    text = b""
    for part in pdf.split(b"stream\n")[1:]:
        try:
            text += zlib.decompress(part.split(b"\nendstream")[0])
        except zlib.error:
            continue
    return text


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
    assert f"| liver | 35% | {cal.promises[1].risk:.2%} | 60 |" in text
    assert "| samples | 19 |" in text
    assert "window of -160 to 240 HU" in text
    for point in VOIDED_BY:
        assert point in text
    assert "Doe" not in text
    assert "Not stated" in _without_use(folder, tmp_path)
    assert "card.md exists" in flat(call(*words, "--out", tmp_path / "card.md").stderr)


def _without_use(folder, tmp_path):
    done("card", folder / "cal.safetensors", "--out", tmp_path / "bare.md")
    return (tmp_path / "bare.md").read_text()


def test_in_print_it_is_the_same_bytes_each_time(made, tmp_path):
    folder, _ = made
    for name in ("a.pdf", "b.pdf"):
        done("card", folder / "cal.safetensors", "--out", tmp_path / name)
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert pdf == (tmp_path / "b.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page ") >= 2
    assert len(words_of(pdf)) > 1000


def test_what_is_no_calibration_has_no_card(made, tmp_path):
    folder, cal = made
    pb.save_monitor(pb.Monitor(cal), tmp_path / "monitor.safetensors")
    result = call("card", tmp_path / "monitor.safetensors", "--out", tmp_path / "card.md")
    assert result.exit_code == 2
    assert "holds the state of a monitor; give a calibration file" in flat(result.stderr)
    assert "end it in .md, .pdf" in flat(
        call("card", folder / "cal.safetensors", "--out", tmp_path / "card.doc").stderr
    )
