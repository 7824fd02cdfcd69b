"""The promise across sites, tested by simulation: small counts that are not told, and patients at several sites.

As in `test_guarantees.py`: each world draws images, calibrates and asks for the true risk in closed form; failures
are at most Binomial(worlds, delta) in law, and wrong variants must be caught by the same check. `make guarantees` runs
PIXELBOUNDS_WORLDS worlds.
"""

import numpy as np
import pytest
from trials import FALSE_ALARM, WORLDS, consistent
from worlds import BoundedWorld

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.federated import questions, site_regions, suppression
from pixelbounds.images import library

pytestmark = pytest.mark.guarantees

RISK, DELTA = 0.2, 0.1
KEY = bytes(32)
LEAST = 6
SMALL = BoundedWorld(correlation=0.8, pixels=(16,))
BAD = 0.21  # share of bad patients: just above the risk level, so that leaving them out is a failure


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(library, "_THREADS", 1)


def holds(risks, alarm=FALSE_ALARM):
    """Whether the worlds whose true risk exceeds the level are as few as promised; `alarm` is the chance of a false no.

    Wrong variants are few worlds, once drawn for good, so that a larger chance does for them.
    """
    return consistent(int((np.array(risks) > RISK).sum()), len(risks), DELTA, alarm)


def calibrated(sites, limits, *, key=None, **settings):
    """A study of sites (truth, band, what each says), run to its end."""
    said = {"limits": limits, "key": key}
    told = [federated.announce(t, b, site=name, **how, **said) for name, (t, b, how) in sites.items()]
    study = federated.begin(told, **{"risk_level": RISK, "failure_prob": DELTA, "key": key, **settings})
    while isinstance(study, federated.Study):
        plan = study.plan
        answers = [federated.answer(plan, t, b, site=name, **how, **said) for name, (t, b, how) in sites.items()]
        study = federated.merge(study, answers)
    return study


def risk_where_small_counts_are_not_told(seed, method, bound):
    drawn = SMALL.draw(np.random.default_rng([1, seed]), 80)
    how = {"least_count": LEAST}
    halves = {"north": slice(0, 50), "south": slice(50, 80)}
    sites = {name: (drawn.truth[at], drawn.band[at], how) for name, at in halves.items()}
    return SMALL.risk(calibrated(sites, SMALL.limits, method=method, bound=bound, seed=seed))


@pytest.mark.parametrize("method, bound", [(pb.Frontier("band"), "betting"), ("rcps", "hoeffding_bentkus")])
def test_risk_is_controlled_where_small_counts_are_not_told(method, bound):
    assert holds([risk_where_small_counts_are_not_told(seed, method, bound) for seed in range(WORLDS)])


def test_misses_rounded_down_are_caught(monkeypatch):
    """What is suppressed must not be told as 0: then the risk that is certified is not the true one."""
    monkeypatch.setattr(questions, "rounded_up", lambda counts, sizes, least: counts // least * least)
    assert not holds([risk_where_small_counts_are_not_told(seed, "rcps", "betting") for seed in range(15)])


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


def test_risk_in_a_region_is_controlled_where_small_counts_are_not_told():
    assert holds([risk_of_a_region(seed) for seed in range(WORLDS)])


def test_small_regions_told_as_none_are_caught(monkeypatch):
    """An image whose region is small must count: leaving it out certifies the easy ones alone."""
    rounded = suppression.reported_sizes
    for room in (suppression, site_regions):
        monkeypatch.setattr(
            room, "reported_sizes", lambda sizes, least: np.where(sizes < least, 0, rounded(sizes, least))
        )
    assert not holds([risk_of_a_region(seed) for seed in range(6)], alarm=1e-3)


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


def test_risk_is_controlled_where_patients_at_several_sites_are_joined():
    assert holds([risk_with_patients_at_ten_sites(seed, key=KEY) for seed in range(WORLDS)])


def test_patients_that_count_ten_times_are_caught():
    """Without a key nothing compares units, which is why it is said: twenty patients are certified as 200."""
    assert not holds([risk_with_patients_at_ten_sites(seed, key=None) for seed in range(30)], alarm=1e-3)
