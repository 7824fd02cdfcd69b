"""How the neutral settings of `benchmarks.array_cases` are asked of this version of the package.

A module with the same functions for another version is given to `benchmarks.arrays` by `--api FILE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pixelbounds as pb

Settings = dict[str, Any]
_OF_METHOD = ("groups", "k", "d_opt", "direction", "gammas", "n_fit")


def _asked(settings: Settings) -> Settings:
    """Keywords that mean the same at every entry point."""
    rest = dict(settings)
    methods = {"frontier": pb.Frontier, "krcps": pb.KRCPS, "rcps": pb.RCPS}
    chosen = {name: rest.pop(name) for name in _OF_METHOD if rest.get(name) is not None or rest.pop(name, None)}
    rest["method"] = methods[rest.pop("method", "frontier")](**chosen)
    promises = [getattr(pb, kind)(level, **more) for kind, level, more in rest.pop("promises", ())]
    if (loss := rest.pop("loss", None)) is not None:
        promises = [pb.loss(rest.pop("risk_level"), loss)]
    if promises:
        rest.pop("risk_level", None)
        rest["promises"] = promises
    if (ids := rest.pop("units", None)) is not None:
        about = {name: rest.pop(name) for name in ("weighting", "max_images") if name in rest}
        rest["units"] = pb.Units(ids, **about)
    return rest


def _with_family(band: pb.Band, settings: Settings) -> pb.Band:
    family = settings.pop("family", None)
    return band if family is None else pb.Band(band.lower, band.upper, band.centre, source=band.source, family=family)


def calibrate(truth: Any, band: pb.Band, settings: Settings) -> Any:
    rest = dict(settings)
    return pb.calibrate(truth, _with_family(band, rest), **_asked(rest))


def family_of(band: pb.Band, settings: Settings) -> pb.Band:
    """The band of new images, of the family of those that calibrated."""
    return _with_family(band, dict(settings))


def widening(cal: Any) -> np.ndarray:
    return cal.widening


def evaluate(truth: Any, interval: Any, **more: Any) -> Any:
    return pb.evaluate(truth, interval, **more)


def federated(sites: dict[str, tuple[Any, pb.Band, Any]], settings: Settings) -> Any:
    """The calibration of some sites, each with truth, band and units or None."""
    rooms, rest = pb.federated, dict(settings)
    family = rest.pop("family", None)
    sites = {site: (truth, _with_family(band, {"family": family}), ids) for site, (truth, band, ids) in sites.items()}
    sent = [rooms.announce(truth, band, site=site, units=ids) for site, (truth, band, ids) in sites.items()]
    study = rooms.begin(sent, **_asked(rest))
    while isinstance(study, rooms.Study):
        answers = [
            rooms.answer(study.plan, truth, band, site=site, units=ids) for site, (truth, band, ids) in sites.items()
        ]
        study = rooms.merge(study, answers)
    return study


def anytime(first: tuple[Any, pb.Band], later: list[tuple[Any, pb.Band]], settings: Settings) -> Iterator[Any]:
    """After each batch, what is certified, or None."""
    growing = pb.AnytimeCalibration(*first, **_asked(settings))
    for truth, band in later:
        growing.add(truth, band)
        yield growing.certified


def monitor(cal: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`update` with truth and `check_drift` without, each returning a status."""
    watch = pb.Monitor(cal, 0.05)
    return watch.update, watch.check_drift


def e_values(status: Any) -> tuple[list[float], list[float]]:
    """Of promises and of statistics of bands."""
    return [x.e_value for x in status.promises], [x.e_value for x in status.statistics]
