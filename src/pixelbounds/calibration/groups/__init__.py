"""Entries to K groups: which ends of which pixels widen together (membership M of Section 3.2).

A grouping answers one question, `at(block, entry, side)`: the group of some ends of some images, from what is known
when the truth is not: position, band, features, labels. It never looks at the truth of the image at hand, so a
path over its groups is a nested family and the guarantee holds whatever the grouping. The two ends of a pixel may
belong to different groups (`sided`): a miss is at one end only, so risks add.

positions.py      one label per pixel position: quantiles of the loss, multi-Otsu, a user's partition; classes of masks
contract.py       groups as they are stored: what is read is checked
band_features.py  bins of band width, level and room to the limits, in products; maps of these for learned groups
labelled.py       groups of another kind within labels known at test time
learned.py        bins of a predicted quantile of the score, and of the room to the limits; decision trees as arrays
"""

from ..block import Grouping, Single
from .band_features import BandGroups, fit_band_groups
from .contract import load_grouping
from .labelled import LabelledGroups, fit_labelled_groups
from .learned import LearnedGroups, fit_learned_groups
from .positions import Partition, by_loss, by_otsu, partition

__all__ = [
    "BandGroups", "Grouping", "LabelledGroups", "LearnedGroups", "Partition", "Single", "by_loss", "by_otsu",
    "fit_band_groups", "fit_labelled_groups", "fit_learned_groups", "load_grouping", "partition",
]  # fmt: skip
