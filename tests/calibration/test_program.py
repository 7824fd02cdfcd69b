"""(P_K): the exact solver against CVXPY, cells of pixels against all pixels, the search over gamma."""

import numpy as np
import pytest
from literal import literal_pk
from worlds import heteroscedastic

from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.groups.positions import Partition
from pixelbounds.calibration.paths import line as paths
from pixelbounds.calibration.paths.line import Solution, points_of, solve, sort_points, surrogate_cells

GAMMAS = (0.0, 0.3, 0.7)


def solve_with_cvxpy(points, cost, budget, gamma, *, start=0.0):
    """The same program handed to CVXPY."""
    import cvxpy as cp

    q = gamma / (1 - gamma)
    w = cp.Variable(len(cost))
    span = points.half + w[points.group]
    loss = cp.sum(cp.multiply(points.weight, cp.pos(cp.multiply((1 + q) * points.reach, cp.inv_pos(span)) - q)))
    problem = cp.Problem(cp.Minimize(np.asarray(cost) @ w / np.sum(cost)), [loss <= budget, w >= start])
    problem.solve(solver=cp.CLARABEL)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return Solution(np.asarray(w.value), float(problem.value), float("nan"), gamma)


def problem(k, seed, *, points=400, weighted=False, thin=False):
    """Random points of K groups that differ in scale; `thin` makes some half-widths, and some reaches, exactly 0."""
    rng = np.random.default_rng(seed)
    group = np.r_[np.arange(k), rng.integers(k, size=points - k)]
    scale = np.exp(rng.normal(-2, 0.8, k))[group]
    half = scale * rng.uniform(0.2, 1.5, points)
    reach = scale * np.abs(rng.standard_t(4, points))
    if thin:
        half[rng.random(points) < 0.2] = 0
        reach[rng.random(points) < 0.1] = 0
    weight = rng.uniform(0.1, 5, points) if weighted else None
    found = sort_points(group, half, reach, weight)
    return found, np.bincount(found.group, found.weight, minlength=k)


def surrogate_risk(points, widening, gamma):
    """The constraint, written anew: mean l-gamma per unit of weight."""
    q = gamma / (1 - gamma)
    span = points.half + widening[points.group]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(points.reach > 0, points.reach / span, 0.0)
    return float(points.weight @ np.maximum((1 + q) * ratio - q, 0) / points.weight.sum())


# ---------------------------------------------------------------- against CVXPY


@pytest.mark.parametrize("level", [0.03, 0.3])
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("k", [1, 8])
def test_the_objective_is_that_of_cvxpy(k, gamma, level):
    for seed, kind in enumerate(({}, {"weighted": True}, {"thin": True}, {"weighted": True, "thin": True})):
        points, cost = problem(k, seed, **kind)
        budget = level * points.weight.sum()
        ours = solve(points, cost, budget, gamma)
        theirs = solve_with_cvxpy(points, cost, budget, gamma)
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-4, abs=1e-9)
        assert ours.objective == pytest.approx(cost @ ours.widening / cost.sum(), rel=1e-12)
        assert (ours.widening >= 0).all()
        assert surrogate_risk(points, ours.widening, gamma) <= level * (1 + 1e-7)
        if ours.objective > 0:  # a binding constraint is used up
            assert surrogate_risk(points, ours.widening, gamma) >= level * (1 - 1e-6)


@pytest.mark.parametrize("k", [1, 4, 32])
def test_a_slack_constraint_needs_no_widening(k):
    points, cost = problem(k, 9)
    budget = 1.01 * surrogate_risk(points, np.zeros(k), 0.5) * points.weight.sum()
    found = solve(points, cost, budget, 0.5)
    assert found.objective == 0
    assert not found.widening.any()
    assert solve_with_cvxpy(points, cost, budget, 0.5).objective == pytest.approx(0, abs=1e-6)


def test_a_warm_start_changes_nothing():
    points, cost = problem(8, 7)
    budget = 0.1 * points.weight.sum()
    warm = solve(points, cost, budget, 0.3)
    for gamma in np.linspace(0.3, 0.7, 5):
        cold = solve(points, cost, budget, gamma)
        warm = solve(points, cost, budget, gamma, warm=warm)
        assert warm.objective == pytest.approx(cold.objective, rel=1e-6)


# ---------------------------------------------------------------- many pixels as few points


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("k", [1, 8])
def test_cells_stand_for_all_pixels(k, gamma):
    points, cost = problem(k, 8, points=30_000, thin=True)
    top = float(max(points.half.max(), points.reach.max()))
    chunks = np.array_split(np.arange(30_000), 7)  # they merge by addition
    cells = [surrogate_cells(k, points.group[part], points.half[part], points.reach[part], top) for part in chunks]
    few = points_of(np.sum(cells, axis=0), top)
    assert few.weight.sum() == 30_000
    assert len(few.weight) < 15_000
    np.testing.assert_array_equal(np.bincount(few.group, few.weight, minlength=k), cost)
    for level in (0.05, 0.2):
        whole = solve(points, cost, level * 30_000, gamma)
        summed = solve(few, cost, level * 30_000, gamma)
        assert summed.objective == pytest.approx(whole.objective, rel=1e-3)
        assert surrogate_risk(points, summed.widening, gamma) == pytest.approx(level, rel=2e-3)


# ---------------------------------------------------------------- gamma, d_opt


def images(seed=4, n=30, size=8):
    truth, band = heteroscedastic(n, np.random.default_rng(seed), size=size, dtype=np.float64)
    labels = np.arange(size * size).reshape(size, size) // (size * size // 4)
    return truth, band, labels, CalibrationData(truth, band)


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_the_search_over_gamma_keeps_the_least(level):
    _, _, labels, pairs = images()
    every = np.arange(30)
    found = paths.solve_program(pairs, every, Partition(labels), level)
    alone = [paths.solve_program(pairs, every, Partition(labels), level, [gamma]) for gamma in paths.GAMMAS]
    objectives = np.array([solution.objective for solution in alone])
    assert len(objectives) == 16
    assert np.ptp(objectives) > 0.01 * objectives.min()
    assert found.objective == pytest.approx(objectives.min(), rel=1e-6)
    assert found.gamma == paths.GAMMAS[objectives.argmin()]


def test_the_program_on_images_is_the_papers():
    """From images to widenings, against the paper's (P_K) as the literal pipeline states it."""
    truth, band, labels, pairs = images(n=12)
    flat = [x.reshape(12, -1) for x in (truth, band.lower, band.upper)]
    sizes = np.bincount(labels.reshape(-1)).astype(float)
    for gamma in (0.3, 0.7):
        ours = paths.solve_program(pairs, np.arange(12), Partition(labels), 0.1, [gamma])
        widening, objective = literal_pk(*flat, labels.reshape(-1), sizes, 0.1, gamma)
        assert ours.objective == pytest.approx(objective, rel=1e-4)
        np.testing.assert_allclose(ours.widening, widening, atol=1e-3)


def test_a_small_group_keeps_a_pixel_under_d_opt(rng):
    labels = np.zeros(400, int)
    labels[:2], labels[2:200] = 2, 1
    chosen = paths.stratified_pixels(Partition(labels), (400,), 20, rng)
    assert np.bincount(labels[chosen]).tolist() == [10, 10, 1]
