"""When a run ends, how its rate goes, and when its validation images are looked at: functions of the step alone.

The learning rate rises over `warmup` steps, or over the first tenth of the run where that is shorter: a short run must
not end before it has begun. It then follows half a cosine to 0 at the end.

The looks at the validation images become rarer as the run grows, since nothing happens faster than in proportion to
what was done already: every 20th step at first, then 2.5 to 5% of the steps so far apart. `patience` counts looks, so
20 of them are 400 steps at first, and later from half as long as the run took so far to as long again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, isfinite, pi

import numpy as np

from .batches import Augmentation, rotations
from .noise import check_seed

_RISE = 0.1  # the share of a run that the rate may rise for
_LOOK, _DENSE = 20, 400  # steps between the first looks, and until when they stay so near
_POSITIVE = "steps", "seconds", "batch", "learning_rate", "clip", "log_every", "checkpoint_every", "sigma_top"
_WHOLE = "steps", "batch", "warmup", "patience", "look_every", "log_every", "checkpoint_every"
_OPEN = "steps", "patience", "look_every"  # may be None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. `batch` counts the images of a step over all processes; None in the last three means: on a GPU.

    `patience` and `look_every` are about validation images: the run ends after that many looks without a new least
    loss (None: never before its end), and looks are that many steps apart (None: as the module says).
    """

    steps: int | None = None
    seconds: float | None = None
    batch: int = 64
    learning_rate: float = 2e-4
    warmup: int = 500
    cosine: bool = True
    weight_decay: float = 0.0
    clip: float = 1.0
    ema: float = 0.999
    sigma_top: float | None = None
    augment: Augmentation = rotations
    seed: int = 0
    patience: int | None = 20
    look_every: int | None = None
    log_every: int = 50
    checkpoint_every: int = 1000
    compile: bool = False
    half: bool | None = None
    channels_last: bool | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise ValueError("neither steps nor seconds is given; say when to stop, e.g. steps=10_000 or seconds=480")
        for name in _WHOLE:
            value = getattr(self, name)
            if value is None and name in _OPEN:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ValueError(f"{name} is {value!r}; it must be a whole number")
            object.__setattr__(self, name, int(value))  # JSON knows no integers of NumPy
        for name in (*_POSITIVE, "patience", "look_every"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be positive")
        for name in ("warmup", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        check_seed(self.seed)
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema is {self.ema}; it must be at least 0 and below 1, e.g. 0.999")

    def done(self, step: int, seconds: float) -> float:
        """The fraction of the run that is over, at most 1."""
        by_step = step / self.steps if self.steps else 0.0
        return min(1.0, max(by_step, seconds / self.seconds if self.seconds else 0.0))

    def rate(self, step: int, done: float) -> float:
        """The learning rate of a step: a linear rise over `warmup` steps or a tenth of the run, then down to 0.

        >>> settings = Settings(steps=20, learning_rate=1.0, warmup=500, cosine=False)
        >>> [round(settings.rate(step, settings.done(step, 0)), 3) for step in (0, 1, 2)]
        [0.002, 0.5, 1.0]
        """
        fall = (1 + cos(pi * done)) / 2 if self.cosine else 1.0
        rise = max((step + 1) / max(1, self.warmup), done / _RISE)
        return self.learning_rate * min(1.0, rise) * fall

    def looks(self, step: int) -> bool:
        """Whether the validation images are looked at after so many steps.

        >>> looks = [step for step in range(1, 4000) if Settings(steps=4000).looks(step)]
        >>> looks[:3], looks[-3:], len(looks)
        ([20, 40, 60], [3520, 3680, 3840], 84)
        """
        every = self.look_every or _LOOK * 2 ** max(0, (step // _DENSE).bit_length() - 1)
        return step > 0 and step % every == 0

    def exhausted(self, stale: int) -> bool:
        """Whether so many looks in a row without a new least loss are too many."""
        return self.patience is not None and stale >= self.patience
