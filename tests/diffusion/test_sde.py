"""The variance-exploding process and the noise that drives its samplers."""

import math

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from pixelbounds.diffusion.noise import gaussian, philox  # noqa: E402
from pixelbounds.diffusion.sde import VESDE  # noqa: E402


@pytest.mark.parametrize("sde", [VESDE(), VESDE(0.01, 1.0)])
def test_levels_run_from_least_to_most_and_time_inverts_them(sde):
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    sigma = sde.sigma(t)
    assert float(sigma[0]) == sde.sigma_min
    assert float(sigma[-1]) == pytest.approx(sde.sigma_max)
    torch.testing.assert_close(sde.time(sigma), t)
    assert sde.time(sde.sigma(0.3)) == pytest.approx(0.3)
    assert isinstance(sde.sigma(0.3), float)


def test_diffusion_is_the_growth_of_the_variance():
    sde, t, h = VESDE(0.01, 2.0), 0.37, 1e-6
    growth = (sde.sigma(t + h) ** 2 - sde.sigma(t - h) ** 2) / (2 * h)
    assert sde.diffusion(t) ** 2 == pytest.approx(growth, rel=1e-6)
    assert sde.diffusion(t) == pytest.approx(sde.sigma(t) * math.sqrt(2 * math.log(200)))


# ---------------------------------------------------------------- noise


@pytest.mark.parametrize(
    "counter, key, answer",
    [  # the known answers of Random123
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, answer):
    words = philox(tuple(torch.tensor([c]) for c in counter), key[0] + (key[1] << 32))
    assert tuple(int(word) for word in words) == answer


def draw(image, sample, step=0, seed=7, shape=(3, 16, 16)):
    return gaussian(seed, torch.as_tensor(image), torch.as_tensor(sample), step, shape, "cpu")


def test_noise_is_standard_normal():
    z = draw(torch.arange(200), torch.arange(200) % 5).numpy().ravel().astype(float)
    assert z.size == 200 * 768
    assert abs(z.mean()) < 4 / math.sqrt(z.size)
    assert abs(z.var() - 1) < 4 * math.sqrt(2 / z.size)
    assert abs(stats.kurtosis(z)) < 4 * math.sqrt(24 / z.size)
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_noise_of_neighbours_is_uncorrelated():
    base = {"image": [3], "sample": [5], "step": 2, "seed": 7}
    neighbours = {"image": [4], "sample": [6], "step": 3, "seed": 8}
    fields = [draw(**base)] + [draw(**base | {key: value}) for key, value in neighbours.items()]
    fields += [draw([5], [3], 2), draw([3], [2], 5), fields[0].roll(1, -1), fields[0].roll(2, -1)]
    matrix = np.corrcoef(np.stack([f.numpy().ravel() for f in fields]))
    assert np.abs(matrix - np.eye(len(fields))).max() < 4.5 / math.sqrt(768)


def test_noise_does_not_know_its_batch():
    image, sample = torch.arange(12) // 4, torch.arange(12) % 4
    whole = draw(image, sample, shape=(1, 7, 9))  # 63 pixels: not a multiple of the four that a turn gives
    assert torch.equal(whole, draw(image, sample, shape=(1, 7, 9)))
    for size in (1, 5):
        parts = [draw(image[i : i + size], sample[i : i + size], shape=(1, 7, 9)) for i in range(0, 12, size)]
        assert torch.equal(whole, torch.cat(parts))
    assert torch.equal(whole.flip(0), draw(image.flip(0), sample.flip(0), shape=(1, 7, 9)))
