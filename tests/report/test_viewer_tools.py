"""What the viewer offers a radiologist: window and level, two views, regions by hand, the worst images, data beside."""

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from page_browser import drawn, needs_chromium, pin_aside, place, settle, show_picture, sync_api
from report_world import SIZE, promised_world, world

import pixelbounds as pb
from pixelbounds.report import page_examples

pytestmark = needs_chromium
expect = sync_api.expect


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Three promises, values in HU through a window, and the worst image among those shown."""
    this = promised_world()
    calibration = dataclasses.replace(this.calibration, measure=pb.Measure.of_window((400, 40)))
    return dataclasses.replace(this, calibration=calibration).write(tmp_path_factory.mktemp("tools") / "report.html")


@pytest.fixture(scope="module")
def example():
    return promised_world().examples[0]


def hu(x):
    return -160 + 400 * x


def misses_of(example):
    return example.truth > example.upper, example.truth < example.lower


# ---------------------------------------------------------------- window and level


def test_window_and_level_are_in_hu(open_page, path, example):
    page = open_page(path)
    canvas = page.locator("#picture")
    expect(canvas).to_have_attribute("data-window", "400/40")
    assert page.text_content("#width-value") == "400 HU"
    kept = [text for text in page.locator("#preset option:not([disabled])").all_text_contents() if "/" in text]
    assert kept == ["soft tissue (400/40)", "liver (150/30)", "brain (80/40)"]  # air and bone are beyond these files
    pin_aside(page)
    page.get_by_label("Truth", exact=True).check()
    row, col = np.argwhere(np.abs(hu(example.truth[:-4, :-4]) - 30) < 50)[0].tolist()
    page.select_option("#preset", "liver")
    expect(canvas).to_have_attribute("data-window", "150/30")
    shade = 255 * (hu(float(example.truth[row, col])) - (30 - 75)) / 150
    assert drawn(page, row, col)[0] == pytest.approx(shade, abs=1)
    page.locator("#level").focus()
    page.keyboard.press("ArrowRight")
    expect(canvas).to_have_attribute("data-window", "150/31")
    assert page.get_attribute("#level", "aria-valuetext") == "31 HU"
    show_picture(page)
    x, y = place(page, 8, 8)
    page.mouse.move(x, y)
    page.mouse.down(button="right")  # in any tool, as in hospitals
    page.mouse.move(x + 50, y - 20, steps=4)
    page.mouse.up(button="right")
    expect(canvas).to_have_attribute("data-window", "200/51")
    page.get_by_label("Window", exact=True).first.check()
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 50, y, steps=4)
    page.mouse.up()
    expect(canvas).to_have_attribute("data-window", "150/51")
    page.locator("#next").click()
    page.wait_for_selector('#picture[data-image="1"]')
    expect(canvas).to_have_attribute("data-window", "150/51")  # the next image is seen through the same


# ---------------------------------------------------------------- two views


def test_two_views_share_zoom_place_and_pixel(open_page, path, example):
    page = open_page(path)
    page.get_by_role("button", name="Two views").click()
    show_picture(page)
    page.locator("#layers-2").get_by_label("Upper", exact=True).check()
    page.locator("#layers").get_by_label("Lower", exact=True).check()
    pin_aside(page)
    row, col = np.unravel_index(np.argmax(example.length[:-4, :-4]), (SIZE - 4, SIZE - 4))
    for name, image in (("picture", example.lower), ("picture-2", example.upper)):
        assert drawn(page, row, col, name)[0] == pytest.approx(255 * float(image[row, col]), abs=1)
    page.keyboard.press("Escape")
    page.mouse.move(*place(page, 7, 21, name="picture-2"))
    expect(page.locator("#where")).to_have_text("row 7, column 21")
    page.locator("#picture-2").focus()
    page.keyboard.press("+")
    for name in ("picture", "picture-2"):
        expect(page.locator(f"#{name}")).to_have_attribute("data-zoom", "1.50")
        expect(page.locator(f"#{name}")).to_have_attribute("data-col", "21")
    page.keyboard.press("l")  # the next map of the view that has the focus
    expect(page.locator("#picture-2")).to_have_attribute("data-layer", "truth")
    expect(page.locator("#picture")).to_have_attribute("data-layer", "lower")
    page.keyboard.press("v")
    assert page.locator("#picture-2").is_hidden()


# ---------------------------------------------------------------- regions by hand


def told(page):
    rows = page.locator("#region-values tr")
    return {row.locator("th").text_content(): row.locator("td").text_content() for row in rows.all()}


def check_region(page, example, mask):
    above, below = misses_of(example)
    found = told(page)
    n = mask.sum()
    assert found["pixels"] == str(n)
    assert found["outside"] == f"{100 * (above | below)[mask].mean():.2f}%"
    assert found["▲ truth above"] == f"{100 * above[mask].mean():.2f}% ({above[mask].sum()})"
    assert found["▼ truth below"] == f"{100 * below[mask].mean():.2f}% ({below[mask].sum()})"
    closed = mask & (example.lower > 2**-22) & (example.upper < 1 - 2**-22)
    length, _, unit = found["mean length"].partition(" ")
    assert float(length) == pytest.approx(400 * example.length[mask].mean(), abs=0.06)
    assert unit.startswith("HU")
    assert ("open" in unit) == bool(closed.sum() < n)


def test_a_rectangle_tells_what_is_in_it_and_that_nothing_is_promised_about_it(open_page, path):
    page, example = open_page(path), promised_world().examples[1]
    page.locator("#next").click()
    page.wait_for_selector('#picture[data-image="1"]')
    page.get_by_label("Rectangle", exact=True).check()
    show_picture(page)
    page.mouse.move(*place(page, 5, 4))
    page.mouse.down()
    page.mouse.move(*place(page, 20, 18), steps=5)
    page.mouse.up()
    mask = np.zeros((SIZE, SIZE), bool)
    mask[5:21, 4:19] = True
    expect(page.locator("#picture")).to_have_attribute("data-region", str(mask.sum()))
    check_region(page, example, mask)
    expect(page.locator("#spoken")).to_contain_text("No promise is about this region")
    assert page.text_content("#region-promise").startswith("No promise is about this region.")
    counted = page.locator("#region-counted li").all_text_contents()
    assert counted[0].startswith("All of it is counted, among much else, in “all pixels” (at most 10%:")
    assert counted[1].startswith(f"{100 * example.regions['bright'][mask].mean():.1f}% of it is counted")
    assert counted[2].startswith(f"{100 * example.regions['disc'][mask].mean():.1f}% of it is counted")
    edge = drawn(page, 12, 3.5)  # a line of white dashes on black
    assert max(edge) - min(edge) < 12
    page.locator("#next").click()
    page.wait_for_selector('#picture[data-image="2"]')
    check_region(page, promised_world().examples[2], mask)  # the same place in the next image
    page.get_by_role("button", name="Remove it").click()
    assert page.locator("#region").is_hidden()


# ---------------------------------------------------------------- the worst images


def test_the_worst_images_open_with_their_misses(open_page, tmp_path):
    this = world()
    worst = this.evaluation.worst(2).tolist()
    assert set(worst) - {0, 1, 2}
    shown = [dataclasses.replace(this.examples[0], image=None), *this.examples[1:]]
    page = open_page(this.write(tmp_path / "a.html", examples=shown))
    rows = page.get_by_role("region", name="The worst images").locator("tbody tr")
    assert rows.count() == 8
    assert rows.first.locator("td").nth(1).text_content() == f"{100 * this.evaluation.by_image[worst[0]]:.2f}%"
    linked = [row.locator("button").get_attribute("data-open") for row in rows.all() if row.locator("button").count()]
    ranked = this.evaluation.worst(8).tolist()
    assert linked == [str(i) for i in ranked if i in (1, 2)]  # of others, or of none, it says "not on this page"
    assert linked
    rows.locator("button").first.click()
    page.wait_for_selector(f'#picture[data-image="{linked[0]}"]')
    expect(page.locator("#misses")).to_be_checked()

    # An example that is another image than its number says is not linked
    moved = [dataclasses.replace(x, image=ranked[0]) for x in this.examples]
    assert "data-misses" not in this.write(tmp_path / "b.html", examples=moved).read_text()


# ---------------------------------------------------------------- data beside the page


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A page whose data lie beside it."""
    monkeypatch.setattr(page_examples, "MOST_INSIDE", 1000)
    monkeypatch.setattr(page_examples, "STRIPS_INSIDE", 1)
    return world().write(tmp_path / "my report.html")


def test_a_page_without_its_folder_and_a_changed_file_say_so(browser, large):
    context = browser.new_context()
    page = context.new_page()
    (file,) = large.with_name("my report_files").glob("0001-image-*.js")
    file.write_text(file.read_text().replace("base", "bASE", 1))
    page.goto(large.as_uri())
    page.wait_for_selector("#picture[data-image]")
    page.locator("#next").click()
    expect(page.locator("#trouble")).to_contain_text("was changed after it was written")
    alone = large.parent / "elsewhere"
    alone.mkdir()
    page.goto(Path(shutil.copy(large, alone)).as_uri())
    expect(page.locator("#trouble")).to_contain_text("the folder “my report_files” is not beside this page")
    assert "What is guaranteed" in page.text_content("main")
    context.close()


# ---------------------------------------------------------------- print, screen readers, another browser


def axe():
    """The script of axe-core where it is installed: npm install axe-core, here or globally, or AXE=/path/axe.min.js."""
    found = [Path(os.environ["AXE"])] if "AXE" in os.environ else []
    folders = [Path(__file__).parents[2] / "node_modules"]
    if shutil.which("npm"):
        root = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=False).stdout.strip()
        folders += [Path(root)] if root else []
    found += [folder / "axe-core" / "axe.min.js" for folder in folders]
    return next((path for path in found if path.is_file()), None)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page, path, scheme):
    script = axe()
    if script is None:
        pytest.skip("axe-core is not installed: npm install --global axe-core")
    page = open_page(path, color_scheme=scheme)
    page.get_by_role("button", name="Two views").click()
    page.locator("#picture").focus()
    for key in ("r", "ArrowRight", "r", "m"):
        page.keyboard.press(key)
    page.evaluate("document.querySelector('#keys').open = true")
    settle(page)
    page.evaluate(script.read_text())
    found = page.evaluate("async () => (await axe.run()).violations")
    serious = [(x["id"], [y["html"] for y in x["nodes"]]) for x in found if x["impact"] in ("serious", "critical")]
    assert serious == []


def test_the_picture_comes_first_and_tools_are_folded_on_a_phone(open_page, path):
    page, phone = open_page(path, width=1440), open_page(path, width=390)
    tops = [
        p.evaluate("document.getElementById('picture').getBoundingClientRect().top + scrollY") for p in (page, phone)
    ]
    assert tops[0] < 700
    assert tops[1] < 600
    assert page.locator("#width").is_visible()
    assert phone.locator("#width").is_hidden()
