"""Valid files of anytime calibrations, and what a user does with each (`specimens`)."""

import numpy as np
from worlds import heteroscedastic

import pixelbounds as pb

FIRST, N, FEW, SIZE = 8, 40, 3, 6


def make_grown(folder):
    """Some that certify already, one that does not, one by units with regions, one with labels."""
    truth, band = heteroscedastic(N, np.random.default_rng(0), size=SIZE, dtype=np.float64)
    labels = np.broadcast_to(np.arange(SIZE) // 2, truth.shape).astype(np.int64)
    units = np.arange(N) // 2
    first, rest = slice(0, FIRST), slice(FIRST, N)
    few = {"method": pb.Frontier(groups="band", k=3)}
    asked = [pb.share(0.5), pb.share(0.6, within=truth[first] > 0.5, name="bright", weighting="images")]
    by_unit = {"units": pb.Units(units[first], "patient"), "promises": asked}
    made = {
        "rcps": pb.AnytimeCalibration(truth[first], band[first], risk_level=0.3, method="rcps"),
        "labels": pb.AnytimeCalibration(truth[first], band[first], risk_level=0.3, labels=labels[first], **few),
        "regions": pb.AnytimeCalibration(truth[first], band[first], **by_unit, **few),
        "new": pb.AnytimeCalibration(truth[first], band[first], risk_level=0.05, method=pb.Frontier("learned", k=2)),
    }
    made["rcps"].add(truth[rest], band[rest])
    made["labels"].add(truth[rest], band[rest], labels=labels[rest])
    made["regions"].add(truth[rest], band[rest], within={"bright": truth[rest] > 0.5}, units=units[rest])
    for name, anytime in made.items():
        assert (anytime.certified is None) == (name == "new"), name
        anytime.save(folder / f"{name}.safetensors")


def use_grown(data, name, rng, world, use_calibration):
    """Load it, write it again, let further images arrive, and use what is certified."""
    anytime = pb.AnytimeCalibration.from_bytes(data, "case")
    again = anytime.to_bytes()
    assert pb.AnytimeCalibration.from_bytes(again, "again").to_bytes() == again, "written and read it is another one"
    truth, band = heteroscedastic(FEW, np.random.default_rng(3), size=SIZE, dtype=np.float64)
    given = {"regions": {"within": {"bright": truth > 0.5}, "units": ["a", "a", "b"]}}
    given["labels"] = {"labels": np.zeros(truth.shape, int)}
    images = anytime.images
    assert anytime.add(truth, band, **given.get(name, {})) == FEW, "not all images were counted"
    assert anytime.images == images + FEW, "images were lost"
    if anytime.certified is not None:
        use_calibration(anytime.certified.to_bytes(), "grown", rng, world)
