"""A browser for tests of the page: it complains where the page does, and asks for nothing from elsewhere."""

import shutil

import pytest
from report_world import SIZE
from waiting import PATIENCE

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
MISSES = {"above": [255, 127, 14], "below": [0, 178, 255]}  # orange and blue
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE * 1000)
        sync_api.expect.set_options(timeout=PATIENCE * 1000)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens a file in a browser of some width; fails at the end if it complained, asked for anything or spoke up.

    What it asked for in the folder beside the page is in `open_page.beside`.
    """
    contexts, troubles = [], []

    def asked(address):
        if address.startswith("file:") and "_files/" in address:
            opened.beside.append(address.rpartition("/")[2])
        else:
            troubles.append(("request", address))

    def opened(path, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(("console", message.text)))
        page.on("pageerror", lambda error: troubles.append(("error", str(error))))
        page.on("dialog", lambda dialog: (troubles.append(("dialog", dialog.message)), dialog.dismiss()))
        page.on("request", lambda request: asked(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("#picture[data-image]")
        show_picture(page)
        return page

    opened.beside = []
    yield opened
    for context in contexts:
        context.close()
    ours = "data:image/png", "Canvas2D: Multiple readback"  # pictures inside the page; what `drawn` reads
    left = [(kind, text) for kind, text in troubles if not text.startswith(ours)]
    assert [kind for kind, text in left if not (kind == "request" and text.endswith(".html"))] == [], left
    assert len(left) == len(contexts)  # each asked for the page itself, and nothing else


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
