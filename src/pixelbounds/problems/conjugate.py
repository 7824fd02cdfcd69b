"""Conjugate gradients for systems that are symmetric and not negative, one for each image of a batch.

NumPy arrays and torch tensors, real or complex (with the real part of the inner product), on any device. Nothing is
imported here, so that it also serves where torch is all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def dot(a: Any, b: Any) -> Any:
    """Real inner product of each image, (n, ...), (n, ...) -> (n,)."""
    return (a.conj() * b).real.reshape(len(a), -1).sum(-1)


def conjugate_gradients(apply: Callable[[Any], Any], b: Any, *, steps: int, tolerance: float = 1e-6) -> Any:
    """Solve apply(x) = b from x = 0, (n, ...): at most `steps`, or until all residuals are `tolerance` times |b|.

    Where apply is singular and b in its range, the solution of least norm.

    >>> import numpy as np
    >>> conjugate_gradients(lambda x: x * np.array([1.0, 4.0]), np.array([[2.0, 2.0]]), steps=5).round(9)
    array([[2. , 0.5]])
    """
    x = b * 0
    residual = b
    direction = residual
    square = dot(residual, residual)
    least = square * tolerance**2
    wide = (-1,) + (1,) * (b.ndim - 1)
    for _ in range(steps):
        if bool((square <= least).all()):
            break
        applied = apply(direction)
        curved = dot(direction, applied)
        step = square / curved.clip(min=1e-30)
        step = step * ((square > least) & (curved > 0))  # one that is solved, or not positive, stays as it is
        x = x + step.reshape(wide) * direction
        residual = residual - step.reshape(wide) * applied
        now = dot(residual, residual)
        direction = residual + (now / square.clip(min=1e-30)).reshape(wide) * direction
        square = now
    return x
