"""What a sampler is, and what tells one from another: a function (observation, samples, seed) -> samples of one.

It returns an array or tensor (samples, *pixels), a list of samples, or an iterator of them, which is taken from one by
one and may go on for ever. The same seed must give the same samples, or a run that stopped cannot go on; and samples of
one image must differ, or there is nothing to learn from them. What breaks this is said in `drawn_samples`.

A sampler that says `batched = b` takes up to b observations in a call, (observations, samples, seeds) with a seed for
each, and returns what it draws for each of them: (observations, samples, *pixels), or a list.

A calibration holds for bands of the sampler that it was made with, so two samplers that draw differently must not share
a name. A function of a module is known by its name and the weights that it uses. A lambda or a function within a
function is known by its code, too, and by what it encloses: numbers, text, arrays, networks. Where a digest cannot be
made, a `name=` is asked for.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..images.checks import check_count, check_line
from ..images.foreign import as_plain_array
from ..images.library import Array, as_array, library_of, to_numpy

Sampler = Callable[[Any, int, int], Any]  # observation (*shape), samples, seed -> samples (samples, *pixels)
_WORD = 0xFFFFFFFF
_ODD_FACTOR = 0x9E3779B1
_BLOCK = 16  # samples that are reduced at a time
_PLAIN = bool | int | float | complex | str | bytes | range | np.generic | None


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
            raise ValueError(f"{where} hold NaN or infinite values; correct the sampler")
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


# ---------------------------------------------------------------- what tells one from another


class _Unknown(Exception):
    """Something of which no digest can be made."""


def sampler_name(sampler: Any) -> str:
    """What a run calls a sampler: its `name` where it has one, else module and name, and a digest where it needs one.

    >>> sampler_name(load_sampler("pixelbounds.samplers:bands_from"))
    'pixelbounds.samplers.function:bands_from'
    """
    name = getattr(sampler, "name", None)
    if isinstance(name, str):
        return check_line(name, "name of the sampler")
    inner = sampler
    while isinstance(inner, partial):
        inner = inner.func
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    text = f"{named.__module__}:{named.__qualname__}"
    if inner is sampler and isinstance(sampler, FunctionType | BuiltinFunctionType) and "<" not in text:
        weights = _weights_used(sampler)
        return check_line(f"{text} {_digest(weights)}" if weights else text, "name of the sampler")
    return identified(text, sampler)


def identified(text: str, *parts: Any) -> str:
    """A text with a digest of all parts of a sampler; where none can be made, an error that asks for a name."""
    try:
        return check_line(f"{text} {_digest(parts)}", "name of the sampler")
    except _Unknown as unknown:
        raise ValueError(
            f"{text} cannot be distinguished from other samplers: it depends on {unknown}; say name=, another one "
            "for another network or other settings"
        ) from None


def _weights_used(function: Any, seen: tuple[Any, ...] = ()) -> list[Any]:
    """Networks and arrays of torch among the global names that a function and its neighbours in the module use."""
    weights: list[Any] = []
    code, known = getattr(function, "__code__", None), (*seen, function)
    names = sorted(set(_names_of(code))) if code else ()
    values = [function.__globals__.get(name) for name in names]
    for x in [part for value in values for part in (value.values() if isinstance(value, dict) else (value,))]:
        if library_of(x) == "torch" or (callable(getattr(x, "state_dict", None)) and not isinstance(x, type)):
            weights.append(x)
        elif isinstance(x, FunctionType) and x.__module__ == function.__module__ and x not in known:
            weights += _weights_used(x, known)
    return weights


def _names_of(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names_of(value)


def _digest(parts: Any) -> str:
    total = hashlib.sha256()
    _add(parts, total.update, ())
    return total.hexdigest()[:12]


def _add(value: Any, update: Callable[[bytes], None], above: tuple[int, ...]) -> None:
    """Add what a value is to a digest; `above` are the values that it lies in."""
    if id(value) in above:
        return
    above = (*above, id(value))

    def each(values: Iterable[Any]) -> None:
        for one in values:
            _add(one, update, above)

    update(f"{type(value).__module__}.{type(value).__qualname__}".encode())
    if isinstance(value, _PLAIN):
        update(repr(value).encode())
    elif isinstance(value, type | ModuleType | BuiltinFunctionType | np.ufunc | np.dtype):
        update(getattr(value, "__qualname__", str(value)).encode())
    elif library_of(value) == "torch":
        import torch

        array = value.detach().cpu().contiguous()
        update(f"{array.dtype} {tuple(array.shape)}".encode())
        update(array.reshape(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b"")
    elif isinstance(value, np.ndarray):
        update(f"{value.dtype.str} {value.shape}".encode())
        update(np.ascontiguousarray(value).tobytes())
    elif callable(getattr(value, "state_dict", None)):  # a network
        each(sorted(value.state_dict().items(), key=lambda pair: str(pair[0])))
    elif isinstance(value, Mapping):
        each(sorted(value.items(), key=lambda pair: str(pair[0])))
    elif isinstance(value, list | tuple):
        each(value)
    elif isinstance(value, partial):
        each((value.func, value.args, value.keywords))
    elif isinstance(value, MethodType):
        each((value.__func__, value.__self__))
    elif isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        each((value.__code__, value.__defaults__, value.__kwdefaults__, cells, _weights_used(value)))
    elif isinstance(value, CodeType):
        update(value.co_code)
        each((value.co_names, value.co_consts))
    elif isinstance(getattr(value, "components", None), Mapping):  # a pipeline of diffusers
        each(sorted(value.components.items()))
    elif isinstance(getattr(value, "config", None), Mapping):  # a part of one, such as a scheduler
        each(({name: x for name, x in value.config.items() if name[:1] != "_"},))  # "_": in an order of chance, of sets
    elif str(type(value).__module__).split(".")[0] == "torch":  # a dtype, a device
        update(repr(value).encode())
    else:
        raise _Unknown(f"a {type(value).__module__}.{type(value).__qualname__}")
