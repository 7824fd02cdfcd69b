"""The promise across sites, tested by simulation: small counts that are suppressed, and patients at several sites.

As in `test_guarantees.py`: each world draws images, calibrates and asks for the true risk in closed form; failures
are at most Binomial(worlds, delta) in law, and wrong variants must be caught by the same check. `make guarantees` runs
PIXELBOUNDS_WORLDS worlds.
"""

import numpy as np
import pytest
from hospitals import announced, rounds
from trials import WORLDS, check_failures
from worlds import BoundedWorld

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.federated import questions
from pixelbounds.federated import site as one_site

pytestmark = pytest.mark.guarantees

RISK, DELTA = 0.2, 0.1
KEY = bytes(32)
LEAST = 6
SMALL = BoundedWorld(correlation=0.8, pixels=(16,))
BAD = 0.21  # share of bad patients: just above the risk level, so that leaving them out is a failure


def broken(risk_of, count, **how):
    """In how many worlds the true risk exceeds the level."""
    return sum(risk_of(seed, **how) > RISK for seed in range(count))


def calibrated(sites, limits, *, key=None, **settings):
    """A study of sites (truth, band, what each says), run to its end."""
    sites = {name: (t, b, {"site": name, "limits": limits, **how}) for name, (t, b, how) in sites.items()}
    begun = federated.begin(announced(sites, key), **{"risk_level": RISK, "failure_prob": DELTA, **settings})
    return rounds(sites, begun, through=lambda message: message)[0]


def risk_where_small_counts_are_not_told(seed, method, bound):
    drawn = SMALL.draw(np.random.default_rng([1, seed]), 80)
    how = {"least_count": LEAST}
    halves = {"north": slice(0, 50), "south": slice(50, 80)}
    sites = {name: (drawn.truth[at], drawn.band[at], how) for name, at in halves.items()}
    return SMALL.risk(calibrated(sites, SMALL.limits, method=method, bound=bound, seed=seed))


def test_risk_is_controlled_where_small_counts_are_not_told(monkeypatch, record_property):
    """What is suppressed must not be reported as 0: then the risk that is certified is not the true one."""
    ways = {"method": pb.Frontier("band"), "bound": "betting"}, {"method": "rcps", "bound": "hoeffding_bentkus"}
    count = sum(broken(risk_where_small_counts_are_not_told, WORLDS, **how) for how in ways)
    monkeypatch.setattr(questions, "rounded_up", lambda counts, sizes, least: counts // least * least)
    wrong = broken(risk_where_small_counts_are_not_told, 15, method="rcps", bound="betting") / 15
    check_failures(count, 2 * WORLDS, DELTA, ("misses rounded down", wrong), record_property)


def risk_of_a_region(seed):
    """Half of the images have a region of one to five pixels that are hard, the others a larger one of easy pixels."""
    rng = np.random.default_rng([3, seed])
    small = rng.random(120) < 0.5
    size = np.where(small, rng.integers(1, LEAST, 120), 2 * LEAST + 1)
    truth = np.where(small[:, None], rng.random((120, 16)), 0.5)
    band = pb.Band(np.full(truth.shape, 0.4), np.full(truth.shape, 0.6))
    region = np.arange(16) < size[:, None]
    halves = {"north": slice(0, 60), "south": slice(60, 120)}
    sites = {
        name: (truth[at], band[at], {"least_count": LEAST, "regions": {"hard": region[at]}})
        for name, at in halves.items()
    }
    promises = [pb.share(RISK, name="hard")]
    found = calibrated(sites, (0.0, 1.0), method="rcps", seed=seed, risk_level=None, promises=promises)
    return 0.5 * max(0.0, 0.8 - 2 * float(found.widening[0]))


def test_risk_in_a_region_is_controlled_where_small_counts_are_not_told(monkeypatch, record_property):
    """An image whose region is small must count: leaving it out certifies the easy ones alone."""
    count = broken(risk_of_a_region, WORLDS)
    rounded = questions.reported_sizes
    for room in (questions, one_site):
        monkeypatch.setattr(
            room, "reported_sizes", lambda sizes, least: np.where(sizes < least, 0, rounded(sizes, least))
        )
    wrong = broken(risk_of_a_region, 12) / 12
    check_failures(count, WORLDS, DELTA, ("small regions told as none", wrong), record_property)


def risk_with_patients_at_ten_sites(seed, *, key):
    """Twenty patients with an image at each site; all images of a bad patient lie 0.3 above their bands."""
    rng = np.random.default_rng([2, seed])
    bad = rng.random(20) < BAD
    band = pb.Band(np.full((20, 2), 0.4), np.full((20, 2), 0.6))
    names = [f"patient {unit}" for unit in range(20)]
    images = [np.where(bad, 0.9, 0.5)[:, None] + 0.05 * rng.random((20, 2)) for _ in range(10)]
    sites = {f"site {i}": (truth, band, {"units": names}) for i, truth in enumerate(images)}
    shared = {} if key is None else {"shared_units": "join"}
    found = calibrated(sites, (0.0, 1.0), key=key, method="rcps", bound="hoeffding_bentkus", seed=seed, **shared)
    return BAD if found.widening[0] < 0.3 else 0.0


def test_risk_is_controlled_where_patients_at_several_sites_are_joined(record_property):
    """Without a key nothing compares units, which is why it is said: twenty patients are certified as 200."""
    worlds = max(80, WORLDS)  # 80 see a third of failures with probability 0.89
    wrong = broken(risk_with_patients_at_ten_sites, 30, key=None) / 30
    count = broken(risk_with_patients_at_ten_sites, worlds, key=KEY)
    check_failures(count, worlds, DELTA, ("patients that count ten times", wrong), record_property)
