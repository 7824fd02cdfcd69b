"""From the JSONs of experiments: docs/results says what is gained, docs/research has every row and cell."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any

from pixelbounds.calibration.bounds import greatest_loss
from pixelbounds.storage.files import replace_file

from .results import load_results
from .rows import ORACLES, REFERENCE, SHORTEST, TableRow
from .summaries import (
    Difference,
    Summary,
    difference_markdown,
    gain_markdown,
    gains,
    grid_markdown,
    markdown,
    published,
    summaries,
)


def write_pages(results: Sequence[str | Path], folder: str | Path) -> list[Path]:
    """Write two pages for each experiment, given by its results.json or its folder, and one on how to read them."""
    if not results:
        raise ValueError("no results are given; name at least one results.json or its folder")
    pages = {"research/how_to_read.md": files(__package__).joinpath("results_head.md").read_text("utf-8")}
    for path in results:
        found = load_results(path)
        name = found["experiment"]
        pages |= {f"results/{name}.md": _page(found), f"research/{name}.md": _details(found)}
    for name, text in pages.items():
        target = Path(folder) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(
            target, text.replace("docs/tried.md", "docs/research/tried.md").replace(" of shared/data", "").encode()
        )
    return [Path(folder) / name for name in pages]


def _page(results: dict[str, Any]) -> str:
    settings = results["configuration"]
    material = results["material"]
    task = settings["task"]
    draws = settings["draws"]
    found = summaries(results)
    pixels = " x ".join(str(x) for x in material["pixels"])
    unit = (settings["scans"] or {}).get("unit", "scan")
    units = f" of {material['units']} {unit}s" if material["units"] < material["images"] else ""
    intro = (
        f"{material['images']} held-out images{units} of {pixels} pixels ({settings['data']['source']}); epsilon "
        f"{task['risk_level']:g}, delta {task['failure_prob']:g}, alpha {task['miscoverage']:g}, "
        f"m = {task['samples']}; {draws['count']} draws of {draws['calibration']} calibration "
        f"and {draws['validation']} validation images."
    )
    title = settings["title"]
    parts = [
        f"# {title[0].upper()}{title[1:]}", intro, "[The paper's table, every row]"
        f"(../research/{results['experiment']}.md); [how to read the tables](../research/how_to_read.md).",
        *_verdict(results, found),
        "## Frontier with betting against each procedure",
        "All with calibrated quantiles, in the same draws. Rows with betting show what the path alone brings.",
        gain_markdown(results),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _details(results: dict[str, Any]) -> str:
    """The paper's table with all rows, what differs, the cells of the grid, and what it was computed with."""
    made, found = results["made"], summaries(results)
    parts = [
        f"# {results['experiment']}: the paper's table, every row", markdown(results),
        "## What differs from the paper, and why", *_different(results, found), *_against_target(results, found),
        "## Each row against the paper's procedure",
        "Mean length against K-RCPS with Hoeffding-Bentkus and calibrated quantiles, best of its grid on validation.",
        difference_markdown(results), "## Cells of the K-RCPS grid", grid_markdown(results),
        f"Computed at commit {', '.join(made['commits'])} (a + marks changes since), "
        + ", ".join(f"{name} {'/'.join(v)}" for name, v in made["versions"].items())
        + f", on {results['machine']['cores']} cores of {results['machine']['cpu']}; seed {results['seed']}, material "
        f"{results['material']['digest'][:12]}.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _verdict(results: dict[str, Any], found: list[Summary]) -> list[str]:
    """In sentences: what frontier gains on the paper's procedure and why, whether risk was controlled, the limit."""
    by_key = {s.row.key: s for s in found}
    level = results["configuration"]["task"]["risk_level"]
    if SHORTEST not in by_key or REFERENCE not in by_key:
        return []
    ours = by_key[SHORTEST]
    paper = by_key[REFERENCE]
    against = {d.reference.key: d for d in gains(results)}
    gain = against[REFERENCE]
    n_opt = " or ".join(str(n) for n in results["configuration"]["krcps"]["n_opt"])
    word = "shorter" if gain.value < 0 else "longer"
    lines = [
        f"**Frontier with betting is {_in_words(gain)} than K-RCPS with Hoeffding-Bentkus, the best of its grid** "
        f"(n_opt {n_opt}): {ours.length.mean():.4f} against {paper.length.mean():.4f}, {word} in "
        f"{gain.shorter if gain.value < 0 else gain.draws - gain.shorter} of {gain.draws} draws. Its risk was "
        f"at most {level:g} in {1 - ours.above:.0%} of the draws, and {ours.risk.mean():.4f} over all of them (a "
        f"draw's mean over its validation images has a deviation of {ours.risk_deviation:.4f})."
        + ("" if ours.fresh is None else f" It held {ours.fresh:.1%} of the pixels of a fresh sample."),
    ]
    fair = {
        "calibrated/krcps_best/betting": "K-RCPS with betting, the best of its grid,",
        "calibrated/rcps/betting": "RCPS with betting",
        "calibrated/krcps_equal/hoeffding_bentkus": "K-RCPS with as many fitting images",
        "calibrated/rcps/hoeffding_bentkus": "RCPS with Hoeffding-Bentkus",
    }
    known = [f"against {name} {against[key].value:+.1%}" for key, name in fair.items() if key in against]
    if known:
        lines.append(f"**The bound's part and the path's.** Its mean length is, {', '.join(known)} (intervals below).")
    limits = {name: by_key.get(f"calibrated/{name}/none") for name in ORACLES}
    lengths = {name: float(s.length.mean()) for name, s in limits.items() if s is not None}
    if len(lengths) == len(ORACLES):
        settings = results["configuration"]
        delta = settings["task"]["failure_prob"]
        certifying = settings["draws"]["calibration"] - settings["frontier"]["n_opt"]
        cut = lengths["oracle_cut"]
        oracle = lengths["oracle"]
        lines.append(
            f"**How near to the limit.** A perfect bound on the same path would give {cut:.4f} "
            f"({cut / ours.length.mean() - 1:+.1%}), a path fitted on the validation images themselves {oracle:.4f} "
            f"({oracle / ours.length.mean() - 1:+.1%}). The paper's procedure is "
            f"{paper.length.mean() / oracle - 1:.1%} above that limit, frontier with betting "
            f"{ours.length.mean() / oracle - 1:.1%}. No bound is perfect: if all {certifying} certifying images "
            f"lost alike, none that does not randomise could certify them with a loss above "
            f"{greatest_loss(certifying, level, delta):.4f}, and with that loss the path's intervals have a mean "
            f"length of {lengths['oracle_bound']:.4f}."
        )
    return lines


def _in_words(d: Difference) -> str:
    """How much shorter or longer, with the interval."""
    word = "shorter" if d.value < 0 else "longer"
    low, high = sorted((-d.low, -d.high) if d.value < 0 else (d.low, d.high))
    return f"{abs(d.value):.1%} {word}" + (f" (95% interval {low:.1%} to {high:.1%})" if low == low else "")


def _against_target(results: dict[str, Any], found: list[Summary]) -> list[str]:
    """Whether what was aimed at was reached; one that missed it must say in its notes what was tried."""
    settings = results["configuration"]
    target, gain = settings["target"], {d.reference.key: d for d in gains(results)}.get(REFERENCE)
    if target is None or gain is None:
        return []
    controlled = 1 - next(s.above for s in found if s.row.key == SHORTEST)
    on_average = " on average (its interval begins below)" if -gain.high < target["shorter"] else ""
    met = [
        f"at least {target[name]:.0%} {what}: {f'met{but}' if found >= target[name] - 1e-9 else 'missed'}"
        for name, what, found, but in (
            ("shorter", "shorter", -gain.value, on_average),
            ("controlled", "of the draws with their risk controlled", controlled, ""),
        )
    ]
    if any("missed" in line for line in met) and not settings["notes"]:
        raise ValueError(f"{settings['name']} missed its target ({'; '.join(met)}); say in its notes what was tried")
    return [f"Aimed at: {'; '.join(met)}."]


def _different(results: dict[str, Any], found: list[Summary]) -> list[str]:
    settings = results["configuration"]
    name = settings["published"]
    data = {"celeba": "CelebA", "abdomen": "AbdomenCT-1K"}[name]
    lines = [f"The last column of the table is the paper's {data}, all with Hoeffding-Bentkus."]
    lines.append("\n".join(f"- **{what}**: {why}." for what, why in settings["differences"].items()))
    lines.append("\n".join(f"- {note}" for note in settings["notes"]))
    figures = results["material"]["figures"]
    facts = [_fact(what, figures[what]) for what in ("score", "regressor", "conffusion", "sampling") if what in figures]
    if any(facts):
        lines.append("The networks, as their makers report them: " + "; ".join(filter(None, facts)) + ".")
    if any("seconds" in one for one in settings["training"].values()):
        lines.append("They were trained for a given time, not a number of steps: another run gives other weights.")
    papers = {s.row: published(s.row, name) for s in found}
    both = [s for s in found if papers[s.row] is not None and not s.uncertified]
    if len(both) > 1:
        shortest = min(both, key=lambda s: float(s.length.mean())).row
        theirs = min(both, key=lambda s: (papers[s.row] or (inf,))[0]).row
        same = "the same in both" if shortest == theirs else f"{_name(theirs)} in the paper, {_name(shortest)} here"
        lines.append(f"Among the rows that the paper has, the shortest is {same}.")
    return [line for line in lines if line]


def _name(row: TableRow) -> str:
    return f"{row.names[0]} with {row.names[1]}"


def _fact(what: str, figures: Any) -> str:
    """A few numbers of the makers' own figures."""
    wanted = ("networks", "steps", "step", "seconds", "psnr_noisy", "psnr_denoiser", "psnr_mean", "miss_rate",
              "coverage_of_fresh_draw", "exact_coverage")  # fmt: skip
    if not isinstance(figures, dict):
        return ""
    known = [f"{'steps' if name == 'step' else name.replace('_', ' ')} {figures[name]:.4g}" for name in wanted
             if isinstance(figures.get(name), int | float)]  # fmt: skip
    return f"{what} ({', '.join(known)})" if known else ""
