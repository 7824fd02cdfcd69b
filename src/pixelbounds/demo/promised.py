"""What the demo promises about phantoms, whose organs are known: body, organs and edges, all at once."""

from __future__ import annotations

import numpy as np

from ..calibration.promises import Promise, share
from ..images.library import Array
from ..images.regions import edges, label
from .canvas import Organ

PROMISED = {"all pixels": 0.05, "body": 0.05, "liver": 0.05, "kidneys": 0.1, "edges": 0.1}  # at most, of each region
SHARPEST = 0.05  # of the pixels are edges


def demo_promises(truth: Array, organs: Array) -> list[Promise]:
    """Promises about phantoms (n, h, w) with the organ of each pixel (n, h, w).

    >>> from .phantom import phantoms
    >>> some = phantoms(2, 32)
    >>> [(promise.name, promise.at_most) for promise in demo_promises(some.images, some.organs)][1:3]
    [('body', 0.05), ('liver', 0.05)]
    """
    regions = {
        "body": ~np.isin(organs, (Organ.AIR, Organ.TABLE)),
        "liver": label(organs, int(Organ.LIVER)),
        "kidneys": label(organs, int(Organ.KIDNEY)),
        "edges": edges(truth, top=SHARPEST),
    }
    return [share(level, within=regions.get(name), name=name) for name, level in PROMISED.items()]
