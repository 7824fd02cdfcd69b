"""x -> y: what a camera, a scanner or an antenna sees of an image, y = A x + noise with a linear A.

problem.py     what a problem is: operator, exact adjoint, noise, least-squares solution
separable.py   axis by axis: denoise, inpaint, super-resolve, deblur
projection.py  as a sparse matrix: sparse-view and limited-angle CT, motion blur
fourier.py     MRI: undersampled Fourier coefficients seen by several coils
krylov.py      conjugate gradients and minimal residuals, for NumPy and torch
declared.py    a problem in a TOML file

Every operator is defined once and takes NumPy arrays and torch tensors. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .declared import read_problem
    from .fourier import mri
    from .problem import Problem, poisson
    from .projection import ct, motion_blur
    from .separable import deblur, denoise, inpaint, super_resolve

_HOMES = {
    "declared": ("read_problem",),
    "fourier": ("mri",),
    "problem": ("Problem", "poisson"),
    "projection": ("ct", "motion_blur"),
    "separable": ("deblur", "denoise", "inpaint", "super_resolve"),
}

__all__ = [
    "Problem",
    "ct",
    "deblur",
    "denoise",
    "inpaint",
    "motion_blur",
    "mri",
    "poisson",
    "read_problem",
    "super_resolve",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
