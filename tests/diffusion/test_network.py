"""NCSN++: its shape, its size, its parts."""

import json
from dataclasses import asdict

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import gaussian_world as world  # noqa: E402

from pixelbounds.diffusion import NCSNpp, NetworkConfig, configuration  # noqa: E402
from pixelbounds.diffusion.architecture import CONFIGURATIONS  # noqa: E402
from pixelbounds.diffusion.network import Resample  # noqa: E402


def awake(**changes):
    torch.manual_seed(0)
    return world.awake(NCSNpp(configuration("tiny", **changes)))


@pytest.mark.parametrize(
    "name, channels, count",
    [("tiny", 1, 862689), ("small", 1, 5698817), ("celeba", 3, 62758787), ("abdomen", 1, 109653025)],
)
def test_parameters_are_counted(name, channels, count):
    with torch.device("meta"):  # celeba: 62.8 million, as published for this NCSN++
        network = NCSNpp(configuration(name, channels=channels))
    assert sum(p.numel() for p in network.parameters()) == count


def test_the_output_depends_on_sigma_and_the_score_is_divided_by_it():
    network, x = awake(), torch.randn(1, 1, 16, 16)
    undivided = awake(divide_by_sigma=False)
    with torch.no_grad():
        low, high = network(x, torch.tensor([0.1])), network(x, torch.tensor([0.2]))
        plain_low, plain_high = undivided(x, torch.tensor([0.1])), undivided(x, torch.tensor([0.2]))
    torch.testing.assert_close(low, plain_low / 0.1)
    assert (plain_low - plain_high).abs().max() > 1e-3
    assert not torch.allclose(low, high)


@pytest.mark.parametrize("direction, size", [("up", 16), ("down", 4)])
def test_resampling_keeps_constants_and_is_the_filter_1331(direction, size):
    resample = Resample(direction).double()
    ones = torch.full((2, 3, 8, 8), 0.7, dtype=torch.float64)
    torch.testing.assert_close(resample(ones), torch.full((2, 3, size, size), 0.7, dtype=torch.float64))
    ramp = torch.arange(8.0, dtype=torch.float64).expand(1, 1, 8, 8)
    row = resample(ramp)[0, 0, 0]
    inner = row[2:-2] if direction == "up" else row[1:-1]  # a ramp stays a ramp away from the edges
    torch.testing.assert_close(inner.diff(), torch.full_like(inner.diff(), 0.5 if direction == "up" else 2.0))
    impulse = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    impulse[0, 0, 4, 4] = 1
    taps = torch.tensor([1, 3, 3, 1], dtype=torch.float64) / (4 if direction == "up" else 8)
    expected = torch.outer(taps, taps)
    answer = resample(impulse)[0, 0]
    if direction == "up":
        torch.testing.assert_close(answer[7:11, 7:11], expected)
    else:
        torch.testing.assert_close(answer[1:3, 1:3], expected[[3, 1]][:, [3, 1]])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_survive_json(name):
    config = configuration(name, channels=3, dropout=0.25)
    assert NetworkConfig(**json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"size": 60}, "divisible by 8"),
        ({"base": 18}, "divisible by 4"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"blocks": 0}, "positive integers"),
    ],
)
def test_impossible_configurations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        configuration("tiny", **changes)
