"""The page as a file: it is complete, small and safe, and its data are the arrays."""

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from report_world import HOSTILE, pictures_of, world

import pixelbounds as pb
from pixelbounds.report.example import Example, examples_of
from pixelbounds.report.page import write_report


class Elements(HTMLParser):
    """Tags with the names of their attributes, addresses, and text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.links, self.words = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, *(name for name, _ in attributes)))
        self.links += [value for name, value in attributes if name in ("src", "href", "srcset", "action", "data")]

    def handle_data(self, data):
        self.words.append(data)


def data_of(path):
    """What the viewer reads, with the layers that are inside the page."""
    page = path.read_text()
    found = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    for i, example in enumerate(found["examples"]):
        if "file" not in example:
            example["layers"] = json.loads(re.search(rf'id="example-{i}">(.*?)</script>', page, re.S)[1])
    return found


def decode(layer, shape):
    """What the viewer reads, by the same rule."""
    raw = np.frombuffer(zlib.decompress(b64decode(layer["data"])), np.uint8).reshape(2, -1).astype(np.uint16)
    code = (raw[0] | raw[1] << 8).reshape(-1, layer["stride"])
    return (
        (layer["base"] + np.cumsum(code, axis=0, dtype=np.uint16).astype(float)) / 10.0 ** layer["decimals"]
    ).reshape(shape)


def test_the_same_arguments_give_the_same_page(tmp_path):
    first, second = world().write(tmp_path / "a.html"), world().write(tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()
    assert sorted(x.name for x in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_the_page_says_the_guarantee_and_asks_nothing_from_outside(tmp_path):
    page = world().write(tmp_path / "a.html").read_text()
    found = Elements(page)
    assert world().calibration.guarantee in " ".join(found.words)
    assert found.links
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in found.links)
    assert "default-src 'none'" in page
    assert "unsafe" not in page


def test_text_of_a_user_never_becomes_markup(tmp_path):
    this = world()

    def page_with(text, name):
        row = replace(this.rows[0], name=text)
        record = replace(this.calibration.record, source=pb.Source(text), settings={text: text})
        evaluation = replace(this.evaluation, units=np.array([text] * len(this.evaluation.units)))
        return this.write(
            tmp_path / name, title=text, notes=[text], comparison=[row], evaluation=evaluation,
            calibration=replace(this.calibration, record=record),
            examples=[replace(x, name=text) for x in this.examples],
        ).read_text()  # fmt: skip

    harmless = Elements(page_with("harmless", "a.html"))
    for text in (
        HOSTILE,
        "</script><script>alert(1)</script>",
        '" onload="alert(1)',
        "]]>--><!--<script>",
        "{{ 7*7 }}",
    ):
        hostile = Elements(page_with(text, "b.html"))
        assert hostile.tags == harmless.tags
        assert "".join(hostile.words).count(text) >= 12


@pytest.mark.parametrize("scale", [1.0, 4000.0, 1e-5, 1e7])
@pytest.mark.parametrize("pixels", [(7, 9), (3, 6, 5), (20, 4, 6), (1, 5, 5)])
def test_data_are_the_arrays_to_the_digits_shown(tmp_path, pixels, scale):
    this, example = world(), pictures_of(pixels, scale=scale)
    calibration = replace(this.calibration, limits=(-np.inf, np.inf))
    page = this.write(tmp_path / "a.html", examples=[example], calibration=calibration, comparison=[])
    (found,) = data_of(page)["examples"]
    kept = found["planes"] if len(pixels) == 3 else slice(None)
    assert len(found["planes"]) == {7: 1, 3: 3, 20: 12, 1: 1}[pixels[0]]
    for name in ("lower", "upper", "truth"):
        exact, layer = getattr(example, name)[kept], found["layers"][name]
        half = 0.5 * 10.0 ** -layer["decimals"]
        assert np.abs(decode(layer, exact.shape) - exact).max() <= half * (1 + 1e-6)
        assert half < 1e-4 * np.ptp(example.upper)
    missed = decode(found["layers"]["missed"], example.truth[kept].shape)
    assert np.array_equal(missed == 1, (example.truth < example.lower)[kept])
    assert np.array_equal(missed == 2, (example.truth > example.upper)[kept])
    assert 0 < (missed > 0).mean() < 1
    layer, exact = (
        found["layers"]["samples"],
        np.sort(example.samples[:, kept] if len(pixels) == 3 else example.samples, 0),
    )
    assert np.abs(decode(layer, exact.shape) - exact).max() <= 0.51 * 10.0 ** -layer["decimals"]


def test_twelve_images_of_128_with_samples_stay_below_8_mb_even_if_they_are_noise(tmp_path):
    rng = np.random.default_rng(0)
    ends = np.sort(rng.uniform(size=(2, 12, 128, 128)).astype(np.float32), axis=0)
    draw = [rng.uniform(size=(12, 128, 128)).astype(np.float32) for _ in range(3)]
    examples = examples_of(
        pb.Interval(*ends), range(12), truth=draw[0], estimate=draw[1], observation=draw[2],
        samples=rng.uniform(size=(12, 64, 128, 128)).astype(np.float32), band=pb.Band(*ends),
    )  # fmt: skip
    page = world().write(tmp_path / "a.html", examples=examples)
    assert page.stat().st_size < 8_000_000
    assert all(x["samples"] >= 8 for x in data_of(page)["examples"])


def test_the_samples_at_the_ends_of_a_numbers_interval_stand_side_by_side(tmp_path):
    """The smallest and the largest organ that the guarantee allows: none beyond it, though samples are."""
    samples = np.zeros((2, 19, 16, 16), np.float32)
    for k in range(19):
        samples[:, k].reshape(2, -1)[:, : 10 * k] = 1
    volume = samples.sum(axis=(2, 3))
    allowed = pb.Interval(np.array([[35.0], [500.0]]), np.array([[115.0], [600.0]]))
    ends = pb.Interval(samples.min(axis=1), samples.max(axis=1))
    examples = examples_of(ends, [0, 1], samples=samples, numbers={"volume": (volume, allowed)})
    shown = examples[0].also
    assert list(shown) == ["smallest volume: 40", "largest volume: 110"]
    assert [picture.sum() for picture in shown.values()] == [40, 110]
    assert not examples[1].also  # no sample has such a volume
    page = world().write(tmp_path / "a.html", examples=examples, comparison=[], evaluation=None).read_text()
    assert 'alt="smallest volume: 40 of' in page


def test_without_held_out_images_the_page_says_that_nothing_is_checked(tmp_path):
    bare = [Example("only ends", x.lower, x.upper) for x in world().examples]
    page = world().write(tmp_path / "a.html", evaluation=None, comparison=[], examples=bare).read_text()
    assert "Nothing on this page checks the guarantee" in page
    assert "Where intervals miss" not in page


def words_of(path):
    return " ".join(" ".join(Elements(path.read_text()).words).split())


def test_the_page_claims_no_more_than_is_known(tmp_path):
    this = world()
    page = words_of(this.write(tmp_path / "a.html"))
    assert "only the level is" in page
    assert "valid one point at a time" in page
    assert "None of these images calibrated" in page
    assert "took images as independent, and here they are of 20 units" in page
    for word in ("bootstrap", "held-out", "held out"):
        assert word not in page
    unchecked = words_of(this.write(tmp_path / "b.html", evaluation=replace(this.evaluation, apart_from=None)))
    assert "None of these images calibrated" not in unchecked
    assert "Whether some of these images calibrated was not checked" in unchecked
    another = words_of(this.write(tmp_path / "c.html", evaluation=replace(this.evaluation, apart_from="0" * 64)))
    assert "was not checked" in another  # against another calibration, that is


def test_mean_lengths_of_a_page_have_one_definition(tmp_path):
    """The top said 63.62 HU, the examples 119 to 143: an open end counts as the edge of the window everywhere."""
    rng = np.random.default_rng(0)
    truth = np.clip(rng.uniform(-0.3, 1.3, (60, 16, 16)), 0, 1)
    band = pb.Band(np.clip(truth - 0.1, 0, 1), np.clip(truth + 0.1, 0, 1))
    cal = pb.calibrate(truth[:50], band[:50], risk_level=0.2, measure=pb.Measure.of_window((400, 40)), method="rcps")
    interval = cal.apply(band[50:])
    evaluation = pb.evaluate(truth[50:], interval, calibration=cal)
    parts = {"evaluation": evaluation, "examples": examples_of(interval, range(10), truth=truth[50:])}
    page = words_of(write_report(tmp_path / "a.html", title="Lengths", calibration=cal, **parts))
    lengths = [float(x) for x in re.findall(r"mean length ([0-9.]+) HU", page)]
    top = float(re.search(r"Mean interval length ([0-9.]+) HU", page)[1])
    assert len(lengths) == 10
    assert np.mean(lengths) == pytest.approx(top, rel=1e-3) == pytest.approx(400 * evaluation.mean_length, rel=1e-3)


def charts_of(page):
    return re.findall(r'<svg class="chart".*?</svg>', page, re.S)


def test_charts_have_no_styles_of_their_own_and_colours_that_follow_the_page(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=(20, 16, 16))
    interval = pb.Interval(truth - 0.1, truth + rng.uniform(-0.05, 0.1, truth.shape))
    page = world().write(tmp_path / "a.html", evaluation=pb.evaluate(truth, interval)).read_text()
    charts = charts_of(page)
    assert len(charts) == 2
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    for chart in charts:
        assert 'role="img" aria-label="' in chart
        assert not re.search(r"\bstyle\b|font-family|xlink", chart)  # forbidden by the page's policy, or the page's own
        for what, colour in set(re.findall(r'(fill|stroke)="(#\w+)"', chart)):
            assert f'.chart [{what}="{colour}"] {{ {what}: var(--' in style
        known = re.findall(r' id="([^"]+)"', chart)
        asked = re.findall(r'(?:href="#|url\(#)([^")]+)', chart)
        assert asked
        assert set(asked) <= set(known)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "risk level 10%" in charts[0]  # text is text
