"""What tells one sampler from another: its name and, where it has weights or settings of its own, a digest of these.

A calibration holds for bands of the sampler that it was made with, so two samplers that draw differently must not share
a name. A function of a module is known by its name and the weights that it uses. A lambda or a function within a
function is known by its code, too, and by what it encloses: numbers, text, arrays, networks. Where a digest cannot be
made, a `name=` is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..images.checks import check_line
from ..images.library import library_of

_PLAIN = bool | int | float | complex | str | bytes | range | np.generic | None


class _Unknown(Exception):
    """Something of which no digest can be made."""


def sampler_name(sampler: Any) -> str:
    """What a run calls a sampler: its `name` where it has one, else module and name, and a digest where it needs one.

    >>> from pixelbounds.samplers.protocol import load_sampler
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
