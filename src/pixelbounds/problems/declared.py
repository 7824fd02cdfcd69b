"""A problem in a TOML file: `problem` names it, the other keys are the arguments of its function.

problem = "ct"
views = 16
size = 64
sigma_0 = 0.01
photons = 1000   # instead of sigma_0: noise of counting
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..images.checks import check_choice
from ..storage.files import strict_toml
from .fourier import mri
from .problem import Problem, poisson
from .projection import ct, motion_blur
from .separable import deblur, denoise, inpaint, super_resolve

PROBLEMS: dict[str, Callable[..., Problem]] = {
    f.__name__: f for f in (denoise, inpaint, super_resolve, deblur, motion_blur, ct, mri)
}


def read_problem(path: str | os.PathLike[str]) -> Problem:
    """The problem that a TOML file declares."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f'{path} does not exist; give a TOML file such as problem = "super_resolve", factor = 4'
        )
    try:
        return declared_problem(strict_toml(path.read_bytes()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def declared_problem(told: dict[str, Any]) -> Problem:
    """The problem that a table declares.

    >>> declared_problem({"problem": "super_resolve", "factor": 4, "sigma_0": 0.05})
    super-resolve 4, sigma_0 0.05
    """
    told = dict(told)
    make = PROBLEMS[check_choice(told.pop("problem", None), PROBLEMS, "problem")]
    photons = told.pop("photons", None)
    known = inspect.signature(make).parameters
    for key in told:
        check_choice(key, [*known, "photons"], f"key of {make.__name__}")
    if photons is not None and "sigma_0" in told:
        raise ValueError("both sigma_0 and photons are told; give one kind of noise")
    if photons is not None:
        told["sigma_0"] = 0.0
    missing = [name for name, p in known.items() if p.default is inspect.Parameter.empty and name not in told]
    if missing:
        raise ValueError(f"{make.__name__} needs {', '.join(missing)}")
    made = make(**told)
    return made if photons is None else poisson(made, photons)
