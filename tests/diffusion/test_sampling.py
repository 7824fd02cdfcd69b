"""Samplers against laws known in closed form: with a Gaussian prior the score and the posterior are explicit."""

import math

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import pixelbounds as pb  # noqa: E402
from pixelbounds.bands import calibrated_ranks  # noqa: E402
from pixelbounds.diffusion.network import NCSNpp, configuration  # noqa: E402
from pixelbounds.diffusion.posterior import (  # noqa: E402
    SAMPLERS,
    Reduction,
    _trapezoid,
    automatic_batch,
    denoise,
    sample,
)
from pixelbounds.diffusion.sde import VESDE  # noqa: E402

SDE, SIGMA = VESDE(0.01, 1.0), 0.4
PRIOR = torch.logspace(-4, 1, 32, dtype=torch.float64).reshape(1, 4, 8)  # variances of the pixels, mean 0
POSTERIOR = ("reverse_sde", "predictor_corrector", "heun")
DENOISED = ("predictor_corrector", "heun")  # these end with the posterior mean at sigma_min


def gaussian_score(x, sigma):
    return -x / (PRIOR.to(x.dtype) + sigma.reshape(-1, 1, 1, 1) ** 2)


def law(name, steps, sde=SDE, sigma_0=SIGMA):
    """Exact slope of the mean in y, exact variance, and evaluations, of a sampler under the Gaussian prior.

    Everything is linear, so a row of the batch answers to one impulse: the first to y = 1, row k to the k-th noise.
    """
    sampler, evaluations, calls = SAMPLERS[name][0], [], []
    rows = 2 * steps + 1
    y = torch.zeros(rows, *PRIOR.shape, dtype=torch.float64)
    y[0] = 1

    def score(x, sigma):
        evaluations.append(sigma)
        return gaussian_score(x, torch.tensor([sigma], dtype=x.dtype))

    def noise(step):
        calls.append(step)
        impulse = torch.zeros_like(y)
        impulse[len(calls)] = 1
        return impulse

    x = sampler(score, y, sigma_0, sde, steps, noise)
    assert len(set(calls)) == len(calls)  # no noise is used twice
    return x[0], (x[1:] ** 2).sum(0), len(evaluations)


def posterior(v=0.0, sigma_0=SIGMA):
    """Slope of the mean and variance of x(v) given y = x(v_0); of the image itself at v = 0."""
    c, v_0 = PRIOR, sigma_0**2
    return (c + v) / (c + v_0), (c + v) * (v_0 - v) / (c + v_0)


def target(name, sde=SDE):
    """What the sampler aims at: x(sigma_min) given y, or its denoised version."""
    v = sde.sigma_min**2
    slope, variance = posterior(v)
    shrink = PRIOR / (PRIOR + v) if name in DENOISED else 1.0
    return shrink * slope, shrink**2 * variance


def error(name, steps):
    """Largest error of mean and of deviation over all pixels, in posterior deviations, and the evaluations."""
    slope, variance, evaluations = law(name, steps)
    true_slope, true_variance = target(name)
    deviation, spread = posterior()[1].sqrt(), (PRIOR + SIGMA**2).sqrt()
    mean = ((slope - true_slope).abs() * spread / deviation).max()
    width = ((variance.sqrt() - true_variance.sqrt()).abs() / deviation).max()
    return max(float(mean), float(width)), evaluations


# ---------------------------------------------------------------- exactness


@pytest.mark.parametrize("name, tolerance", [("reverse_sde", 0.03), ("predictor_corrector", 0.05), ("heun", 0.006)])
def test_the_usual_steps_come_near_the_limit_of_the_sampler(name, tolerance):
    assert error(name, SAMPLERS[name][1])[0] < tolerance


@pytest.mark.parametrize("name, steps", [("reverse_sde", 1500), ("predictor_corrector", 1500), ("heun", 60)])
def test_detail_coarser_than_sigma_min_has_the_law_of_the_posterior(name, steps):
    slope, variance, _ = law(name, steps)
    true_slope, true_variance = posterior()
    ratio = (variance / true_variance).sqrt()
    coarse = PRIOR.sqrt() >= 5 * SDE.sigma_min
    assert 10 < coarse.sum() < PRIOR.numel()
    mean = (slope - true_slope).abs() * (PRIOR + SIGMA**2).sqrt() / true_variance.sqrt()
    assert mean[coarse].max() < 0.025
    assert (ratio[coarse] - 1).abs().max() < 0.025
    # finer detail loses sigma_min of spread where a mean given x(sigma_min) is taken, and has it added elsewhere
    lost = (1 + SDE.sigma_min**2 / PRIOR) ** (-0.5 if name in DENOISED else 0.5)
    torch.testing.assert_close(ratio, lost, rtol=0.02, atol=0)


@pytest.mark.parametrize("name", POSTERIOR)
@pytest.mark.parametrize("sigma_min", [0.01, 0.0199, 0.3])
def test_noise_hardly_above_sigma_min_is_taken(name, sigma_min):
    sde, y = VESDE(sigma_min, 1.0), torch.full((1, *PRIOR.shape), 0.5, dtype=torch.float64)
    for sigma_0 in (math.nextafter(sigma_min, 1), sigma_min * (1 + 1e-9), sigma_min * (1 + 1e-5)):
        draws = torch.stack(list(sample(gaussian_score, y, sigma_0, sde, samples=50, sampler=name)))
        end = denoise(gaussian_score, y, sigma_0) if name in DENOISED else y
        assert (draws - end).abs().max() < 0.1 * sigma_min


def test_the_weight_of_the_far_end_is_smooth_where_its_quotient_cancels():
    weights = [_trapezoid(math.exp(x)) for x in (0.0, 1e-9, 0.99e-4, 1.01e-4, 1e-3)]
    np.testing.assert_allclose(weights, [0.5 + x / 12 for x in (0.0, 1e-9, 0.99e-4, 1.01e-4, 1e-3)], atol=1e-7)


def test_the_image_itself_is_sampled_where_sigma_min_is_small():
    slope, variance, _ = law("heun", 60, VESDE(1e-4, 1.0))
    true_slope, true_variance = posterior()
    torch.testing.assert_close(slope, true_slope, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(variance, true_variance, rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize(
    "name, order, steps", [("reverse_sde", 1, 100), ("predictor_corrector", 1, 100), ("heun", 2, 12)]
)
def test_errors_fall_with_the_order_of_the_scheme(name, order, steps):
    errors = [error(name, steps * 2**k)[0] for k in range(4)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all(orders > order - 0.25)


@pytest.mark.parametrize("steps", [48, 100, 200])
def test_heun_needs_less_than_a_third_of_the_evaluations(steps):
    plain, evaluations = error("reverse_sde", steps)
    reached, spent = error("heun", evaluations // 3 - 1)
    assert 3 * spent <= evaluations
    assert reached < plain / 4  # well within


# ---------------------------------------------------------------- Algorithm 3


def algorithm_3(score, y, sigma_0, sigma_max, sigma_min, steps, z):
    """The paper's Algorithm 3, line by line; where 0 / 0 appears it is 0."""
    t_0 = (np.log(sigma_0) - np.log(sigma_min)) / (np.log(sigma_max) - np.log(sigma_min))
    dt = 1 / steps
    n = int(np.floor(round(t_0 / dt, 9)))
    x = y
    for i in range(n, 0, -1):
        sigma = sigma_min * (sigma_max / sigma_min) ** (i * dt)
        g = sigma * np.sqrt(2 * np.log(sigma_max / sigma_min))
        pull = np.divide(y - x, sigma_0**2 - sigma**2) if i < n else np.zeros_like(y)
        x = x + g**2 * (score(x, sigma) + pull) * dt + g * np.sqrt(dt) * z[i]
    return x


@pytest.mark.parametrize("sigma_0, steps", [(0.4, 57), (0.1, 50), (1.0, 20)])  # the last two: sigma_n = sigma_0
def test_euler_maruyama_is_algorithm_3(sigma_0, steps):
    rng = np.random.default_rng(0)
    y, z = rng.normal(size=(3, 1, 4, 8)), rng.normal(size=(steps + 1, 3, 1, 4, 8))
    expected = algorithm_3(lambda x, s: -x / (PRIOR.numpy() + s**2), y, sigma_0, 1.0, 0.01, steps, z)

    def score(x, sigma):
        return gaussian_score(x, torch.tensor([sigma], dtype=x.dtype))

    x = SAMPLERS["euler_maruyama"][0](score, torch.as_tensor(y), sigma_0, SDE, steps, lambda i: torch.as_tensor(z[i]))
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_algorithm_3_converges_to_another_law_than_the_posterior():
    # its limit in closed form: the extra term doubles the pull of the bridge towards y
    c, v_0 = PRIOR, SIGMA**2
    slope, variance, _ = law("euler_maruyama", 1500, VESDE(1e-3, 1.0))
    log = torch.log1p(v_0 / c)
    limit_slope = c / v_0 * log
    limit_variance = (c / v_0) ** 2 * (v_0 + (c + v_0) * (v_0 / c - 2 * log))
    wide = c > 1e-3  # below, sigma_min shows
    torch.testing.assert_close(slope[wide], limit_slope[wide], rtol=0.02, atol=1e-3)
    torch.testing.assert_close(variance[wide], limit_variance[wide], rtol=0.03, atol=1e-6)
    true_slope, true_variance = posterior()
    assert (slope[wide] > true_slope[wide]).all()
    assert (variance[wide] < 0.95 * true_variance[wide]).all()
    assert (variance < 0.5 * true_variance)[c > v_0].all()


# ---------------------------------------------------------------- draws


def collect(score, y, **options):
    return torch.stack(list(sample(score, y, SIGMA, SDE, **options)))


@pytest.mark.parametrize("name", POSTERIOR)
def test_draws_follow_the_exact_law(name):
    y = 0.8 * torch.randn(3, *PRIOR.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    draws = collect(gaussian_score, y, samples=100, sampler=name, steps=4 * SAMPLERS[name][1] // 3, seed=3)
    slope, variance = target(name)
    z = ((draws - (slope * y)[:, None]) / variance.sqrt()).numpy().ravel()
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_algorithm_3_is_caught_by_the_same_test():
    y = torch.full((3, *PRIOR.shape), 0.5, dtype=torch.float64)
    draws = collect(gaussian_score, y, samples=100, sampler="euler_maruyama")
    slope, variance = target("euler_maruyama")
    z = ((draws - (slope * y)[:, None]) / variance.sqrt()).numpy().ravel()
    assert stats.kstest(z, "norm").pvalue < 1e-10


def test_correlated_priors_are_sampled_with_their_correlations():
    pixels = torch.arange(16, dtype=torch.float64)
    prior = 0.2 * 0.9 ** (pixels[:, None] - pixels).abs() + 1e-3 * torch.eye(16, dtype=torch.float64)
    mean = torch.linspace(-1, 1, 16, dtype=torch.float64)
    eye = torch.eye(16, dtype=torch.float64)

    def score(x, sigma):
        precision = torch.linalg.inv(prior + sigma[0] ** 2 * eye)
        return ((mean - x.flatten(1)) @ precision).reshape(x.shape)

    y = mean.reshape(1, 1, 4, 4) + 0.3
    draws = collect(score, y, samples=4000, batch=2000)[0].flatten(1)
    gain = prior @ torch.linalg.inv(prior + SIGMA**2 * eye)
    covariance = prior - gain @ prior
    centred = draws - (mean + (y.flatten() - mean) @ gain.T)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), centred.T, upper=False)
    assert stats.kstest(white.numpy().ravel(), "norm").pvalue > 1e-3
    assert (torch.cov(white) - eye).abs().max() < 5 / math.sqrt(4000)


def test_priors_that_are_not_gaussian_are_sampled_too():
    weights, means = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.0, 0.5, 1.0]).double()
    widths = torch.tensor([0.02, 0.05, 0.15]).double() ** 2

    def parts(x, v):
        """Weight and mean of the image in each component, given its noised version."""
        distance, total = x[..., None] - means, widths + v
        log = weights.log() - 0.5 * distance**2 / total - 0.5 * total.log()
        return log.softmax(-1), means + widths / total * distance

    def score(x, sigma):
        v = float(sigma[0]) ** 2
        weight, mean = parts(x, v)
        return ((weight * mean).sum(-1) - x) / v

    y = torch.tensor([[-0.3, 0.2], [0.6, 1.1]]).double()[None, None]
    draws = torch.stack(list(sample(score, y, 0.5, VESDE(0.003, 1.0), samples=5000, batch=5000, steps=40)))[0]
    weight, mean = parts(y[0], 0.25)
    deviation = (widths * 0.25 / (widths + 0.25)).sqrt()
    below = (weight * torch.special.ndtr((draws[..., None] - mean) / deviation)).sum(-1)  # the exact distribution
    for pixel in below.flatten(1).T.numpy():
        assert stats.kstest(pixel, "uniform").pvalue > 1e-3


# ---------------------------------------------------------------- batching, seeds, order


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_draw_does_not_know_its_batch(name):
    y = torch.randn(3, *PRIOR.shape, generator=torch.Generator().manual_seed(0))
    options = {"samples": 7, "sampler": name, "steps": 20, "seed": 5}
    whole = collect(gaussian_score, y, **options)
    assert whole.dtype == torch.float32
    assert whole.shape == (3, 7, 1, 4, 8)
    for batch in (1, 4, 21, 50):
        assert torch.equal(whole, collect(gaussian_score, y, batch=batch, **options))
    assert torch.equal(whole[[2, 0]], collect(gaussian_score, y[[2, 0]], image_ids=[2, 0], batch=5, **options))
    fewer = collect(gaussian_score, y, **options | {"samples": 3})
    assert torch.equal(whole[:, :3], fewer)
    assert not torch.equal(whole, collect(gaussian_score, y, **options | {"seed": 6}))


def network():
    torch.manual_seed(0)
    net = NCSNpp(configuration("tiny", size=16, divide_by_sigma=False)).eval()
    for parameter in net.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.02)
    return net


def test_a_network_samples_alike_in_any_batch():
    y = torch.randn(2, 1, 16, 16)
    whole = collect(network(), y, samples=3, steps=4)
    torch.testing.assert_close(whole, collect(network(), y, samples=3, steps=4, batch=2), rtol=1e-3, atol=1e-3)


def test_no_pass_is_larger_than_the_batch_and_all_have_one_shape():
    sizes, done = [], []

    def score(x, sigma):
        sizes.append(len(x))
        return gaussian_score(x, sigma)

    y = torch.zeros(3, *PRIOR.shape)
    results = sample(score, y, SIGMA, SDE, samples=7, steps=2, batch=6, progress=lambda *x: done.append(x))
    next(results)
    assert done == [(6, 21), (12, 21)]  # the first image comes as soon as its 7 draws are there
    assert len(list(results)) == 2
    assert set(sizes) == {6}
    assert done[-1] == (21, 21)


def test_the_automatic_batch_shrinks_with_the_image():
    assert automatic_batch(gaussian_score, torch.zeros(1, 1, 64, 64), 0.1) == 32
    assert automatic_batch(gaussian_score, torch.zeros(1, 1, 512, 512), 0.1) == 1


# ---------------------------------------------------------------- reduction


def test_reduction_gives_the_bands_of_the_core():
    y = torch.randn(2, *PRIOR.shape, generator=torch.Generator().manual_seed(0))
    ranks = calibrated_ranks(39, 0.1)
    reduction = Reduction(ranks, (0.05, 0.95), held_out=1, keep=True)
    results = list(sample(gaussian_score, y, SIGMA, SDE, samples=39, steps=5, batch=16, reduce=reduction))
    draws = collect(gaussian_score, y, samples=40, steps=5)
    band = pb.calibrated_quantiles(draws[:, :39], 0.1)
    naive = pb.naive_quantiles(draws[:, :39], 0.1)
    for i, result in enumerate(results):
        assert torch.equal(result.lower, band.lower[i])
        assert torch.equal(result.upper, band.upper[i])
        torch.testing.assert_close(result.naive_lower, naive.lower[i])
        torch.testing.assert_close(result.naive_upper, naive.upper[i])
        torch.testing.assert_close(result.mean, draws[i, :39].mean(0))
        torch.testing.assert_close(result.deviation, draws[i, :39].std(0))
        assert torch.equal(result.held_out, draws[i, 39:])
        assert torch.equal(result.samples, draws[i, :39].half())


def test_a_reduction_keeps_no_more_than_asked_for():
    result = next(sample(gaussian_score, torch.zeros(1, *PRIOR.shape), SIGMA, SDE, samples=4, reduce=Reduction()))
    assert result.mean.shape == PRIOR.shape
    assert all(getattr(result, name) is None for name in ("lower", "naive_upper", "held_out", "samples"))


def test_held_out_draws_fall_into_calibrated_bands_as_often_as_promised():
    y = torch.zeros(60, *PRIOR.shape)
    reduction = Reduction(calibrated_ranks(19, 0.1), held_out=1)
    results = list(sample(gaussian_score, y, SIGMA, SDE, samples=19, steps=8, reduce=reduction))
    inside = [((r.held_out[0] >= r.lower) & (r.held_out[0] <= r.upper)).double().mean() for r in results]
    assert abs(float(np.mean(inside)) - 0.9) < 4 * math.sqrt(0.09 / (60 * 32))


def test_denoise_is_the_posterior_mean():
    y = torch.randn(2, *PRIOR.shape, dtype=torch.float64)
    torch.testing.assert_close(denoise(gaussian_score, y, SIGMA), posterior()[0] * y)


def test_observations_take_the_precision_of_the_network():
    y, net = torch.randn(1, 1, 16, 16, dtype=torch.float64), network()
    for dtype in (torch.float32, torch.float64):
        (draws,) = sample(net.to(dtype), y, SIGMA, SDE, samples=2, steps=2)
        assert draws.dtype == denoise(net, y, SIGMA).dtype == dtype
    (draws,) = sample(gaussian_score, torch.zeros(1, *PRIOR.shape, dtype=torch.float64), SIGMA, SDE, samples=2)
    assert draws.dtype == torch.float64  # a plain function takes what comes


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sigma_0": 0.01}, r"sigma_0 is 0.01, outside \(sigma_min, sigma_max\]"),
        ({"sigma_0": 1.2}, "outside"),
        ({"observation": torch.zeros(4, 8)}, r"shape \(n, c, h, w\)"),
        ({"observation": torch.tensor([0.0, math.nan]).reshape(2, 1, 1, 1)}, "observation 1 holds NaN"),
        ({"sampler": "ddim"}, "known are euler_maruyama"),
        ({"steps": 0}, "steps is 0"),
        ({"samples": 0}, "samples is 0"),
        ({"batch": -1}, "batch is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"image_ids": [0, 1]}, "one per observation"),
        ({"image_ids": [0.2]}, "1 different integers"),
        ({"image_ids": [True]}, "1 different integers"),
        ({"image_ids": torch.tensor([-1])}, "1 different integers"),
        ({"image_ids": [2**70]}, "1 different integers"),
        ({"image_ids": [7, 7], "observation": torch.zeros(2, *PRIOR.shape)}, "2 different integers"),
        ({"observation": torch.zeros(1, *PRIOR.shape, dtype=torch.uint8)}, "observation is torch.uint8; convert"),
        ({"observation": torch.zeros(0, *PRIOR.shape)}, r"shape \(n, c, h, w\)"),
        ({"steps": 1, "sampler": "euler_maruyama", "sigma_0": 0.011}, "1 steps .* take at least 49"),
        ({"reduce": Reduction((6, 123)), "samples": 64}, "draw more samples"),
        ({"score": torch.nn.Dropout()}, "training mode"),
    ],
)
def test_mistakes_are_named_at_the_door(changes, message):
    arguments = {"score": gaussian_score, "observation": torch.zeros(1, *PRIOR.shape), "sigma_0": SIGMA, "sde": SDE}
    with pytest.raises(ValueError, match=message):
        sample(**arguments | changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sigma_0": 0.0}, "sigma_0 is 0.0; give the noise level"),
        ({"sigma_0": -1}, "sigma_0 is -1"),
        ({"sigma_0": math.nan}, "sigma_0 is nan"),
        ({"sigma_0": math.inf}, "sigma_0 is inf"),
        ({"score": torch.nn.Dropout()}, "training mode"),
        ({"y": torch.zeros(1, *PRIOR.shape, dtype=torch.int64)}, "observation is torch.int64"),
        ({"y": torch.full((1, *PRIOR.shape), math.nan)}, "observation 0 holds NaN"),
        ({"y": torch.zeros(4, 8)}, r"shape \(n, c, h, w\)"),
    ],
)
def test_mistakes_in_denoising_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        denoise(**{"score": gaussian_score, "y": torch.zeros(1, *PRIOR.shape), "sigma_0": SIGMA} | changes)


def test_a_score_that_diverges_names_the_image():
    def score(x, sigma):
        return torch.where(x.mean((1, 2, 3), keepdim=True) > 5, math.inf, 0.0) * torch.ones_like(x)

    y = torch.stack([torch.zeros(1, 4, 4), torch.full((1, 4, 4), 9.0)])
    results = sample(score, y, SIGMA, SDE, samples=2, image_ids=[10, 11], batch=2)
    next(results)  # the finished image is not lost
    with pytest.raises(ValueError, match="image 11 are not finite"):
        next(results)


def test_too_few_steps_for_algorithm_3_are_refused():
    with pytest.raises(ValueError, match="take at least"):
        list(sample(gaussian_score, torch.zeros(1, *PRIOR.shape), 0.011, SDE, sampler="euler_maruyama", steps=10))
