"""How large the page is, and how long it takes to open: python -m benchmarks page [EXAMPLES ...].

Phantoms of 128 x 128 pixels become a page, which Chromium opens. It counts as open when it shows the first image. What
is read on the way, and what each further image costs, is counted too. Needs Chromium and playwright.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from .pages import result

PAGE = "docs/research/speed.md"
REPEATS = 3

# Runs in a process of its own, with none of our memory.
MAKER = """
import sys
import numpy as np
import pixelbounds as pb
from pixelbounds.demo.packaged import some_phantoms
from pixelbounds.demo.synthetic import flawed_samples
from pixelbounds.report.example import examples_of
from pixelbounds.report.page import write_report

count, target = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
small = some_phantoms(count + 40).images
truth = np.repeat(np.repeat(small, 2, axis=1), 2, axis=2)  # 128 x 128
samples = flawed_samples(truth, 19, rng)
band = pb.calibrated_quantiles(samples, 0.2)
first, others = slice(0, 40), slice(40, None)
cal = pb.calibrate(truth[first], band[first], risk_level=0.2, method="rcps", measure=pb.Measure.of_window((400, 40)))
interval = cal.apply(band[others])
found = pb.evaluate(truth[others], interval, calibration=cal)
examples = examples_of(
    interval, range(count), band=band[others], truth=truth[others], samples=samples[others],
    estimate=samples[others].mean(axis=1), observation=samples[others, 0],
)
write_report(target, title="Phantoms", calibration=cal, evaluation=found, examples=examples)
"""


def size_of(page: Path) -> dict[str, int]:
    """Bytes of a page, and of its folder where it has one."""
    folder = page.with_name(f"{page.stem}_files")
    beside = sorted(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else []
    return {"page": page.stat().st_size, "beside": sum(beside), "largest_beside": max(beside, default=0)}


def open_page(browser: Any, page: Path, *, scroll: bool = False) -> tuple[float, int]:
    """Seconds until the first image is shown, and bytes that were read; with `scroll`, all small pictures too."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(600_000)
    tab = context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    begin = perf_counter()
    tab.goto(page.as_uri())
    tab.wait_for_selector("#picture[data-image]")
    seconds = perf_counter() - begin
    if scroll:
        while left := tab.locator("[data-pictures]").count():
            tab.locator("[data-pictures]").first.evaluate("strip => strip.scrollIntoView({ behavior: 'instant' })")
            tab.wait_for_function("left => document.querySelectorAll('[data-pictures]').length < left", arg=left)
        tab.wait_for_function("() => [...document.querySelectorAll('.example')].every((x) => x.querySelector('img'))")
    context.close()
    files = [
        page if x.endswith(".html") else page.parent / "/".join(x.split("/")[-2:]) for x in asked if x[:5] == "file:"
    ]
    return seconds, sum(path.stat().st_size for path in files)


def measure(count: int) -> dict[str, Any]:
    """Sizes and seconds of a page of so many examples."""
    from playwright.sync_api import sync_playwright

    from .screenshot import browser_of

    with TemporaryDirectory() as folder, sync_playwright() as play:
        browser = browser_of(play)
        page = Path(folder) / "page.html"
        subprocess.run([sys.executable, "-c", MAKER, str(count), str(page)], check=True)
        open_page(browser, page)  # warm-up
        row = {
            "examples": count,
            "seconds": round(median(open_page(browser, page)[0] for _ in range(REPEATS)), 3), **size_of(page),
            "read_to_open": open_page(browser, page)[1],
            "read_with_all_small_pictures": open_page(browser, page, scroll=True)[1],
            "browser": browser.version, "cores": os.cpu_count(),
        }  # fmt: skip
        browser.close()
    print(row, flush=True)
    return row


def run(*counts: str) -> list[dict[str, Any]]:
    """Pages of some numbers of examples."""
    return [measure(int(count)) for count in counts or (128, 400)]


def text() -> str:
    """The table of docs/research/speed.md."""
    kept = result("page")
    lines = [
        "| examples of 128 x 128 | page | beside it | read to open it | with all small pictures | time to open |",
        "|---|---|---|---|---|---|",
    ]
    for row in kept["rows"]:
        sizes = (row["page"], row["beside"], row["read_to_open"], row["read_with_all_small_pictures"])
        cells = " | ".join(f"{size / 1e6:.1f} MB" for size in sizes)
        time = f"{row['seconds']:.2f} s" if "seconds" in row else "not timed"
        lines.append(f"| {row['examples']} | {cells} | {time} |")
    first = kept["rows"][0]
    lines += [
        "",
        f"Phantoms with 19 samples per pixel; medians of {REPEATS} in Chromium {first['browser']} on a shared and busy",
        f"machine of {first['cores']} cores, commit {kept['machine']['commit']}.",
    ]
    return "\n".join(lines)
