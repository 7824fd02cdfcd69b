"""Sample observations into a store: with a network, by the loop of every sampler."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ..diffusion.devices import best_device, check_device
from ..execution.progress import Progress, Tell, silent
from ..formats.arrays import FilePath
from ..images.checks import Limits, check_limits
from ..images.measure import Measure
from ..samplers.loop import RunOptions, fill_run
from ..samplers.network_backend import NetworkBackend, NetworkFactory, SampleOptions
from ..samplers.observations import NoisyImages
from ..samplers.runs import Run
from ..storage.version import VERSION


def sample_to(
    network: FilePath,
    observations: Any,
    out: FilePath,
    options: SampleOptions = SampleOptions(),  # noqa: B008 - frozen
    *,
    ids: Any = None,
    images: range | None = None,
    measure: Measure | None = None,
    patients: str | None = None,
    scheduler: Any = None,
    tell: Tell = lambda line: None,
    progress: Progress = silent,
) -> Run:
    """Sample observations (n, h, w) or (n, c, h, w) into the run `out`; an interrupted run resumes.

    A regressor returns its quantiles, with dropout also mean and deviation over `samples` passes. `images` is a range
    of the observations, by default all; `ids` seed these images, by default their numbers. `measure` says what numbers
    stand for, `patients` whose images they are (`patients_digest`). With a `scheduler` the workers of a Dask cluster
    draw, each on its own device; network, observations and store must be files that all of them see.
    """
    from ..diffusion.checkpoint import load_network

    device = "cpu" if scheduler is not None else check_device(options.device) or best_device()
    model, sde, meta = load_network(Path(network), device=device)
    kind, extra = meta["kind"], meta["extra"]
    options.check(str(network), kind, dropout=model.config.dropout > 0)
    limits, remedy = _limits(network, extra.get("limits"), options.limits)
    sigma_0 = options.sigma_0 if options.sigma_0 is not None else extra.get("sigma_0")
    if sigma_0 is None:
        raise ValueError(f"sigma_0 is not given, and {network} knows none; give the noise deviation, e.g. --sigma0 0.4")
    sigma_0, top = sde.check_level(sigma_0), extra.get("sigma_top")
    if top is not None and sigma_0 > top:
        raise ValueError(f"sigma_0 is {sigma_0:g}, but {network} was trained up to {top:g}; train another one")
    observed = NoisyImages(observations, limits, sigma_0, ids, images, meta["config"], remedy)
    backend = NetworkBackend(kind, model, sde, sigma_0, options, observed.shape)
    about = {
        "kind": kind,
        "network": hashlib.sha256(Path(network).read_bytes()).hexdigest(),
        "observations": observed.digest(),
        "images": len(observed),
        "shape": list(observed.shape),
        "sigma_0": sigma_0,
        "sde": [sde.sigma_min, sde.sigma_max],
        "limits": list(limits),
        "measure": None if measure is None else measure.state(),
        "patients": patients,
        "seed": options.seed,
        "compile": options.compile,
        **backend.about(),
        "network_file": Path(network).name,  # folders may tell whose it is
        "device": device,
        "version": VERSION,
    }
    factory = NetworkFactory(str(Path(network).absolute()), about["network"], sigma_0, options, observed.shape)
    run_options = RunOptions(options.batch, options.repair, scheduler, tell, progress)
    return fill_run(Path(out), about, observed, backend, factory, run_options)


def _limits(network: FilePath, trained: Any, wanted: Limits | None) -> tuple[Limits, str]:
    """The network's limits, else those wanted, else 0 and 1; and what to do about observations far beyond them."""
    if trained is None:
        return check_limits(wanted or (0.0, 1.0)), "rescale the observations, or give their limits (--limits)"
    if wanted is not None and check_limits(wanted) != check_limits(trained):
        raise ValueError(
            f"limits are ({wanted[0]:g}, {wanted[1]:g}), but {network} was trained on images in "
            f"({trained[0]:g}, {trained[1]:g}); rescale the observations to those, sigma_0 in "
            "proportion, and leave --limits out"
        )
    return check_limits(trained), "rescale the observations to these limits"
