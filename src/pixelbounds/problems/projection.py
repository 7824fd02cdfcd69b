"""Problems that are a sparse matrix: parallel-beam CT of few views or a limited angle, and motion blur.

The adjoint is the transposed matrix, exactly. A matrix is made once for each size of image; it holds two entries for
each pixel and view, so this serves images up to a few hundred pixels across.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from ..images.checks import check_count, check_number
from ..images.library import Array, library_of
from .problem import Problem, check_deviation, last_axes

_MOST_ENTRIES = 2**27  # of a matrix: 720 views of 256 x 256 pixels are 0.7 of it
_MOST_LENGTH = 1024  # of a blur, in pixels


def ct(views: int, size: int, sigma_0: float = 0.0, *, span: float = 180.0) -> Problem:
    """Parallel beams through images of size x size, seen from `views` angles over `span` degrees: (views, bins).

    Few views over 180 degrees are sparse-view CT, a smaller span is a limited angle. A pixel's value goes to the two
    detector bins beside its shadow, in proportion; a ray's sum is divided by `size`, so that values stay near [0, 1].
    """
    views = check_count(views, "views")
    size = check_count(size, "size", least=2)
    if 2 * views * size**2 > _MOST_ENTRIES:
        raise ValueError(
            f"{views} views of {size} x {size} pixels are a matrix of {2 * views * size**2} entries, and "
            f"{_MOST_ENTRIES} are the most; take fewer views, or smaller images"
        )
    if not 0 < check_number(span, "span") <= 180:
        raise ValueError(f"span is {span:g}; give the angle that views cover, in degrees, above 0 and at most 180")
    bins = int(np.ceil(np.sqrt(2) * size)) + 1

    def forward(x: Any) -> Any:
        _check_size(x, (size, size), "images")
        return _multiplied(_projector(views, size, bins, float(span)), x, (views, bins))

    def adjoint(y: Any) -> Any:
        _check_size(y, (views, bins), "observations")
        return _multiplied(_projector(views, size, bins, float(span)), y, (size, size), transposed=True)

    limited = "" if span == 180 else f" of {span:g} degrees"
    return Problem(f"ct {views} views{limited}", check_deviation(sigma_0), forward, adjoint)


def motion_blur(length: float, angle: float = 0.0, sigma_0: float = 0.0) -> Problem:
    """The camera moved `length` pixels at `angle` degrees while it looked; images go on as their mirror images."""
    if not 0 < check_number(length, "length") <= _MOST_LENGTH:
        raise ValueError(
            f"length is {length:g}; give the way of the camera in pixels, above 0 and at most {_MOST_LENGTH}"
        )
    angle = check_number(angle, "angle")

    def apply(x: Any, *, transposed: bool = False) -> Any:
        down, right = last_axes(x, 2)
        shape = (int(x.shape[down]), int(x.shape[right]))
        return _multiplied(_trail(shape, float(length), angle), x, shape, transposed=transposed)

    name = f"motion blur {length:g} at {angle:g} degrees"
    return Problem(name, check_deviation(sigma_0), apply, lambda y: apply(y, transposed=True))


def _check_size(x: Any, wanted: tuple[int, int], name: str) -> None:
    last_axes(x, 2)
    if tuple(x.shape)[-2:] != wanted:
        raise ValueError(f"{name} have shape {tuple(x.shape)}; this problem takes {wanted} at the end")


# ---------------------------------------------------------------- matrices


class _Sparse:
    """A sparse matrix from entries, those at one place added: for NumPy, and for torch, which needs no scipy."""

    def __init__(self, rows: Array, columns: Array, values: Array, shape: tuple[int, int]) -> None:
        self._entries = rows, columns, values
        self._shape = shape
        self._made: dict[Any, Any] = {}

    def of_kind(self, x: Any, transposed: bool) -> Any:
        """The matrix, or its transpose, in the library, precision and place of `x`."""
        torch_ = library_of(x) == "torch"
        key = (x.dtype, x.device if torch_ else "", transposed)
        if key not in self._made:
            self._made[key] = self._tensor(x, transposed) if torch_ else self._array(x, transposed)
        return self._made[key]

    def _array(self, x: Array, transposed: bool) -> Any:
        from scipy.sparse import coo_array

        rows, columns, values = self._entries
        matrix = coo_array((values.astype(x.dtype), (rows, columns)), shape=self._shape)
        return (matrix.T if transposed else matrix).tocsr()

    def _tensor(self, x: Any, transposed: bool) -> Any:
        import torch

        rows, columns, values = self._entries
        at = np.stack([columns, rows] if transposed else [rows, columns])
        shape = self._shape[::-1] if transposed else self._shape
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            made = torch.sparse_coo_tensor(torch.from_numpy(at), torch.from_numpy(values), shape, check_invariants=True)
            return made.coalesce().to_sparse_csr().to(x.device, x.dtype)


def _multiplied(sparse: _Sparse, x: Any, shape: tuple[int, int], *, transposed: bool = False) -> Any:
    """A sparse matrix times the last two axes of x, taken as one: (..., h, w) -> (..., *shape)."""
    before = tuple(x.shape)[:-2]
    columns = x.reshape(-1, x.shape[-2] * x.shape[-1]).swapaxes(0, 1)
    if library_of(x) == "torch":
        columns = columns.contiguous()  # a GPU reads the same place of all images at once
    return (sparse.of_kind(x, transposed) @ columns).swapaxes(0, 1).reshape(*before, *shape)


@lru_cache(maxsize=4)
def _projector(views: int, size: int, bins: int, span: float) -> _Sparse:
    """Rows are (view, bin), columns pixels."""
    middle = (size - 1) / 2
    down, right = (axis.ravel() - middle for axis in np.mgrid[:size, :size])
    rows, columns, values = [], [], []
    for view in range(views):
        turn = np.deg2rad(span * view / views)
        shadow = right * np.cos(turn) + down * np.sin(turn) + (bins - 1) / 2
        low = np.floor(shadow).astype(np.int64)
        share = shadow - low
        for bin_, weight in ((low, 1 - share), (low + 1, share)):
            rows.append(view * bins + bin_)
            columns.append(np.arange(size * size))
            values.append(weight / size)
    return _Sparse(np.concatenate(rows), np.concatenate(columns), np.concatenate(values), (views * bins, size * size))


@lru_cache(maxsize=4)
def _trail(shape: tuple[int, int], length: float, angle: float) -> _Sparse:
    """Rows are blurred pixels, columns pixels: the mean along a line, between pixels in proportion."""
    down, right = (axis.ravel() for axis in np.mgrid[: shape[0], : shape[1]])
    turn = np.deg2rad(angle)
    points = np.linspace(-length / 2, length / 2, 2 * int(np.ceil(length)) + 1)
    rows, columns, values = [], [], []
    for point in points:
        y = down - point * np.sin(turn)
        x = right + point * np.cos(turn)
        for dy in (0, 1):
            for dx in (0, 1):
                i, j = np.floor(y).astype(np.int64) + dy, np.floor(x).astype(np.int64) + dx
                weight = (1 - np.abs(y - i)) * (1 - np.abs(x - j))
                rows.append(np.arange(shape[0] * shape[1]))
                columns.append(_mirrored(i, shape[0]) * shape[1] + _mirrored(j, shape[1]))
                values.append(weight / len(points))
    pixels = shape[0] * shape[1]
    return _Sparse(np.concatenate(rows), np.concatenate(columns), np.concatenate(values), (pixels, pixels))


def _mirrored(index: Array, size: int) -> Array:
    """Places beyond the ends as those of the mirror image: -1 is 0, size is size - 1."""
    turned = index % (2 * size)
    return np.where(turned < size, turned, 2 * size - 1 - turned)
