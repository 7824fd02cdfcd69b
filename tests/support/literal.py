"""The paper's algorithms as it prints them: the oracle that the fast code must equal, and the benchmark's opponent.

Nothing here comes from the package. Bounds are written anew from their inverse tails, the 01 loss is counted afresh on
every image at every step, and (P_K) is handed to CVXPY. Slow on purpose; only these departures from the print:

- Algorithm 1 loops for ever where all widenings have been clipped to 0 and the bound still passes. It stops there, and
  Algorithm 2, whose widenings are at least 0 too, likewise.
- ceil(n R) is taken of n R rounded to nine digits: R is a multiple of 1 / (n d), and floats would turn 32 into 33.
- Where the first step already fails, Algorithm 1 would return its start, which was never tested: that is an error here.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

# ---------------------------------------------------------------- upper confidence bounds: (n, delta, empirical risk)


def hoeffding_ucb(n, delta, risk):
    """The paper's example: mean plus sqrt(log(1 / delta) / 2n)."""
    return risk + math.sqrt(math.log(1 / delta) / (2 * n))


def hoeffding_bentkus_ucb(n, delta, risk):
    """Greatest r whose p-value min(exp(-n kl(R, r)), e P(Bin(n, r) <= ceil(n R))) is at least delta (Bates et al.)."""

    def kl(a, b):
        return (a * math.log(a / b) if a > 0 else 0.0) + ((1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0)

    def excess(r):
        hoeffding = math.exp(-n * kl(min(risk, r), r))
        bentkus = math.e * binom.cdf(math.ceil(round(n * risk, 9)), n, r)
        return min(hoeffding, bentkus) - delta

    if risk >= 1 or excess(1 - 1e-12) >= 0:
        return 1.0
    return float(brentq(excess, max(risk, 1e-12), 1 - 1e-12, xtol=1e-13))


# ---------------------------------------------------------------- the 01 loss


def l01_per_image(truth, lower, upper):
    """Share of pixels outside [lower, upper], image by image: (n, *pixels) -> (n,)."""
    return np.array([np.mean((x < a) | (x > b)) for x, a, b in zip(truth, lower, upper, strict=True)])


def mean_over_units(losses, units):
    """Mean of the units' mean losses; without units, the mean over images."""
    if units is None:
        return float(losses.mean())
    return float(np.mean([losses[units == unit].mean() for unit in np.unique(units)]))


# ---------------------------------------------------------------- Algorithms 2 and 1


def literal_rcps(
    truth, lower, upper, *, risk_level, failure_prob, step, largest=1.0, ucb=hoeffding_bentkus_ucb, units=None
):
    """Algorithm 2: one widening for all pixels, reached by steps down from `largest`."""
    truth, lower, upper = (np.asarray(x, np.float64) for x in (truth, lower, upper))
    n = len(truth) if units is None else len(np.unique(units))
    widening, bound = largest, 0.0
    while bound <= risk_level:
        if widening <= 0:
            return 0.0
        widening = widening - step
        inside = max(widening, 0.0)
        risk = mean_over_units(l01_per_image(truth, lower - inside, upper + inside), units)
        bound = ucb(n, failure_prob, risk)
    if widening + step >= largest:
        raise ValueError("not even the largest widening passes")
    return widening + step


def literal_line(
    truth, lower, upper, *, membership, solution, risk_level, failure_prob, step, largest=1.0, direction=None,
    ucb=hoeffding_bentkus_ucb,
):  # fmt: skip
    """Lines 5 to 15 of Algorithm 1: from the solution of (P_K) + `largest`, down the line by steps: (K,).

    membership (*pixels) is the group of each pixel, 0..K-1, in place of the matrix M; solution is (K,).
    """
    truth, lower, upper = (np.asarray(x, np.float64) for x in (truth, lower, upper))
    eta = np.ones(len(solution)) if direction is None else np.asarray(direction, np.float64)
    widening = solution + largest * eta
    bound, steps = 0.0, 0
    while bound <= risk_level:
        previous = widening
        if not widening[eta > 0].any():
            return previous
        widening = np.maximum(widening - step * eta, 0)
        inside = widening[membership]
        risk = float(l01_per_image(truth, lower - inside, upper + inside).mean())
        bound = ucb(len(truth), failure_prob, risk)
        steps += 1
    if steps == 1:
        raise ValueError("not even the start of the line passes")
    return previous


# ---------------------------------------------------------------- membership and (P_K)


def quantile_membership(truth, lower, upper, k):
    """Quantile, 0..K'-1, of each pixel's mean loss over the images; ties leave no empty group: -> (*pixels)."""
    loss = np.mean((truth < lower) | (truth > upper), axis=0)
    cuts = np.quantile(loss, np.arange(1, k) / k)
    return np.unique(np.digitize(loss, cuts, right=True), return_inverse=True)[1].reshape(loss.shape)


def stratified_subsample(membership, d_opt, rng):
    """About d_opt flat pixel positions, each group in proportion and none left out."""
    flat = membership.reshape(-1)
    chosen = []
    for group in range(flat.max() + 1):
        members = np.flatnonzero(flat == group)
        count = min(len(members), max(1, round(d_opt * len(members) / len(flat))))
        chosen.append(rng.choice(members, count, replace=False))
    return np.concatenate(chosen)


def literal_pk(truth, lower, upper, membership, sizes, risk_level, gamma):
    """(P_K) by CVXPY: images (n, p) with the group of each of p pixels, n_k (K,) -> widenings (K,), objective."""
    import cvxpy as cp

    q = gamma / (1 - gamma)
    widening = cp.Variable(len(sizes), nonneg=True)
    group = np.broadcast_to(membership, truth.shape).reshape(-1)
    width = (upper - lower).reshape(-1)
    distance = np.abs(truth - (upper + lower) / 2).reshape(-1)
    length = width + 2 * widening[group]
    loss = cp.pos(cp.multiply(2 * (1 + q) * distance, cp.inv_pos(length)) - q)
    problem = cp.Problem(cp.Minimize(sizes / sizes.sum() @ widening), [cp.sum(loss) / truth.size <= risk_level])
    problem.solve(solver=cp.CLARABEL)
    if widening.value is None:
        raise RuntimeError(f"CVXPY ended with status {problem.status!r}")
    return np.maximum(widening.value, 0), float(problem.value)


def literal_krcps(
    truth, lower, upper, *, risk_level, failure_prob, k, n_opt, d_opt, rng, gammas, step=0.002, largest=1.0,
    ucb=hoeffding_bentkus_ucb,
):  # fmt: skip
    """Algorithm 1 whole, with the paper's heuristics: images (n, *pixels) -> membership (*pixels), widenings (K,).

    The first n_opt images of a random order fit: membership by quantiles of the entrywise loss, then (P_K) on d_opt
    stratified pixels for every gamma, of which the least objective is kept. The others certify, step by step.
    """
    order = rng.permutation(len(truth))
    fit, certify = order[:n_opt], order[n_opt:]
    membership = quantile_membership(truth[fit], lower[fit], upper[fit], k)
    pixels = stratified_subsample(membership, d_opt, rng)
    some = [np.asarray(x[fit], np.float64).reshape(n_opt, -1)[:, pixels] for x in (truth, lower, upper)]
    sizes = np.bincount(membership.reshape(-1)).astype(np.float64)
    solutions = [literal_pk(*some, membership.reshape(-1)[pixels], sizes, risk_level, gamma) for gamma in gammas]
    best = min(solutions, key=lambda found: found[1])[0]
    return membership, literal_line(
        truth[certify], lower[certify], upper[certify], membership=membership, solution=best, risk_level=risk_level,
        failure_prob=failure_prob, step=step, largest=largest, ucb=ucb,
    )  # fmt: skip


# ---------------------------------------------------------------- semantic RCPS


def literal_semantic_rcps(
    truth, lower, upper, labels, *, risk_levels, failure_prob, step, largest=1.0, ucb=hoeffding_bentkus_ucb
):
    """One widening per label, each reached by steps down from `largest` at its own level: label -> widening.

    As its authors release it: the pixels of a label are pooled over all scans, n is the number of all scans, and
    nothing is corrected for several labels.
    """
    truth, lower, upper = (np.asarray(x, np.float64) for x in (truth, lower, upper))
    found = {}
    for label, level in risk_levels.items():
        inside = labels == label
        below = (lower - truth)[inside]
        above = (truth - upper)[inside]
        widening, bound = largest, 0.0
        while bound <= level and widening > 0:
            widening = widening - step
            risk = float(np.mean((below > widening) | (above > widening)))
            bound = ucb(len(truth), failure_prob, risk)
        found[label] = widening + step if bound > level else 0.0
    return found
