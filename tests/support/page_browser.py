"""A browser for tests of the page: it complains where the page does, and asks for nothing from elsewhere."""

import shutil

import pytest
from report_world import SIZE

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
MISSES = {"above": [255, 127, 14], "below": [0, 178, 255]}  # orange and blue
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()  # noqa: SIM905


def show_picture(page, name="picture"):
    page.evaluate(f"document.getElementById('{name}').scrollIntoView({{ behavior: 'instant', block: 'center' }})")


def settle(page):
    """Wait until the page has come to rest."""
    at, before = page.evaluate("window.scrollY"), None
    while at != before:
        page.wait_for_timeout(200)
        at, before = page.evaluate("window.scrollY"), at


def place(page, row, col, height=SIZE, width=SIZE, name="picture"):
    """Where a pixel of a picture that fits is on the screen."""
    box = page.locator(f"#{name}").bounding_box()
    scale = min(box["width"] / width, box["height"] / height)
    left, top = box["x"] + (box["width"] - scale * width) / 2, box["y"] + (box["height"] - scale * height) / 2
    return left + (col + 0.5) * scale, top + (row + 0.5) * scale


def ends(text):
    return [float(x.replace("−", "-")) for x in text.split(" to ")]  # noqa: RUF001


def reading(page):
    return ends(page.text_content("#interval"))


def drawn(page, row, col, name="picture"):
    """Colour of a pixel of a picture that fits."""
    x, y = place(page, row, col, name=name)
    box = page.locator(f"#{name}").bounding_box()
    script = """([x, y, name]) => { const c = document.getElementById(name), k = c.width / c.clientWidth;
        return [...c.getContext("2d").getImageData(Math.floor(x * k), Math.floor(y * k), 1, 1).data].slice(0, 3); }"""
    return page.evaluate(script, [x - box["x"], y - box["y"], name])


def pin_aside(page):
    """Keep the cursor out of the way of `drawn`."""
    page.mouse.click(*place(page, SIZE - 1, SIZE - 1))
