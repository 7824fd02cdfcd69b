"""Images to material: prepare, train the three networks, sample, and put everything into units of [0, 1].

Every step resumes where it was interrupted. The experiment says how many images are held out and fine-tuned on,
`splits.py` says which; no unit (scan, patient) is in two parts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.demo.packaged import NOISE_SEED
from pixelbounds.demo.phantom import phantoms
from pixelbounds.execution.runner import Progress, silent
from pixelbounds.formats.opener import open_images
from pixelbounds.formats.scans import Images
from pixelbounds.images.ends import outward
from pixelbounds.images.library import Array
from pixelbounds.storage.files import replace_file
from pixelbounds.workflows import SampleOptions, combine_networks, sample_to, train_from
from reproduce.splits import split_images

from .abdomen import abdomen
from .celeba import celeba
from .experiment import Experiment
from .ledger import Teller

_ROWS = 256  # images copied at a time
_SHOWN = 4  # images, and samples of each, that are kept for a figure
Sampled = Callable[[Path, SampleOptions], Any]  # a zarr store to write, how to sample -> what it then holds


def make_material(
    experiment: Experiment,
    data: str | Path | None,
    work: str | Path,
    *,
    device: str | None = None,
    tell: Teller = lambda line: None,
    progress: Progress = silent,
) -> Path:
    """Train and sample as the experiment says, in the folder `work`; returns the folder of the material.

    `data` is what the experiment's reader takes: the folder of CelebA or AbdomenCT-1K, or any file or folder of images.
    Phantoms are made, not read.
    """
    work = Path(work)
    work.mkdir(parents=True, exist_ok=True)
    prepare(experiment, data, work, tell)
    kinds = [kind for kind in ("score", "regressor", "conffusion") if kind in experiment.training]
    networks = {kind: _train(experiment, kind, work, device, tell) for kind in kinds}
    if experiment.sampling.networks > 1:
        networks["score"] = _ensemble(experiment, networks["score"], work, device, tell)
    noisy = np.load(work / "observation.npy", mmap_mode="r")
    runs: dict[str, Any] = {}
    for kind, network in networks.items():
        tell(f"sampling with {network}")
        options = SampleOptions(
            samples=None if kind == "conffusion" else experiment.task.samples,
            seed=experiment.sampling.seed, batch=experiment.sampling.batch, device=device,
            sigma_0=experiment.process["sigma_0"], limits=experiment.data.limits,
        )  # fmt: skip
        sampled = partial(sample_to, network, noisy, tell=tell, progress=progress)
        if kind == "score":
            runs |= _score_runs(experiment, work, options, sampled, partial(sample_to, network, noisy[:_SHOWN]))
        else:
            runs[kind] = sampled(work / f"{kind}.zarr", options)
    return assemble(experiment, work, runs)


def _score_runs(
    experiment: Experiment, work: Path, options: SampleOptions, sampled: Sampled, some: Sampled
) -> dict[str, Any]:
    """Samples of all observations, and whole samples of some for figures; of Algorithm 3 as printed too, if planned."""
    wanted = experiment.sampling
    options = replace(
        options, miscoverage=experiment.task.miscoverage, sampler=wanted.sampler, steps=wanted.steps, held_out=1
    )
    runs = {"score": sampled(work / "score.zarr", options)}
    runs["shown"] = some(work / "shown.zarr", replace(options, keep_samples=True, held_out=0))
    as_printed = replace(options, sampler="euler_maruyama", steps=wanted.printed_steps)
    if options.sampler != as_printed.sampler:
        few = replace(as_printed, samples=_SHOWN, miscoverage=0.5, keep_samples=True, held_out=0)
        runs["shown_printed"] = some(work / "shown_printed.zarr", few)
    if wanted.printed_steps is not None:
        runs["printed"] = sampled(work / "printed.zarr", as_printed)
    return runs


# ---------------------------------------------------------------- images


def prepare(experiment: Experiment, data: str | Path | None, work: Path, tell: Teller) -> None:
    """Write train.npy and tune.npy (within the limits), truth.npy ([0, 1]), unit.npy and observation.npy."""
    about = {"data": experiment.as_dict()["data"], "process": experiment.process, "path": str(data)}
    marker = work / "prepared.json"
    if marker.is_file():
        if json.loads(marker.read_text()) != about:
            raise ValueError(f"{work} was prepared with other settings or other images; use another folder")
        return
    tell(f"preparing {experiment.data.source}")
    parts = _parts(experiment, data, work)
    low, high = experiment.data.limits
    for name in ("train", "tune"):
        images, numbers = parts[name]
        _write(work / f"{name}.npy", images.pixels, numbers, lambda x: low + _unit(x) * (high - low))
    images, numbers = parts["held_out"]
    _write(work / "truth.npy", images.pixels, numbers, _unit)
    units = np.arange(len(images)) if images.units is None else np.unique(images.units, return_inverse=True)[1]
    np.save(work / "unit.npy", units[numbers])
    sigma = experiment.process["sigma_0"]
    rng = np.random.default_rng(NOISE_SEED)  # as of the arrays behind docs/results/

    def noisy(x: Array) -> Array:
        return low + x * (high - low) + np.float32(sigma) * rng.standard_normal(x.shape, np.float32)

    truth = np.load(work / "truth.npy", mmap_mode="r")
    _write(work / "observation.npy", truth, np.arange(len(truth)), noisy)
    replace_file(marker, json.dumps(about, indent=1).encode())


def _parts(experiment: Experiment, data: str | Path | None, work: Path) -> dict[str, tuple[Images, Array]]:
    """Images and the numbers of those in each part; the networks never see those that are held out."""
    wanted = experiment.data
    if wanted.reader == "phantom":  # made to order, and each is a patient of its own; the packaged ones are held out
        counts = {"held_out": wanted.held_out, "tune": wanted.tune, "train": wanted.train}
        made = phantoms(sum(counts.values()), wanted.size, wanted.seed)
        images = Images(made.images, tuple(map(str, range(len(made)))), made.units)
        numbers = np.split(np.arange(len(made)), np.cumsum(list(counts.values()))[:-1])
        return {part: (images, chosen) for part, chosen in zip(counts, numbers, strict=True)}
    if data is None:
        raise ValueError(f"{experiment.name} needs images: {wanted.source}; give --data")
    if wanted.reader == "celeba":  # the published partition; identities do not cross it
        found = {}
        for name, part, count in (("train", "train", None), ("tune", "valid", wanted.tune),
                                  ("held_out", "test", wanted.held_out)):  # fmt: skip
            faces = celeba(str(data), part, wanted.size, cache=work / f"{part}.zarr")
            if count is not None and len(faces) < count:
                raise ValueError(f"CelebA's part {part!r} has {len(faces)} images here, but {count} are needed")
            order = np.random.default_rng(wanted.seed).permutation(len(faces))
            found[name] = faces, np.sort(order[:count])
        return found
    if wanted.reader == "abdomen":
        images = abdomen(str(data), cache=work / "images.zarr", size=wanted.size)
    else:
        images = open_images(str(data), key=wanted.key)
        if wanted.units is not None:
            images = replace(images, units=_units(Path(str(data)), wanted.units, images.units))
    if tuple(images.pixels.shape[-2:]) != (wanted.size, wanted.size):
        raise ValueError(
            f"images are of shape {images.pixels.shape[1:]}; {experiment.name} takes {wanted.size} x {wanted.size}"
        )
    parts = split_images(  # stream 0 is that of development
        len(images), held_out=wanted.held_out, tune=wanted.tune, units=images.units, seed=1 + wanted.seed
    )
    return {part: (images, parts[part]) for part in ("train", "tune", "held_out")}


def _units(path: Path, name: str, found: Array | None) -> Array:
    """The scan of each image: an array of this name in the .npz or beside the images, or what the reader found."""
    if name.endswith(".npy") and (path.parent / name).is_file():
        return np.load(path.parent / name, allow_pickle=False)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            if name in file.files:
                return np.asarray(file[name])
    if found is None:
        raise ValueError(f"{path} does not say which scan an image is of; give one folder per scan, or {name!r} beside")
    return found


def _unit(pixels: Array) -> Array:
    """Values in [0, 1], float32."""
    x = np.asarray(pixels)
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32)


def _write(path: Path, images: Any, numbers: Array, change: Callable[[Array], Array]) -> None:
    """Copy some images into an .npy file a few at a time, aside first."""
    aside = path.with_suffix(".part.npy")
    out = np.lib.format.open_memmap(aside, "w+", np.float32, (len(numbers), *images.shape[1:]))
    for start in range(0, len(numbers), _ROWS):
        rows = numbers[start : start + _ROWS]
        picked = images[rows] if isinstance(images, np.ndarray) else np.stack([images[int(i)] for i in rows])
        out[start : start + len(rows)] = change(picked)
    out.flush()
    os.replace(aside, path)


# ---------------------------------------------------------------- networks


def _ensemble(experiment: Experiment, first: Path, work: Path, device: str | None, tell: Teller) -> Path:
    """Train the other score networks, from other seeds, and join all."""
    seeds = range(1, experiment.sampling.networks)
    others = [_train(experiment, "score", work, device, tell, seed=seed) for seed in seeds]
    return combine_networks([first, *others], work / "ensemble.safetensors", replace=True)


def _train(
    experiment: Experiment, kind: str, work: Path, device: str | None, tell: Teller, *, seed: int | None = None
) -> Path:
    """Write the settings of a training run and carry it out, or resume it; `seed` is added to the plan's."""
    tunes = kind == "conffusion"
    name = kind if seed is None else f"{kind}{seed}"
    choosing = "tune.npy" if experiment.data.stop and not tunes else 0.0
    settings: dict[str, dict[str, Any]] = {
        "data": {
            "path": "tune.npy" if tunes else "train.npy",
            "limits": list(experiment.data.limits),
            "validation": choosing,
        },
        "training": {"kind": kind, **experiment.training[kind]},
        "output": {"folder": name},
    }
    if seed is not None:
        settings["training"]["seed"] = experiment.training[kind].get("seed", 0) + seed
    if tunes:
        settings["training"]["from"] = "score/score.safetensors"
    else:
        settings |= {"network": experiment.network, "process": experiment.process}
    if device is not None:
        settings["training"]["device"] = device
    path = work / f"{name}.toml"
    replace_file(path, "\n".join(_toml(settings)).encode())
    return train_from(path, tell=tell, rehearsal=experiment.rehearsal)


def _toml(sections: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, section in sections.items():
        yield f"[{name}]"
        yield from (f"{key} = {json.dumps(value)}" for key, value in section.items())  # such JSON is TOML too
        yield ""


# ---------------------------------------------------------------- material


def assemble(experiment: Experiment, work: Path, runs: dict[str, Any]) -> Path:
    """Write the material of finished sampling runs; returns its folder."""
    folder = work / "material"
    folder.mkdir(exist_ok=True)
    for name, x in _arrays(work, runs, *experiment.data.limits):
        aside = folder / f".{name}.part.npy"
        np.save(aside, x)
        os.replace(aside, folder / f"{name}.npy")
    about = {
        kind: {k: v for k, v in run.about.items() if k != "network_file"}
        for kind, run in runs.items()
        if not kind.startswith("shown")
    }
    replace_file(folder / "figures.json", (json.dumps(about, indent=1) + "\n").encode())
    return folder


def _arrays(work: Path, runs: dict[str, Any], low: float, high: float) -> Iterator[tuple[str, Array]]:
    """The arrays of a material by name, one at a time: they may be large."""

    def unit(x: Any) -> Array:
        return ((np.asarray(x[:], np.float32) - np.float32(low)) / np.float32(high - low)).astype(np.float32)

    def spread(x: Any) -> Array:
        return np.asarray(x[:], np.float32) / np.float32(high - low)

    def ends(prefix: str, run: Any, lower: str, upper: str) -> Iterator[tuple[str, Array]]:
        down, up = outward(unit(run[lower]), unit(run[upper]), np.float16)
        yield prefix + lower, down
        yield prefix + upper, up

    score = runs["score"]
    yield from ends("", score, "lower", "upper")
    yield from ends("", score, "naive_lower", "naive_upper")
    if "printed" in runs:
        yield from ends("printed_", runs["printed"], "lower", "upper")
        yield "printed_fresh", unit(runs["printed"]["held_out"])[:, 0]
    yield "mean", unit(score["mean"])
    yield "deviation", spread(score["deviation"])
    yield "fresh", unit(score["held_out"])[:, 0]
    yield "observation", unit(score["observation"])
    yield "truth", np.load(work / "truth.npy")
    yield "unit", np.load(work / "unit.npy")
    yield "samples", unit(runs["shown"]["samples"])[:, :_SHOWN]
    if "shown_printed" in runs:  # of Algorithm 3, where the experiment's sampler is another
        yield "samples_printed", unit(runs["shown_printed"]["samples"])
    if "regressor" in runs:
        heads = runs["regressor"]
        yield from ((f"qr_{name}", unit(heads[name])) for name in ("lower", "estimate", "upper"))
        if "dropout_mean" in heads.group:
            yield "dropout_mean", unit(heads["dropout_mean"])
            yield "dropout_deviation", spread(heads["dropout_deviation"])
    if "conffusion" in runs:
        yield from ((f"conffusion_{name}", unit(runs["conffusion"][name])) for name in ("lower", "upper"))
