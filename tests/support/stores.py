"""A small world in zarr stores."""

import numpy as np
import zarr

from pixelbounds.samplers.runs import run_under_way, write_image

N, M, SIZE = 120, 19, 16
CHOICES = {"risk_level": 0.1, "failure_prob": 0.2}


def world(n=N, size=SIZE, seed=0):
    """Truth (n, size, size) and samples (n, m, size, size) of a sampler that is too sure of itself."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(0.1, 0.9, (n, size, size))
    deviation = np.exp(rng.normal(-3, 0.6, level.shape))
    truth = np.clip(level + deviation * rng.standard_normal(level.shape), 0, 1).astype(np.float32)
    draws = rng.standard_normal((n, M, size, size), np.float32)
    return truth, (level[:, None] + 0.5 * deviation[:, None] * draws).astype(np.float32)


def store(folder, name, data, chunks, **how):
    """A zarr array on disk, opened for reading."""
    zarr.create_array(folder / name, data=data, chunks=(*chunks, *data.shape[len(chunks) :]), **how)
    return zarr.open_array(folder / name, mode="r")


def write_run(path, about, ids, pixels, names, images):
    """A run of which the parts of its first images are known, and no others."""
    with run_under_way(path, about, pixels, np.asarray(ids), names) as run:
        for image, parts in enumerate(images):
            write_image(run, image, parts)
