"""Samplers of other libraries as samplers of ours: azula, MONAI, diffusers, deepinv.

Each takes objects of the library, ready to use, and imports nothing of it. These libraries draw from torch's global
generator; it is seeded for each batch and put back afterwards, so that a draw depends on the seed alone.

Each sampler carries a name with a digest of its weights and settings, which bands and calibrations keep: a calibration
with one network is refused for bands of another. Where no digest can be made, `name` is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .protocol import Sampler, identified

_TURN = 0x632BE5AB  # between the seeds of batches; odd, so that they differ


@contextmanager
def _seeded(seed: int, batch: int) -> Iterator[None]:
    """Torch's generators at the seed of a batch; as they were before, afterwards."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed((seed + batch * _TURN) % 2**32)
        yield


def _in_batches(draw: Callable[[int], Any], samples: int, batch: int, seed: int) -> Iterator[Any]:
    """Samples one by one, of which `draw(count)` gives some at a time."""
    for number, start in enumerate(range(0, samples, batch)):
        with _seeded(seed, number):
            drawn = draw(min(batch, samples - start))
        yield from drawn


def _named(sampler: Any, library: str, name: str | None, *parts: Any) -> Sampler:
    """A sampler with its name: the given one, else the library and a digest of what it draws with."""
    sampler.name = identified(library, *parts) if name is None else name
    drawing: Sampler = sampler
    return drawing


def from_azula(
    build: Callable[[Any], Any], shape: Sequence[int], *, batch: int = 1, name: str | None = None
) -> Sampler:
    """azula: `build(observation)` gives a sampler such as DDIMSampler(MMPSDenoiser(denoiser, y, A, cov_y)).

    `shape` is that of an image, (c, h, w). Guidance whose norm spans the batch needs a batch of 1.
    """

    def sampler(observation: Any, samples: int, seed: int) -> Iterator[Any]:
        made = build(observation)
        return _in_batches(lambda count: made(made.init((count, *shape))), samples, batch, seed)

    return _named(sampler, "azula", name, build, list(shape), batch)


def from_monai(
    inferer: Any,
    model: Any,
    shape: Sequence[int],
    *,
    condition: Callable[[Any], Any] | None = None,
    mode: str = "concat",
    batch: int = 8,
    name: str | None = None,
    **more: Any,
) -> Sampler:
    """MONAI: `DiffusionInferer.sample` of noise (c, h, w); `condition(observation)` gives the conditioning (1, ...).

    The scheduler's timesteps must be set. `more` goes to `sample`.
    """

    def sampler(observation: Any, samples: int, seed: int) -> Iterator[Any]:
        given = None if condition is None else condition(observation)

        def draw(count: int) -> Any:
            import torch

            noise = torch.randn(count, *shape)
            words = dict(more)
            if given is not None:
                rows = given.expand(count, *given.shape[1:])
                words |= {"conditioning": rows.to(noise.dtype), "mode": mode}
            return inferer.sample(input_noise=noise, diffusion_model=model, verbose=False, **words)

        return _in_batches(draw, samples, batch, seed)

    scheduler = getattr(inferer, "scheduler", None)
    how = type(inferer), type(scheduler), getattr(scheduler, "timesteps", None), list(shape), mode, batch
    return _named(sampler, "MONAI", name, model, condition, more, *how)


def from_pipeline(
    pipeline: Any, arguments: Callable[[Any, int], dict[str, Any]], *, batch: int = 8, name: str | None = None
) -> Sampler:
    """diffusers: a pipeline, and the arguments of its call for an observation and a number of images.

    `arguments(observation, count)` is for example {"batch_size": count, "num_inference_steps": 50}; images come back as
    arrays (count, h, w, c), and as (count, c, h, w) from here.
    """

    def sampler(observation: Any, samples: int, seed: int) -> Iterator[Any]:
        def draw(count: int) -> Any:
            images = pipeline(**arguments(observation, count), output_type="np").images
            if len(images) != count:
                raise ValueError(
                    f"the pipeline gave {len(images)} images where {count} were asked; correct `arguments`"
                )
            return images.transpose(0, 3, 1, 2)

        return _in_batches(draw, samples, batch, seed)

    return _named(sampler, "diffusers", name, pipeline, arguments, batch)


def from_deepinv(model: Callable[..., Any], physics: Any, *, name: str | None = None) -> Sampler:
    """deepinv: a sampler such as DPS(...), which gives one sample a call, model(y, physics, seed=...): (1, c, h, w)."""

    def sampler(observation: Any, samples: int, seed: int) -> Iterator[Any]:
        import torch

        y = torch.as_tensor(observation)[None]
        for number in range(samples):
            draw_seed = (seed + number * _TURN) % 2**31
            with _seeded(draw_seed, 0):
                yield model(y, physics, seed=draw_seed)[0]

    return _named(sampler, "deepinv", name, type(model), model, type(physics), physics)
