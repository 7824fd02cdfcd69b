"""Digests of everything that a user keeps, to show that a change of the code changes nothing else.

python -m benchmarks.digests OUT.json                 (calibrations, intervals, evaluations, bands, messages, commands)
python -m benchmarks.digests --compare A.json B.json  (prints what differs; exit code 1 if anything does)

Only public names and the command line are used, so that it runs whatever the layout of the package. What raises is kept
as its message. Digests are for one machine: another number of cores, or another version of a library, may change a
last bit; `about` tells which they were.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import dask.array as da
import nibabel
import numpy as np
import torch
import zarr

import pixelbounds as pb

Array = np.ndarray
Data = tuple[Any, pb.Band, Any, pb.Band]  # truth and band to calibrate on, and of new images

PACKAGE = Path(pb.__file__).resolve().parent
N, NEW, M, SIZE = 160, 40, 19, 12
METHODS, FAMILIES = ("frontier", "krcps", "rcps"), ("additive", "scaled", "multiplicative")
GROUPS = (None, "band", "learned", "loss", "squared", "otsu", "partition", "labels")
BOUNDS = ("betting", "hoeffding_bentkus")
KINDS = ("float32", "float64", "torch", "zarr", "dask", "ragged")
LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "scikit-image", "zarr", "dask", "torch", "nibabel", "matplotlib")
UNITS, NEW_UNITS = np.arange(N) // 2, np.arange(NEW) // 2
PARTITION = np.add.outer(np.arange(SIZE) // 5, np.arange(SIZE) // 5)


# ---------------------------------------------------------------- digests


def content(value: Any) -> Iterator[bytes]:
    """The bytes that make up a value: of arrays their library, dtype, shape and elements."""
    if isinstance(value, bytes | str | int | None):
        yield value if isinstance(value, bytes) else str(value).encode()
    elif isinstance(value, pb.Band):  # of which later versions know more
        yield from content({name: getattr(value, name) for name in ("lower", "upper", "centre", "source")})
    elif isinstance(value, pb.Interval | dict):
        for name, part in sorted((value if isinstance(value, dict) else vars(value)).items()):
            yield f"<{name}>".encode()
            yield from content(part)
    elif isinstance(value, pb.Ragged | list | tuple):
        yield f"<{type(value).__name__} of {len(value)}>".encode()
        for part in value:
            yield digest(part).encode()
    else:
        yield f"<{type(value).__module__.split('.')[0]} {value.dtype} {tuple(value.shape)}>".encode()
        yield np.ascontiguousarray(value).tobytes()


def digest(value: Any) -> str:
    return hashlib.sha256(b"".join(content(value))).hexdigest()


class Book:
    """Digests by name, and the folder whose name must not get into them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.digests = folder, dict[str, str]()

    def plain(self, text: str) -> str:
        """Text without the names of folders, places in memory, and the random names that stores get."""
        text = text.replace(str(self.folder), "FOLDER").replace(str(PACKAGE), "PACKAGE")
        return re.sub(r"0x[0-9a-f]{6,}|\b[0-9a-f]{32}\b", "SOME", text)

    def note(self, name: str, make: Callable[[], Any], show: Callable[[Any], Any] = lambda made: made) -> Any:
        """Keep the digest of what is shown of something, or the error; return it, or None."""
        if name in self.digests:
            raise ValueError(f"{name!r} is there twice; give another name")
        try:
            made = make()
            self.digests[name] = digest(show(made))
        except Exception as error:
            self.digests[name] = self.plain(f"{type(error).__name__}: {error}")
            return None
        return made


# ---------------------------------------------------------------- images


def images() -> tuple[Array, Array]:
    """Truth (n, size, size) and samples (n, m, size, size) of a sampler that is too sure of itself."""
    rng = np.random.default_rng(0)
    level = rng.uniform(0.1, 0.9, (N + NEW, SIZE, SIZE))
    deviation = np.exp(rng.normal(-3, 0.6, level.shape)) * (0.5 + PARTITION / 4)
    truth = np.clip(level + deviation * rng.standard_normal(level.shape), 0.02, 1).astype(np.float32)
    draws = rng.standard_normal((N + NEW, M, SIZE, SIZE))
    return truth, (level[:, None] + 0.5 * deviation[:, None] * draws).astype(np.float32)


def band_for(family: str, samples: Array) -> pb.Band:
    if family == "scaled":
        return pb.mean_and_std(samples)
    band = pb.calibrated_quantiles(samples, 0.1)
    return band if family == "additive" else band.map(lambda x: np.maximum(x, np.float32(0.05)))


def segmentation(samples: Array) -> Array:
    return np.digitize(samples.mean(axis=1), [0.3, 0.6]) + 1


def cropped(stack: Array) -> list[Array]:
    """Images of different sizes."""
    return [np.ascontiguousarray(x[..., : 8 + i % 4, : 9 + i % 3]) for i, x in enumerate(stack)]


def as_kind(kind: str, x: Array, folder: Path) -> Any:
    """An array as a user may have it; a zarr array gets the next free name in the folder."""
    if kind == "zarr":
        path = folder / f"array-{len(list(folder.glob('array-*')))}.zarr"
        return zarr.create_array(path, data=x, chunks=(90, *x.shape[1:]))
    if kind == "dask":
        return da.from_array(x, chunks=(90, *x.shape[1:]))
    if kind == "torch":
        return torch.from_numpy(np.ascontiguousarray(x))
    return cropped(x) if kind == "ragged" else x.astype(kind)


def data_of(kind: str, truth: Array, band: pb.Band, folder: Path) -> Data:
    turn = partial(as_kind, kind, folder=folder)
    return turn(truth[:N]), band[:N].map(turn), turn(truth[N:]), band[N:].map(turn)


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


# ---------------------------------------------------------------- the command line

CALIBRATE = (
    "truth.npy samples.zarr --bands-out kept.zarr --out a.safetensors -> a.safetensors kept.zarr",
    "truth.npy bands.npz --units units.txt --groups band --out b.safetensors -> b.safetensors",
    "ragged.zarr ragged.zarr --out c.safetensors -> c.safetensors",
    "drawn.zarr drawn.zarr --method rcps --bands-out d.zarr --out d.safetensors -> d.safetensors d.zarr",
    "truth.npy bands.npz --method krcps --groups partition.npy --confidence hoeffding_bentkus --out e.safetensors"
    " -> e.safetensors",
    "truth.npy bands.npz --groups learned --features features.npy --out f.safetensors -> f.safetensors",
    "scans bands.npz --groups band --out g.safetensors -> g.safetensors",
    "truth.npy new_bands.npz --out h.safetensors",
)
APPLY = (
    "a.safetensors new_samples.zarr --out a.zarr -> a.zarr",
    "b.safetensors new_bands.npz --out b.npz -> b.npz",
    "b.safetensors new_bands.npz --like new.nii.gz --out b.nii.gz -> b_lower.nii.gz b_upper.nii.gz b_length.nii.gz",
    "c.safetensors new_ragged.zarr --out c.zarr -> c.zarr",
    "f.safetensors new_bands.npz --features new_features.npy --out f.npz -> f.npz",
)
OTHERS = (
    "evaluate new_truth.npy a.zarr",
    "evaluate new_truth.npy new_bands.npz --calibration b.safetensors --units new_units.txt --groups partition.npy",
    "evaluate new_ragged.zarr c.zarr",
    "evaluate new.nii.gz b.nii.gz --units each",
    "report new_truth.npy new_samples.zarr --calibration a.safetensors --examples 2 --figures drawn --out a.html"
    " -> a.html drawn",
    "plan --risk-level 0.05 --images 10",
    "sample score.safetensors noisy.npy --out run.zarr --sigma0 0.2 --samples 19 --steps 2 -> run.zarr",
)
TEXTS = ("evaluate new_truth.npy a.zarr", "plan", "--version", "--help", "calibrate --help", "sample --help",
         "federated begin --help", "reproduce phantom --help")  # fmt: skip
SITES = {"north": "truth.npy bands.npz --site north", "south": "new_truth.npy new_bands.npz --site south"}


def ragged_store(path: Path, **sets: Array) -> None:
    """Images of different sizes as the commands read them: values and shapes of each set."""
    root = zarr.create_group(path, attributes={"ragged": True})
    for name, stack in sets.items():
        group, parts = root.create_group(name), cropped(stack)
        group.create_array("shapes", data=np.array([x.shape for x in parts], np.int64))
        group.create_array("values", data=np.concatenate([x.reshape(-1) for x in parts]))


def write_files(folder: Path, truth: Array, samples: Array) -> None:
    """All that the commands read: images to calibrate on, and under names with `new` the others."""
    band, voxels = band_for("additive", samples), np.rint(truth * 400 - 160).astype(np.int16).transpose(2, 1, 0)
    for at, new, units in ((slice(N), "", UNITS), (slice(N, None), "new_", NEW_UNITS)):
        ends = {"lower": band.lower[at], "upper": band.upper[at]}
        np.save(folder / f"{new}truth.npy", truth[at])
        np.save(folder / f"{new}features.npy", samples[at].mean(axis=1))
        np.savez(folder / f"{new}bands.npz", **ends)
        (folder / f"{new}units.txt").write_text("".join(f"patient {unit}\n" for unit in units))
        zarr.create_array(folder / f"{new}samples.zarr", data=samples[at], chunks=(32, M, SIZE, SIZE))
        ragged_store(folder / f"{new}ragged.zarr", truth=truth[at], **ends)
    ragged_store(folder / "drawn.zarr", truth=truth[:N], samples=samples[:N])
    np.save(folder / "partition.npy", PARTITION)
    np.save(folder / "noisy.npy", np.random.default_rng(1).uniform(size=(1, 64, 64)).astype(np.float32))
    shutil.copy(next(PACKAGE.rglob("score.safetensors")), folder)
    (folder / "scans").mkdir()
    scans = {f"scans/{i:03}": slice(i, i + 4) for i in range(0, N, 4)} | {"new": slice(N, None)}
    for name, at in scans.items():
        nibabel.save(nibabel.Nifti1Image(voxels[..., at], np.diag([-1.0, -1.0, 2.0, 1.0])), folder / f"{name}.nii.gz")


def run(book: Book, words: str) -> tuple[int, str, str]:
    """A command's exit code, what it says and its notes; seconds are left out."""
    paths = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "120", "TERM": "dumb"}
    command = [sys.executable, "-m", "pixelbounds.cli", *words.split()]
    done = subprocess.run(command, cwd=book.folder, env=env, capture_output=True, text=True)
    said = done.stdout
    with contextlib.suppress(json.JSONDecodeError):
        facts = json.loads(said, object_hook=lambda x: {name: part for name, part in x.items() if name != "seconds"})
        said = json.dumps(facts, sort_keys=True)
    return done.returncode, book.plain(said), book.plain(done.stderr)


def written(book: Book, path: Path) -> Any:
    """What a file holds, without the time at which it was written."""
    if path.suffix == ".zarr":
        nodes = {x.parent: x.read_text() for x in path.rglob("zarr.json")}
        arrays = {x: zarr.open_array(x, mode="r")[...] for x, about in nodes.items() if '"node_type": "array"' in about}
        return {str(x.relative_to(path)): [book.plain(about), arrays.get(x)] for x, about in nodes.items()}
    if path.suffix == ".npz":
        return dict(np.load(path))
    if path.suffix == ".gz":
        image: Any = nibabel.load(path)
        return [image.header.binaryblock, np.asarray(image.dataobj)]
    return {x.name: x.read_bytes() for x in path.iterdir()} if path.is_dir() else path.read_bytes()


def stage(book: Book, asked: Sequence[str], form: str = " --json") -> list[str]:
    """Run commands, two at a time, and keep what they say and write; `-> a b` names what is written."""
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda x: run(book, x.partition(" -> ")[0] + form), asked))
    for (words, _, outputs), said in zip((x.partition(" -> ") for x in asked), found, strict=True):
        book.note(f"pixelbounds {words}{form}: says", lambda said=said: said)
        for output in outputs.split():
            book.note(f"pixelbounds {words}: {output}", partial(written, book, book.folder / output))
    return [said for _, said, _ in found]


def commands(book: Book, truth: Array, samples: Array) -> None:
    write_files(book.folder, truth, samples)
    stage(book, [f"calibrate --risk-level 0.1 {words}" for words in CALIBRATE])
    stage(book, [f"apply {words}" for words in APPLY])
    stage(book, OTHERS)
    stage(book, TEXTS, form="")
    sent = [f"{site}-0.safetensors" for site in SITES]
    stage(book, [f"federated announce {SITES[x[:5]]} --out {x} -> {x}" for x in sent])
    how = "--method rcps --confidence hoeffding_bentkus --risk-level 0.1 --out study"
    (said,) = stage(book, [f"federated begin {' '.join(sent)} {how}"])
    while "round" in (told := json.loads(said)):
        sent = [f"{site}-{told['round']}.safetensors" for site in SITES]
        stage(book, [f"federated answer {told['file']} {SITES[x[:5]]} --out {x} -> {x} {told['file']}" for x in sent])
        (said,) = stage(book, [f"federated merge study {' '.join(sent)}"])
    book.note("federated study: calibration", (book.folder / "study/calibration.safetensors").read_bytes)


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
