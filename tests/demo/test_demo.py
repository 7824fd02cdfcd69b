import json

import numpy as np
import pytest
from typer.testing import CliRunner

import pixelbounds as pb
from pixelbounds.cli import app
from pixelbounds.demo import packaged, showcase
from pixelbounds.demo.packaged import CALIBRATION
from pixelbounds.demo.showcase import PROMISED, RISK_LEVEL, packaged_band, samples_band


@pytest.fixture(scope="module")
def arrays():
    """The packaged set; its phantoms take seconds to make."""
    return packaged.material()


@pytest.fixture(scope="module")
def demo(tmp_path_factory, arrays):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(showcase, "material", lambda: arrays)  # made once
        result = CliRunner().invoke(app, ["demo", "--new", "1", "--out", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    return folder, json.loads(result.stdout)


def test_every_method_is_controlled_and_ours_is_shortest(demo):
    rows = {row["method"]: row for row in demo[1]["methods"]}
    assert all(row["risk"] <= RISK_LEVEL for row in rows.values())
    ours = next(row for name, row in rows.items() if "ours" in name)
    paper = next(row for name, row in rows.items() if "the paper" in name)
    assert ours["mean_length"] == min(row["mean_length"] for row in rows.values())
    assert ours["mean_length"] < 0.95 * paper["mean_length"]


def test_what_is_promised_together_is_kept_where_one_level_is_not_enough(demo):
    rows = {row["name"]: row for row in demo[1]["promises"]}
    assert set(rows) == set(PROMISED)
    assert all(row["risk"] <= row["at_most"] for row in rows.values())
    assert {row["verdict"] for row in rows.values()} == {"kept"}  # judged together
    for name in ("body", "liver", "edges"):
        assert rows[name]["risk_without"] > 1.3 * rows[name]["at_most"]
    assert rows["kidneys"]["certifying"] < rows["liver"]["certifying"] < rows["body"]["certifying"]
    ours = next(row for row in demo[1]["methods"] if "ours" in row["method"])
    assert demo[1]["promised_length"] < 1.4 * ours["mean_length"]


def test_what_the_demo_writes_is_what_it_says(demo):
    folder, facts = demo
    cal = pb.load_calibration(folder / "calibration.safetensors")
    assert cal.guarantee == facts["guarantee"]
    ends = np.load(folder / "intervals.npz")
    new = packaged.some_phantoms(1, packaged.NEW).images
    assert np.mean((new < ends["lower"]) | (new > ends["upper"])) == pytest.approx(facts["new_risk"])
    page = (folder / "report.html").read_text()
    assert "new phantom 1" in page
    assert "Are the promises kept?" in page
    assert '"regions": ["body", "liver", "kidneys", "edges"]' in page
    assert all(seconds > 0 for seconds in facts["seconds"].values())


def test_samples_drawn_now_make_bands_like_the_packaged_ones(arrays):
    """A calibration of the packaged bands may be applied to new ones only if they are made alike."""
    about = packaged.figures()
    rng = np.random.default_rng(0)
    band = samples_band(rng.random((2, about["samples"], 8, 8)).astype(np.float32))
    assert band.source == packaged_band(arrays).source
    steps = band.lower * 255
    np.testing.assert_allclose(steps, steps.round(), atol=1e-4)
    assert len(arrays["truth"]) > CALIBRATION
    lower, upper = arrays["lower"][CALIBRATION:], arrays["upper"][CALIBRATION:]
    fresh = (arrays["fresh"] >= lower) & (arrays["fresh"] <= upper)
    assert fresh.mean() > 1 - about["miscoverage"] - 0.005


def test_the_packaged_files_are_small():
    assert sum(file.stat().st_size for file in packaged.network_file().parent.iterdir()) < 4.5e6
