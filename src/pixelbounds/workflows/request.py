"""What a calibration on files must achieve, and how: one frozen object, made by the command line or in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..calibration.methods import NAMED_GROUPS, method_of
from ..calibration.target import Units
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import open_units
from ..formats.label_maps import open_labels
from ..formats.opener import open_images
from ..formats.scans import Images
from ..storage.chunks import guarded
from .promise_regions import PromiseRegions, Take, map_paths
from .promise_words import PromiseText, promise_texts


@dataclass(frozen=True)
class Request:
    """Promises, method and units of a calibration on files; names are those of `pixelbounds.calibrate`.

    risk_level     the share of all pixels that may be missed; or
    promises       texts (`promise_words`), or TOML files of them
    groups         the name of a grouping, or a file of one map for all images
    features       a file of further images known at test time
    labels         a file of labels (n, *pixels) known at test time
    unit_name      what a unit is called; by default what the files call it, a scan, a patient
    """

    risk_level: float | None = None
    promises: Sequence[str] | None = None
    failure_prob: float = 0.1
    method: str = "frontier"
    bound: str = "betting"
    groups: FilePath | None = None
    k: int | None = None
    n_fit: int | None = None
    family: str | None = None
    features: FilePath | None = None
    labels: FilePath | None = None
    seed: int = 0
    unit_name: str | None = None
    weighting: str = "units"
    max_images: int | None = None

    @cached_property
    def texts(self) -> tuple[PromiseText, ...]:
        """The promises; none where a risk level says it."""
        if (self.risk_level is None) == (not self.promises):
            raise ValueError("give --risk-level, the share of all pixels that may be missed, such as 0.1, or --promise")
        return promise_texts(self.promises) if self.promises else ()

    @property
    def files(self) -> tuple[FilePath | None, ...]:
        """The files that it names."""
        return (self.groups, self.features, self.labels, *(map_paths(self.texts) if self.texts else ()))

    def open(self, images: Images, reading: Reading) -> OpenRequest:
        """Open its files beside the true images."""
        ids = open_units(images, reading)
        if ids is None and self.unit_name is not None:
            raise ValueError(
                f"units are called {self.unit_name!r}, but nobody says which images belong to one: give --units"
            )
        name = self.unit_name or (images.unit_name if reading.units is None else None)
        return OpenRequest(
            self,
            groups=self.groups if self.groups in (None, *NAMED_GROUPS) else open_labels(str(self.groups), images),
            features=None if self.features is None else guarded(open_images(self.features, window=None).pixels),
            labels=None if self.labels is None else open_labels(self.labels, images),
            units=Units(ids, name or "unit", self.weighting, self.max_images),
            regions=PromiseRegions.open(self.texts, images, reading) if self.texts else None,
        )


@dataclass(frozen=True, eq=False)
class OpenRequest:
    """A request and what its files hold of all images."""

    request: Request
    groups: Any
    features: Any
    labels: Any
    units: Units
    regions: PromiseRegions | None

    @property
    def stores(self) -> list[Any]:
        """Arrays that may have holes."""
        return [x for x in (self.labels, *(self.regions.stores if self.regions else ())) if x is not None]

    def arguments(self, truth: Any, take: Take = lambda x: x) -> dict[str, Any]:
        """Arguments of `pixelbounds.calibrate` about `truth`, the images that `take` picks."""
        request = self.request
        return {
            "risk_level": request.risk_level,
            "promises": self.regions.promises(truth, take) if self.regions else None,
            "failure_prob": request.failure_prob,
            "bound": request.bound,
            "method": method_of(request.method, groups=self.groups, k=request.k, n_fit=request.n_fit),
            "units": None if self.units.ids is None else replace(self.units, ids=take(self.units.ids)),
            "labels": take(self.labels),
            "features": take(self.features),
            "seed": request.seed,
        }
