"""The file of an anytime calibration: its terms and its evidence, sealed; everything that is read is checked."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from ..calibration.band_statistics import MOST_UNITS, STATISTICS
from ..calibration.families import FAMILIES, Family
from ..calibration.groups.contract import load_grouping, on_images
from ..calibration.groups.labelled import LabelledGroups
from ..calibration.methods import METHODS
from ..calibration.paths.path import Path
from ..calibration.promises import CertifiedPromise
from ..calibration.units import WEIGHTINGS
from ..images.checks import check_choice, check_limits, check_line, check_number, check_open_unit, check_unit_name
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source
from ..storage.files import seal, unseal
from .evidence import Evidence, Terms, calibration_of
from .horizons import BETTORS, EProcesses

_FORMAT = 1
ANYTIME_FILE = "anytime calibration"
_KEPT = ("image_hashes", "units", "digest", "looks", "of_units", "of_images")
_MOST_PROMISES = 64


def growing_to_bytes(terms: Terms, evidence: Evidence) -> bytes:
    """Terms and evidence as one sealed file; equal ones give equal bytes."""
    meta, arrays = terms.grouping.state()
    e_processes = evidence.e_processes
    tensors = {f"groups.{name}": x for name, x in arrays.items()}
    tensors |= {"fitted_on": terms.grouping.fitted_on, "knots": terms.path.points}
    tensors |= {
        name: np.stack([getattr(x, name) for x in e_processes]) for name in ("wealth", "total", "squares", "best")
    }
    tensors |= {"counts": np.array([x.count for x in e_processes], np.int64), "weights": evidence.weights}
    tensors |= {name: getattr(evidence, name) for name in _KEPT}
    tensors |= {"usual": terms.usual, "shares": terms.shares}
    text = {
        "format": _FORMAT, "package": "pixelbounds", "kind": ANYTIME_FILE, "method": terms.method,
        "family": terms.family.name, "limits": [x if isfinite(x) else None for x in terms.limits],
        "groups": {"kind": terms.grouping.kind, **meta}, "promises": [promise.state() for promise in terms.promises],
        "plain": terms.plain, "failure_prob": terms.failure_prob, "units": terms.units, "weighting": terms.weighting,
        "pixels": list(terms.pixels), "source": terms.source.state(), "seed": terms.seed,
        "measure": None if terms.measure is None else terms.measure.state(),
        "features": terms.with_features, "labels": terms.with_labels,
        "fitting": evidence.fitting, "certifying": evidence.certifying,
    }  # fmt: skip
    return seal(text, tensors)


def anytime_from_bytes(data: bytes, name: str = "file", family: Family | None = None) -> tuple[Terms, Evidence]:
    """The terms and the evidence that a file holds."""
    again = "begin again, with the images that fitted"
    text, tensors = unseal(
        data, name, what=ANYTIME_FILE, remedy="write it again with AnytimeCalibration.save", again=again
    )
    if text.get("kind") != ANYTIME_FILE or text["format"] != _FORMAT:
        raise ValueError(
            f"{name!r} is no anytime calibration of format {_FORMAT}; give what AnytimeCalibration.save or "
            "`pixelbounds anytime` wrote, or update pixelbounds"
        )
    try:
        terms = _terms_of(text, tensors, name, family)
        evidence = _evidence_of(text, tensors, terms)
        calibration_of(terms, evidence)  # whose own checks have the last word
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        if isinstance(error, ValueError) and str(error).startswith(repr(name)):
            raise
        why = f"{error!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{name!r} holds no anytime calibration that could be: {why}; {again}") from error
    return terms, evidence


def _terms_of(text: dict[str, Any], tensors: dict[str, Array], name: str, family: Family | None) -> Terms:
    named = text["family"]
    if not isinstance(named, str) or (family is not None and family.name != named):
        raise ValueError(f"{name!r} is of family {named!r}; give that one")
    if family is None and named not in FAMILIES:
        raise ValueError(f"{name!r} uses your own family {named!r}; pass it: AnytimeCalibration.load(path, family=...)")
    kept = text["promises"]
    if not isinstance(kept, list) or not 1 <= len(kept) <= _MOST_PROMISES:
        raise ValueError("it has no promises, or too many")
    promises = tuple(map(CertifiedPromise.from_state, kept))
    if any(promise.kind == "loss" or promise.risk or promise.certifying != 1 for promise in promises):
        raise ValueError("a promise is not as it was asked")
    plain = promises[0].kind == "share" and promises[0].place == "all" and promises[0].cap == 1
    if not isinstance(text["plain"], bool) or (text["plain"] and (len(promises) > 1 or not plain)):
        raise ValueError("its promises say more than a level")
    groups = dict(text["groups"])
    arrays = {key.removeprefix("groups."): x for key, x in tensors.items() if key.startswith("groups.")}
    grouping = on_images(load_grouping(groups.pop("kind"), groups, arrays), tensors["fitted_on"])
    if text["labels"] is not isinstance(grouping, LabelledGroups) or not isinstance(text["features"], bool):
        raise ValueError("its groups are not such as its images had labels for")
    path = Path(tensors["knots"], grouping)
    least = family.start if family is not None else FAMILIES[named].start
    if path.points.shape[0] != grouping.count or path.points.min() < least or tensors["knots"].dtype != np.float64:
        raise ValueError(f"a path of {path.points.shape[0]} groups cannot be that of {grouping.count}")
    low, high = (None if x is None else check_number(x, "a limit") for x in text["limits"])
    if text["units"] is not None:
        check_unit_name(text["units"])
    elif any(promise.weighting == "images" for promise in promises):
        raise ValueError("images of units count, and there are none")
    measure = text["measure"]
    return Terms(
        check_choice(text["method"], METHODS, "method"), family or FAMILIES[named],
        check_limits((-np.inf if low is None else low, np.inf if high is None else high)), grouping, path, promises,
        text["plain"], check_open_unit(text["failure_prob"], "failure_prob"), text["units"],
        check_choice(text["weighting"], WEIGHTINGS, "weighting"), tuple(text["pixels"]),
        Source.from_state(text["source"]), check_line(text["seed"], "seed"), text["features"],
        text["labels"], *_grounds(tensors, grouping.count),
        None if measure is None else Measure.from_state(measure),
    )  # fmt: skip


def _grounds(tensors: dict[str, Array], groups: int) -> tuple[Array, Array]:
    """Widening and shares of groups by which bands are described."""
    usual, shares = tensors["usual"], tensors["shares"]
    for x in (usual, shares):
        if x.dtype != np.float64 or x.shape != (groups,) or not np.isfinite(x).all():
            raise ValueError(f"bands are described by {x.dtype} {x.shape}; there must be {groups} finite float64")
    return usual, shares


def _evidence_of(text: dict[str, Any], tensors: dict[str, Array], terms: Terms) -> Evidence:
    fitting, certifying = _counted(text, len(tensors["image_hashes"]), terms)
    promises, points = len(terms.promises), len(terms.path)
    described = np.float32, (min(MOST_UNITS, certifying), len(STATISTICS))
    shapes = {
        "wealth": (np.float64, (promises, BETTORS, points)), "total": (np.float64, (promises, points)),
        "squares": (np.float64, (promises, points)), "best": (np.float64, (promises, points)),
        "counts": (np.int64, (promises,)), "weights": (np.float64, (promises,)),
        "image_hashes": (np.uint64, (len(tensors["image_hashes"]),)), "units": (np.uint64, (len(tensors["units"]),)),
        "digest": (np.int64, (8,)), "looks": (np.int64, (len(tensors["looks"]), 3)),
        "of_units": described, "of_images": described,
    }  # fmt: skip
    for name, (dtype, shape) in shapes.items():
        x = tensors[name]
        if x.dtype != dtype or x.shape != shape:
            raise ValueError(f"{name} is {x.dtype} {x.shape}; it must be {np.dtype(dtype)} {shape}")
    counts, weights = tensors["counts"], tensors["weights"]
    _check_counts(terms, certifying, counts, weights, tensors["units"])
    _check_looks(tensors["looks"], points)
    moving = {name: tensors[name] for name in ("wealth", "total", "squares", "best")}
    e_processes = tuple(
        EProcesses(promise.at_most / promise.cap, terms.failure_prob, int(counts[j]), coins=promise.kind == "tail",
               **{name: x[j].copy() for name, x in moving.items()})
        for j, promise in enumerate(terms.promises)
    )  # fmt: skip
    if any((np.diff(x.total) > 1e-9 * (1 + x.count)).any() for x in e_processes):
        raise ValueError("losses rise where intervals widen")
    kept = {name: tensors[name] for name in _KEPT}
    return Evidence(e_processes, weights, fitting, certifying, **kept)


def _counted(text: dict[str, Any], n: int, terms: Terms) -> tuple[int, int]:
    """How many of n images fitted, and how many images (units) certify."""
    fitting, certifying = text["fitting"], text["certifying"]
    wrong = ValueError(f"{fitting!r} fitting and {certifying!r} certifying images (units) cannot be among {n}")
    for x in (fitting, certifying):
        if isinstance(x, bool) or not isinstance(x, int) or not 0 <= x <= n:
            raise wrong
    left = n - fitting
    enough = certifying == left if terms.units is None else (certifying > 0) == (left > 0) and certifying <= left
    if not enough or (terms.method != "rcps") != (fitting > 0):
        raise wrong
    return fitting, certifying


def _check_counts(terms: Terms, certifying: int, counts: Array, weights: Array, units: Array) -> None:
    """Promises were seen in so many units, which count for so much."""
    whole = np.array([promise.place == "all" for promise in terms.promises])
    if counts.min() < 0 or counts.max() > certifying or (counts[whole] != certifying).any():
        raise ValueError(f"promises were seen in {counts.tolist()} of {certifying} images (units)")
    if terms.units is not None and len(units) < certifying:
        raise ValueError(f"{certifying} units certify, and {len(units)} are known")
    fair = np.isfinite(weights) & (weights >= 0) & (weights <= counts * (1 + 1e-9)) & ((weights > 0) == (counts > 0))
    if not fair.all():
        raise ValueError("units count for less than nothing, or for more than they are")


def _check_looks(looks: Array, points: int) -> None:
    """Numbers of images that grow, and points of the path."""
    if len(looks) and (looks.min() < -1 or looks[:, 2].max() >= points or (np.diff(looks[:, :2], axis=0) < 0).any()):
        raise ValueError("its looks are not those of images that arrive")
