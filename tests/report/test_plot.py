"""Pictures for a notebook: axes are taken or made, what is drawn is what was computed, wrong input is named."""

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

import pixelbounds as pb
from pixelbounds.report.style import ABOVE, BELOW


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.3, 0.7, (240, 8, 8))
    truth = centre + 0.05 * rng.standard_normal(centre.shape)
    band = pb.Band(centre - 0.05, centre + 0.05)
    promises = [[pb.share(0.2), pb.share(0.25, within=x > 0.5, name="bright")] for x in (truth[:200], truth[200:])]
    cal = pb.calibrate(truth[:200], band[:200], promises=promises[0], method="rcps")
    interval = cal.apply(band[200:])
    return cal, truth[200:], interval, pb.evaluate(truth[200:], interval, promises=promises[1], calibration=cal)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def test_misses_are_drawn_where_they_are_in_the_colour_of_their_side(world):
    _, truth, interval, _ = world
    axes = pb.plot.misses(truth, interval, 3)
    marks = axes.images[1].get_array()
    above, below = truth[3] > interval.upper[3], truth[3] < interval.lower[3]
    assert above.any()
    assert below.any()
    assert np.allclose(marks[above], [*to_rgb(ABOVE), 1], atol=0.01)
    assert np.allclose(marks[below], [*to_rgb(BELOW), 1], atol=0.01)
    assert not marks[~(above | below)].any()
    assert axes.get_title() == f"{(above | below).mean():.2%} outside"


def test_promises_show_level_and_what_was_seen(world):
    cal, _, _, ev = world
    for result in (cal, ev):
        axes = pb.plot.promises(result)
        assert [text.get_text() for text in axes.get_yticklabels()] == ["all pixels", "bright"]
        drawn = [line.get_xdata() for line in axes.lines]
        assert np.allclose(drawn[0], [promise.risk for promise in result.promises])
        assert [list(x) for x in drawn[1:3]] == [[0.2, 0.2], [0.25, 0.25]]


def test_a_notebook_shows_what_things_are(world):
    cal, truth, interval, ev = world
    for thing, words in {
        cal: ("all of these hold jointly", "<td>bright</td>"),
        ev: ("pixels outside", "bright", "interval length"),
        interval: ("40", "data:image/png;base64,"),
        pb.Band(truth, truth): ("unknown", "data:image/png;base64,"),
    }.items():
        shown = thing._repr_html_()
        assert all(word in shown for word in words), shown
    assert "&lt;i&gt;" in pb.Band(truth, truth, source="<i>")._repr_html_()
