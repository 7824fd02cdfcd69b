"""The page in a browser: it opens from disk, is quiet, and tells of each pixel what the arrays hold."""

import dataclasses

import numpy as np
import pytest
from page_browser import MISSES, drawn, needs_chromium, pin_aside, place, reading, settle, sync_api
from report_world import HOSTILE, SIZE, promised_world, world

import pixelbounds as pb
from pixelbounds.report.example import Example
from pixelbounds.report.page import write_report

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return world().write(tmp_path_factory.mktemp("report") / "report.html", title=HOSTILE, notes=[HOSTILE])


def test_hovering_shows_what_the_arrays_hold(open_page, path):
    page, example = open_page(path), world().examples[0]
    for row, col in np.random.default_rng(0).integers(0, SIZE, (25, 2)).tolist():
        page.mouse.move(*place(page, row, col))
        sync_api.expect(page.locator("#where")).to_have_text(f"row {row}, column {col}")
        lower, upper, truth = (float(x[row, col]) for x in (example.lower, example.upper, example.truth))
        assert reading(page) == pytest.approx([lower, upper], abs=0.51e-4)
        side = "below" if truth < lower else "above" if truth > upper else "inside"
        assert f"truth {round(truth, 4):.4f}"[:-1] in page.text_content("#state")
        assert side in page.text_content("#state")
        inside = int(np.sum((example.samples[:, row, col] >= lower) & (example.samples[:, row, col] <= upper)))
        told = page.text_content("#values tr:last-child td")
        assert told.endswith("of 19")
        assert abs(int(told.split()[0]) - inside) <= 1  # samples are shown to three digits
        assert page.locator("#strip .s-sample").count() == 19


def test_the_slider_goes_from_lower_to_upper(open_page, path):
    page, example = open_page(path), world().examples[0]
    pin_aside(page)
    row, col = np.unravel_index(np.argmax(example.length[:-4, :-4]), (SIZE - 4, SIZE - 4))
    for mix, image in ((0, example.lower), (100, example.upper), (50, (example.lower + example.upper) / 2)):
        page.locator("#mix").fill(str(mix))
        assert drawn(page, row, col)[0] == pytest.approx(255 * image[row, col], abs=1)
    page.locator("#mix").focus()
    page.keyboard.press("ArrowRight")
    sync_api.expect(page.locator("#picture")).to_have_attribute("data-mix", "51")
    page.get_by_label("Truth", exact=True).check()
    assert drawn(page, row, col)[0] == pytest.approx(255 * example.truth[row, col], abs=1)


def test_misses_are_marked(open_page, path):
    page, example = open_page(path), world().examples[0]
    pin_aside(page)
    above, below = example.truth > example.upper, example.truth < example.lower
    whole = {name: np.argwhere(x[:-4, :-4])[0].tolist() for name, x in (("above", above), ("below", below))}
    before = {name: drawn(page, *at) for name, at in whole.items()}
    page.get_by_label("Mark misses").check()
    for layer in ("Interval", "Length", "Truth"):  # on every map, and the pixel stays visible inside its frame
        page.get_by_label(layer, exact=True).check()
        for name, (row, col) in whole.items():
            ends = {"above": drawn(page, row - 0.4, col), "below": drawn(page, row + 0.4, col)}
            assert ends[name] == MISSES[name]
            inside = drawn(page, row, col)
            assert inside not in MISSES.values()
            if layer == "Interval":
                assert inside == before[name]
    page.get_by_label("Misses", exact=True).check()
    for name, at in whole.items():
        assert drawn(page, *at) == MISSES[name]
    for name, colour in MISSES.items():  # the legend has the same colours
        frame = f"getComputedStyle(document.querySelector('#misses-field .{name}'), '::before').borderTopColor"
        assert page.evaluate(frame) == f"rgb({', '.join(map(str, colour))})"
    assert page.text_content("#share").startswith(
        f"{100 * np.mean(world().examples[0].truth != np.clip(example.truth, example.lower, example.upper)):.2f}%"
    )


def test_keys_move_zoom_and_change_the_image(open_page, path):
    page = open_page(path)
    page.locator("#picture").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "Shift+ArrowDown"):
        page.keyboard.press(key)
    row, col = SIZE // 2 + 9, SIZE // 2 + 2
    sync_api.expect(page.locator("#where")).to_have_text(f"row {row}, column {col}")
    example = world().examples[0]
    assert reading(page) == pytest.approx([example.lower[row, col], example.upper[row, col]], abs=0.51e-4)
    sync_api.expect(page.locator("#spoken")).to_contain_text(f"row {row}, column {col}: ")
    for key, zoom in (("+", "1.50"), ("+", "2.25"), ("-", "1.50"), ("0", "1.00")):
        page.keyboard.press(key)
        sync_api.expect(page.locator("#picture")).to_have_attribute("data-zoom", zoom)
    for key, index in (("n", "1"), ("n", "2"), ("n", "0"), ("p", "2")):
        page.keyboard.press(key)
        page.wait_for_selector(f'#picture[data-image="{index}"]')
    example = world().examples[2]
    assert reading(page) == pytest.approx([example.lower[row, col], example.upper[row, col]], abs=0.51e-4)
    page.keyboard.press("l")
    sync_api.expect(page.locator("#picture")).to_have_attribute("data-layer", "lower")
    page.keyboard.press("m")
    sync_api.expect(page.locator("#misses")).to_be_checked()
    outline = page.evaluate("getComputedStyle(document.getElementById('picture')).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_all_and_a_tap_reads_a_pixel(open_page, path, scheme):
    page, example = open_page(path, 390, has_touch=True, color_scheme=scheme), world().examples[0]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.touchscreen.tap(*place(page, 11, 12))
    sync_api.expect(page.locator("#where")).to_have_text("row 11, column 12")
    assert reading(page) == pytest.approx([example.lower[11, 12], example.upper[11, 12]], abs=0.51e-4)
    spot = place(page, 11, 12)
    for _ in range(50):  # two taps count as one gesture only if they come soon after each other
        page.wait_for_timeout(400)
        if page.get_attribute("#picture", "data-zoom") == "3.00":
            break
        for _ in range(2):
            page.touchscreen.tap(*spot)
    sync_api.expect(page.locator("#picture")).to_have_attribute("data-zoom", "3.00")


def test_the_region_of_a_promise_is_outlined(open_page, tmp_path):
    page = open_page(promised_world().write(tmp_path / "a.html"), 390, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    example = promised_world().examples[1]
    assert not promised_world().examples[0].regions["disc"].any()
    assert page.locator("#outline option[disabled]").text_content() == "disc (not in this picture)"
    page.get_by_role("button", name="Outline disc in the viewer").click()  # goes on to the next image that has it
    sync_api.expect(page.locator("#picture")).to_have_attribute("data-outline", "disc")
    assert page.get_attribute("#picture", "data-image") == "1"
    mask = example.regions["disc"]
    missed = (example.truth < example.lower) | (example.truth > example.upper)
    told = f"disc: {100 * mask.mean():.1f}% of this picture, {100 * missed[mask].mean():.2f}% of it outside"
    assert page.text_content("#outlined") == told
    settle(page)
    row, left = 12, int(np.flatnonzero(mask[12])[0])
    edge = drawn(page, row, left - 0.5)  # on the line between the two pixels
    assert edge[0] > 200 > edge[1] + 80
    assert len(set(drawn(page, row, left + 2))) == 1  # gray inside
    page.locator("#picture").focus()
    for name in ("", "bright", "disc"):
        page.keyboard.press("o")
        sync_api.expect(page.locator("#picture")).to_have_attribute("data-outline", name)
    page.mouse.click(*place(page, row, left + 2))
    wanted = [name for name, region in example.regions.items() if region[row, left + 2]]
    sync_api.expect(page.locator("#values tr:last-child td")).to_have_text(", ".join(wanted))


def test_ends_at_the_edge_of_a_window_are_open(open_page, tmp_path):
    """Bone beyond the window reads as 240 HU or more, never as an interval of length 0."""
    lower = np.full((SIZE, SIZE), 0.45)
    upper = np.full((SIZE, SIZE), 0.55)
    truth = np.full((SIZE, SIZE), 0.5)
    lower[0], upper[0], truth[0] = 1, 1, 1  # bone
    lower[1], upper[1], truth[1] = 0, 0.01, 0  # air
    lower[2], upper[2] = 0, 1
    seen = dataclasses.replace(world().calibration, measure=pb.Measure.of_window((400, 40)))
    examples = [Example("slice", lower, upper, truth=truth)]
    parts = {"title": "Test", "calibration": seen, "evaluation": None, "examples": examples}
    path = write_report(tmp_path / "page.html", **parts)
    assert "seen through a window of -160 to 240 HU" in " ".join(path.read_text().split())
    page = open_page(path)
    told = {  # the interval, the truth, the length
        0: ("≥ 240.0 HU", "truth ≥ 240 HU is inside", "open: beyond the window"),
        1: ("≤ −156.0 HU", "truth ≤ −160 HU is inside", "open: beyond the window"),  # noqa: RUF001
        2: ("any value", "truth 40.0 HU is inside", "open: beyond the window"),
        3: ("20.0 to 60.0 HU", "truth 40.0 HU is inside", "40.0 HU"),
    }
    for row, (interval, state, length) in told.items():
        page.mouse.move(*place(page, row, 5))
        sync_api.expect(page.locator("#where")).to_have_text(f"row {row}, column 5")
        assert page.text_content("#interval") == interval
        assert state in page.text_content("#state")
        assert page.text_content("#values tr:first-child td") == length
    pin_aside(page)
    page.get_by_label("Length", exact=True).check()
    assert drawn(page, 0, 5) == drawn(page, 1, 5) == drawn(page, 2, 5) == [238, 238, 234]  # no length of the scale
    assert sum(drawn(page, 0, 5)) >= sum(drawn(page, 3, 5))
