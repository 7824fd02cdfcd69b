"""Write measured figures into the pages that show them, between their markers: python -m benchmarks.pages [NAME ...].

Each module of MODULES names its page in `PAGE`; `text()` returns what stands there. Figures come from
benchmarks/results; those of real images from the JSONs of `python -m reproduce` in its folder.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXPERIMENTS = ("faces64", "faces128", "ct64", "chest128", "chest512", "phantom")  # those that were measured have a page
RESULTS = [path for name in EXPERIMENTS if (path := HERE / "results/reproduce" / f"{name}.json").exists()]
NAMES = ("readme", "overview", "voids", "speed", "scale_page", "page", "promises_page", "attacks", "monitoring",
         "shifts", "growth", "azula_comparison", "problems", "equal_time", "hands_on", "masks_page")  # fmt: skip
MODULES = (*(f"benchmarks.{name}" for name in NAMES), "reproduce.gpu.page", "reproduce.gpu.sizes",
           "reproduce.gpu.projections")  # fmt: skip
END = "<!-- end of figures -->"


def result(name: str) -> dict[str, Any]:
    return dict(json.loads((HERE / "results" / f"{name}.json").read_text()))


def made(name: str) -> dict[str, Any]:
    """What the makers of an experiment's material said of it."""
    return dict(result(f"reproduce/{name}")["material"]["figures"])


def where(found: dict[str, Any]) -> str:
    machine = found["machine"]
    return f"commit {machine['commit']}, {machine['cores']} cores of {machine['cpu'] or 'an unnamed CPU'}"


def with_figures(name: str) -> tuple[Path, str]:
    """The page of a module, and its text with the figures of today between the markers."""
    module = import_module(name)
    page, begin = HERE.parent / module.PAGE, f"<!-- figures: {name} -->"
    before, rest = page.read_text().split(begin)
    return page, f"{before}{begin}\n{module.text()}\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    for name in MODULES:
        if not sys.argv[1:] or name.rpartition(".")[2] in sys.argv[1:] or name in sys.argv[1:]:
            page, text = with_figures(name)
            page.write_text(text)
