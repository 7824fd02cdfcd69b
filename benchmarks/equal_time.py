"""The paper's way and ours, on the same images, by the seconds of a GPU that each took: certified lengths and risks.

    python -m benchmarks.equal_time     # docs/equal_time.png, from benchmarks/results

In every draw some images calibrate and others judge, the same for all rows. Ours: the frontier with betting, as by
default. The paper's: K-RCPS with Hoeffding-Bentkus and the cell of its grid that is shortest on the judging images.
Samples and images fewer than were drawn cost their share of the sampling; K networks cost K trainings. The program that
measured them is in the history, at commit 600536b; larger images have their comparison in `reproduce.gpu.page`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.bands import calibrated_ranks
from reproduce.gpu.told import OURS, PAPER

Array = np.ndarray
Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"
PAGE, PICTURE = "docs/research/equal_time.md", "docs/equal_time.png"
LEVELS = {"ct64": 0.05, "faces64": 0.1, "chest128": 0.05}
TITLES = {  # by the name of what was run
    "ct64": "abdominal CT, 64 x 64",
    "ct64_400s": "abdominal CT, 64 x 64, up to 400 s",
    "faces64": "faces, 64 x 64",
    "faces64_180s": "faces, 64 x 64, trained longer",
    "chest128": "chest CT, 128 x 128",
    "chest128_600s": "chest CT, 128 x 128, up to 600 s",
}
COLOURS = {"ours-1": "C0", "ours-3": "C2", "paper": "C1"}
UNITS = {"ct64": "scans", "faces64": "people", "chest128": "patients"}


def measured() -> list[dict[str, Any]]:
    """What was kept of all sets that were run."""
    paths = [RESULTS / f"equal_time_{name}.json" for name in TITLES]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def title(results: dict[str, Any]) -> str:
    """What was run, in words."""
    return TITLES[results.get("name", results["set"])]


def text() -> str:
    """Tables of all sets that were run."""
    return "\n\n".join(_set(results) for results in measured())


def _set(results: dict[str, Any]) -> str:
    level, figures = LEVELS[results["set"]], results["figures"]
    about = figures[0]
    lines = [
        f"| {title(results)} | samples | seconds of GPU: training, sampling | mean length "
        f"| risk (at most {level:g}) | draws above it |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in sorted(results["rows"].items(), key=_place):
        length, risk = (np.array([draw[key] for draw in row["draws"]]) for key in ("length", "risk"))
        seconds = row["seconds"]
        lines.append(
            f"| {_way(name)} | {row['samples']} | {seconds['training']:.0f}, {seconds['sampling']:.1f} "
            f"| {length.mean():.4f} | {risk.mean():.4f} | {int((risk > level).sum())} of {len(risk)} |"
        )
    lines += [
        "",
        f"{about['device']}, torch {about['torch']}, {_commits(figures)}; `{about['network']}` with "
        f"{about['parameters'] / 1e6:.1f}M parameters, {about['images']['train']:,} images train; "
        f"{results['calibration']} of {results['images']} images calibrate, the others judge{_units(about)}. "
        f"{_steps(figures)} {_coverage(figures)} {_speed(figures)}",
        "",
        compared(results),
    ]
    return "\n".join(lines)


def _place(named: tuple[str, Row]) -> tuple[bool, str, int, bool, bool]:
    """The paper's way first, then ours by networks and samples, and what differs from its way after that."""
    name, row = named
    plain = name.removeprefix("crossed ")
    return not plain.startswith("paper"), plain.split("/")[0], int(row["samples"]), "@" in name, plain != name


def _units(about: dict[str, Any]) -> str:
    """Whose images are drawn one by one, where several are of one scan or patient."""
    count = about["units"]
    if count == about["images"]["measured"]:
        return ""
    return f" (drawn one by one from those of {count} {UNITS[about['set']]}; one may have images on both sides)"


def _way(name: str) -> str:
    if name.startswith("paper"):
        return "the paper's way"
    if name.startswith("crossed "):
        return f"{_way(name.removeprefix('crossed '))}, calibrated the paper's way"
    name, _, miscoverage = name.partition("@")
    networks = int(name.split("/")[0].split("-")[1])
    at = f", miscoverage {miscoverage}" if miscoverage else ""
    return ("ours with one network" if networks == 1 else f"ours with the mean score of {networks} networks") + at


@dataclass(frozen=True)
class Compared:
    """Rows to compare: the paper's way and ours with one network, each with most samples, and what is cheaper."""

    papers: Row
    ours: Row
    crossed: Row  # ours, calibrated the paper's way
    cheapest: Row  # of ours that are no longer than the paper's, the one with the least sampling

    @classmethod
    def of(cls, results: dict[str, Any]) -> Compared:
        """Of the rows of a set."""
        rows = results["rows"]
        papers, ours = (_most(rows, label) for label in ("paper", "ours-1"))
        short = [row for name, row in rows.items() if name[:4] == "ours" and _length(row) <= _length(rows[papers])]
        cheapest = min(short, key=lambda row: float(row["seconds"]["sampling"]))
        return cls(rows[papers], rows[ours], rows[f"crossed {ours}"], cheapest)

    def shorter(self, row: Row, papers: Row | None = None) -> float:
        """How much shorter a row is than the paper's, or that of another run: mean over the draws that both have."""
        mine, theirs = (np.array([draw["length"] for draw in each["draws"]]) for each in (row, papers or self.papers))
        count = min(len(mine), len(theirs))
        return float(1 - (mine[:count] / theirs[:count]).mean())

    @staticmethod
    def said(row: Row) -> str:
        """Seconds and length."""
        return f"{sum(row['seconds'].values()):.0f}, {_length(row):.4f}"


def _most(rows: dict[str, Row], label: str) -> str:
    """The row of a label with most samples, at its way's own miscoverage."""
    return max((x for x in rows if x.startswith(f"{label}/") and "@" not in x), key=lambda x: int(rows[x]["samples"]))


def compared(results: dict[str, Any]) -> str:
    """Ours beside the paper's in the same draws, and the cheapest of ours that is no longer than the paper's."""
    rows, found = results["rows"], Compared.of(results)
    said = []
    for label in sorted({name.split("/")[0] for name in rows if name.startswith("ours")}):
        name = _most(rows, label)
        told = (
            f"{_way(name)} and {rows[name]['samples']} samples in {sum(rows[name]['seconds'].values()):.0f} s is "
            f"{found.shorter(rows[name]):.1%} shorter"
        )
        for other in (x for x in rows if x.startswith(f"{name}@")):
            told += f" ({found.shorter(rows[other]):.1%} with miscoverage {other.split('@')[1]}, the paper's)"
        if f"crossed {name}" in rows:
            told += f" ({found.shorter(rows[f'crossed {name}']):.1%} if calibrated the paper's way)"
        said.append(told)
    papers, cheap = found.papers, found.cheapest
    took, takes = (row["seconds"]["sampling"] for row in (papers, cheap))
    return (
        f"Beside the paper's way with {papers['samples']} samples in {sum(papers['seconds'].values()):.0f} s, "
        f"{', '.join(said)}; mean of {len(papers['draws'])} draws. With {cheap['samples']} samples, "
        f"{found.shorter(cheap):.1%} shorter, sampling takes {takes:.1f} s in place of {took:.0f}: "
        f"{took / takes:.2g} times fewer.{_elsewhere(results, found)}"
    )


def _elsewhere(results: dict[str, Any], found: Compared) -> str:
    """Ours beside the paper's way of another run on the same images and draws, where that one is shorter."""
    alike = [
        other for other in measured() if all(other[key] == results[key] for key in ("set", "images", "calibration"))
    ]
    others = [Compared.of(other).papers for other in alike]
    best = min(others, key=_length)
    if _length(best) >= _length(found.papers):
        return ""
    labels = sorted({name.split("/")[0] for name in results["rows"] if name.startswith("ours")})
    said = [f"{found.shorter(results['rows'][_most(results['rows'], label)], best):.1%}" for label in labels]
    return (
        f" The paper's way of the other run, in {sum(best['seconds'].values()):.0f} s, is shorter than this one's: "
        f"beside it ours is {' and '.join(said)} shorter."
    )


def _length(row: Row) -> float:
    return float(np.mean([draw["length"] for draw in row["draws"]]))


def show(found: list[dict[str, Any]], path: Path) -> None:
    """Mean length against seconds of training and sampling, a panel a set."""
    from matplotlib.figure import Figure

    rows = -(-len(found) // 2)
    figure = Figure(figsize=(9, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False)
    for ax in axes.flat[len(found) :]:
        ax.remove()
    for ax, results in zip(axes.flat, found, strict=False):
        labels = sorted({name.split("/")[0] for name in results["rows"] if not name.startswith("crossed ")})
        for label in labels:
            own = [row for name, row in results["rows"].items() if name.startswith(f"{label}/") and "@" not in name]
            own.sort(key=lambda row: int(row["samples"]))
            seconds = [sum(row["seconds"].values()) for row in own]
            lengths = [_length(row) for row in own]
            ax.plot(seconds, lengths, "o-", color=COLOURS[label], label=_way(f"{label}/"))
            for at, row in zip(seconds, own, strict=True):
                ax.annotate(str(row["samples"]), (at, _length(row)), (3, 4), textcoords="offset points", fontsize=7)
        ax.set_xlabel("seconds of GPU, training and sampling", fontsize=8)
        ax.set_title(title(results), fontsize=9)
        ax.legend(fontsize=7)
        ax.set_xlim(0, 1.1 * ax.get_xlim()[1])
        ax.margins(y=0.12)
    for ax in axes[:, 0]:
        ax.set_ylabel("mean certified length", fontsize=8)
    figure.savefig(path, dpi=100)


def _commits(figures: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(told["commit"] for told in figures))
    return f"commit{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def _steps(figures: list[dict[str, Any]]) -> str:
    """Steps of training each way, and of Algorithm 3."""
    said = []
    for told in figures:
        whose = "ours" if told["way"] == "ours" else "the paper's"
        steps = ", ".join(f"{run['steps']:,}" for run in told["training"])
        said.append(f"{steps} ({whose})")
    [printed] = {drawn["steps"] for told in figures for drawn in told["bands"] if told["way"] == "paper"}
    return f"Steps of training: {'; '.join(said)}. Algorithm 3 took {printed} steps."


def _coverage(figures: list[dict[str, Any]]) -> str:
    said = []
    for told in (told for each in figures for told in each["bands"] if each["way"] == "ours"):
        m = max(int(key.removeprefix("coverage_error_")) for key in told if key.startswith("coverage_error_"))
        low, high = calibrated_ranks(m, OURS)
        off = (told[f"coverage_{m}"] - (high - low) / (m + 1)) / told[f"coverage_error_{m}"]
        networks = "3 networks" if told["label"] == "ours-3" else "one network"
        said.append(f"{off:+.1f} ({networks}, {told['images']} images, seed {told['seed']})")
    return (
        f"Miscoverage {OURS:g} (ours), {PAPER[figures[0]['set']]:g} (the paper's). Coverage of fresh draws less what "
        f"is expected, in standard errors over images: {', '.join(said)}; those of one seed share their noise."
    )


def _speed(figures: list[dict[str, Any]]) -> str:
    speed = max((told["speed"] for told in figures), key=lambda speed: float(speed["evaluations"]))  # least disturbed
    said = (
        f"The compiled network is evaluated {speed['evaluations']:,.0f} times a second in batches of {speed['batch']}, "
        f"{speed['share']:.1%} of the bf16 matrix peak that the same run measured"
    )
    tried = [told["speed"] for told in figures if "evaluations_searched" in told["speed"]]
    if tried:
        plain, searched = (tried[-1][f"evaluations_{name}"] for name in ("as_given", "searched"))
        said += f"; where cuDNN may search its convolutions, {searched:,.0f} times in place of {plain:,.0f}"
    return f"{said}."


if __name__ == "__main__":
    show(measured(), Path(__file__).parents[1] / PICTURE)
