"""How large the page is, and how long it takes to open: python -m benchmarks.page [run].

With `run` it measures first; then docs/report.md gets the figures of benchmarks/results/page.json.

The same phantoms of 128 x 128 pixels become a page of this checkout and one of an earlier commit, which a git worktree
holds; Chromium opens both in turn, and times are given as their ratio. A page counts as open when it shows the first
image. What is read on the way, and what each further image costs, is counted too. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

HOME = Path(__file__).parents[1]
RESULT = HOME / "benchmarks" / "results" / "page.json"
PAGE = "docs/report.md"
BEGIN = "<!-- figures: python -m benchmarks.page -->"
BEFORE = "7c09070"  # the page that had all of its data inside
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--disable-quic"]
REPEATS = 5

# Runs in a process of its own, with the sources of either commit.
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


@contextmanager
def earlier_sources() -> Iterator[Path]:
    """The package as it was, in a worktree that is gone afterwards."""
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "-C", HOME, "worktree", "add", "--detach", "-q", tree, BEFORE], check=True)
        try:
            yield tree / "src"
        finally:
            subprocess.run(["git", "-C", HOME, "worktree", "remove", "--force", tree], check=True)


def make(sources: Path, count: int, target: Path) -> None:
    """Write a page of so many examples with some sources."""
    target.parent.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    subprocess.run([sys.executable, "-c", MAKER, str(count), str(target)], check=True, env=environment)


def size_of(page: Path) -> dict[str, int]:
    """Bytes of a page, and of its folder where it has one."""
    folder = page.with_name(f"{page.stem}_files")
    beside = sorted(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else []
    return {"page": page.stat().st_size, "beside": sum(beside), "largest_beside": max(beside, default=0)}


def open_page(browser: Any, page: Path, *, scroll: bool = False) -> tuple[float, int]:
    """Seconds until the first image is shown, and bytes that were read; with `scroll`, all small pictures too."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(600_000)
    tab = context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    begin = perf_counter()
    tab.goto(page.as_uri())
    tab.wait_for_selector("#picture[data-image]")
    seconds = perf_counter() - begin
    if scroll:
        for strip in tab.locator(".example").all():
            strip.scroll_into_view_if_needed()
        tab.wait_for_timeout(1000)
        assert tab.locator("[data-pictures]").count() == 0
    context.close()
    files = [
        page if x.endswith(".html") else page.parent / "/".join(x.split("/")[-2:]) for x in asked if x[:5] == "file:"
    ]
    return seconds, sum(path.stat().st_size for path in files)


def measure(counts: list[int]) -> tuple[dict[str, Any], str]:
    """Sizes and ratios for each number of examples, and the browser's version."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder, earlier_sources() as earlier, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        for count in counts:
            pages = {"now": HOME / "src", "before": earlier}
            places = {name: Path(folder) / f"{name}{count}" / "page.html" for name in pages}
            for name, sources in pages.items():
                make(sources, count, places[name])
            times: dict[str, list[float]] = {"now": [], "before": []}
            for name in times:
                open_page(browser, places[name])  # warm-up
            for _ in range(REPEATS):
                for name in times:
                    times[name].append(open_page(browser, places[name])[0])
            now, before = median(times["now"]), median(times["before"])
            found[str(count)] = {
                "seconds_now": round(now, 3), "seconds_before": round(before, 3), "ratio": round(now / before, 3),
                "now": size_of(places["now"]), "before": size_of(places["before"]),
                "read_to_open": open_page(browser, places["now"])[1],
                "read_with_all_small_pictures": open_page(browser, places["now"], scroll=True)[1],
            }  # fmt: skip
            print(count, json.dumps(found[str(count)]))
        version = browser.version
        browser.close()
    return found, version


def text() -> str:
    """The table of docs/report.md."""
    found = json.loads(RESULT.read_text())
    lines = [
        "| examples of 128 x 128 | page | beside it | read to open it | with all small pictures | time to open |",
        "|---|---|---|---|---|---|",
    ]
    for count, row in found["examples"].items():
        sizes = (row["now"]["page"], row["now"]["beside"], row["read_to_open"], row["read_with_all_small_pictures"])
        cells = " | ".join(f"{size / 1e6:.1f} MB" for size in sizes)
        lines.append(f"| {count} | {cells} | {row['seconds_now']:.2f} s, {row['ratio']:.2f} of before |")
    lines += [
        "",
        f"Phantoms with 19 samples per pixel; medians of {found['medians_of']} in Chromium {found['browser']} on a",
        f"shared machine of {found['cores']} cores, commit {found['commit']}. Before is commit {found['before']},",
        "whose page had everything inside, in the same run.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    from benchmarks.readme import with_figures

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["run"], help="measure, instead of only writing the figures")
    parser.add_argument("--examples", type=int, nargs="+", default=[128, 400])
    arguments = parser.parse_args()
    if arguments.what == "run":
        head = ["git", "-C", HOME, "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
        found, version = measure(arguments.examples)
        about = {"commit": commit, "before": BEFORE, "cores": os.cpu_count(), "browser": version, "medians_of": REPEATS}
        RESULT.write_text(json.dumps({**about, "examples": found}, indent=1) + "\n")
    (HOME / PAGE).write_text(with_figures(PAGE, BEGIN, text()))
