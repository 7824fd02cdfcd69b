"""Calibrations from flat tables of cases: settings of `calibrate`, of its method, of units and of the band alike."""

import pixelbounds as pb
from pixelbounds.calibration.methods import method_of

OF_METHODS = ("groups", "k", "n_fit", "d_opt", "direction", "gammas")
OF_UNITS = ("weighting", "max_images")


def flat_calibrate(truth, band, *, method="frontier", family=None, units=None, unit_name=None, loss=None, **words):
    """`pb.calibrate` with each setting put where it belongs."""
    settings = {name: words.pop(name) for name in OF_METHODS if name in words}
    if family is not None and isinstance(band, pb.Band):
        band = band.with_family(family)
    if loss is not None:
        words["promises"] = [pb.loss(words.pop("risk_level"), loss)]
    more = {name: words.pop(name) for name in OF_UNITS if name in words}
    if units is not None:
        units = pb.Units(units, unit_name or "unit", **more)
    return pb.calibrate(truth, band, method=method_of(method, **settings), units=units, **words)
