"""A network for chest CT and the bands of its posterior samples, in one call of a GPU, for `benchmarks.chest`.

    python -m benchmarks.gpu.chest images --data local/gpu/chest128.npz                       # at home: what travels
    python -m benchmarks.gpu.chest run --data local/gpu/chest128.npz --out $OUT               # on the GPU
    python -m benchmarks.gpu.chest collect --data local/gpu/chest128.npz --out DIR --file local/gpu/chest_bands.npz

Patients are split: some train, some say where the training is best, and slices of all others are measured, in a random
order, until the call's time is up: whatever came back is a random part of them. Noise has a deviation of 0.3. Samples
are reduced to bands on the device; files of at most 240 slices, float16 with ends rounded outward, are written as the
call goes. `collect` adds truth, true labels, patients, and stand-ins for the labels of a segmentation
(`benchmarks.chest_bands`), in the layout that `benchmarks.chest` reads; figures go to benchmarks/results.
torch, numpy and safetensors are all that `run` needs.
"""

from __future__ import annotations

import argparse
import io
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
RESULTS = Path(__file__).parent.parent / "results"
SIGMA, MISCOVERAGE = 0.3, 0.1
TRAINING, VALIDATION = 50, 6  # patients of 90; the others are measured
PER_FILE = 240  # slices: 15 MiB


# ---------------------------------------------------------------- images, at home


def pack(options: argparse.Namespace) -> None:
    """Slices, labels (n, size, size) in 8 bits and the patient of each into an npz."""
    from PIL import Image

    parts: dict[str, list[Any]] = {"images": [], "labels": [], "patients": []}
    with zipfile.ZipFile(options.source) as zipped:
        for name in sorted(x for x in zipped.namelist() if "/images/" in x and x.endswith(".png")):
            pair = [Image.open(io.BytesIO(zipped.read(x))) for x in (name, name.replace("/images/", "/labels/"))]
            if options.size != pair[0].width:
                pair = [
                    pair[0].resize((options.size,) * 2, Image.Resampling.BOX),
                    pair[1].resize((options.size,) * 2, Image.Resampling.NEAREST),
                ]
            parts["images"].append(np.asarray(pair[0], np.uint8))
            parts["labels"].append(np.asarray(pair[1], np.uint8))
            parts["patients"].append(int(name.split("/")[-2].removeprefix("patient")))
    stacked = {name: np.array(values) for name, values in parts.items()}
    Path(options.data).parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.data, **stacked)
    size = Path(options.data).stat().st_size / 2**20
    print(f"{options.data}: {len(stacked['images'])} slices of {len(set(parts['patients']))} patients, {size:.1f} MiB")


def split(patients: Array) -> dict[str, Array]:
    """Numbers of the slices that train, that validate, and that are measured, these in a random order."""
    everyone = np.random.default_rng(11).permutation(np.unique(patients))
    share = len(everyone) / 90
    first, second = round(TRAINING * share), round((TRAINING + VALIDATION) * share)
    cuts = np.split(everyone, [first, second])
    found = {name: np.flatnonzero(np.isin(patients, who)) for name, who in zip(PARTS, cuts, strict=True)}
    found["measured"] = np.random.default_rng(12).permutation(found["measured"])
    return found


PARTS = ("train", "validation", "measured")


def observe(images: Array, numbers: Array) -> Array:
    """Noisy views of some slices in [0, 1], float32, each slice with a noise of its own."""
    truth = images[numbers].astype(np.float32) / 255
    noise = [np.random.default_rng([13, int(i)]).standard_normal(truth.shape[1:], np.float32) for i in numbers]
    return truth + np.float32(SIGMA) * np.stack(noise)


# ---------------------------------------------------------------- on the device


def run(options: argparse.Namespace) -> None:
    """Train for some seconds, then draw until the time is up; what is done is written after every block."""
    import torch

    from pixelbounds.bands import calibrated_ranks
    from pixelbounds.diffusion import VESDE, NCSNpp, Reduction, configuration, sample
    from pixelbounds.diffusion.batches import AUGMENTATIONS
    from pixelbounds.diffusion.trainer import Settings, train, weighted_matching

    begin = time.monotonic()
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with np.load(options.data) as file:
        images, patients = file["images"], file["patients"]
    numbers, out = split(patients), Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    known = images[numbers["train"]].astype(np.float32) / 255
    spread = float(known.std())
    sde, top = VESDE(0.01, 1.0), 1.1 * SIGMA
    network = NCSNpp(configuration(options.network, size=images.shape[-1], dropout=options.dropout))
    settings = Settings(
        seconds=options.seconds, batch=options.batch, learning_rate=1e-3, warmup=200, sigma_top=top,
        augment=AUGMENTATIONS["small_moves"], compile=options.compile, patience=options.patience, log_every=50,
        checkpoint_every=10**9,
    )  # fmt: skip
    curve: list[dict[str, Any]] = []
    done = train(
        network, images[numbers["train"]], weighted_matching(spread), sde=sde, settings=settings, limits=(0.0, 1.0),
        device=device, validation=images[numbers["validation"]], progress=curve.append,
    )  # fmt: skip
    figures: dict[str, Any] = {
        "commit": options.commit, "torch": torch.__version__, "network": options.network, "sigma_0": SIGMA,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "slices": {name: len(x) for name, x in numbers.items()}, "samples": options.samples, "steps": options.steps,
        "miscoverage": MISCOVERAGE, "train_steps": done.step, "train_seconds": round(done.seconds, 1),
        "best_step": done.best, "best_loss": done.loss, "trivial_loss": done.trivial,
        "parameters": sum(x.numel() for x in network.parameters()),
        "seconds_until_trained": round(time.monotonic() - begin, 1),
        "curve": [[x["step"], round(x["loss"], 5), round(x["validation"], 5)] for x in curve if "validation" in x],
    }  # fmt: skip
    print(json.dumps({key: value for key, value in figures.items() if key != "curve"}), flush=True)
    (out / "figures.json").write_text(json.dumps(figures) + "\n")
    score = done.network.to(device, memory_format=torch.channels_last).eval()
    fast = torch.compile(score) if options.compile else score
    reduction = Reduction(calibrated_ranks(options.samples, MISCOVERAGE))
    kept = Kept(out, figures)
    wanted = numbers["measured"][: options.images]
    for start in range(0, len(wanted), options.block):
        some = wanted[start : start + options.block]
        if time.monotonic() - begin > options.until or kept.full:
            break
        y = torch.from_numpy(observe(images, some)).to(device)[:, None]
        drawn = list(
            sample(
                fast, y, SIGMA, sde, samples=options.samples, steps=options.steps, reduce=reduction,
                batch=options.block * options.samples // 3 or 1,
            )
        )  # fmt: skip
        ends = {
            part: torch.stack([getattr(each, part) for each in drawn])[:, 0].float().cpu().numpy()
            for part in ("lower", "upper")
        }
        figures["seconds"] = round(time.monotonic() - begin, 1)
        kept.add(some, **ends)
        print(f"{kept.count} slices, {figures['seconds']:.0f} s", flush=True)


class Kept:
    """Bands in files of at most PER_FILE slices, the last of which is written anew with every block."""

    def __init__(self, out: Path, figures: dict[str, Any], most: int = 7) -> None:
        self.out, self.figures, self.most = out, figures, most
        self.count = 0
        self._now: list[tuple[int, Array, Array]] = []

    @property
    def full(self) -> bool:
        """Whether no further file may be brought back."""
        return self.count >= self.most * PER_FILE

    def add(self, numbers: Array, lower: Array, upper: Array) -> None:
        """Keep the bands of some slices, outward in float16."""
        from .posterior import outward

        low, high = outward(lower, upper)
        for each in zip(numbers.tolist(), low, high, strict=True):
            self._now.append(each)
            self.count += 1
            if len(self._now) == PER_FILE:
                self._write()
                self._now = []
        if self._now:
            self._write()
        (self.out / "figures.json").write_text(json.dumps(self.figures | {"drawn": self.count}) + "\n")

    def _write(self) -> None:
        target = self.out / f"bands-{(self.count - 1) // PER_FILE}.npz"
        numbers, lower, upper = zip(*self._now, strict=True)
        part = target.with_suffix(".partial.npz")
        np.savez(part, numbers=np.array(numbers, np.int32), lower=np.stack(lower), upper=np.stack(upper))
        part.rename(target)


# ---------------------------------------------------------------- back home


def collect(options: argparse.Namespace) -> None:
    """What came back, as `benchmarks.chest` reads it, and its figures."""
    from benchmarks.chest_bands import stand_in

    parts: dict[str, list[Array]] = {"numbers": [], "lower": [], "upper": []}
    for path in sorted(Path(options.out).glob("bands-*.npz")):
        with np.load(path, allow_pickle=False) as file:
            for name, values in parts.items():
                values.append(file[name])
    found = {name: np.concatenate(values) for name, values in parts.items()}
    with np.load(options.data) as file:
        images, labels, patients = (file[name] for name in ("images", "labels", "patients"))
    numbers = found["numbers"]
    if np.isin(numbers, split(patients)["measured"]).sum() < len(numbers) or len(set(numbers.tolist())) < len(numbers):
        raise SystemExit(f"{options.out} holds bands of slices that are not measured, or twice; was it another split?")
    truth, organs = images[numbers].astype(np.float32) / 255, labels[numbers]
    lower, upper = found["lower"].astype(np.float32), found["upper"].astype(np.float32)
    known = stand_in(organs, np.random.default_rng(14))
    np.savez(
        options.file, truth=truth, lower=lower, upper=upper, organs=organs, labels=known, patients=patients[numbers]
    )
    low, high = np.clip(lower, 0, 1), np.clip(upper, 0, 1)
    figures = json.loads((Path(options.out) / "figures.json").read_text())
    figures |= {
        "miss_rate": float(((truth < low) | (truth > high)).mean()),
        "mean_length": float((high - low).mean()),
        "patients": len(np.unique(patients[numbers])),
        "noise_psnr": float(-20 * np.log10(SIGMA)),
    }
    Path(options.figures).write_text(json.dumps(figures, indent=1) + "\n")
    print({key: value for key, value in figures.items() if key != "curve"})


def main() -> None:
    """Pack, run or collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("does", choices=("images", "run", "collect"))
    parser.add_argument("--data", required=True, help="the npz of slices")
    parser.add_argument("--source", type=Path, default=Path("/work/shared/data/chest_128.zip"), help="images: the zip")
    parser.add_argument("--size", type=int, default=128, help="images: of a slice; smaller ones are averaged")
    parser.add_argument("--out", default=".", help="folder for what comes back")
    parser.add_argument("--file", help="collect: the npz to write")
    parser.add_argument("--figures", default=str(RESULTS / "chest128_network.json"), help="collect: the JSON to write")
    parser.add_argument("--network", default="small")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=250, help="to train, without compiling")
    parser.add_argument("--patience", type=int, default=20, help="looks at the validation slices without a gain")
    parser.add_argument("--until", type=float, default=540, help="seconds of the call after which no block is begun")
    parser.add_argument("--images", type=int, default=1680, help="slices that are measured at most")
    parser.add_argument("--block", type=int, default=48, help="slices that are drawn together")
    parser.add_argument("--samples", type=int, default=39)
    parser.add_argument("--steps", type=int, default=8, help="of the sampler")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    {"images": pack, "run": run, "collect": collect}[options.does](options)


if __name__ == "__main__":
    main()
