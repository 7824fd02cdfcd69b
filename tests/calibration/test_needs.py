"""What a plan says of promises is what `calibrate` does: the least images certify, one fewer does not."""

import numpy as np
import pytest
from commands import call, done, flat
from flat import flat_calibrate
from refusals import refuses

import pixelbounds as pb

KINDS = {
    "share": pb.share(0.1, name="x"),
    "cap": pb.share(0.1, cap=0.4, name="x"),
    "tail": pb.tail(0.15, above=0.1, name="x"),
}


def certifies(n, promise, prevalence, per_unit=1, **how):
    """Whether n units that lose nothing certify a promise about a region that so many have."""
    truth = np.random.default_rng(0).uniform(0.4, 0.6, (n * per_unit, 2, 2))
    band = pb.Band(truth - 0.1, truth + 0.1)
    within = np.zeros(truth.shape, bool)
    within[: int(round(prevalence * n, 9)) * per_unit] = True
    asked = pb.Promise(promise.kind, promise.at_most, promise.above, within, promise.cap, promise.name)
    units = np.arange(n).repeat(per_unit) + 50 if per_unit > 1 else None
    try:
        flat_calibrate(truth, band, promises=[pb.share(0.5), asked], units=units, **how)
    except pb.NoGuarantee:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method, prevalence", [("rcps", 1.0), ("rcps", 0.3), ("krcps", 1.0)])
def test_the_least_images_of_a_plan_certify_and_fewer_do_not(kind, method, prevalence):
    promise = KINDS[kind]
    how = {"method": method, "bound": "hoeffding_bentkus"}
    (found,) = pb.plan(promises=[promise], prevalence={"x": prevalence}, images=(100,), **how).promises
    more = {"k": 2} if method == "krcps" else {}
    assert certifies(found.images, promise, prevalence, **how, **more)
    assert not certifies(found.images - 1, promise, prevalence, **how, **more)
    assert certifies(found.images, promise, prevalence, per_unit=2, **how, **more)


def test_a_cap_saves_what_the_plan_says():
    (found,) = pb.plan(promises=[pb.share(0.05, cap=0.25)], images=(58,), method="rcps").promises
    assert found.certified[0] == pytest.approx(0.041, abs=0.001)
    assert found.certified_without_cap[0] == pytest.approx(0.010, abs=0.001)
    assert found.images < found.images_without_cap


def test_a_plan_of_promises_in_words():
    words = "--promise", "share:0.05,cap=0.25", "--promise", "share:0.1,prevalence=0.08,name=trachea", "--images", 400
    said = done("plan", *words)
    assert [one["prevalence"] for one in said["promises"]] == [1.0, 0.08]
    rare = said["promises"][1]
    assert rare["images"] == said["bounds"][0]["images"] > pb.least_images(0.1) / 0.08  # some of them fit
    alone = done("plan", *words, "--method", "rcps")["promises"][1]
    assert alone["images"] == np.ceil(pb.least_images(0.1) / 0.08)
    text = flat(call("plan", *words).stdout)
    assert "To promise 2 things jointly" in text
    assert "without the cap" in text
    assert call("plan", *words[:2], "--risk-level", 0.1).exit_code == 2
    assert call("plan", *words[:-1], 200).exit_code == 1
    refuses(lambda: pb.plan(promises=[pb.share(0.1)], prevalence={"lung": 0.5}), "'lung'", "no promise has that name")
    refuses(lambda: pb.plan(), "either risk_level")
