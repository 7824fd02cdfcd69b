"""Samplers that draw differently do not share a name; what cannot be distinguished asks for one."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.samplers.adapters import from_azula, from_deepinv, from_monai, from_pipeline
from pixelbounds.samplers.protocol import sampler_name

torch = pytest.importorskip("torch")
Y = np.random.default_rng(0).uniform(0.3, 0.7, (160, 1, 8, 8)).astype(np.float32)


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Conv2d(1, 1, 1)


class Pipeline:
    """As one of diffusers: parts by name, images (n, h, w, c)."""

    def __init__(self, deviation, components=None):
        self.deviation = deviation
        if components is not None:
            self.components = components

    def __call__(self, y, n, output_type):
        noise = self.deviation * torch.randn(n, *y.shape).numpy()
        return SimpleNamespace(images=(y[None] + noise).transpose(0, 2, 3, 1))


def arguments(y, n):
    return {"y": y, "n": n}


class Steps:
    """As a scheduler of diffusers: its configuration stays but for an order of chance; every call sets timesteps."""

    made = 0

    def __init__(self):
        Steps.made += 1
        self.config = {"steps": 10, "_use_default_values": np.roll(["beta", "clip", "eta"], Steps.made).tolist()}
        self.timesteps = np.zeros(3)


def test_a_calibration_with_one_network_is_refused_for_another():
    """`from_pipeline` of two networks was one sampler: 26% were missed at a promised 10%."""
    rng = np.random.default_rng(1)
    truth = np.clip(Y + 0.05 * rng.standard_normal(Y.shape), 0, 1).astype(np.float32)

    def bands(deviation, seed):
        pipeline = Pipeline(deviation, {"unet": network(seed), "scheduler": Steps()})
        return pb.bands_from(from_pipeline(pipeline, arguments), Y, samples=19, miscoverage=0.2)

    a, b = bands(0.05, 0), bands(0.005, 1)
    assert a.source.sampler.startswith("diffusers ")
    assert a.source != b.source
    assert a.source == bands(0.05, 0).source
    cal = pb.calibrate(truth[:100], a[:100], risk_level=0.1)
    with pytest.raises(ValueError, match="diffusers"):
        cal.apply(b[100:])


def made_of(adapter, net):
    if adapter == "azula":
        return from_azula(lambda y: net, (1, 8, 8))
    if adapter == "monai":
        return from_monai(SimpleNamespace(scheduler=SimpleNamespace(timesteps=torch.arange(3))), net, (1, 8, 8))
    if adapter == "deepinv":
        return from_deepinv(net, torch.nn.Identity())
    return from_pipeline(Pipeline(0.1, {"unet": net}), arguments)


@pytest.mark.parametrize("adapter", ["azula", "monai", "deepinv", "diffusers"])
def test_every_adapter_knows_its_weights(adapter):
    names = [sampler_name(made_of(adapter, network(seed))) for seed in (0, 0, 1)]
    assert names[0] == names[1] != names[2]


def closure(scale, net):
    def draw(observation, samples, seed):
        return scale * np.repeat(observation[None], samples, axis=0) + net

    return draw


def with_weights(observation, samples, seed):
    return NETWORK(observation)


NETWORK = network(0)


def behind(observation, samples, seed):
    return with_weights(observation, samples, seed)


NETWORKS = {"here": network(0)}


def among_others(observation, samples, seed):
    return NETWORKS["here"](observation)


@pytest.mark.parametrize("sampler", [behind, among_others])
def test_weights_behind_a_helper_or_in_a_table_count(sampler, monkeypatch):
    before = sampler_name(sampler)
    monkeypatch.setitem(globals(), "NETWORK", network(1))
    monkeypatch.setitem(NETWORKS, "here", network(1))
    assert sampler_name(sampler) != before


def test_functions_are_known_by_name_code_and_what_they_enclose(monkeypatch):
    here = f"{__name__}:"
    assert sampler_name(closure) == f"{here}closure"
    names = [sampler_name(closure(*how)) for how in ((1, 2), (1, 2), (1, 3), (1, np.ones(3)), (1, network(0)))]
    assert names[0] == names[1]
    assert len(set(names)) == 4
    assert sampler_name(lambda *x: 1) != sampler_name(lambda *x: 2)
    assert sampler_name(partial(closure, 1)) != sampler_name(partial(closure, 2))
    before = sampler_name(with_weights)
    monkeypatch.setitem(globals(), "NETWORK", network(1))
    assert before.startswith(f"{here}with_weights ")
    assert sampler_name(with_weights) != before
    for odd in (closure(1, np.random.default_rng()), Pipeline(1.0), partial(closure, object())):
        with pytest.raises(ValueError, match="say name="):
            sampler_name(odd)
