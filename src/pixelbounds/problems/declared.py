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
from typing import Any

from ..images.checks import check_choice
from ..storage.toml import read_toml
from .fourier import mri
from .problem import Problem, poisson
from .projection import ct, motion_blur
from .separable import deblur, denoise, inpaint, super_resolve

PROBLEMS: dict[str, Callable[..., Problem]] = {
    f.__name__: f for f in (denoise, inpaint, super_resolve, deblur, motion_blur, ct, mri)
}


def read_problem(path: str | os.PathLike[str]) -> Problem:
    """The problem that a TOML file declares."""
    return read_toml(path, declared_problem).content


def declared_problem(table: dict[str, Any]) -> Problem:
    """The problem that a table declares.

    >>> declared_problem({"problem": "super_resolve", "factor": 4, "sigma_0": 0.05})
    super-resolve 4, sigma_0 0.05
    """
    table = dict(table)
    make = PROBLEMS[check_choice(table.pop("problem", None), PROBLEMS, "problem")]
    photons = table.pop("photons", None)
    parameters = inspect.signature(make).parameters
    for key in table:
        check_choice(key, [*parameters, "photons"], f"key of {make.__name__}")
    if photons is not None and "sigma_0" in table:
        raise ValueError("both sigma_0 and photons are given; give one kind of noise")
    if photons is not None:
        table["sigma_0"] = 0.0
    missing = [name for name, p in parameters.items() if p.default is inspect.Parameter.empty and name not in table]
    if missing:
        raise ValueError(f"{make.__name__} needs {', '.join(missing)}")
    made = make(**table)
    return made if photons is None else poisson(made, photons)
