"""What a sampler is: a function (observation, samples, seed) -> samples of one observation.

It returns an array or tensor (samples, *pixels), a list of samples, or an iterator of them, which is taken from one by
one and may go on for ever. The same seed must give the same samples, or a run that stopped cannot go on; and samples of
one image must differ, or there is nothing to learn from them. What breaks this is said in `drawn_samples`.

A sampler that says `batched = b` takes up to b observations in a call, (observations, samples, seeds) with a seed for
each, and returns what it draws for each of them: (observations, samples, *pixels), or a list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..images.checks import check_count
from ..images.foreign import as_plain_array
from ..images.library import Array, as_array, library_of, to_numpy

Sampler = Callable[[Any, int, int], Any]  # observation (*shape), samples, seed -> samples (samples, *pixels)
_WORD = 0xFFFFFFFF
_ODD_FACTOR = 0x9E3779B1
_BLOCK = 16  # samples that are reduced at a time


def load_sampler(text: str) -> Sampler:
    """The function that `package.module:function` names, looked for in the current folder, too."""
    module, _, name = text.partition(":")
    if module.endswith(".py"):
        raise ValueError(f"{module} is a file; name its module, {module.removesuffix('.py')}:{name}, in its folder")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        loaded: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # something that the module itself needs
        raise ValueError(f"there is no module {module}; give package.module:function, seen from {here}") from error
    for part in name.split("."):
        if not hasattr(loaded, part):
            raise ValueError(f"{module} has no {name}; give package.module:function")
        loaded = getattr(loaded, part)
    return check_sampler(loaded)


def check_sampler(sampler: Any) -> Sampler:
    """Something that can be called."""
    if not callable(sampler):
        raise TypeError(f"sampler is {sampler!r}; give a function (observation, samples, seed) -> samples")
    return sampler


def image_seed(seed: int, number: int) -> int:
    """The seed of an image: 32 bits, which any library takes; different for images of different numbers below 2^32.

    >>> len({image_seed(0, number) for number in range(1000)}), image_seed(0, 1) == image_seed(1, 1)
    (1000, False)
    """
    key = int(np.random.SeedSequence(check_count(seed, "seed", least=0)).generate_state(1)[0])
    return (key ^ (number * _ODD_FACTOR)) & _WORD


def drawn_samples(
    sampler: Sampler, observations: Any, count: int, seed: int, numbers: Array
) -> Iterator[Iterator[Array]]:
    """What a sampler draws for each image of these numbers: blocks of a few samples, NumPy, (b, *pixels)."""
    seeds = [image_seed(seed, int(number)) for number in numbers]
    many: Any = sampler if getattr(sampler, "batched", None) else None
    if many is not None:
        with _raised_at(int(numbers[0])):
            drawn = many(observations, count, seeds)
        if len(drawn) != len(seeds):
            raise ValueError(f"the sampler drew for {len(drawn)} observations, it was given {len(seeds)}")
    for i, number in enumerate(numbers.tolist()):
        with _raised_at(number):
            one = drawn[i] if many is not None else sampler(observations[i], count, seeds[i])
        yield _blocks(one, count, number)


def _blocks(drawn: Any, count: int, number: int) -> Iterator[Array]:
    where = f"samples of image {number}"
    if not isinstance(drawn, Iterator):
        drawn = as_plain_array(drawn, where)
    if library_of(drawn):
        if len(drawn.shape) < 2 or int(drawn.shape[0]) != count:
            raise ValueError(
                f"the sampler gave shape {tuple(drawn.shape)} for image {number}; give {count} samples, "
                "(samples, *pixels)"
            )
        blocks: Iterable[Any] = (drawn[start : start + _BLOCK] for start in range(0, count, _BLOCK))
    elif isinstance(drawn, Iterable):
        blocks = _stacked(iter(drawn), count, number)
    else:
        raise TypeError(
            f"the sampler gave {drawn!r} for image {number}; give an array (samples, *pixels) or an iterator of samples"
        )
    for block in blocks:
        x = to_numpy(as_array(block, where))
        if not np.isfinite(x).all():
            raise ValueError(f"{where} hold NaN or infinite values; mend the sampler")
        yield x


def _stacked(samples: Iterator[Any], count: int, number: int) -> Iterator[Array]:
    """Single samples in blocks; as many as were asked for, of one shape."""
    shape: tuple[int, ...] | None = None
    for taken in range(0, count, _BLOCK):
        with _raised_at(number):
            some = list(islice(samples, min(_BLOCK, count - taken)))
        block = [to_numpy(as_array(sample, f"a sample of image {number}")) for sample in some]
        for x in block:
            shape = x.shape if shape is None else shape
            if x.shape != shape:
                raise ValueError(f"samples of image {number} have shapes {shape} and {x.shape}; they must agree")
        if len(block) < min(_BLOCK, count - taken):
            raise ValueError(f"the sampler gave {taken + len(block)} samples of image {number}; {count} were asked for")
        yield np.stack(block)


@contextmanager
def _raised_at(number: int) -> Iterator[None]:
    """What the sampler itself raises is kept apart from errors in its samples."""
    try:
        yield
    except Exception as error:
        called = ". It is called as sampler(observation, samples, seed)" if isinstance(error, TypeError) else ""
        raise ValueError(
            f"the sampler raised {type(error).__name__} at image {number}: {error}{called}. Correct it and call again "
            "with the same `out`: images that a run has finished are kept"
        ) from error
