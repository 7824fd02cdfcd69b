"""The numbers that users get, kept as arrays, to show what a change of the code changes.

python -m benchmarks.arrays OUT.npz [--api FILE]       (FILE: `benchmarks.array_api` for another version's names)
python -m benchmarks.arrays --compare A.npz B.npz      (what differs by more than 1e-6; exit code 1 if anything does)

Recorded are widenings, certified levels and risks, intervals of new images and numbers of evaluations, for methods x
families x groups x bounds x kinds of arrays, for promises, units, sites, anytime calibrations and monitors. What raises
is kept as its message. Another number of cores, or version of a library, may change a last bit.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import pixelbounds as pb

from .array_cases import (
    BOUNDS,
    FAMILIES,
    METHODS,
    NEW,
    NEW_UNITS,
    PARTITION,
    PER_IMAGE,
    UNITS,
    Array,
    N,
    Settings,
    as_kind,
    band_for,
    grid,
    images,
    promised,
    promises,
    segmentation,
    specials,
)

_CLOSE = 1e-6


class Recorder:
    """Arrays by name."""

    def __init__(self, api: Any, folder: Path) -> None:
        self.api, self.folder, self.arrays = api, folder, dict[str, Array]()

    def keep(self, name: str, value: Any) -> None:
        """One array by a name of its own."""
        if name in self.arrays:
            raise ValueError(f"{name!r} is there twice; give another name")
        self.arrays[name] = np.asarray(value)

    def attempt(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made, or None where it raises: then its message is kept."""
        try:
            return make()
        except Exception as error:
            self.keep(f"{name}/raises", f"{type(error).__name__}: {error}".replace(str(self.folder), "FOLDER"))
            return None

    def calibration(self, name: str, cal: Any) -> None:
        """Widenings and what is certified."""
        self.keep(f"{name}/widening", self.api.widening(cal))
        for number in ("at_most", "above", "cap", "risk", "certifying"):
            self.keep(f"{name}/promise {number}", [float(getattr(x, number)) for x in cal.promises])

    def interval(self, name: str, interval: Any) -> None:
        """Both ends, flattened."""
        for end in ("lower", "upper"):
            made = getattr(interval, end)
            parts = [np.asarray(x) for x in made] if isinstance(made, pb.Ragged) else [np.asarray(made)]
            self.keep(f"{name}/{end}", np.concatenate([x.reshape(-1) for x in parts]))

    def numbers(self, name: str, value: Any) -> None:
        """All numbers in nested dictionaries and lists; words are left out."""
        if isinstance(value, dict):
            for part, inner in value.items():
                self.numbers(f"{name}/{part}", inner)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for i, inner in enumerate(value):
                self.numbers(f"{name}/{i}", inner)
        elif value is not None and np.asarray(value).dtype.kind in "biuf":
            self.keep(name, value)


def trial(book: Recorder, name: str, kind: str, settings: Settings, truth: Array, band: pb.Band) -> None:
    """Calibrate on the first images, apply to the new ones, evaluate."""
    settings = dict(settings)
    first = settings.pop("first", N)
    per_image = {word: settings.pop(word) for word in PER_IMAGE if word in settings}
    turn = partial(as_kind, kind, folder=book.folder)
    given = {word: x[:N][:first] for word, x in per_image.items()}
    later = {word: x[N:] for word, x in per_image.items() if word != "units"}
    if kind == "ragged":
        given |= {word: turn(x) for word, x in given.items() if word != "units"}
        later = {word: turn(x) for word, x in later.items()}
    settings = {"risk_level": 0.1} | settings | given
    data = turn(truth[:first]), band[:first].map(turn)
    cal = book.attempt(name, lambda: book.api.calibrate(*data, settings))
    if cal is None:
        return
    book.calibration(name, cal)
    new_band = book.api.family_of(band[N:].map(turn), settings)
    made = book.attempt(f"{name}/apply", lambda: cal.apply(new_band, **later))
    if made is not None:
        book.interval(name, made)
        by = NEW_UNITS if "units" in given else None
        found = book.attempt(f"{name}/evaluate", lambda: book.api.evaluate(turn(truth[N:]), made, units=by))
        if found is not None:
            book.numbers(f"{name}/evaluation", found.to_dict())


def calibrations(book: Recorder, truth: Array, samples: Array) -> None:
    bands = {family: band_for(family, samples) for family in FAMILIES}
    for cases in (specials(samples), promised(truth, samples), grid(samples)):
        for name, kind, settings in cases:
            family = settings.get("family", "additive")
            trial(book, name, kind, settings, truth, bands.get(family if isinstance(family, str) else "additive"))


def evaluations(book: Recorder, truth: Array, samples: Array) -> None:
    """All parts of an evaluation, and of several bands the shortest."""
    band = band_for("additive", samples)
    settings: Settings = {"risk_level": 0.1, "method": "frontier", "groups": "band"}
    cal = book.api.calibrate(truth[:N], band[:N], settings)
    made = cal.apply(band[N:])
    for by in (PARTITION, segmentation(samples)[N:]):
        full = book.api.evaluate(truth[N:], made, samples=samples[N:], groups=by, units=NEW_UNITS, seed=3)
        book.numbers(f"evaluation by groups of {by.ndim} axes", full.to_dict())
    bands = {str(a): pb.calibrated_quantiles(samples, a)[:N] for a in (0.1, 0.5)}
    found = book.attempt("several bands", lambda: book.api.calibrate(truth[:N], bands, settings))
    if found is not None:
        book.calibration("several bands", found)


def bands(book: Recorder, truth: Array, samples: Array) -> None:
    """Bands of samples in every kind of array, samples on the second axis or the first, and bands of regressors."""
    makers = {f"{x.__name__} {a}": partial(x, miscoverage=a) for x in (pb.calibrated_quantiles, pb.naive_quantiles)
              for a in (0.1, 0.25)} | {"mean_and_std": pb.mean_and_std, "narrow": pb.narrow}  # fmt: skip
    for kind, (name, make), axis in product(("float32", "float16", "torch", "zarr"), makers.items(), (1, 0)):
        drawn = as_kind(kind, np.moveaxis(samples[:NEW], 1, axis), book.folder)
        book.interval(f"band {name} {kind} axis {axis}", make(drawn, axis=axis))
    three = np.clip(samples[:, :3], 0, 1).swapaxes(0, 1)
    for form in ("distance", "printed"):
        book.interval(f"band quantile_regression {form}", pb.quantile_regression(*three, form=form))
    book.interval("band conffusion", pb.conffusion(*three[:2]))


def federated(book: Recorder, truth: Array, samples: Array) -> None:
    """Two sites in place of one."""
    cuts = {"north": slice(0, 100), "south": slice(100, N)}
    shares = [("share", 0.1, {}), ("tail", 0.15, {"above": 0.15})]
    kinds: dict[str, Settings] = {"share": {"risk_level": 0.1}, "promises": {"promises": shares}}
    for method, family, bound, units, asked in product(
        ("frontier", "rcps"), FAMILIES, BOUNDS[:2], (False, True), kinds
    ):
        band, name = band_for(family, samples), f"federated {method} {family} {bound}{' by units' * units} {asked}"
        sites = {site: (truth[at], band[at], UNITS[at] if units else None) for site, at in cuts.items()}
        settings = kinds[asked] | {"method": method, "family": family, "bound": bound}
        cal = book.attempt(name, partial(book.api.federated, sites, settings))
        if cal is not None:
            book.calibration(name, cal)


def anytime(book: Recorder, truth: Array, samples: Array) -> None:
    band = band_for("additive", samples)
    later = [(truth[i : i + 30], band[i : i + 30]) for i in range(40, N, 30)]
    share, _, tail = (promises(truth, samples)[x][0] for x in ("share", "region", "tail"))
    for method, asked in product(METHODS, ([share], [share, tail])):
        name = f"anytime {method} {len(asked)}"
        settings = {"method": method, "promises": asked} | ({"groups": "band"} if method == "frontier" else {})
        looks = book.attempt(name, lambda how=settings: list(book.api.anytime((truth[:40], band[:40]), later, how)))
        for i, cal in enumerate(looks or ()):
            if cal is not None:
                book.calibration(f"{name} look {i}", cal)


def monitors(book: Recorder, truth: Array, samples: Array) -> None:
    """E-values of promises with truth, and of band statistics without."""
    band = band_for("additive", samples)
    asked = [promises(truth, samples)[x][0] for x in ("share", "tail")]
    cal = book.api.calibrate(truth[:N], band[:N], {"promises": asked, "groups": "band"})
    update, check_drift = book.api.monitor(cal)
    for i in range(N, N + NEW, 10):
        shift = np.float32(0.01 * (i - N) / 10)
        status = update(np.clip(truth[i : i + 10] + shift, 0, 1), band[i : i + 10])
        book.keep(f"monitor {i} promises", book.api.e_values(status)[0])
        status = check_drift(band[i : i + 10].map(lambda x, shift=shift: x + shift))
        book.keep(f"monitor {i} statistics", book.api.e_values(status)[1])


# ---------------------------------------------------------------- compare


def _differs(a: Array | None, b: Array | None) -> str:
    """In words how two arrays differ; empty where they do not by more than rounding."""
    if a is None or b is None:
        return "only in the second" if a is None else "only in the first"
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return f"{a.dtype} {a.shape} and {b.dtype} {b.shape}"
    if a.dtype.kind == "U":
        return "" if str(a) == str(b) else f"{a} -> {b}"
    far = np.abs(a.astype(np.float64) - b.astype(np.float64))
    far = np.where(np.isnan(a) & np.isnan(b) | (a == b), 0.0, far)
    worst = np.nan_to_num(far, nan=np.inf).max(initial=0.0)
    if worst <= _CLOSE:
        return ""
    at = int(np.argmax(far.reshape(-1)))
    return f"by {worst:.3g} at {at} of {a.size}: {a.reshape(-1)[at]:.8g} -> {b.reshape(-1)[at]:.8g}"


def compare(first: str, second: str) -> int:
    """Print what differs, case by case; the number of differences."""
    a, b = (dict(np.load(path)) for path in (first, second))
    names, counts = sorted(a.keys() | b.keys()), Counter[str]()
    for name in names:
        one, two = a.get(name), b.get(name)
        if name.endswith("/raises") and one is not None and two is not None:
            counts["raise in both" + (", with another message" if str(one) != str(two) else "")] += 1
            continue
        words = _differs(one, two)
        same = one is not None and two is not None and one.tobytes() == two.tobytes() and one.dtype == two.dtype
        counts["differ" if words else "equal to the bit" if same else f"within {_CLOSE:g}"] += 1
        if words:
            print(f"{name}: {words}")
    print(f"{len(names)} arrays: " + "; ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return counts["differ"]


def main(words: Sequence[str]) -> int:
    if len(words) == 3 and words[0] == "--compare":
        return int(compare(*words[1:]) > 0)
    if len(words) not in (1, 3) or words[0].startswith("-") or (len(words) == 3 and words[1] != "--api"):
        print(__doc__)
        return 2
    place = words[2] if len(words) == 3 else str(Path(__file__).with_name("array_api.py"))
    spec: Any = importlib.util.spec_from_file_location("array_api", place)
    api = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(api)
    begin, (truth, samples) = perf_counter(), images()
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        book = Recorder(api, Path(folder).resolve())
        for part in (bands, evaluations, federated, anytime, monitors, calibrations):
            book.attempt(f"{part.__name__}, to the end", partial(part, book, truth, samples))
            print(f"{part.__name__}: {len(book.arrays)} arrays after {perf_counter() - begin:.0f} s", flush=True)
    np.savez_compressed(words[0], **book.arrays)
    print(f"{len(book.arrays)} arrays of {pb.__file__} in {words[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
