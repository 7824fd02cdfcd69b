"""Valid files of every kind that the package reads, made in a small world, and what a user does with each.

`make` writes them into a folder. A use takes the bytes of a file that may have been edited, does with it all that a
user would, and returns nothing; `Insane` is raised where it succeeded and the result cannot be.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from flat import flat_calibrate
from grown_specimens import make_grown, use_grown
from network_specimens import make_networks, use_network, use_state
from plain_specimens import edited_run, edited_table, make_runs, make_tables, use_run, use_table
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration.calibration_file import calibration_from_bytes
from pixelbounds.federated.messages import message_of
from pixelbounds.images.checks import own_limits
from pixelbounds.monitoring.state_file import monitor_bytes, monitor_from_bytes

SIZE, N, FEW = 6, 40, 3
KEY = bytes(range(32))
SITES = {"north": slice(0, 24), "south": slice(24, N)}


class Insane(Exception):
    """A result that cannot be, of a file that was accepted."""


def insist(right, what):
    """Raise where a result is not as it must be."""
    if not right:
        raise Insane(what)


# ---------------------------------------------------------------- the world


TRUTH, BAND = heteroscedastic(N, np.random.default_rng(0), size=SIZE, dtype=np.float64)
LABELS = np.broadcast_to(np.arange(SIZE) // 2, (N, SIZE, SIZE)).astype(np.int64)
EXTRA = np.random.default_rng(1).normal(size=(N, SIZE, SIZE))
UNITS = np.arange(N) // 2
OF_SITES = [
    pb.share(0.6, name="bright"), pb.tail(0.7, above=0.8, name="first"), pb.share(0.6, cap=0.9, name="weights"),
]  # fmt: skip
HOW = pb.Source("calibrated quantiles", samples=19, miscoverage="1/10", sampler="test", steps=9, sigma_0=0.1)


def bands():
    """Bands to which calibrations are applied, by name: a few images each."""
    lower, upper = BAND.lower[:FEW], BAND.upper[:FEW]
    return {
        "plain": pb.Band(lower, upper),
        "single": pb.Band(lower.astype(np.float32), upper.astype(np.float32)),
        "half": pb.Band(lower.astype(np.float16), upper.astype(np.float16)),
        "centred": pb.Band(lower, upper, (lower + upper) / 2),
        "positive": pb.Band(np.maximum(lower, 0.05), np.maximum(upper, 0.06)),
        "made": pb.Band(lower, upper, source=HOW),
        "ragged": pb.Band([lower[0], lower[1, :4], lower[2, :, :5]], [upper[0], upper[1, :4], upper[2, :, :5]]),
        "other size": pb.Band(lower[:, :4, :5], upper[:, :4, :5]),
    }


PROMISES = [pb.share(0.4), pb.share(0.5, within=TRUTH > 0.5, name="bright"), pb.tail(0.5, above=0.3)]


def calibrations():
    """How calibrations are made, by name: the band at calibration, settings."""
    centred = pb.Band(BAND.lower, BAND.upper, (BAND.lower + BAND.upper) / 2)
    positive = pb.Band(np.maximum(BAND.lower, 0.05), np.maximum(BAND.upper, 0.06))
    made = pb.Band(BAND.lower, BAND.upper, source=HOW)
    return {
        "rcps": (BAND, {"method": "rcps"}),
        "conformal": (BAND, {"method": "rcps", "bound": "conformal"}),
        "no limits": (BAND, {"method": "rcps", "limits": None}),
        "krcps": (BAND, {"method": "krcps", "k": 4}),
        "labels": (BAND, {"labels": LABELS}),
        "scaled": (centred, {"method": "krcps", "k": 3}),
        "band": (BAND, {"groups": "band", "k": 4}),
        "band, half a limit": (BAND, {"groups": "band", "k": 4, "limits": (0.0, np.inf)}),
        "multiplicative": (positive, {"groups": "band", "k": 4, "family": "multiplicative"}),
        "made": (made, {"groups": "band", "k": 4}),
        "learned": (BAND, {"groups": "learned", "k": 2}),
        "features": (BAND, {"groups": "learned", "k": 2, "features": EXTRA}),
        "units": (BAND, {"method": "rcps", "units": UNITS, "unit_name": "patient", "risk_level": 0.5}),
        "promises": (BAND, {"method": "rcps", "risk_level": None, "promises": PROMISES}),
        "own loss": (BAND, {"method": "rcps", "loss": worst_row, "risk_level": 0.6}),
    }


def worst_row(truth, interval):
    """A loss of a user's own: the largest share of misses of a row."""
    missed = (truth < interval.lower) | (truth > interval.upper)
    return missed.mean(axis=2).max(axis=1)


def make_calibrations(folder):
    """Calibration files."""
    for name, (band, how) in calibrations().items():
        flat_calibrate(TRUTH, band, **{"risk_level": 0.3, **how}).save(folder / f"{name}.safetensors")


@dataclass(frozen=True)
class Trial:
    """A federated study: settings of the coordinator, and what every site says of its images."""

    asked: dict
    said: dict = field(default_factory=dict)
    units: bool = False
    regions: bool = False

    def site(self, where):
        """Truth and band of a site, and what else it gives to `announce` and `answer`."""
        units = {"units": UNITS[SITES[where]]} if self.units else {}
        truth = TRUTH[SITES[where]]
        regions = {"bright": truth > 0.5, "first": np.arange(len(truth)) % 2 == 0}
        if "least_count" not in self.said:
            regions["weights"] = np.abs(truth - 0.5)
        known = {"regions": regions} if self.regions else {}
        return (truth, BAND[SITES[where]]), {"site": where, **self.said, **units, **known}

    def announced(self, where):
        """What a site announces, its units as hashes under a key."""
        images, given = self.site(where)
        return pb.federated.announce(*images, **given, **({"unit_key": KEY} if self.units else {}))

    def begin(self, told):
        """Open the study."""
        return pb.federated.begin(told, **{"risk_level": 0.3, **self.asked})


@cache
def trials():
    """Federated studies, by name."""
    truth, band = heteroscedastic(N, np.random.default_rng(7), size=SIZE, dtype=np.float64)
    learned = pb.calibrate(truth, band, risk_level=0.3, method=pb.Frontier(groups="learned", k=2)).grouping
    return {
        "band": Trial({"method": pb.Frontier(k=3)}),
        "rcps": Trial({"method": "rcps", "bound": "hoeffding_bentkus"}),
        "no limits": Trial({"method": pb.Frontier(k=3)}, {"limits": None}),
        "few": Trial({"method": pb.Frontier(k=3)}, {"least_count": 3}),
        "learned": Trial({"method": pb.Frontier(learned)}),
        "units": Trial({"method": pb.Frontier(k=3), "risk_level": 0.5, "unit_name": "patient"}, units=True),
        "promises": Trial({"method": pb.Frontier(k=3), "risk_level": None, "promises": OF_SITES}, regions=True),
        "few promises": Trial(
            {"method": pb.Frontier(k=2), "risk_level": None, "promises": OF_SITES[:2]}, {"least_count": 3}, regions=True
        ),
    }


def make_messages(folder):
    """Announcements, and of every round the study, the plan and the answers."""
    for name, trial in trials().items():
        told = []
        for where in SITES:
            told.append(trial.announced(where))
            told[-1].save(folder / "announcement" / f"{name} {where}.safetensors")
        study = trial.begin(told)
        at = 0
        while isinstance(study, pb.federated.Study):
            study.save(folder / "study" / f"{name} {at}.safetensors")
            study.plan.save(folder / "plan" / f"{name} {at}.safetensors")
            answers = []
            for where in SITES:
                images, given = trial.site(where)
                answers.append(pb.federated.answer(study.plan, *images, **given))
                answers[-1].save(folder / "answer" / f"{name} {at} {where}.safetensors")
            study = pb.federated.merge(study, answers)
            at += 1


def make_monitors(folder):
    """Monitors that have seen some images with truth and some without."""
    for name in ("rcps", "learned", "units", "promises"):
        band, how = calibrations()[name]
        monitor = pb.Monitor(flat_calibrate(TRUTH, band, **{"risk_level": 0.3, **how}))
        watch(monitor, FEW)
        pb.save_monitor(monitor, folder / f"{name}.safetensors")


def watch(monitor, first):
    """Show a monitor a few images that it has not seen, noisier than those of its calibration."""
    rng = np.random.default_rng(first)
    truth = rng.uniform(size=(FEW, *TRUTH.shape[1:])).astype(TRUTH.dtype)
    units = {"units": np.arange(FEW) // 2 + first} if monitor.calibration.record.units else {}
    regions = {promise.name for promise in monitor.calibration.promises if promise.place != "all"}
    monitor.update(truth, BAND[:FEW], within=dict.fromkeys(regions, truth > 0.5), batch=str(first), **units)
    return monitor.check_drift(BAND[:FEW], batch=str(first), **units)


KINDS = ("calibration", "apply", "monitor", "plan", "answer", "announcement", "study", "network", "state", "grown")
KINDS += ("table", "run")
PLAIN = {"table": edited_table, "run": edited_run}  # kinds that no checksum seals, and how these are edited


def make(folder, kinds=KINDS):
    """Write the valid files of some kinds into folders of a folder."""
    for kind in KINDS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    if {"calibration", "apply"} & set(kinds):
        make_calibrations(folder / "calibration")
        np.savez(folder / "bands.npz", lower=BAND.lower[:FEW], upper=BAND.upper[:FEW])
    if "monitor" in kinds:
        make_monitors(folder / "monitor")
    if {"plan", "answer", "announcement", "study"} & set(kinds):
        make_messages(folder)
    if {"network", "state"} & set(kinds):
        make_networks(folder)
    for kind, made in {"grown": make_grown, "table": make_tables, "run": make_runs}.items():
        if kind in kinds:
            made(folder / kind)


# ---------------------------------------------------------------- what a user does

FITTING = {"scaled": "centred", "multiplicative": "positive", "made": "made"}


def use_calibration(data, name, rng, world):
    """Load it, print it, apply it to a band that fits or one that does not, write it again."""
    cal = calibration_from_bytes(data, "case")
    insist(cal.guarantee in repr(cal), "the calibration does not print its guarantee")
    again = cal.to_bytes()
    insist(calibration_from_bytes(again, "again").to_bytes() == again, "written and read it is another calibration")
    band = world.bands[FITTING.get(name, str(rng.choice(["plain", "single", "half"])))]
    if rng.random() < world.misuse:
        band = world.bands[str(rng.choice(sorted(world.bands)))]
    given = {}
    if cal.labelled:
        given["labels"] = LABELS[:FEW]
    if getattr(cal.grouping, "features", 0):
        given["features"] = EXTRA[:FEW]
    interval = cal.apply(band, threads=False, **given)
    for i in range(len(band)):
        check_interval(cal, band.lower[i], band.upper[i], None if band.centre is None else band.centre[i],
                       interval.lower[i], interval.upper[i])  # fmt: skip


def check_interval(cal, low, high, centre, lower, upper):
    """Ends in order, within the limits, around the band (the centre, where widening starts there)."""
    insist(np.all(lower <= upper), "an interval is crossed, or NaN")
    kind = lower.dtype.type
    least, most = own_limits(cal.limits, kind)
    insist(lower.min() >= np.nextafter(kind(least), kind(-np.inf)), "a lower end lies below the limits")
    insist(upper.max() <= np.nextafter(kind(most), kind(np.inf)), "an upper end lies above the limits")
    if centre is not None:
        low = high = centre
    insist(np.all(lower <= np.clip(low, least, most)), "a lower end lies above the band's")
    insist(np.all(upper >= np.clip(high, least, most)), "an upper end lies below the band's")


def use_apply(data, name, rng, world):
    """What `pixelbounds apply` does, on files."""
    from pixelbounds.workflows.apply import apply_files

    file, out = world.scratch / "case.safetensors", world.scratch / "out.npz"
    file.write_bytes(data)
    apply_files(file, world.folder / "bands.npz", out, replace=True)
    with np.load(out) as found:
        insist(np.all(found["lower"] <= found["upper"]), "an interval is crossed, or NaN")


def use_monitor(data, name, rng, world):
    """Load it, show it more images, print what it says, write it again."""
    monitor = monitor_from_bytes(data, "case")
    status = watch(monitor, 77)
    insist(status.sentence in str(status), "a monitor does not print its sentence")
    insist(0 <= status.promises[0].interval[0] <= status.promises[0].interval[1], "an interval is crossed, or NaN")
    again = monitor_bytes(monitor)
    insist(monitor_bytes(monitor_from_bytes(again, "again")) == again, "written and read it is another monitor")


def use_plan(data, name, rng, world):
    """Answer it at a site."""
    trial = trials()[name.rsplit(" ", 1)[0]]
    images, given = trial.site(str(rng.choice(sorted(SITES))))
    answer = pb.federated.answer(message_of(data, "case"), *images, **given)
    message_of(answer.to_bytes(), "answer")


def use_answer(data, name, rng, world):
    """Merge it with the honest answer of the other site, and go on."""
    study, at, where = name.rsplit(" ", 2)
    trial = trials()[study]
    other = next(site for site in SITES if site != where)
    answers = [message_of(data, "case"), message_of(world.read("answer", f"{study} {at} {other}"), "honest")]
    file = world.folder / "study" / f"{study} {at}.safetensors"
    go_on(pb.federated.merge(file, answers), trial, world)


def go_on(study, trial, world):
    """The next plan and its answers, or the calibration."""
    if not isinstance(study, pb.federated.Study):
        use_calibration(study.to_bytes(), "merged", np.random.default_rng(0), world)
        return
    plan = message_of(study.plan.to_bytes(), "plan")
    for where in SITES:
        images, given = trial.site(where)
        pb.federated.answer(plan, *images, **given)


def use_announcement(data, name, rng, world):
    """Begin a study with it and the honest announcement of the other site."""
    study, where = name.rsplit(" ", 1)
    trial = trials()[study]
    told = [message_of(world.read("announcement", f"{study} {site}"), site) for site in SITES if site != where]
    told.insert(int(rng.integers(2)), message_of(data, "case"))
    go_on(trial.begin(told), trial, world)


def use_study(data, name, rng, world):
    """Load it at the coordinator, and merge the honest answers."""
    study, at = name.rsplit(" ", 1)
    trial = trials()[study]
    file = world.scratch / "study.safetensors"
    file.write_bytes(message_of(data, "case").to_bytes())
    answers = [message_of(world.read("answer", f"{study} {at} {site}"), site) for site in SITES]
    go_on(pb.federated.merge(file, answers), trial, world)


USES = {
    "grown": lambda *case: use_grown(*case, use_calibration), "table": use_table, "run": use_run,
    "calibration": use_calibration, "apply": use_apply, "monitor": use_monitor, "plan": use_plan, "answer": use_answer,
    "announcement": use_announcement, "study": use_study, "network": use_network, "state": use_state,
}  # fmt: skip


class World:
    """The valid files of a folder, and what uses need beside them."""

    def __init__(self, folder, scratch, misuse=0.2):
        self.misuse = misuse  # the share of uses with another band than the fitting one
        self.folder = Path(folder)
        self.scratch = Path(scratch)
        self.bands = bands()
        self.files = {}
        for kind in KINDS:
            source = "calibration" if kind == "apply" else kind
            found = sorted((self.folder / source).glob({"table": "*.toml", "run": "*.run"}.get(kind, "*.safetensors")))
            self.files[kind] = {path.stem: path.read_bytes() for path in found}
        self.all = [data for kind, files in self.files.items() if kind not in PLAIN for data in files.values()]

    def read(self, kind, name):
        """The bytes of a valid file."""
        return self.files[kind][name]
