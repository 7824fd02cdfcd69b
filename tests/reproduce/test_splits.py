"""Which images are held out: never those for development, whole scans, the same for the command and the GPU script."""

import numpy as np
import pytest

pytest.importorskip("torch")

from reproduce.splits import split_images


def some_scans(count, seed=0):
    """The scan of each image; scans have 1 to 59 images."""
    return np.repeat(np.arange(count), np.random.default_rng(seed).integers(1, 60, count))


def published(total, scan, held_out):
    """The split behind the published tables, written out: numbers held out, fine-tuned on and trained on."""
    rng, alone = np.random.default_rng(1), scan is None
    units = total if alone else int(scan.max()) + 1
    share = 768 if alone else round(0.4 * units)
    development = np.random.default_rng(0).permutation(units)[:share]
    others = rng.permutation(np.setdiff1d(np.arange(units), development))
    if alone:
        out, tune = others[:1500], others[1500:2500]
        return np.sort(out[:held_out]), np.sort(tune), np.setdiff1d(np.arange(total), others[:2500])
    out = others[:share]
    tune = rng.permutation(np.setdiff1d(np.arange(units), out))[: round(0.13 * units)]
    turns = []
    for s in out:
        turns += [(turn, int(image)) for turn, image in enumerate(rng.permutation(np.flatnonzero(scan == s)))]
    kept = np.sort([image for _, image in sorted(turns)][:held_out])
    return kept, np.flatnonzero(np.isin(scan, tune)), np.flatnonzero(~np.isin(scan, np.concatenate([out, tune])))


@pytest.mark.parametrize("scan", [None, some_scans(181)], ids=["images", "scans"])
def test_the_split_is_that_of_the_published_tables(scan):
    total = 7000 if scan is None else len(scan)
    held_out, tune, train = published(total, scan, 768)
    found = split_images(total, held_out=768, tune=len(tune), units=scan)
    for name, numbers in {"held_out": held_out, "tune": tune, "train": train}.items():
        assert np.array_equal(found[name], numbers), name


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("units", [None, some_scans(40), some_scans(90, 1).astype(str)], ids=["images", "few", "many"])
def test_nothing_that_is_held_out_was_seen_before(units, seed):
    count = 900 if units is None else len(units)
    of = np.arange(count) if units is None else units
    parts = split_images(count, held_out=200, tune=60, units=units, seed=seed)
    assert len(parts["held_out"]) == 200
    assert len(parts["tune"]) >= 60
    assert len(parts["train"]) > 0
    assert len(parts["development"]) > 0
    seen = np.concatenate([parts[name] for name in ("tune", "train", "development")])
    assert not np.isin(of[parts["held_out"]], of[seen]).any()
    assert not np.isin(of[parts["tune"]], of[parts["train"]]).any()
    for name in ("tune", "train", "development"):  # whole scans
        assert np.array_equal(parts[name], np.flatnonzero(np.isin(of, of[parts[name]])))
    held = np.unique(of[parts["held_out"]], return_counts=True)[1]
    assert units is None or len(held) >= 0.3 * len(np.unique(of))  # spread over many scans
