"""Which masks are written beside intervals: those of a segmentation, and the pixels that are trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.text import trust_in_words
from ..calibration.trust import TrustMask
from ..images.ends import Band, Interval
from ..images.library import Array
from ..images.measure import Tolerance

_SEGMENTED = {"outer": "1: the pixel cannot be excluded", "inner": "1: the pixel is certain, as far as is promised"}


@dataclass(frozen=True, eq=False)
class MaskRules:
    """Outer and inner mask of a `segmentation`; trusted are intervals within a `tolerance`, or what a `trust` mask
    promises.
    """

    segmentation: bool = False
    tolerance: Tolerance | None = None
    trust: TrustMask | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and self.trust is not None:
            raise ValueError("--tolerance and --trust both say which pixels are trusted; give one of them")

    @property
    def said(self) -> dict[str, str]:
        """What each mask says, by its name."""
        words = _SEGMENTED if self.segmentation else {}
        if self.tolerance is not None:
            said = f"1: the interval is {self.tolerance}. It is short, which does not say that it holds the truth"
            return {**words, "trusted": said}
        return words if self.trust is None else {**words, "trusted": f"1: trusted. {self.trust.guarantee}"}

    def of(self, band: Band, interval: Interval) -> dict[str, Array]:
        """The masks of some images."""
        masks = {name: getattr(interval, name) for name in (_SEGMENTED if self.segmentation else ())}
        if self.tolerance is not None:
            masks["trusted"] = self.tolerance.holds(interval.lower, interval.upper)
        return masks if self.trust is None else {**masks, "trusted": self.trust.apply(band)}

    def trusted_in_words(self, calibration: Calibration, share: float) -> str:
        """What the share of trusted pixels means."""
        if self.trust is not None:
            return f"{share:.1%} of the pixels. {self.trust.guarantee}"
        return f"{share:.1%} of the pixels: intervals {self.tolerance}. {trust_in_words(calibration, share)}"

    def state(self) -> dict[str, Any]:
        """What a file says of the masks, and an interrupted run must agree on."""
        state: dict[str, Any] = {"masks": self.said} if self.said else {}
        return state if self.tolerance is None else {**state, "tolerance": self.tolerance.state()}
