"""The rows of the table: which notion of uncertainty, which procedure, which bound.

A row is known by its key, band/procedure/bound. Procedures:

rcps            one widening for all pixels
krcps_best      K-RCPS, the cell of the grid with the least mean length on the validation images, as in the paper
krcps_chosen    K-RCPS, the cell chosen on the fitting images alone (fits.choose_cell)
krcps_equal     as krcps_best, but with as many fitting images as the frontier takes
krcps_plain     K-RCPS with 8 groups and every pixel, where the unit is the scan
frontier        ours, groups by default: the shorter of band and learned groups on the fitting images
featured        ours, learned groups that also see mean, deviation, observation and the regressor's quantiles
oracle_bound    the frontier's path, cut on the validation images at the greatest risk that any bound certifies
oracle_cut      the frontier's path, cut on the validation images at risk epsilon: what a perfect bound would give
oracle          the frontier fitted and cut on the validation images: the limit of such groups, not of all groups
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PAPER_BOUNDS = ("hoeffding_bentkus", "betting")  # of RCPS and K-RCPS
ALL_BOUNDS = ("betting", "hoeffding_bentkus", "empirical_bernstein", "bentkus", "hoeffding")
SHORTEST = "calibrated/frontier/betting"
REFERENCE = "calibrated/krcps_best/hoeffding_bentkus"  # the paper's
ORACLES = ("oracle_bound", "oracle_cut", "oracle")
CELLS = {"krcps_best": "krcps", "krcps_equal": "krcps_few"}  # rows that are the best of some cells: their records

BAND_NAMES = {
    "qr": "QR",
    "qr_printed": "QR, as printed",
    "dropout": "MC-Dropout",
    "multiplicative": "N-Conffusion, multiplicative",
    "conffusion": "N-Conffusion, additive",
    "naive": "Naive quantiles",
    "calibrated": "Calibrated quantiles",
    "printed": "Calibrated quantiles, Algorithm 3 as printed",
    "narrow": "Mean ± 0.8 deviations",
    "ours": "Calibrated quantiles, miscoverage 0.1",
}
PROCEDURE_NAMES = {
    "rcps": "RCPS",
    "krcps_best": "K-RCPS, best of grid on validation",
    "krcps_chosen": "K-RCPS, chosen on fitting images",
    "krcps_equal": "K-RCPS, as many fitting images as frontier, best on validation",
    "krcps_plain": "K-RCPS, K = 8",
    "frontier": "frontier",
    "featured": "frontier, further features",
    "oracle_bound": "frontier, cut on validation at the greatest certifiable risk (oracle)",
    "oracle_cut": "frontier, cut on validation (oracle)",
    "oracle": "frontier, fitted and cut on validation (oracle)",
}
BOUND_NAMES = {
    "hoeffding_bentkus": "Hoeffding-Bentkus",
    "betting": "betting",
    "empirical_bernstein": "empirical Bernstein",
    "bentkus": "Bentkus",
    "hoeffding": "Hoeffding",
    "none": "none",
}


@dataclass(frozen=True)
class TableRow:
    """One line of the table; `scan_level` is the risk level of a row whose unit is the scan, else None.

    `unit` is what such a unit is called, and an image counts for at most `cap`.
    """

    band: str
    procedure: str
    bound: str
    section: str
    scan_level: float | None = None
    unit: str = "image"
    cap: float | None = None

    @property
    def key(self) -> str:
        """What a draw's record is stored under."""
        scan = "" if self.scan_level is None else f"/{scan_key(self.scan_level, self.cap)}"
        return f"{self.band}/{self.procedure}/{self.bound}{scan}"

    @property
    def counted(self) -> str:
        """What is independent, and at which level."""
        capped = "" if self.cap is None else f", cap {self.cap:g}"
        return self.unit if self.scan_level is None else f"{self.unit}, epsilon {self.scan_level:g}{capped}"

    @property
    def names(self) -> tuple[str, str, str]:
        """Uncertainty, procedure and bound as the tables print them."""
        return BAND_NAMES[self.band], PROCEDURE_NAMES[self.procedure], BOUND_NAMES[self.bound]

    @property
    def diffusion(self) -> bool:
        """Whether the intervals speak of a diffusion model's samples."""
        return self.band in ("naive", "calibrated", "printed", "narrow", "ours")

    @property
    def entrywise(self) -> bool:
        """Whether future samples are covered entry by entry."""
        return self.band in ("calibrated", "printed", "ours")

    @property
    def controlled(self) -> bool:
        """Whether the risk is controlled with high probability; of CELLS, in each cell but not in the one picked."""
        return not self.procedure.startswith("oracle")


def scan_key(level: float, cap: float | None) -> str:
    """What ends the key of a row whose unit is the scan.

    >>> scan_key(0.05, None), scan_key(0.05, 0.25)
    ('scan 0.05', 'scan 0.05 cap 0.25')
    """
    return f"scan {level:g}" + ("" if cap is None else f" cap {cap:g}")


def all_rows(scan_levels: list[float], unit: str = "scan", cap: float | None = None) -> Iterator[TableRow]:
    """The table from top to bottom; of rows whose unit is the scan their levels, what a unit is called, and a cap."""
    for bound, section in zip(PAPER_BOUNDS, ("The paper's rows", "The paper's rows with betting"), strict=True):
        for band in ("qr", "qr_printed", "dropout", "multiplicative", "conffusion", "naive", "calibrated"):
            yield TableRow(band, "rcps", bound, section)
            if band in ("conffusion", "naive", "calibrated"):
                yield TableRow(band, "krcps_best", bound, section)
                yield TableRow(band, "krcps_chosen", bound, section)
        yield TableRow("calibrated", "krcps_equal", bound, section)
    for bound in ALL_BOUNDS:
        yield TableRow("calibrated", "frontier", bound, "Ours")
    yield TableRow("calibrated", "featured", "betting", "Ours")
    yield TableRow("ours", "frontier", "betting", "Ours")
    yield TableRow("narrow", "frontier", "betting", "Ours, without entrywise coverage")
    for procedure in ("rcps", "krcps_best", "krcps_chosen"):
        for bound in PAPER_BOUNDS:
            yield TableRow("printed", procedure, bound, "The sampler as printed")
    yield TableRow("printed", "frontier", "betting", "The sampler as printed")
    for procedure in ORACLES:
        yield TableRow("calibrated", procedure, "none", "The limit")
    for level in scan_levels:
        capped = "" if cap is None else f", an image counting for at most {cap:.0%}"
        section = f"The unit is the {unit}, epsilon {level:g}{capped}"
        for procedure in ("rcps", "krcps_plain", "frontier"):
            for bound in PAPER_BOUNDS:
                yield TableRow("calibrated", procedure, bound, section, level, unit, cap)
