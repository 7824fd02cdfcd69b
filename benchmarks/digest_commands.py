"""Digests of what the commands say and write (`benchmarks.digests`)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import zarr

from .digest_book import (
    NEW_UNITS,
    PACKAGE,
    PARTITION,
    SIZE,
    UNITS,
    Array,
    Book,
    M,
    N,
    band_for,
    cropped,
)

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
