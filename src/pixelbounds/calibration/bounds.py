"""Upper confidence bounds on a risk (Section 2.3, Appendix C; Algorithms 1 and 2 take any).

A bound takes n losses in [0, 1] and a failure probability and returns a number that is at least the true mean with
probability at least 1 - failure_prob. Each is the inverse of a test: the bound lies below a level exactly if the test
rejects "the mean is at least that level". Certifying needs only the test (`rejects`).

hoeffding, bentkus, hoeffding_bentkus    see the mean loss only, so along a path they are monotone
empirical_bernstein, betting             see all losses: much tighter where losses vary little between images
binomial                                 exact, for losses of 0 and 1 alone; takes the place of betting for these
conformal                                controls the expectation of the risk, not its probability

What few units certify depends on how losses spread between them (`CertifiableRisks`): a bound that sees more than the
mean profits where units lose alike.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import ceil, e, exp, inf, lgamma, log, log1p, pi, sqrt
from typing import Any

import numpy as np

from ..images.checks import check_choice, check_count, check_open_unit
from ..images.foreign import as_plain_array
from ..images.library import Array, is_plain, library_of, to_numpy
from ..kernels.bets import betting_bound, betting_wealth, bisect

_ROUNDING = 1e-9  # of a sum of losses
_FINE = 1e-10  # of a bound

ConfidenceBound = Callable[[Array, float], float]  # losses (n,), failure_prob -> bound


def check_losses(losses: Any, first: int = 0) -> Array:
    """Losses of n images as float64: one axis, at least one, finite, within [0, 1]; images count from `first`."""
    try:
        losses = losses if is_plain(losses) else as_plain_array(losses, "losses")
        out = to_numpy(losses) if library_of(losses) else np.asarray(losses)
        if out.dtype.kind not in "fiubO":
            raise TypeError(f"dtype {out.dtype}")
        out = np.asarray(out, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"losses of type {type(losses).__name__} do not form an array of numbers ({error}); give one per image"
        ) from error
    if out.ndim != 1 or not len(out):
        raise ValueError(f"losses have shape {out.shape}; give one loss per image, at least one image")
    bad = ~((out >= 0) & (out <= 1))
    if bad.any():
        image = int(np.argmax(bad))
        raise ValueError(
            f"loss of image {first + image} is {out[image]}; losses must lie in [0, 1]: scale or cap the loss, "
            "for example np.minimum(loss, 1)"
        )
    return out


# ---------------------------------------------------------------- tests of "the mean is at least level"


def _bentkus_test(mean: float, n: int, failure_prob: float, level: float) -> bool:
    successes = ceil(n * mean - _ROUNDING)  # the ceiling is essential; a sum of 7 must not become 8 by rounding
    return e * binomial_tail(successes, n, level) < failure_prob


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= k): its last term, and those below it, each a multiple of the one above; needs no SciPy."""
    if k >= n or p <= 0 or p >= 1:
        return float(k >= n or p <= 0)
    if k > n * p:
        return 1 - binomial_tail(n - k - 1, n, 1 - p)
    total, term = 0.0, _binomial_term(k, n, p)
    while term > 1e-17 * total:
        total += term
        term *= k * (1 - p) / ((n - k + 1) * p)
        k -= 1
    return total


def _binomial_term(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) = k) for k < n, by deviances, which do not cancel for large n as factorials do (Loader 2000)."""
    if k == 0:
        return exp(n * log1p(-p))

    def deviance(count: int, mean: float) -> float:
        return count * log1p((count - mean) / mean) + mean - count

    def beyond_stirling(x: int) -> float:  # log x! less (x + 1/2) log x - x + log(2 pi) / 2
        if x < 16:
            return lgamma(x + 1) - (x + 0.5) * log(x) + x - log(2 * pi) / 2
        return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / x**2) / x**2) / x**2) / x

    exponent = beyond_stirling(n) - beyond_stirling(k) - beyond_stirling(n - k)
    exponent -= deviance(k, n * p) + deviance(n - k, n * (1 - p))
    return exp(exponent) * sqrt(n / (2 * pi * k * (n - k)))


def _binomial_test(mean: float, n: int, failure_prob: float, level: float) -> bool:
    return binomial_tail(round(n * mean), n, level) < failure_prob


def _hoeffding_bentkus_test(mean: float, n: int, failure_prob: float, level: float) -> bool:
    below = exp(-n * _relative_entropy(min(mean, level), level)) < failure_prob
    return below or _bentkus_test(mean, n, failure_prob, level)


def _betting_test(losses: Array, failure_prob: float, level: float) -> bool:
    return bool(betting_wealth(losses, level, failure_prob) > -log(failure_prob))


def _relative_entropy(a: float, b: float) -> float:
    """Divergence of a coin of bias a from one of bias b."""
    if a != b and b in (0, 1):
        return inf
    first = a * log(a / b) if a > 0 else 0.0
    second = (1 - a) * log((1 - a) / (1 - b)) if a < 1 else 0.0
    return first + second


# ---------------------------------------------------------------- the bounds


def hoeffding(losses: Any, failure_prob: float) -> float:
    """Mean plus the Hoeffding margin.

    >>> round(hoeffding(np.zeros(100), 0.1), 4)
    0.1073
    """
    losses, failure_prob = check_losses(losses), check_open_unit(failure_prob, "failure_prob")
    return float(losses.mean() + sqrt(log(1 / failure_prob) / (2 * len(losses))))


def bentkus(losses: Any, failure_prob: float) -> float:
    """Inverse of Bentkus' binomial tail, e P(Bin(n, r) <= ceil(n R))."""
    return _bound_of_mean(_bentkus_test, losses, failure_prob)


def hoeffding_bentkus(losses: Any, failure_prob: float) -> float:
    """The smaller of Bentkus' bound and Hoeffding's in its relative-entropy form.

    >>> round(hoeffding_bentkus(np.zeros(100), 0.1), 4)
    0.0228
    """
    return _bound_of_mean(_hoeffding_bentkus_test, losses, failure_prob)


def empirical_bernstein(losses: Any, failure_prob: float) -> float:
    """Mean plus the margin of Maurer and Pontil, which adapts to the variance of the losses."""
    losses, failure_prob = check_losses(losses), check_open_unit(failure_prob, "failure_prob")
    n = len(losses)
    if n < 2:
        return 1.0
    term = log(2 / failure_prob)
    return float(losses.mean() + sqrt(2 * losses.var(ddof=1) * term / n) + 7 * term / (3 * (n - 1)))


def betting(losses: Any, failure_prob: float) -> float:
    """Waudby-Smith and Ramdas: the level against which a cautious bettor would have multiplied his money by 1 / delta.

    Bets are set from the images before, so the bound depends on their order; it is deterministic given that order.

    >>> round(betting(np.full(640, 0.05), 0.1), 4)
    0.0535
    """
    losses, failure_prob = check_losses(losses), check_open_unit(failure_prob, "failure_prob")
    return float(betting_bound(losses, failure_prob, _FINE))


def binomial(losses: Any, failure_prob: float) -> float:
    """The exact bound for losses of 0 and 1 (Clopper and Pearson), and for no others.

    >>> round(binomial(np.repeat([0.0, 1.0], [98, 2]), 0.1), 4)
    0.0523
    """
    if not np.isin(losses, (0, 1)).all():
        raise ValueError("the binomial bound holds for losses of 0 and 1 alone; use betting")
    return _bound_of_mean(_binomial_test, losses, failure_prob)


def conformal(losses: Any, failure_prob: float) -> float:
    """Conformal risk control: (n mean + 1) / (n + 1). Controls the expected risk only; failure_prob is not used."""
    losses = check_losses(losses)
    check_open_unit(failure_prob, "failure_prob")
    return float((losses.sum() + 1) / (len(losses) + 1))


def _bound_of_mean(test: Callable[..., bool], losses: Any, failure_prob: float) -> float:
    losses, failure_prob = check_losses(losses), check_open_unit(failure_prob, "failure_prob")
    mean = float(losses.mean())
    return bisect(lambda level: test(mean, len(losses), failure_prob, level), mean, 1.0, width=_FINE)


BOUNDS: dict[str, ConfidenceBound] = {
    bound.__name__: bound for bound in (hoeffding, bentkus, hoeffding_bentkus, empirical_bernstein, betting, conformal)
}
_MEAN_TESTS: dict[ConfidenceBound, Callable[[float, int, float, float], bool]] = {
    hoeffding: lambda mean, n, failure_prob, level: mean + sqrt(log(1 / failure_prob) / (2 * n)) < level,
    bentkus: _bentkus_test,
    hoeffding_bentkus: _hoeffding_bentkus_test,
    conformal: lambda mean, n, failure_prob, level: (n * mean + 1) / (n + 1) < level,
    binomial: _binomial_test,
}


def bound_named(bound: Any) -> ConfidenceBound:
    """The bound that a name or a function stands for."""
    if callable(bound):
        return bound
    return BOUNDS[check_choice(bound, BOUNDS, "bound")]


def for_zero_one(bound: ConfidenceBound, n: int, failure_prob: float, level: float) -> ConfidenceBound:
    """The bound for n losses of 0 and 1: in place of betting the exact one, where it lets at least one of them be 1.

    With fewer losses bets certify more: after enough losses of 0 they have won already.
    """
    return binomial if bound is betting and _binomial_test(1 / n, n, failure_prob, level) else bound


def sees_mean_only(bound: ConfidenceBound) -> bool:
    """Whether the bound is a nondecreasing function of the mean loss alone."""
    return bound in _MEAN_TESTS


def rejects(bound: ConfidenceBound, losses: Array, failure_prob: float, level: float) -> bool:
    """Whether the bound on these losses lies below the level."""
    if bound in _MEAN_TESTS:
        return rejects_mean(bound, float(losses.mean()), len(losses), failure_prob, level)
    if bound is betting:
        return _betting_test(losses, failure_prob, level)
    return bool(bound(losses, failure_prob) < level)


def rejects_mean(bound: ConfidenceBound, mean: float, n: int, failure_prob: float, level: float) -> bool:
    """The same from the mean loss of n images, for a bound that sees nothing else."""
    return _MEAN_TESTS[bound](mean, n, failure_prob, level)


def least_images(risk_level: float, failure_prob: float = 0.1, *, bound: Any = "betting") -> int:
    """Fewest certifying images (or units) with which a risk level can be certified at all, losses being 0.

    >>> least_images(0.05, 0.1), least_images(0.05, 0.1, bound="hoeffding")
    (46, 461)
    """
    level = check_open_unit(risk_level, "risk_level")
    failure_prob = check_open_unit(failure_prob, "failure_prob")
    function = bound_named(bound)

    def enough(n: int) -> bool:
        return rejects(function, np.zeros(n), failure_prob, level)

    high = 1
    while not enough(high):
        high *= 2
        if high > 2**26:
            name = getattr(function, "__name__", "the bound")
            raise ValueError(f"{high} images do not certify a risk level of {level} with {name}; raise the risk level")
    between = range(high // 2 + 1, high)
    return between.start + bisect_left(between, True, key=enough)


def greatest_loss(images: int, risk_level: float, failure_prob: float = 0.1) -> float:
    """The greatest loss that any bound can certify if all images lose alike; 0 where even no loss is not enough.

    A share p = 1 - failure_prob ** (1 / n) of images that lose everything stays unseen in n images with probability
    failure_prob. A bound that holds for all losses in [0, 1] must leave room for it.

    >>> round(greatest_loss(448, 0.05), 4), round(greatest_loss(560, 0.1), 4)
    (0.0451, 0.0963)
    """
    n, level = check_count(images, "images"), check_open_unit(risk_level, "risk_level")
    others = check_open_unit(failure_prob, "failure_prob") ** (1 / n)  # 1 - p, above 0 whatever is asked
    return max(0.0, 1 - (1 - level) / others)


# ---------------------------------------------------------------- what few units certify

SPREAD = 0.5


class CertifiableRisks:
    """The greatest risks that n units certify, where losses are quantiles of a gamma law, in random order, whose
    deviation is `spread` times its mean; those of a tail are 0 or 1.
    """

    def __init__(self, failure_prob: float, spread: float, rng: np.random.Generator) -> None:
        self.failure_prob = failure_prob
        self.spread = spread
        self.rng = rng
        self._shapes: dict[int, Array] = {}  # one order of losses for all bounds with as many units

    def greatest(self, kind: str, level: float, bound: ConfidenceBound, n: int) -> float:
        """The greatest mean loss of a promise of some kind that n units certify."""
        if kind == "tail":
            rank, bound = np.random.default_rng(n).permutation(n), for_zero_one(bound, n, self.failure_prob, level)

            def fails(bad: int) -> bool:
                return not rejects(bound, (rank < bad).astype(np.float64), self.failure_prob, level)

            return bisect_left(range(1, n), True, key=fails) / n
        shape, low, high = self._shape(n), 0.0, level
        while high - low > 1e-4 * level:
            middle = (low + high) / 2
            passes = rejects(bound, np.minimum(middle * shape, 1.0), self.failure_prob, level)
            low, high = (middle, high) if passes else (low, middle)
        return low

    def _shape(self, n: int) -> Array:
        """Losses of n units with mean 1: (n,)."""
        if n not in self._shapes:
            losses = gamma_quantiles((np.arange(n) + 0.5) / n, self.spread**-2) if self.spread else np.ones(n)
            self._shapes[n] = self.rng.permutation(losses / losses.mean()) if self.spread else losses
        return self._shapes[n]


def gamma_quantiles(shares: Array, shape: float) -> Array:
    """Quantiles of the gamma law at shares (n,), by Newton's method on log P, which is concave in log x.

    So it comes from the left whatever the start; a power series for P is all that it needs, and no SciPy.
    """
    log_x = start = (np.log(shares) + lgamma(shape + 1)) / shape  # where P is still a power of x
    for _ in range(64):
        x, k = np.exp(log_x), shape
        term = total = np.ones_like(x)
        while (term > 1e-17 * total).any():
            k += 1
            term = term * x / k
            total = total + term
        step = ((start - log_x) * shape + x - np.log(total)) * total / shape
        log_x = log_x + step
        if (np.abs(step) < 1e-13).all():
            break
    return np.asarray(np.exp(log_x))


def few_units(promise: Any, n: int, failure_prob: float, bound: ConfidenceBound, noun: str) -> tuple[str, ...]:
    """What n units leave of a promise, and what a cap, a higher level or more of them would: two lines.

    None where they leave at least half of the level, or where nothing is known of the bound.
    """
    if bound not in (*BOUNDS.values(), binomial) or not n:
        return ()
    risks, at_most = CertifiableRisks(failure_prob, SPREAD, np.random.default_rng(0)), promise.at_most

    def left(units: int = n, at_most: float = at_most, cap: float = promise.cap) -> str:
        return f"{cap * risks.greatest(promise.kind, at_most / cap, bound, units):.2g}"

    if float(left()) >= at_most / 2:
        return ()
    level, more = min(2 * at_most, 0.9), 2 * max(n, least_images(promise.level, failure_prob, bound=bound))
    others = [(left(more), f"{more} {noun}"), (left(at_most=level, cap=1.0), f"at_most={level:g}")]
    cap = next((times * at_most for times in (5, 4, 3, 2) if times * at_most <= 0.5), 1.0)
    if promise.kind != "tail" and cap < promise.cap:
        others.insert(0, (left(cap=cap), f"cap={cap:.3g} (an image then counts for at most that)"))
    few = (
        f"{n} {noun} are few for {at_most:g}: where losses spread as usual, it is certified if they miss at most "
        f"{left()} on average."
    )
    certified = [f"{share} with {how}" for share, how in others if float(share)]
    return (few, f"Certified where they miss on average at most {', '.join(certified)}.") if certified else (few,)
