"""Observation processes: exact adjoints, noise of the stated deviation, the same bits in any batch."""

import cloudpickle
import numpy as np
import pytest

from pixelbounds.problems import ct, deblur, denoise, inpaint, motion_blur, mri, poisson, read_problem, super_resolve

torch = pytest.importorskip("torch")
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


WIDE = {  # on square images
    "ct": lambda sigma: ct(5, 8, sigma),
    "limited angle": lambda sigma: ct(6, 8, sigma, span=60),
    "motion": lambda sigma: motion_blur(5, 30, sigma),
    "mri": lambda sigma: mri(2, sigma, coils=3),
    "one coil": lambda sigma: mri(3, sigma, coils=1),
    "super-resolve": lambda sigma: super_resolve(2, sigma),
    "deblur": lambda sigma: deblur(1.5, sigma),
    "inpaint": lambda sigma: inpaint(0.5, sigma),
}
on_squares = pytest.mark.parametrize("make", WIDE.values(), ids=WIDE)


@on_squares
@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 1, 8, 8)])
def test_one_definition_serves_numpy_and_torch(make, shape, rng):
    problem, x = make(0.0), rng.normal(size=shape)
    y = problem.forward(x)
    seen = rng.normal(size=y.shape) + (1j * rng.normal(size=y.shape) if np.iscomplexobj(y) else 0)
    assert np.vdot(problem.forward(x), seen).real == pytest.approx(np.vdot(x, problem.adjoint(seen)), rel=1e-12)
    assert problem.adjoint(y).shape == shape
    for function, value in ((problem.forward, x), (problem.adjoint, seen)):
        found = function(torch.from_numpy(value))
        np.testing.assert_allclose(found.numpy(), function(value), atol=1e-12)
        single = function(torch.from_numpy(value).to(torch.complex64 if np.iscomplexobj(value) else torch.float32))
        assert single.real.dtype == torch.float32
        np.testing.assert_allclose(single.numpy(), function(value), atol=1e-5)
    observed = problem(torch.from_numpy(x), 0)
    assert isinstance(observed, torch.Tensor)
    np.testing.assert_array_equal(observed.numpy(), problem(x, 0))
    there = cloudpickle.loads(cloudpickle.dumps(problem))  # as it travels to a worker
    np.testing.assert_array_equal(there.forward(x), problem.forward(x))


@on_squares
def test_the_solution_is_the_pseudo_inverse(make, rng):
    problem, x = make(0.0), rng.normal(size=(1, 8, 8))
    columns = problem.forward(np.eye(64).reshape(64, 8, 8)).reshape(64, -1).T
    matrix = np.concatenate([columns.real, columns.imag]) if np.iscomplexobj(columns) else columns
    y = problem.forward(x)
    flat = np.concatenate([y.real.ravel(), y.imag.ravel()]) if np.iscomplexobj(y) else y.ravel()
    wanted = np.linalg.lstsq(np.vstack([matrix, 0.1 * np.eye(64)]), np.r_[flat, np.zeros(64)], rcond=None)[0]
    np.testing.assert_allclose(problem.solve(y, damping=0.1, steps=500)[0].ravel(), wanted, atol=1e-4)
    exact = problem.solve(y, steps=2000)
    np.testing.assert_allclose(problem.forward(exact), y, atol=2e-3)
    assert np.linalg.norm(exact) <= np.linalg.norm(x) * (1 + 1e-6)  # of least norm


def test_photons_are_counted(rng):
    x = np.full((200, 8, 8), 0.5)
    problem = poisson(deblur(1.0), 50.0)
    y = problem(x, 0)
    assert y.mean() == pytest.approx(0.5, abs=0.01)
    assert y.std() == pytest.approx(np.sqrt(0.5 / 50), rel=0.05)
    np.testing.assert_allclose(y * 50, np.rint(y * 50), atol=1e-9)
    assert problem.variance(y).mean() == pytest.approx(0.5 / 50, rel=0.05)
    np.testing.assert_array_equal(problem(x[3:4], 0, ids=[3]), y[3:4])
    assert (denoise(0.2).variance(y) == 0.2**2).all()


def test_noise_of_k_space_is_complex_and_only_where_it_was_measured():
    problem, x = mri(2, 0.3, coils=2), np.zeros((50, 8, 8))
    y = problem(x, 0)
    seen = problem.seen(np.ones_like(y)).real > 0
    assert seen.mean() == pytest.approx(0.5)
    assert not y[~seen].any()
    assert y[seen].real.std() == pytest.approx(0.3, rel=0.05)
    assert y[seen].imag.std() == pytest.approx(0.3, rel=0.05)


def test_a_file_declares_a_problem(tmp_path, rng):
    path, x = tmp_path / "problem.toml", rng.random((1, 8, 8))
    for text, wanted in {
        'problem = "ct"\nviews = 5\nsize = 8\nspan = 90.0': ct(5, 8, span=90),
        'problem = "motion_blur"\nlength = 3': motion_blur(3),
        'problem = "deblur"\nwidth = 2\nphotons = 100': poisson(deblur(2.0), 100),
    }.items():
        path.write_text(text)
        assert repr(read_problem(path)) == repr(wanted)
        np.testing.assert_array_equal(read_problem(path)(x, 1), wanted(x, 1))
    for text, said in {
        "views = 3": "problem is None",
        'problem = "tomography"': "must be one of denoise",
        'problem = "ct"\nviews = 3': "ct needs size",
        'problem = "ct"\nviews = 3\nsice = 3': "did you mean 'size'",
        'problem = "deblur"\nwidth = 1\nphotons = 3\nsigma_0 = 1': "one kind of noise",
        'problem = "deblur"\nwidth = "wide"': "width is 'wide'",
        'problem = "deblur"\nwidth = 1e9': "is the widest",
        "problem": "not TOML",
    }.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=said):
            read_problem(path)


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


def test_blur_keeps_the_mean_and_constants(rng):
    x = rng.random((2, 12, 8))
    np.testing.assert_allclose(deblur(2.0).forward(np.ones((1, 9, 9))), 1)
    np.testing.assert_allclose(deblur(2.0).forward(x).mean(), x.mean())


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
        (lambda: ct(4, 8, span=200), "at most 180"),
        (lambda: ct(4, 8)(np.ones((1, 9, 9)), 0), "this problem takes"),
        (lambda: motion_blur(0), "way of the camera"),
        (lambda: mri(0.5), "every line is measured"),
        (lambda: mri(2).adjoint(np.ones((1, 3, 8, 8))), r"\(n, ..., 4, h, w\)"),
        (lambda: poisson(denoise(0.1), 10), "has noise already"),
        (lambda: poisson(denoise(0.0), 0), "positive number"),
        (lambda: denoise(0.1).solve(np.ones((1, 4)), damping=-1), "damping is -1"),
        (lambda: denoise(0.1)(np.ones((2, 4)), -1), "at least 0"),
    ],
)
def test_bad_input_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_pictures_of_8_bits_are_refused():
    with pytest.raises(TypeError, match="/ 255"):
        denoise(0.1)(np.zeros((1, 4, 4), np.uint8), 0)
