"""Masks beside others, in docs/research/masks.md; the figures are those of `benchmarks.masks`."""

from __future__ import annotations

from typing import Any

from .pages import result, where

PAGE = "docs/research/masks.md"


def organs(found: dict[str, Any]) -> list[str]:
    images, settings = found["images"], found["settings"]
    lines = [
        f"## Organs\nLung, heart and trachea jointly: {images['organs']:,} slices of {images['patients']} patients "
        f"that trained no network. Half of them (slices, or patients) calibrate in each of {settings['draws']} draws, "
        f"the others judge; delta 0.1. Probabilities of a small network of ours ({settings['organ_steps']:,} steps of "
        f"8 slices, {settings['width']} channels; `python -m benchmarks.masks --every "
        f"{settings['every']} --draws {settings['draws']}`, MAPIE {found['mapie']}; "
        f"{where(found)}). *Between* is the share of the image between the inner and the outer mask of any organ, "
        "*missed* and *false* those of the worst organ, *crossed* the share of the image that lies in the inner mask "
        "of an organ and not in its outer one. Dice of the network, at p >= 0.5 and over slices that show the organ: "
        f"{', '.join(f'{name} {share:.2f}' for name, share in found['dice'].items())}.\n",
        "| promised | way | between (each draw) | missed | false | crossed | kept, so judged | CPU seconds |",
        "|---" * 8 + "|",
    ]
    for x in found["organs"]:
        lines.append(
            f"| {x['promised']} | {x['way']} | {x['undecided']:.1%} ({x['each draw']}) "
            f"| {x['missed']:.1%} | {x['false']:.1%} | {x['crossed']:.1%} | {x['kept']} | {x['CPU seconds']:.1f} |"
        )
    lines.append(
        "\nOf 20,000 samples of 640 losses, each 0 or 1 with mean 5%, the betting bound of MAPIE "
        f"{found['mapie']} was at or below 5% in {found['mapie too low']:.1%}, that of one run in "
        f"{found['one run too low']:.1%}; delta / 6 allows {0.1 / 6:.1%}."
    )
    return lines


def trust(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Trust masks\nSlices with noise of 0.2, estimate and band by a small network with quantile heads "
        f"({found['settings']['steps']:,} steps). At most 10% of the pixels of a mask may be farther than the "
        "tolerance from the estimate; the table has the share of the image that is trusted, and in brackets the "
        "mean share of wrong pixels in a mask.\n",
        "| data | tolerance | ours | Adame | Kutiel |",
        "|---" * 5 + "|",
    ]
    for data, tolerance in dict.fromkeys((x["data"], x["tolerance"]) for x in found["trust"]):
        ways = {x["way"]: x for x in found["trust"] if (x["data"], x["tolerance"]) == (data, tolerance)}
        cells = [f"{ways[name]['trusted']:.1%} ({ways[name]['wrong']:.1%})" for name in ("ours", "Adame", "Kutiel")]
        lines.append(f"| {data.replace('_', '')} | {tolerance:g} | {' | '.join(cells)} |")
    return lines


def text() -> str:
    found = result("masks")
    return "\n\n".join("\n".join(part) for part in (organs(found), trust(found)))
