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
from typing import Any

_HOMES = {
    "Problem": "problem", "ct": "projection", "deblur": "separable", "denoise": "separable", "inpaint": "separable",
    "motion_blur": "projection", "mri": "fourier", "poisson": "problem", "read_problem": "declared",
    "super_resolve": "separable",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
