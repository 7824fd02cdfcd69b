"""A call of the GPU in small, on a CPU: both ways and the baselines, and what is made of it at home."""

import io
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2]))

from reproduce.gpu import bench, end_to_end, measures
from reproduce.material import BANDS, load_material


def test_both_ways_and_the_baselines_become_a_material(tmp_path, monkeypatch, rng):
    monkeypatch.setitem(bench.SETS, "ct64", replace(bench.SETS["ct64"], size=16))
    data = tmp_path / "ct64.zip"
    with zipfile.ZipFile(data, "w") as zipped:
        for i in range(180 * 27):
            image = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (16, 16), np.uint8)).save(image, "PNG")
            zipped.writestr(f"scan{i // 27:03d}/{i:05d}.png", image.getvalue())

    def call(does, *further):
        words = ["end_to_end", "ct64", does, "--data", str(data), *map(str, further)]
        monkeypatch.setattr(sys, "argv", words)
        end_to_end.main()

    small = ["--network", "tiny", "--no-compile", "--steps", 2, "--batch", 4, "--images", 3, "--commit", "toy"]
    small += ["--samples", 7, "--draw-batch", 8, "--printed-steps", 4]
    monkeypatch.setitem(bench.PAPER, "ct64", 0.4)
    monkeypatch.setattr(bench, "OURS", 0.5)
    call("ours", *small, "--out", tmp_path / "ours", "--bring-network", "--members", 2)
    call("paper", *small, "--out", tmp_path / "paper")
    network = tmp_path / "ours" / "network.safetensors"
    call("baselines", *small, "--out", tmp_path / "base", "--start", network, "--tune-seconds", 0.1)

    folders = [tmp_path / name for name in ("ours", "paper", "base")]
    call("material", "--out", *folders, "--folder", tmp_path / "material")
    material = load_material(tmp_path / "material")
    assert len(material) == 3
    assert [name for name in BANDS if material.missing(name)] == []
    assert (material["lower"] <= material["naive_upper"]).all()
    noise = (material["observation"] - material.truth) / bench.SETS["ct64"].sigma_0
    assert 0.9 < noise.std() < 1.1
    assert np.abs(material["lower"] - material["printed_lower"]).max() > 0  # the samplers differ
    told = material.figures
    assert [told[name]["networks"] for name in ("score", "printed", "regressor")] == [2, 1, 1]
    assert told["sampling"]["miss_rate"] == pytest.approx(missed(material, ""))
    assert told["conffusion_band"]["miss_rate"] == pytest.approx(missed(material, "conffusion_"))
    assert told["sampling"]["exact_coverage"] == pytest.approx(6 / 8)
    assert [call["way"] for call in told["calls"]] == ["ours", "paper", "baselines"]


def missed(material, kind):
    low, high = (np.clip(material[f"{kind}{end}"].astype(np.float32), 0, 1) for end in ("lower", "upper"))
    return ((material.truth < low) | (material.truth > high)).mean()


def test_coverage_before_rounding_lies_between_the_two_counts(rng):
    lower = rng.uniform(0.1, 0.5, (50, 8, 8)).astype(np.float32)
    upper = lower + np.float32(0.002)  # a few steps of float16, so that rounding matters
    drawn = (lower + rng.uniform(-0.001, 0.003, lower.shape)).astype(np.float32)
    ends, draws = measures.outward(lower, upper), drawn.astype(np.float16)
    exact = measures.covered(drawn, lower, upper)
    least, most = measures.surely_covered(draws, *ends), measures.covered(draws, *ends)
    assert ((least <= exact) & (exact <= most)).all()
    assert least.mean() < exact.mean() < most.mean()
