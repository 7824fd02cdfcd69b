"""The picture in README.md, of the demo's page in a browser: python -m benchmarks.screenshot.

Needs Chromium (apt-get install chromium) and playwright.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "docs" / "report.png"
IMAGE, ROW, COLUMN, SIZE = 1, 30, 21, 64  # the second new phantom, a pixel at the edge of the liver
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def shoot(page_file: Path, target: Path) -> None:
    """Open the page with two views, pin a pixel, and keep a picture of the viewer."""
    browser_file = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_file, args=FLAGS)
        page = browser.new_context(viewport={"width": 1160, "height": 1000}, color_scheme="light").new_page()
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
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pixelbounds.cli", "demo", "--out", folder], check=True)
        shoot(next(Path(folder).glob("*.html")), PICTURE)
