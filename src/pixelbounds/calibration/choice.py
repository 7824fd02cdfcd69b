"""Which groups: candidates compared on the fitting images alone.

Each candidate is fitted on one half of the fitting units and taken along its frontier on the other half, until just
the risk level is met; the first that is about as short as the shortest wins and is fitted again on all of them. The
certifying images are not looked at, so the guarantee is that of the winner. On images where a band's own features say
all there is to say, learned groups are as short but slower; where neighbourhoods matter, they are much shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..images import Array
from .certify import loss_table
from .groups import Grouping
from .pairs import Archive, Block, Pairs
from .paths import Path, frontier_path, trades, widening_grid
from .result import widen_block

_ABOUT = 1.005  # lengths that differ less are equal: half of the fitting images cannot tell them apart

Fit = Callable[[Pairs, Array, np.random.Generator], Grouping]  # pairs, fitting images, generator


def shortest(
    pairs: Pairs, images: Array, rng: np.random.Generator, risk_level: float, fits: Sequence[Fit], unit_of: Array
) -> Fit:
    """The first candidate with about the shortest intervals on units that it was not fitted on; candidates are given
    with the cheapest first, which is taken where units are few. `unit_of` says the unit of each of the images.
    """
    units = np.unique(unit_of)
    if len(units) < 4:
        return fits[0]
    seed = int(rng.integers(2**63))  # all candidates see the same halves and the same randomness
    first = np.isin(unit_of, np.random.default_rng(seed).permutation(units)[: len(units) // 2])
    taught, untouched = images[first], pairs.take(images[~first])

    def length(fit: Fit) -> float:
        grouping = fit(pairs, taught, np.random.default_rng(seed))
        path = frontier_of(pairs, taught, grouping, risk_level)
        return length_at_risk(untouched, grouping, path, risk_level)

    lengths = [length(fit) for fit in fits]
    return next(fit for fit, found in zip(fits, lengths, strict=True) if found <= min(lengths) * _ABOUT)


def frontier_of(pairs: Archive, images: Array, grouping: Grouping, risk_level: float) -> Path:
    """The frontier of a grouping on some images."""
    widest = float(widening_grid(pairs, per_octave=1)[-1])
    return frontier_path(trades(pairs, images, grouping), risk_level, widest)


def knot_at_risk(pairs: Pairs, grouping: Grouping, path: Path, risk_level: float) -> int:
    """The first knot whose mean loss on these very images is at most the risk level, or the last."""
    risk = (loss_table(pairs, grouping, path) / pairs.sizes[:, None]).mean(axis=0)
    return min(int(np.argmax(np.append(risk, 0.0) <= risk_level)), len(path) - 1)


def length_at_risk(pairs: Pairs, grouping: Grouping, path: Path, risk_level: float) -> float:
    """Mean clipped length where the risk on these very images is just the risk level."""
    widening = path.knots[:, knot_at_risk(pairs, grouping, path, risk_level)]

    def work(truth: Array, block: Block) -> Array:
        lower, upper = widen_block(block, pairs.family, grouping, widening)
        return (upper - lower).reshape(len(block), -1).mean(axis=1)

    return float(np.concatenate(list(pairs.over_blocks(work))).mean())
