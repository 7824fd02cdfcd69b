"""When a run ends, how its rate goes, and when its validation images are looked at: functions of the step alone.

The learning rate rises over `warmup` steps, or over the first tenth of the run where that is shorter: a short run must
not end before it has begun. It then follows half a cosine to 0 at the end.

The looks at the validation images become rarer as the run grows, since nothing happens faster than in proportion to
what was done already: every 20th step at first, then 2.5 to 5% of the steps so far apart. `patience` counts looks, so
20 of them are 400 steps at first, and later from half as long as the run took so far to as long again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import cos, isfinite, pi
from typing import Any

import numpy as np

from .batches import Augmentation, rotations
from .noise import check_seed

_RISE = 0.1  # the share of a run that the rate may rise for
_LOOK, _DENSE = 20, 400  # steps between the first looks, and until when they stay so near


def _setting(default: Any, description: str, **check: Any) -> Any:
    """A field with what it means, and its check: `whole`, a number `above` or `at_least` something."""
    return field(default=default, metadata={"description": description, **check})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train; the description of each field stands beside it, and `[training]` of a TOML file has the same."""

    steps: int | None = _setting(None, "steps of the optimizer, e.g. 100_000", whole=True, above=0)
    seconds: float | None = _setting(None, "seconds after which to stop, e.g. 3600", above=0)
    batch: int = _setting(64, "images per step", whole=True, above=0)
    learning_rate: float = _setting(2e-4, "learning rate of AdamW, e.g. 2e-4", above=0)
    warmup: int = _setting(500, "steps over which the rate rises, a tenth of the run at most", whole=True, at_least=0)
    cosine: bool = _setting(True, "let the rate fall to 0 at the end")
    weight_decay: float = _setting(0.0, "weight decay of AdamW", at_least=0)
    clip: float = _setting(1.0, "greatest norm of a gradient", above=0)
    ema: float = _setting(0.999, "memory of the averaged weights, e.g. 0.999", at_least=0)
    sigma_top: float | None = _setting(None, "greatest noise level trained on, a little above sigma_0", above=0)
    crop: int | None = _setting(None, "train on random squares of so many pixels, e.g. 128", whole=True, above=0)
    augment: Augmentation = field(default=rotations, metadata={"description": "augmentation of the training images"})
    seed: int = _setting(0, "seed of weights, batches and noise")
    patience: int | None = _setting(
        20, "looks at the validation images without a gain that end the run; None: never", whole=True, above=0
    )
    look_every: int | None = _setting(None, "steps between looks; by default rarer and rarer", whole=True, above=0)
    log_every: int = _setting(50, "steps between lines of the log", whole=True, above=0)
    checkpoint_every: int = _setting(1000, "steps between states on disk", whole=True, above=0)
    compile: bool = _setting(False, "use torch.compile")

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise ValueError("neither steps nor seconds is given; say when to stop, e.g. steps=10_000 or seconds=480")
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None or "None" not in str(one.type):
                self._check(one.name, value, **one.metadata)
        check_seed(self.seed)
        if not self.ema < 1:
            raise ValueError(f"ema is {self.ema}; it must be at least 0 and below 1, e.g. 0.999")

    def _check(
        self, name: str, value: Any, description: str, *, whole: bool = False, above: float | None = None,
        at_least: float | None = None,
    ) -> None:  # fmt: skip
        if whole:
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ValueError(f"{name} is {value!r}; it must be a whole number")
            object.__setattr__(self, name, int(value))  # JSON has no integers of NumPy
        if above is not None and not (value is not None and value > above and isfinite(value)):
            raise ValueError(f"{name} is {value}; it must be positive")
        if at_least is not None and not (value is not None and value >= at_least):
            raise ValueError(f"{name} is {value}; it must be at least {at_least}")

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
