"""Sample observations into a store: with a network, by the loop of every sampler."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..formats.arrays import FilePath
from ..formats.opener import open_images
from ..formats.scans import USUAL, Window, patients_digest
from ..images.checks import Limits, check_limits
from ..samplers.loop import RunOptions, fill_run
from ..samplers.network_backend import NetworkBackend, network_digest, refuse_ignored
from ..samplers.observations import NoisyImages
from ..samplers.runs import Run
from .request import SampleOptions

if TYPE_CHECKING:
    from ..samplers import Sampler


class Inverse(NamedTuple):
    """What a score network inverts: a TOML file that declares it, and how; None of each where it denoises."""

    problem: Path | None = None
    method: str | None = None
    sweeps: int | None = None


def sample_files(
    network: str, observations: FilePath, out: FilePath, options: SampleOptions = SampleOptions(), *,
    window: Window | str | None = USUAL, key: str | None = None, images: Callable[[int], range] | None = None,
    inverse: Inverse = Inverse(), **shared: Any,
) -> Run:  # fmt: skip
    """Sample observations in files into the run `out`, with a network's file or a function, package.module:function.

    `images` chooses a range of so many images; the rest is as in `sample_to`.
    """
    from ..samplers import sample_function_to

    sampler = _sampler(network, options, inverse)
    seen = open_images(observations, key=key, window=window, clip=False, spectra=sampler is not None)
    chosen = range(len(seen)) if images is None else images(len(seen))
    shared |= {"images": chosen, "measure": seen.measure, "patients": patients_digest(seen, chosen)}
    if sampler is None:
        return sample_to(network, seen.pixels, out, options, **shared)
    names = ("samples", "miscoverage", "held_out", "keep_samples", "seed", "repair")
    given = {name: getattr(options, name) for name in names}
    given["name"] = network if is_function(network) else None
    given["limits"] = options.limits or getattr(sampler, "limits", None)
    given = {name: value for name, value in given.items() if value is not None}
    return sample_function_to(sampler, seen.pixels, out, **given, **shared)


def _sampler(network: str, options: SampleOptions, inverse: Inverse) -> Sampler | None:
    """A function, or a network that inverts a linear problem; None: a network that denoises, or predicts."""
    from ..samplers import LinearSampler, load_sampler

    guidance = {f"--{name}": value for name, value in inverse._asdict().items()}
    usual = {"--sigma0": options.sigma_0, "--compile": options.compile}
    wrong, why = guidance, "without --problem a network denoises"
    if is_function(network):
        chosen = {f"--{name}": getattr(options, name) for name in ("sampler", "steps", "batch", "device")}
        wrong, why = usual | chosen | guidance, "a function has settings of its own"
    elif inverse.problem is not None:
        wrong, why = usual, "with --problem the network is differentiated, and the file says what its noise is"
    given = [name for name, value in wrong.items() if value is not None]
    if given:
        raise ValueError(f"{why}; leave {', '.join(given)} out")
    if is_function(network):
        return load_sampler(network)
    if inverse.problem is None:
        return None
    from ..diffusion.inverse import Guidance
    from ..problems import read_problem

    settings = {name: getattr(options, name) for name in ("sampler", "steps")}
    settings |= {"method": inverse.method, "sweeps": inverse.sweeps}
    how = Guidance(**{name: value for name, value in settings.items() if value is not None})
    return LinearSampler(network, read_problem(inverse.problem), how, options.device, options.batch)


def is_function(text: str) -> bool:
    """Whether the first word names a function, and no file.

    >>> is_function("mine.samplers:draw"), is_function("run/score.safetensors")
    (True, False)
    """
    return re.fullmatch(r"[\w.]+:[\w.]+", text) is not None and not Path(text).exists()


def sample_to(
    network: FilePath, observations: Any, out: FilePath, options: SampleOptions = SampleOptions(), *, ids: Any = None,
    images: range | None = None, **run: Any,
) -> Run:  # fmt: skip
    """Sample observations (n, h, w) or (n, c, h, w) into the run `out`; an interrupted run resumes.

    A regressor returns its quantiles, with dropout also mean and deviation over `samples` passes. `images` is a range
    of the observations, by default all; `ids` seed these images, by default their numbers; `run` are fields of
    `RunOptions`.
    """
    from ..diffusion.checkpoint import check_device, load_network

    how = RunOptions(batch=options.batch, repair=options.repair, **run)
    model, sde, meta = load_network(Path(network), device=check_device(options.device))
    kind, extra = meta["kind"], meta["extra"]
    refuse_ignored(options, str(network), kind, dropout=model.config.dropout > 0)
    limits, remedy = _limits(network, extra.get("limits"), options.limits)
    sigma_0 = options.sigma_0 if options.sigma_0 is not None else extra.get("sigma_0")
    if sigma_0 is None:
        raise ValueError(f"sigma_0 is not given, and {network} knows none; give the noise deviation, e.g. --sigma0 0.4")
    sigma_0, top = sde.check_level(sigma_0), extra.get("sigma_top")
    if top is not None and sigma_0 > top:
        raise ValueError(f"sigma_0 is {sigma_0:g}, but {network} was trained up to {top:g}; train another one")
    observed = NoisyImages(observations, limits, sigma_0, ids, images, model.config, remedy)
    backend = NetworkBackend(model, options, sigma_0, observed.shape, kind=kind, sde=sde)
    backend.compile_where_it_pays(len(observed), next(model.parameters()).device)
    about = {
        "kind": kind,
        "network": network_digest(network),
        "shape": list(observed.shape),
        "sigma_0": sigma_0,
        "sde": [sde.sigma_min, sde.sigma_max],
        "limits": list(limits),
        "seed": options.seed,
        "compile": backend.compile,
        **backend.about(),
        "network_file": Path(network).name,  # folders may tell whose it is
        "device": str(next(model.parameters()).device),
    }
    return fill_run(Path(out), about, observed, backend, how)


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
