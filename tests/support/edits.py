"""Edits of sealed files, drawn from a generator: what someone with bad intentions, or none, could write.

A file is text (JSON) and tensors. An edit changes one place of either, in kind, size, order or value, or takes it from
another file; then the file is sealed again, so that its checksum fits and only the reader's checks stand in the way.
"""

import copy
import json
import re
import struct

import numpy as np
from safetensors.numpy import load, save

from pixelbounds.storage.files import checksum

DEEP = re.compile(r'"@deep (\d+)@"')  # where nested lists stand in the written text: json.dumps would not write them
ODD = [
    None, True, False, "", "x", "l01", "band", "single", "partition", "learned", "segmentation", "labels", "scaled",
    "additive", "multiplicative", "<script>", "a\0b", "\ud83d", "ü" * 50, "1e400", "1/10", "1/0", "-1/2", "1e999999999",
    "9" * 5000,
    -1, 0, 1, 2, 3, 7, 0.5, -0.5, 1e-320, 1e308, -1e308, 255, 2**31, -(2**31), 2**53, 2**63, 2**64, 10**30, 10**400,
    float("nan"), float("inf"), float("-inf"), [], {}, [[]], [None], [0, 1], [1, 0], [-1, -1], [0.0, None],
    ["a"], [2**40, 2**40], [1] * 300, {"is": "number"}, {"kind": "band"}, {"low": 1, "high": 0, "unit": "HU"},
    "@deep 100@", "@deep 900@", "@deep 970@", "@deep 990@", "@deep 100000@",
]  # fmt: skip
NUMBERS = [np.nan, np.inf, -np.inf, -1, 0, 1, 2, 1e300, -1e300, 1e-310, 2**31 - 1, -(2**31), 2**62, -(2**62), 100, -100]
DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e-?\d+)?")


def contents(data):
    """Text and tensors of a sealed file."""
    size = struct.unpack("<Q", data[:8])[0]
    written = json.loads(data[8 : 8 + size])["__metadata__"]["pixelbounds"].split(" ", 1)[1]
    return json.loads(written), load(data)


def resealed(text, tensors):
    """The file of an edited text and edited tensors, with a checksum that fits; `seal` itself writes no such text."""
    written = DEEP.sub(lambda found: "[" * int(found[1]) + "]" * int(found[1]), json.dumps(text, sort_keys=True))
    arrays = {name: np.asarray(x, order="C") for name, x in tensors.items()}
    return save(arrays, {"pixelbounds": f"{checksum(written, arrays)} {written}"})


def edited(data, other, rng):
    """The file with one to three edits, some of which take what they need from an other file; sealed again."""
    if rng.random() < 0.02:
        return damaged(data, rng)
    text, tensors = contents(data)
    foreign_text, foreign_tensors = contents(other)
    for _ in range(int(rng.integers(1, 4))):
        if tensors and rng.random() < 0.5:
            edit_tensors(tensors, foreign_tensors, rng)
        else:
            edit_text(text, foreign_text, rng)
    return resealed(text, tensors)


def damaged(data, rng):
    """The file cut, grown, or with bytes changed, not sealed again."""
    out = bytearray(data)
    how = rng.integers(4)
    if how == 0:
        return bytes(out[: rng.integers(len(out))])
    if how == 1:
        return bytes(out) + rng.bytes(int(rng.integers(1, 64)))
    if how == 2:
        out[:8] = struct.pack("<Q", int(rng.choice([0, 1, 2**31, 2**40, 2**63 - 1, len(out)])))
        return bytes(out)
    for place in rng.integers(len(out), size=int(rng.integers(1, 5))):
        out[place] = rng.integers(256)
    return bytes(out)


# ---------------------------------------------------------------- text


def places(node, above=()):
    """Every place of a JSON value: the keys that lead there."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield (*above, key)
        yield from places(node[key], (*above, key))


def at(node, place):
    """What stands at a place."""
    for key in place:
        node = node[key]
    return node


def put(node, place, value):
    """Replace what stands at a place."""
    at(node, place[:-1])[place[-1]] = value


def any_of(choices, rng):
    """One of some things, whatever they are."""
    return choices[int(rng.integers(len(choices)))]


def edit_text(text, other, rng):
    """One edit at one place."""
    every = list(places(text))
    if not every:
        text["format"] = any_of(ODD, rng)
        return
    top = [place for place in every if len(place) == 1]
    place = any_of(top if rng.random() < 0.3 else every, rng)
    how = rng.integers(10)
    if how < 4:
        put(text, place, copy.deepcopy(any_of(ODD, rng)))
    elif how == 4:
        del at(text, place[:-1])[place[-1]]
    elif how == 5:
        second = any_of(every, rng)
        value = copy.deepcopy(at(text, second))
        if second[: len(place)] != place and place[: len(second)] != second:
            put(text, second, copy.deepcopy(at(text, place)))
        put(text, place, value)
    elif how == 6:
        foreign = list(places(other))
        same = [there for there in foreign if there[-1] == place[-1]]
        if foreign:
            put(text, place, copy.deepcopy(at(other, any_of(same or foreign, rng))))
    elif how == 7:
        foreign = list(places(other))
        if foreign:
            there = any_of(foreign, rng)
            text[str(there[-1])] = copy.deepcopy(at(other, there))
    else:
        put(text, place, bent(at(text, place), rng))


def bent(value, rng):
    """A value a little changed: a number beside it, of the other type, as text, in a list."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        near = [-value, value + 1, value - 1, value * 1000, str(value), [value]]
        return any_of(near if abs(value) > 2**60 else [*near, value / 3, float(value)], rng)
    if isinstance(value, str):
        return any_of([value + "x", value[:-1], value.upper(), [value], value * 3, list(value[:9]), "\n" + value], rng)
    if isinstance(value, list):
        return any_of([value[::-1], value[:-1], [*value, *value], [*value, None], {"0": value}], rng)
    return any_of([list(value), {**value, "other": 1}, dict(list(value.items())[:-1])], rng)


# ---------------------------------------------------------------- tensors


def edit_tensors(tensors, other, rng):
    """One edit of one tensor."""
    name = any_of(sorted(tensors), rng)
    how = rng.integers(12)
    if how == 0:
        del tensors[name]
    elif how == 1:
        second = any_of(sorted(tensors), rng)
        tensors[name], tensors[second] = tensors[second], tensors[name]
    elif how == 2 and other:
        tensors[name] = other[name if name in other and rng.random() < 0.7 else any_of(sorted(other), rng)]
    elif how == 3:
        tensors[any_of(["extra", "groups.extra", f"{name}.x", *sorted(other)], rng)] = tensors[name]
    elif how == 4:
        with np.errstate(all="ignore"):
            tensors[name] = tensors[name].astype(any_of(DTYPES, rng))
    elif how < 7:
        tensors[name] = reshaped(tensors[name], rng)
    else:
        tensors[name] = with_values(tensors[name].copy(), rng)


def reshaped(x, rng):
    """The same kind of numbers in another shape."""
    flat = x.reshape(-1)
    shapes = [x[None], x[..., None], flat, x.T, flat[:1], flat[:0], np.zeros((0, *x.shape), x.dtype)]
    shapes += [flat[0] if x.size else flat, np.concatenate([flat, flat])]
    if x.ndim:
        shapes += [x[:1], x[:-1], x[:0], x[:, :0] if x.ndim > 1 else x[1:], np.concatenate([x, x]), x[: len(x) // 2]]
    if x.size:
        shapes.append(np.resize(x, int(rng.integers(1, 5000))))
    return np.ascontiguousarray(any_of(shapes, rng))


def as_dtype(value, dtype):
    """A number as a dtype holds it, however badly."""
    if dtype.kind in "iu":
        about = np.iinfo(dtype)
        if not np.isfinite(value):
            return about.max if value > 0 else about.min
        return int(min(max(int(value), about.min), about.max))
    with np.errstate(all="ignore"):
        return dtype.type(value)


def with_values(x, rng):
    """The same shape with other values: some that no reader should believe, orders that do not ascend, loops."""
    if not x.size:
        return x
    flat = x.reshape(-1)
    how = rng.integers(10)
    if x.dtype == np.uint8 and x.size > 200 and rng.random() < 0.8:
        return with_text(flat, rng)
    value = as_dtype(any_of(NUMBERS, rng), x.dtype)
    some = rng.integers(x.size, size=int(rng.integers(1, 1 + max(1, min(20, x.size)))))
    with np.errstate(all="ignore"):
        if how == 0:
            flat[:] = value
        elif how < 4:
            flat[some] = value
        elif how == 4:
            flat[:] = flat[::-1].copy()
        elif how == 5:
            rng.shuffle(flat)
        elif how == 6:
            x = -x if x.dtype.kind in "fi" else ~x
        elif how == 7:  # a node that is its own child, or that of one before it
            flat[some] = (some - rng.integers(0, 2)).astype(x.dtype)
        elif how == 8:
            flat[some] = np.array([as_dtype(x.size + int(rng.integers(-2, 3)), x.dtype)] * len(some), x.dtype)
        else:
            x = (x * as_dtype(any_of([2, -1, 1000, 1e9], rng), x.dtype)).astype(x.dtype)
    return x


def with_text(flat, rng):
    """Text that is kept as bytes, with a number, a line or its end changed."""
    written = flat.tobytes()
    how = rng.integers(4)
    if how == 0:
        return np.frombuffer(written[: rng.integers(len(written))], np.uint8).copy()
    if how == 1:
        lines = written.split(b"\n")
        del lines[int(rng.integers(len(lines)))]
        return np.frombuffer(b"\n".join(lines), np.uint8).copy()
    spots = list(_NUMBER.finditer(written))
    if not spots:
        return flat
    spot = any_of(spots, rng)
    number = any_of([b"-1", b"0", b"1000000000", b"-99999999", b"nan", b"inf", b"1e999", b"x", b""], rng)
    return np.frombuffer(written[: spot.start()] + number + written[spot.end() :], np.uint8).copy()
