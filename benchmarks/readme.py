"""Write figures into README.md, between its two markers: python -m benchmarks.readme.

They come from benchmarks/results; those of real images from the JSONs of `python -m reproduce` in its folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reproduce.results import load_results
from reproduce.rows import REFERENCE, SHORTEST
from reproduce.summaries import gains, summaries

HERE = Path(__file__).parent
RESULTS = [HERE / "results/reproduce" / f"{name}.json" for name in ("faces64", "ct64", "chest128", "phantom")]
PAGE = "README.md"
BEGIN = "<!-- figures: python -m benchmarks.readme -->"
END = "<!-- end of figures -->"


def result(name: str) -> dict[str, Any]:
    return dict(json.loads((HERE / "results" / f"{name}.json").read_text()))


def made(name: str) -> dict[str, Any]:
    """What the makers of an experiment's material said of it."""
    return dict(result(f"reproduce/{name}")["material"]["figures"])


def where(found: dict[str, Any]) -> str:
    machine = found["machine"]
    return f"commit {machine['commit']}, {machine['cores']} cores of {machine['cpu'] or 'an unnamed CPU'}"


def reproduced() -> list[str]:
    """What `python -m reproduce` found, experiment by experiment."""
    lines = [
        "| data | risk level | K-RCPS, Hoeffding-Bentkus (the paper) | frontier, betting (default) | difference |",
        "|---|---|---|---|---|",
    ]
    for path in RESULTS:
        results = load_results(path)
        settings = results["configuration"]
        by_key = {s.row.key: s.length.mean() for s in summaries(results)}
        gain = {d.reference.key: d.value for d in gains(results)}
        lines.append(
            f"| {settings['title']} | {settings['task']['risk_level']:g} "
            f"| {by_key[REFERENCE]:.4f} | {by_key[SHORTEST]:.4f} | {gain[REFERENCE]:+.1%} |"
        )
    return lines


def text() -> str:
    lines = [
        "## Results",
        "Mean interval length at the same guarantee (delta = 0.1), over 20 random splits; networks are ours. With",
        "the same bound for both, the path alone is 1% to 8% shorter ([all results](docs/results.md)).",
        "",
        *reproduced(),
    ]
    return "\n".join(lines)


def with_figures(page: str, begin: str, figures: str) -> str:
    """The text of a page with these figures between its markers."""
    before, rest = (HERE.parent / page).read_text().split(begin)
    return f"{before}{begin}\n{figures}\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    (HERE.parent / PAGE).write_text(with_figures(PAGE, BEGIN, text()))
