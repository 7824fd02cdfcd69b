"""Which masks are written beside intervals: those of a segmentation, and the pixels that are trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..calibration.trust import TrustMask
from ..images.ends import Band, Interval
from ..images.library import Array

_SEGMENTED = {"outer": "1: the pixel cannot be excluded", "inner": "1: the pixel is certain, as far as is promised"}


@dataclass(frozen=True, eq=False)
class MaskRules:
    """Outer and inner mask of a `segmentation`, and what a `trust` mask promises."""

    segmentation: bool = False
    trust: TrustMask | None = None

    @property
    def said(self) -> dict[str, str]:
        """What each mask says, by its name."""
        words = _SEGMENTED if self.segmentation else {}
        return words if self.trust is None else {**words, "trusted": f"1: trusted. {self.trust.guarantee}"}

    def of(self, band: Band, interval: Interval) -> dict[str, Array]:
        """The masks of some images."""
        masks = {name: getattr(interval, name) for name in (_SEGMENTED if self.segmentation else ())}
        return masks if self.trust is None else {**masks, "trusted": self.trust.apply(band)}

    def state(self) -> dict[str, Any]:
        """What a file says of the masks, and an interrupted run must agree on."""
        return {"masks": self.said} if self.said else {}
