"""Linear systems that are known by what they do to a vector."""

import numpy as np
import pytest

from pixelbounds.problems.krylov import conjugate_gradients, minimal_residuals


def matrices(rng, n=12):
    """Two systems, positive but far from symmetric: (2, n, n)."""
    skew = rng.normal(size=(2, n, n))
    return np.eye(n) + 0.8 * (skew - skew.swapaxes(1, 2))


def applied(matrix):
    return lambda x: np.einsum("nij,nj->ni", matrix, x)


def left(matrix, x, b):
    return np.linalg.norm(applied(matrix)(x) - b, axis=1) / np.linalg.norm(b, axis=1)


def test_minimal_residuals_solve_what_is_not_symmetric_and_conjugate_gradients_do_not():
    rng = np.random.default_rng(0)
    matrix, b = matrices(rng), rng.normal(size=(2, 12))
    ours = minimal_residuals(applied(matrix), b, steps=12)
    np.testing.assert_allclose(ours, np.linalg.solve(matrix, b[..., None])[..., 0], atol=1e-6)
    assert left(matrix, conjugate_gradients(applied(matrix), b, steps=12), b).min() > 1


def test_the_residual_is_the_least_of_the_krylov_space_and_never_grows():
    rng = np.random.default_rng(1)
    matrix, b = matrices(rng), rng.normal(size=(2, 12))
    space = [b]
    before = np.ones(2)
    for steps in range(1, 6):
        now = left(matrix, minimal_residuals(applied(matrix), b, steps=steps), b)
        columns = np.stack([applied(matrix)(x) for x in space], axis=-1)
        for i in range(2):
            best = columns[i] @ np.linalg.lstsq(columns[i], b[i])[0] - b[i]
            assert now[i] == pytest.approx(np.linalg.norm(best) / np.linalg.norm(b[i]), abs=1e-9)
        assert (now <= before + 1e-12).all()
        before = now
        space.append(applied(matrix)(space[-1]))
    indefinite = rng.normal(size=(2, 12, 12))
    assert (left(indefinite, minimal_residuals(applied(indefinite), b, steps=3), b) <= 1 + 1e-12).all()


def test_a_good_guess_saves_steps():
    rng = np.random.default_rng(2)
    matrix, b = matrices(rng), rng.normal(size=(2, 12))
    near = np.linalg.inv(matrix + 0.01 * rng.normal(size=matrix.shape))
    guessed = minimal_residuals(applied(matrix), b, steps=1, guess=applied(near))
    assert left(matrix, guessed, b).max() < 0.2 * left(matrix, minimal_residuals(applied(matrix), b, steps=1), b).min()
