"""An anytime calibration beside a calibration of a known number of images: risk certified, length, failures, kills.

python -m benchmarks growth [FACES.zip]    (some minutes on one core)

Risks: the greatest risk certified at 5% with 90%, images losing alike or losses being 0 or 1 (median of 40 orders).
Lengths: 32 images fit (band groups), the others arrive one by one, beside `pixelbounds.calibrate` on as many in all; on
128 further images, the mean over two draws. Failures: worlds in which the risk is the level exactly, looked at after
every image. Kills: `pixelbounds anytime add` ended by SIGKILL at a random moment, and run again.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np

import pixelbounds as pb
from benchmarks.pages import result
from pixelbounds.calibration.bounds import betting, rejects
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images
from pixelbounds.images.library import Array
from pixelbounds.kernels.bets import PathEProcess

PAGE = "docs/research/after_deployment.md"
LEVEL, DELTA = 0.05, 0.1
FIT, CHECK = 32, 128
BANDS = pb.Frontier("band")
TIMES = (100, 200, 500, 1000)
Row = dict[str, object]


# ---------------------------------------------------------------- the risk that is certified


def uniform(losses: Array) -> Array:
    """Where a uniform mixture of 24 fixed bets certifies, of losses (n, orders): what is simplest."""
    wealth = np.ones((24, losses.shape[1])) / 24
    best = np.ones(losses.shape[1])
    bets = np.arange(1, 25)[:, None] / 24 / (1 - LEVEL)
    for loss in losses:
        wealth *= np.maximum(1 + bets * (LEVEL - loss), 0)
        best = np.maximum(best, wealth.sum(axis=0))
    return best > 1 / DELTA


TESTS = {
    "uniform mixture of 24 bets": uniform,
    "growing": lambda losses: (
        PathEProcess.new(LEVEL, DELTA, losses.shape[1], binary=losses.shape[1] > 1).update(losses).certified
    ),
    "number known (betting)": lambda losses: np.array([rejects(betting, x, DELTA, LEVEL) for x in losses.T]),
}


def certified_risks() -> list[Row]:
    """The greatest risk that n losses certify, by bettor."""
    rows: list[Row] = []
    for kind, orders in (("all images lose alike", 1), ("0 or 1", 40)):
        for name, test in TESTS.items():
            row: Row = {"part": "risk", "losses": kind, "bets": name}
            for n in TIMES:
                chance = np.random.default_rng(n).random((n, orders))
                low = np.zeros(orders)
                high = np.full(orders, LEVEL)
                for _ in range(12):
                    middle = (low + high) / 2
                    losses = (chance < middle).astype(float) if orders > 1 else np.broadcast_to(middle, (n, 1))
                    passes = test(losses)
                    low = np.where(passes, middle, low)
                    high = np.where(passes, high, middle)
                row[str(n)] = float(np.median(low))
            rows.append(row)
    return rows


# ---------------------------------------------------------------- length


def bands_of(truth: Array, seed: int) -> pb.Band:
    """Bands of a crude sampler, some images at a time."""
    rng = np.random.default_rng(seed)
    parts = [pb.calibrated_quantiles(flawed_samples(x, 39, rng), 0.2) for x in np.array_split(truth, len(truth) // 64)]
    ends = [np.clip(np.concatenate([getattr(part, end) for part in parts]), 0, 1) for end in ("lower", "upper")]
    return pb.Band(ends[0], ends[1], source=parts[0].source)


def faces(path: Path) -> Array:
    """Photographs, (n, 64, 64), in an order of their own."""
    from PIL import Image

    with zipfile.ZipFile(path) as file:
        names = sorted(name for name in file.namelist() if name.endswith(".png"))
        names = np.random.default_rng(0).permutation(names)[: 2 * (TIMES[-1] + CHECK)].tolist()
        return np.stack([np.asarray(Image.open(BytesIO(file.read(name)))) for name in names]).astype(np.float32) / 255


def lengths(what: str, truth: Array, draws: int = 2) -> list[Row]:
    """Mean length of an anytime calibration and of one of a known number, at some numbers of images."""
    each = TIMES[-1] + CHECK
    found: dict[tuple[int, str], list[float]] = {}
    for draw in range(draws):
        images = truth[draw * each : (draw + 1) * each]
        band = bands_of(images, draw)
        check = band[-CHECK:]
        growing = pb.AnytimeCalibration(images[:FIT], band[:FIT], risk_level=LEVEL, failure_prob=DELTA, method=BANDS)
        at = FIT
        for n in TIMES:
            growing.add(images[at:n], band[at:n])
            at = n
            how = {"risk_level": LEVEL, "failure_prob": DELTA, "method": BANDS, "seed": draw}
            fixed = pb.calibrate(images[:n], band[:n], **how)
            for name, cal in (("growing", growing.certified), ("known", fixed)):
                length = float("nan") if cal is None else float(cal.apply(check).length.mean())
                found.setdefault((n, name), []).append(length)
                found.setdefault((n, f"{name} risk"), []).append(float("nan") if cal is None else cal.risk)
    rows: list[Row] = []
    for n in TIMES:
        ours, theirs = np.mean(found[n, "growing"]), np.mean(found[n, "known"])
        row: Row = {"part": "length", "images of": what, "images": n, "growing": float(ours), "known": float(theirs)}
        row |= {"longer": float(ours / theirs - 1), "risk seen": float(np.mean(found[n, "growing risk"]))}
        rows.append(row)
    return rows


# ---------------------------------------------------------------- failures and kills


def failures(worlds: int = 2000, few: int = 400) -> list[Row]:
    """Worlds that are certified at some look although the risk is the level."""
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    kinds = {
        "0 or 1": lambda n, k: (rng.random((n, k)) < LEVEL).astype(float),
        "shares": lambda n, k: rng.beta(2, 2 / LEVEL - 2, (n, k)),
    }
    for kind, draw in kinds.items():
        e_process = PathEProcess.new(LEVEL, DELTA, worlds, binary=kind == "0 or 1").update(draw(2000, worlds))
        row: Row = {"part": "failure", "losses": kind, "what": "growing, a look after each of 2,000 images"}
        rows.append(row | {"worlds": worlds, "broken": float(e_process.certified.mean())})
        drawn = draw(500, few)
        looks = range(50, 501, 50)
        often = [any(rejects(betting, rng.permutation(x[:n]), DELTA, LEVEL) for n in looks) for x in drawn.T]
        row = {"part": "failure", "losses": kind, "what": "calibrate, ten looks, reshuffled each time"}
        rows.append(row | {"worlds": few, "broken": float(np.mean(often))})
    return rows


def kills(times: int = 6) -> list[Row]:
    """End the command at random moments, and run it again."""
    rng = np.random.default_rng(0)
    truth = synthetic_images(64 + 8 * times, 16, rng)
    band = bands_of(truth, 0)
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        started = pb.AnytimeCalibration(truth[:64], band[:64], risk_level=0.2, method=BANDS)
        whole = pb.AnytimeCalibration.from_bytes(started.to_bytes())
        started.save(here / "state.safetensors")
        for i in range(times):
            today = slice(64 + 8 * i, 72 + 8 * i)
            np.save(here / "truth.npy", truth[today])
            source = json.dumps(band.source.state())
            np.savez(here / "band.npz", lower=band.lower[today], upper=band.upper[today], source=source)
            words = ["anytime", "add", "state.safetensors", "truth.npy", "band.npz", "--units", "each", "--json"]
            command = [sys.executable, "-m", "pixelbounds.cli", *words]
            process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(float(rng.uniform(0.3, 4.0)))
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
            subprocess.run(command, cwd=here, capture_output=True, check=True)
            whole.add(truth[today], band[today])
        found = pb.AnytimeCalibration.load(here / "state.safetensors")
        same = found.to_bytes() == whole.to_bytes()
    row: Row = {"part": "kills", "runs": times, "killed": killed, "images": found.images, "same bytes": same}
    return [row]


# ---------------------------------------------------------------- the page


def run(photographs: str | None = None) -> list[Row]:
    """All of it."""
    rows = certified_risks() + failures()
    print("risks and failures", flush=True)
    rows += lengths("synthetic ellipses", synthetic_images(2 * (TIMES[-1] + CHECK), 32, np.random.default_rng(0)))
    print("lengths of ellipses", flush=True)
    if photographs is not None:
        rows += lengths("photographs of faces", faces(Path(photographs)))
        print("lengths of faces", flush=True)
    return rows + kills()


def text() -> str:
    """The tables of the page."""
    kept = result("growth")
    rows = kept["rows"]
    lines = [f"Greatest risk certified at {LEVEL:.0%} with {1 - DELTA:.0%}:", ""]
    lines += [f"| losses | bets | {' | '.join(map(str, TIMES))} |", "|---|---|" + "---|" * len(TIMES)]
    for row in rows:
        if row["part"] == "risk":
            lines.append(f"| {row['losses']} | {row['bets']} | {' | '.join(f'{row[str(n)]:.4f}' for n in TIMES)} |")
    lines += ["", f"Mean length at {LEVEL:.0%} with {1 - DELTA:.0%}; {FIT} of the images fit:", ""]
    lines += ["| images of | images in all | growing | number known | longer |", "|---|---|---|---|---|"]
    for row in rows:
        if row["part"] == "length":
            longer = f"{row['longer']:+.1%}"
            lines.append(
                f"| {row['images of']} | {row['images']} | {row['growing']:.4f} | {row['known']:.4f} | {longer} |"
            )
    lines += ["", "Certified at some look although the risk is the level:", ""]
    lines += ["| losses | what was done | worlds | broken |", "|---|---|---|---|"]
    for row in rows:
        if row["part"] == "failure":
            lines.append(f"| {row['losses']} | {row['what']} | {row['worlds']:,} | {row['broken']:.1%} |")
    for row in rows:
        if row["part"] == "kills":
            said = "the same bytes as without" if row["same bytes"] else "other bytes than without"
            when = "at a random moment (many while it was still loading)"
            runs = f"{row['runs']} times, {row['killed']} of them killed {when}, and run again each time"
            lines += ["", f"`pixelbounds anytime add` run {runs}: {row['images']} images counted, {said}."]
    return "\n".join([*lines, "", f"Measured at commit {kept['machine']['commit']} (`python -m benchmarks growth`)."])
