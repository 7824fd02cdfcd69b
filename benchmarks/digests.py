"""Digests of everything that a user keeps, to show that a change of the code changes nothing else.

python -m benchmarks.digests OUT.json                 (calibrations, intervals, evaluations, bands, messages, commands)
python -m benchmarks.digests --compare A.json B.json  (prints what differs; exit code 1 if anything does)

Only public names and the command line are used, so that it runs whatever the layout of the package. What raises is kept
as its message. Digests are for one machine: another number of cores, or another version of a library, may change a
last bit; `about` tells which they were.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import pixelbounds as pb

from .digest_book import (
    BOUNDS,
    FAMILIES,
    GROUPS,
    KINDS,
    LIBRARIES,
    METHODS,
    NEW_UNITS,
    PACKAGE,
    PARTITION,
    UNITS,
    Array,
    Book,
    Data,
    N,
    as_kind,
    band_for,
    cropped,
    data_of,
    images,
    segmentation,
)
from .digest_commands import commands

# ---------------------------------------------------------------- in memory


def trial(book: Book, name: str, data: Data, known: Array | None = None, units: bool = False, **how: Any) -> None:
    """Calibrate, apply to new images, evaluate; `known` are the features or the labels of all images."""
    truth, band, new_truth, new_band = data
    word = "labels" if how.pop("labelled", False) else "features"
    how |= {"risk_level": 0.1, "units": UNITS if units else None} | ({} if known is None else {word: known[:N]})
    more = {} if known is None else {word: known[N:]}
    cal = book.note(f"{name}: calibration", lambda: pb.calibrate(truth, band, **how), lambda x: x.to_bytes())
    made = cal and book.note(f"{name}: interval", lambda: cal.apply(new_band, **more))
    by = NEW_UNITS if units else None
    if made is not None:
        book.note(f"{name}: evaluation", lambda: pb.evaluate(new_truth, made, units=by), as_json)


def as_json(evaluation: pb.Evaluation) -> str:
    return json.dumps(evaluation.to_dict(), sort_keys=True)


def combinations(book: Book, truth: Array, samples: Array) -> None:
    """Method, family, groups, bound and kind of array; beyond float32 the second bound with the first groups only."""
    for kind, family in product(KINDS, FAMILIES):
        data = data_of(kind, truth, band_for(family, samples), book.folder)
        for method, groups, bound in product(METHODS, GROUPS, BOUNDS):
            if bound != "betting" and kind != "float32" and groups not in (None, "band"):
                continue
            name = f"{method} {family} {groups} {bound} {kind}"
            how: dict[str, Any] = {"method": method, "family": family, "confidence": bound}
            how["groups"] = PARTITION if groups == "partition" else None if groups == "labels" else groups
            how["labelled"] = groups == "labels"
            how["known"] = segmentation(samples) if groups == "labels" else None
            trial(book, name, data, **how)
            if bound == "betting" and (kind == "float32" or (kind == "ragged" and family == "additive")):
                trial(book, f"{name} with units", data, units=True, **how)


def excess(truth: Array, interval: pb.Interval) -> Array:
    """A user's own loss: the mean distance from the interval, times 8."""
    far = np.maximum(np.maximum(interval.lower - truth, truth - interval.upper), 0)
    return np.minimum(8 * far.reshape(len(far), -1).mean(axis=1), 1)


def specials(book: Book, truth: Array, samples: Array) -> None:
    """What is tried once: other bounds, every further argument, a saved file, all parts of an evaluation, texts."""
    band = band_for("additive", samples)
    data = data_of("float64", truth, band, book.folder)
    features = np.stack([samples.mean(axis=1), samples[:, 0]], axis=1)
    own = pb.Family("own", lambda b, w: (b.lower - w, b.upper + w), lambda x, b: np.maximum(b.lower - x, x - b.upper))
    fitted = pb.calibrate(*data[:2], risk_level=0.1, groups="band").grouping
    tried: dict[str, dict[str, Any]] = {
        "own bound": {"confidence": lambda x, prob: float(x.mean() + np.sqrt(np.log(1 / prob) / (2 * len(x))))},
        "own family": {"family": own}, "features": {"known": features},
        "features learned": {"known": features, "groups": "learned"}, "features band": {"known": features,
        "groups": "band"}, "k band": {"groups": "band", "k": 5}, "k learned": {"k": 4}, "fitted": {"groups": fitted},
        "k loss": {"method": "krcps", "k": 3}, "d_opt": {"method": "krcps", "d_opt": 40}, "n_opt": {"n_opt": 50},
        "gammas": {"method": "krcps", "gammas": [0.5]}, "seed": {"seed": 5}, "few images": {"n_opt": 150},
        "direction": {"method": "krcps", "groups": PARTITION, "direction": range(1, 6)},
        "strict": {"failure_prob": 0.02},
        "few bins": {"groups": partial(pb.groups.fit_band_groups, width=8, level=4)}, "wrong": {"method": "krps"},
    }  # fmt: skip
    others = ("bentkus", "empirical_bernstein", "hoeffding", "conformal")
    for method in METHODS:
        tried |= {f"{method} {bound}": {"method": method, "confidence": bound} for bound in others}
        tried |= {f"{method} limits None": {"method": method, "limits": None}}
        tried |= {f"{method} own loss": {"method": method, "loss": excess}}
    for name, how in tried.items():
        trial(book, name, data, **how)
    cal, file = pb.calibrate(*data[:2], risk_level=0.1, units=UNITS), book.folder / "saved.safetensors"
    cal.save(file)
    loaded = pb.load_calibration(file)
    made = loaded.apply(data[3])
    book.note("saved and loaded", lambda: [loaded.to_bytes(), made])
    for by in (PARTITION, segmentation(samples)[N:]):
        full = pb.evaluate(data[2], made, samples=samples[N:], groups=by, units=NEW_UNITS, seed=3)
        book.note(f"evaluation by groups of {by.ndim} axes", lambda full=full: [as_json(full), str(full)])
    book.note("texts", lambda: list(map(repr, (cal, band, made, full, pb.Ragged(cropped(truth))))))
    book.note("least images and samples", lambda: [pb.least_images(0.05), pb.least_samples(0.1)])


def names(book: Book, truth: Array, samples: Array) -> None:
    """What can be imported from the top, and the arguments of each."""
    for title, room in {"pb": pb, "pb.federated": pb.federated, "pb.groups": pb.groups}.items():
        book.note(f"names of {title}", lambda room=room: sorted(room.__all__))
        for name in sorted(room.__all__):
            if inspect.isfunction(found := getattr(room, name)):
                taken = inspect.signature(found).parameters.values()
                said = [book.plain(f"{x.kind} {x.name} {x.default}") for x in taken]
                book.note(f"arguments of {title}.{name}", lambda said=said: said)


def bands(book: Book, truth: Array, samples: Array) -> None:
    """Bands of samples in every kind of array, samples on the second axis or the first, and bands of regressors."""
    makers = {f"{x.__name__} {a}": partial(x, miscoverage=a) for x in (pb.calibrated_quantiles, pb.naive_quantiles)
              for a in (0.1, 0.25)} | {"mean_and_std": pb.mean_and_std, "narrow": pb.narrow}  # fmt: skip
    for kind, (name, make), axis in product((*KINDS[:-1], "float16"), makers.items(), (1, 0)):
        drawn = as_kind(kind, np.moveaxis(samples, 1, axis), book.folder)
        book.note(f"{name} {kind} axis {axis}", partial(make, drawn, axis=axis))
    three = samples[:, 0], samples[:, 1], samples[:, 2]
    for form in ("distance", "printed"):
        book.note(f"quantile_regression {form}", partial(pb.quantile_regression, *three, form=form))
    book.note("conffusion", partial(pb.conffusion, *three[:2]))


def federated(book: Book, truth: Array, samples: Array) -> None:
    """Two sites: every message, and the calibration."""
    cuts, rooms = {"north": slice(0, 100), "south": slice(100, N)}, pb.federated
    for method, family, bound, units in product(("frontier", "rcps"), FAMILIES, BOUNDS, (False, True)):
        band = band_for(family, samples)
        how = {x: {"site": x} | ({"units": UNITS[at]} if units else {}) for x, at in cuts.items()}
        sent = [rooms.announce(truth[at], band[at], **how[x]) for x, at in cuts.items()]
        study: Any = rooms.begin(sent, risk_level=0.1, method=method, family=family, confidence=bound)
        while isinstance(study, rooms.Study):
            answers = [rooms.answer(study.plan, truth[at], band[at], **how[x]) for x, at in cuts.items()]
            sent += [study.plan, *answers]
            study = rooms.merge(study, answers)
        name = f"federated {method} {family} {bound}{' with units' * units}"
        for number, message in enumerate(sent):
            book.note(f"{name}: message {number}", message.to_bytes)
        book.note(f"{name}: calibration", study.to_bytes)


def phantoms(book: Book, truth: Array, samples: Array) -> None:
    """A batch of the demo's phantoms, wherever their module is now, and the bands of them that are packaged."""
    book.note("packaged bands", lambda: [x.read_bytes() for x in PACKAGE.rglob("phantoms.xz")])
    for file in sorted(x for x in PACKAGE.rglob("*.py") if "\ndef phantoms(" in x.read_text()):
        module = importlib.import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts))
        make = partial(module.phantoms, 6, 64, 3, first=2, slices_per_patient=2)
        book.note("phantoms", make, lambda x: [x.hounsfield, x.organs, x.units, x.images])
        return
    print("note: phantoms are skipped, for no module has them")


# ---------------------------------------------------------------- all of it


def compare(first: str, second: str) -> int:
    """Print what differs; the number of differences."""
    one, two = (json.loads(Path(path).read_text()) for path in (first, second))
    for name in sorted((one["about"].keys() | two["about"].keys()) - {"seconds"}):
        if one["about"].get(name) != two["about"].get(name):
            print(f"note: {name} is {one['about'].get(name)} in {first}, {two['about'].get(name)} in {second}")
    a, b = one["digests"], two["digests"]
    different = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
    for name in different:
        print(f"{name}\n  {a.get(name, 'not there')}\n  {b.get(name, 'not there')}")
    print(f"{len(different)} differences in {len(a.keys() | b.keys())} digests")
    return len(different)


def main(words: Sequence[str]) -> int:
    if len(words) == 3 and words[0] == "--compare":
        return int(compare(*words[1:]) > 0)
    if len(words) != 1 or words[0].startswith("-"):
        print(__doc__)
        return 2
    begin, (truth, samples) = perf_counter(), images()
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        book = Book(Path(folder).resolve())
        for part in (names, phantoms, bands, federated, specials, combinations, commands):
            book.note(f"{part.__name__}, to the end", partial(part, book, truth, samples))
    about = {"package": str(PACKAGE), "python": sys.version.split()[0], "cores": os.cpu_count()}
    about |= {name: version(name) for name in LIBRARIES} | {"seconds": round(perf_counter() - begin, 1)}
    Path(words[0]).write_text(json.dumps({"about": about, "digests": book.digests}, indent=1) + "\n")
    print(f"{len(book.digests)} digests of {PACKAGE} in {about['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
