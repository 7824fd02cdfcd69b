"""Linear systems, one for each image of a batch, that are known by what they do to a vector.

Conjugate gradients serve systems that are symmetric and not negative, minimal residuals any other. NumPy arrays and
torch tensors, real or complex (with the real part of the inner product), on any device. Nothing is imported here, so
that it also serves where torch is all there is.
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


def minimal_residuals(
    apply: Callable[[Any], Any],
    b: Any,
    *,
    steps: int,
    guess: Callable[[Any], Any] | None = None,
    tolerance: float = 1e-6,
) -> Any:
    """Solve apply(x) = b from x = 0, (n, ...), for any linear apply: at most `steps`, or until all residuals are small.

    After k steps x has the least residual of all combinations of b, apply(b), ..., as with GMRES (Saad and Schultz
    1986), here in the form of generalised conjugate residuals (Eisenstat, Elman and Schultz 1983), which stops for good
    where <r, apply(r)> is 0. The residual never grows, whatever apply is. `guess(r)` may say what solves apply(x) = r
    nearly; steps then go there, and not along r.

    >>> import numpy as np
    >>> minimal_residuals(lambda x: x[:, ::-1] * np.array([1.0, -4.0]) + x, np.array([[2.0, 2.0]]), steps=5).round(9)
    array([[0., 2.]])
    """
    x = b * 0
    residual = b
    least = dot(b, b) * tolerance**2
    wide = (-1,) + (1,) * (b.ndim - 1)
    before: list[tuple[Any, Any]] = []  # directions, and what apply makes of each: orthonormal
    for _ in range(steps):
        if bool((dot(residual, residual) <= least).all()):
            break
        direction = residual if guess is None else guess(residual)
        applied = apply(direction)
        for one, image in before:
            part = dot(image, applied).reshape(wide)
            direction = direction - part * one
            applied = applied - part * image
        scale = (dot(applied, applied).clip(min=1e-30) ** -0.5).reshape(wide)
        direction = direction * scale
        applied = applied * scale
        before.append((direction, applied))
        step = dot(applied, residual).reshape(wide)
        x = x + step * direction
        residual = residual - step * applied
    return x
