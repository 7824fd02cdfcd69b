"""The picture in README.md, of the demo's page in a browser: python -m benchmarks.screenshot [PAGE].

PAGE is a page that is there already, of phantoms; without it the demo makes one.

Needs Chromium (apt-get install chromium) and playwright.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PICTURE = Path(__file__).parents[1] / "docs" / "report.png"
IMAGE, ROW, COLUMN, SIZE = 1, 30, 21, 64  # the second new phantom, a pixel at the edge of the liver
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--disable-quic"]


def browser_of(play: Any) -> Any:
    """Chromium, as it is installed here."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return play.chromium.launch(executable_path=next(filter(None, map(shutil.which, names)), None), args=FLAGS)


def shoot(page_file: Path, target: Path) -> None:
    """Open the page with two views, pin a pixel, and keep a picture of the viewer."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = browser_of(play)
        page = browser.new_context(viewport={"width": 1160, "height": 1000}, color_scheme="light").new_page()
        page.set_default_timeout(600_000)  # the machine may be busy
        page.goto(page_file.as_uri())
        page.wait_for_selector("#picture[data-image]")
        page.select_option("#choose", index=IMAGE)
        page.check("#misses")
        page.click("#two")
        page.evaluate("document.getElementById('picture').scrollIntoView({ behavior: 'instant', block: 'center' })")
        box = page.locator("#picture").bounding_box()
        assert box is not None
        scale = box["width"] / SIZE
        page.mouse.click(box["x"] + (COLUMN + 0.5) * scale, box["y"] + (ROW + 0.5) * scale)
        page.locator("#viewer").screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shoot(Path(sys.argv[1]).resolve(), PICTURE)
    else:
        with TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pixelbounds.cli", "demo", "--out", folder], check=True)
            shoot(next(Path(folder).glob("*.html")), PICTURE)
