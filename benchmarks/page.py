"""How large the page is, and how long it takes to open: python -m benchmarks.page [run].

With `run` it measures first; then docs/research/speed.md gets the figures of benchmarks/results/page.json.

Phantoms of 128 x 128 pixels become a page, which Chromium opens. It counts as open when it shows the first image. What
is read on the way, and what each further image costs, is counted too. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

HOME = Path(__file__).parents[1]
RESULT = HOME / "benchmarks" / "results" / "page.json"
PAGE = "docs/research/speed.md"
BEGIN = "<!-- figures: python -m benchmarks.page -->"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--disable-quic"]
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
    """Sizes, and for the pages that are timed the ratio, of so many examples."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    head = subprocess.run(
        ["git", "-C", HOME, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    with TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        page = Path(folder) / "page.html"
        subprocess.run([sys.executable, "-c", MAKER, str(count), str(page)], check=True)
        open_page(browser, page)  # warm-up
        found = {
            "seconds": round(median(open_page(browser, page)[0] for _ in range(REPEATS)), 3), **size_of(page),
            "read_to_open": open_page(browser, page)[1],
            "read_with_all_small_pictures": open_page(browser, page, scroll=True)[1],
            "commit": head.stdout.strip(), "browser": browser.version, "cores": os.cpu_count(),
        }  # fmt: skip
        browser.close()
    print(count, json.dumps(found), flush=True)
    return found


def kept() -> dict[str, Any]:
    """What was measured last, by the number of examples."""
    return json.loads(RESULT.read_text()) if RESULT.is_file() else {}


def text() -> str:
    """The table of docs/research/speed.md, or a line where nothing was measured."""
    if not kept():
        return "Nothing is kept of it here yet."
    lines = [
        "| examples of 128 x 128 | page | beside it | read to open it | with all small pictures | time to open |",
        "|---|---|---|---|---|---|",
    ]
    for count, row in kept().items():
        sizes = (row["page"], row["beside"], row["read_to_open"], row["read_with_all_small_pictures"])
        cells = " | ".join(f"{size / 1e6:.1f} MB" for size in sizes)
        time = f"{row['seconds']:.2f} s" if "seconds" in row else "not timed"
        lines.append(f"| {count} | {cells} | {time} |")
    first = next(iter(kept().values()))
    lines += [
        "",
        f"Phantoms with 19 samples per pixel; medians of {REPEATS} in Chromium {first['browser']} on a shared and busy",
        f"machine of {first['cores']} cores, commit {first['commit']}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    from benchmarks.readme import with_figures

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["run"], help="measure, instead of only writing the figures")
    parser.add_argument("--examples", type=int, nargs="+", default=[128, 400])
    arguments = parser.parse_args()
    for count in arguments.examples if arguments.what == "run" else []:
        rows = {**kept(), str(count): measure(count)}
        RESULT.write_text(json.dumps(dict(sorted(rows.items(), key=lambda row: int(row[0]))), indent=1) + "\n")
    (HOME / PAGE).write_text(with_figures(PAGE, BEGIN, text()))
