"""One browser for the tests of a file, and pages opened in it."""

import pytest
from waiting import PATIENCE


@pytest.fixture(scope="module")
def browser():
    import page_browser  # skips where there is no playwright

    with page_browser.sync_api.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=page_browser.CHROMIUM, args=page_browser.FLAGS, timeout=PATIENCE * 1000
        )
        page_browser.sync_api.expect.set_options(timeout=PATIENCE * 1000)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens a file in a browser of some width; fails at the end if it complained, asked for anything or spoke up.

    What it asked for in the folder beside the page is in `open_page.beside`.
    """
    import page_browser

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
        page_browser.show_picture(page)
        return page

    opened.beside = []
    yield opened
    for context in contexts:
        context.close()
    ours = "data:image/png", "Canvas2D: Multiple readback"  # pictures inside the page; what `drawn` reads
    left = [(kind, text) for kind, text in troubles if not text.startswith(ours)]
    assert [kind for kind, text in left if not (kind == "request" and text.endswith(".html"))] == [], left
    assert len(left) == len(contexts)  # each asked for the page itself, and nothing else
