"""Observation processes: exact adjoints, noise of the stated deviation, the same bits in any batch."""

import numpy as np
import pytest

from pixelbounds.problems import deblur, denoise, inpaint, super_resolve

MASK = np.zeros((12, 8), bool)
MASK[3:7, 2:5] = True
PROBLEMS = {
    "denoise": lambda sigma, dims: denoise(sigma),
    "share": lambda sigma, dims: inpaint(0.3, sigma, dims=dims),
    "mask": lambda sigma, dims: inpaint(MASK, sigma),
    "super-resolve": lambda sigma, dims: super_resolve(2, sigma, dims=dims),
    "deblur": lambda sigma, dims: deblur(1.5, sigma, dims=dims),
    "wide blur": lambda sigma, dims: deblur(6.0, sigma, dims=dims),  # the kernel is longer than the image
}
each = pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
SHAPES = [((3, 12, 8), 2), ((2, 3, 12, 8), 2), ((2, 4, 12, 8), 3), ((2, 2, 4, 12, 8), 3)]


@each
@pytest.mark.parametrize("shape, dims", SHAPES)
def test_adjoint_and_linearity(make, shape, dims, rng):
    problem = make(0.0, dims)
    x = rng.normal(size=shape)
    y = rng.normal(size=problem.forward(x).shape)
    left, right = np.vdot(problem.forward(x), y), np.vdot(x, problem.adjoint(y))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12)
    assert problem.adjoint(y).shape == shape
    np.testing.assert_allclose(problem.forward(2 * x), 2 * problem.forward(x), atol=1e-12)


def test_signals_and_single_axes(rng):
    x = rng.normal(size=(4, 10))
    np.testing.assert_allclose(super_resolve(5, dims=1).forward(x), x.reshape(4, 2, 5).mean(-1))
    assert deblur(1.0, dims=1)(x, 0).shape == (4, 10)
    with pytest.raises(ValueError, match="with 2 axes of pixels"):
        deblur(1.0)(x, 0)


@each
def test_noise_depends_on_seed_and_number_alone(make, rng):
    problem, x = make(0.4, 2), rng.random((6, 12, 8)).astype(np.float32)
    whole = problem(x, 7)
    assert whole.dtype == np.float32
    for order in ([0], [5, 2], [1, 3, 4]):
        np.testing.assert_array_equal(problem(x[order], 7, ids=order), whole[order])
    np.testing.assert_array_equal(problem(x, 7), whole)
    assert (problem(x, 8) != whole).any()
    first, second = (np.random.default_rng(1) for _ in range(2))
    np.testing.assert_array_equal(problem(x, first), problem(x, second))
    assert (problem(x, first) != problem(x, np.random.default_rng(1))).any()  # a generator moves on


@each
@pytest.mark.parametrize("sigma", [0.0, 0.3, 2.0])
def test_sigma_is_a_deviation(make, sigma):
    problem, x = make(sigma, 2), np.full((300, 12, 8), 0.5)
    residual = problem(x, 0) - problem.forward(x)
    observed = problem.seen(np.ones_like(residual)) > 0 if problem.seen else np.ones(residual.shape, bool)
    assert residual[observed].std() == pytest.approx(sigma, rel=0.02)
    assert not residual[~observed].any()


def test_what_is_missing_is_exactly_zero_in_all_channels(rng):
    x = rng.random((5, 3, 20, 20)) + 1
    y = inpaint(0.25, 0.1)(x, 0)
    missing = y == 0
    assert missing.sum() == 5 * 3 * 100
    assert (missing == missing[0, 0]).all()
    assert ((inpaint(0.25, seed=1)(x, 0) == 0) != missing).any()
    np.testing.assert_array_equal(inpaint(MASK)(np.ones((1, 12, 8)), 0)[0] == 0, MASK)


def test_blur_keeps_the_mean_and_constants(rng):
    x = rng.random((2, 12, 8))
    np.testing.assert_allclose(deblur(2.0).forward(np.ones((1, 9, 9))), 1)
    np.testing.assert_allclose(deblur(2.0).forward(x).mean(), x.mean())


def test_super_resolution_averages_blocks():
    x = np.arange(16.0).reshape(1, 4, 4)
    np.testing.assert_array_equal(super_resolve(2).forward(x)[0], [[2.5, 4.5], [10.5, 12.5]])


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: denoise(-0.1), "deviation of the noise"),
        (lambda: denoise(float("nan")), "finite"),
        (lambda: inpaint(1.0), r"\[0, 1\)"),
        (lambda: inpaint(np.ones(4)), "True where missing"),
        (lambda: inpaint(np.ones(4, bool)), "True where missing"),
        (lambda: inpaint(MASK)(np.ones((1, 8, 12)), 0), "their ends must agree"),
        (lambda: inpaint(MASK)(np.ones((12, 8)), 0), "their ends must agree"),
        (lambda: super_resolve(3)(np.ones((1, 8, 8)), 0), "multiples of 3"),
        (lambda: deblur(0.0), "must be positive"),
        (lambda: denoise(0.1)(np.ones((2, 4)), 0, ids=[1]), "2 whole numbers"),
        (lambda: denoise(0.1)(np.ones((2, 4)), -1), "at least 0"),
    ],
)
def test_bad_input_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_pictures_of_8_bits_are_refused():
    with pytest.raises(TypeError, match="divided by 255"):
        denoise(0.1)(np.zeros((1, 4, 4), np.uint8), 0)
