"""The four tables of docs/results.md."""

from __future__ import annotations

from reproduce.results import load_results
from reproduce.rows import REFERENCE, SHORTEST
from reproduce.summaries import gains, summaries

from .chest import STUDIES, summary
from .equal_time import Compared, measured, title
from .pages import RESULTS, result
from .promises_page import rows_of

PAGE = "docs/results.md"
SAME_BOUND = "calibrated/krcps_best/betting"
WAYS = {
    "plain 5%": "one promise: 5% of all pixels",
    "per promise": "one calibration per promise, the widest interval of each pixel",
    "ours": "joint promises",
    "ours, labels": "joint promises, with labels at test time",
}
PLACES = ("lung", "heart", "trachea")
ATTACKS = {
    "coin tosses: five promises that break at one point": "five promises at the level, all broken at one point",
    "rare and overlapping regions, a subgroup, cap, tail: seven jointly": "seven promises, some of rare regions",
    "band and groups chosen on the fitting images": "band and groups chosen on the fitting images",
    "growing, 40 looks": "anytime calibration, 40 looks",
}


def lengths(folder: str = "") -> list[str]:
    """The paper's procedure and ours at the same level; `folder` holds the pages of results."""
    lines = [
        "| data | level | the paper: K-RCPS, Hoeffding-Bentkus | ours: frontier, betting | difference "
        "| of that, the path |",
        "|---|---|---|---|---|---|",
    ]
    for path in RESULTS:
        results = load_results(path)
        by_key = {s.row.key: s.length.mean() for s in summaries(results)}
        gain = {d.reference.key: d.value for d in gains(results)}
        name = f"[{results['configuration']['title']}]({folder}results/{path.stem}.md)"
        lines.append(
            f"| {name} | {results['configuration']['task']['risk_level']:g} | {by_key[REFERENCE]:.4f} "
            f"| {by_key[SHORTEST]:.4f} | {gain[REFERENCE]:+.1%} | {gain[SAME_BOUND]:+.1%} |"
        )
    return lines


def seconds() -> list[str]:
    """From training to intervals, each way with its own network; of each set the run with most seconds."""
    longest = {
        run["set"]: run for run in sorted(measured(), key=lambda run: sum(Compared.of(run).papers["seconds"].values()))
    }
    lines = [
        "| data | the paper's way: seconds of GPU, length | ours: seconds, length | shorter "
        "| of that, network and sampler |",
        "|---|---|---|---|---|",
    ]
    for run in longest.values():
        found = Compared.of(run)
        lines.append(
            f"| {title(run).split(', up to')[0]} | {found.said(found.papers)} | {found.said(found.ours)} "
            f"| {found.shorter(found.ours):.1%} | {found.shorter(found.crossed):.1%} |"
        )
    return lines


def promises() -> list[str]:
    """What is missed where, and what a promise about it costs."""
    told = {x["way"]: x for x in summary(rows_of(result("chest"), "slices", STUDIES["slices"][0]))}
    lines = [f"| chest CT | all | {' | '.join(PLACES)} | mean length |", "|---" * (3 + len(PLACES)) + "|"]
    for way, words in WAYS.items():
        risks = " | ".join(f"{told[way]['risks'][name]:.1%}" for name in ("all", *PLACES))
        lines.append(f"| {words} | {risks} | {told[way]['lengths']['all']:.4f} |")
    return lines


def attacks() -> list[str]:
    """How often a promise is broken in worlds whose risk is known."""
    rows = {(row["attack"], row["bound"]): row for row in result("attacks")["rows"]}
    lines = ["| world | betting | wrong on purpose |", "|---|---|---|"]
    for name, words in ATTACKS.items():
        shares = [
            rows[name, bound]["broken"] / rows[name, bound]["worlds"] for bound in ("betting", "wrong on purpose")
        ]
        lines.append(f"| {words} | {shares[0]:.1%} | {shares[1]:.0%} |")
    return lines


def text() -> str:
    parts = [
        "## Shorter at the same guarantee",
        "Mean length over 20 splits, at 90%. The last column is the gain against K-RCPS with our bound, which is the\n"
        "path's part. On faces and chests most of the gain is the bound's.",
        "\n".join(lengths()),
        "## Shorter in the same seconds",
        "From training to intervals on one NVIDIA H200, each way with its own network, sampler and calibration\n"
        "([all runs](research/equal_time.md)).",
        "\n".join(seconds()),
        "## Where misses lie, and what a promise there costs",
        "True risks, mean of 20 draws. Promised at 90% are 5% of all pixels, of the lung and of the heart, 10% of the\n"
        "trachea, and more ([all promises](research/promises.md)). A promise about all pixels alone lets the lung\n"
        "miss twice that share.",
        "\n".join(promises()),
        "## The guarantee under attack",
        "Share of simulated worlds in which a promise is broken, at an allowed 10%\n"
        "([all attacks](research/attacks.md)). *Wrong on purpose* takes the plain mean in place of a bound, or\n"
        "calibrates anew at every look. It shows that "
        "the worlds detect a wrong method.",
        "\n".join(attacks()),
    ]
    return "\n\n".join(parts)
