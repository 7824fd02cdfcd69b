"""Chest CT for `benchmarks.chest`: its slices, who trains and who is measured, and labels of a small U-net.

    python -m reproduce.gpu.chest images --data local/gpu/chest128.npz                       # at home: what travels
    python -m reproduce.gpu.chest segment --data local/gpu/chest128.npz --out $OUT           # on the GPU
    python -m reproduce.gpu.end_to_end chest128 ours --data local/gpu/chest128.npz --out $OUT ...    # beside it
    python -m reproduce.gpu.chest collect --data local/gpu/chest128.npz --out DIR --file local/gpu/chest_bands.npz
    python -m reproduce.gpu.chest material --data local/gpu/chest128.npz --out DIR --file local/chest128

Patients are split: some train, some say where the training is best, and slices of all others are measured, in a random
order: whatever came back is a random part of them. Noise has a deviation of 0.3. The U-net sees noisy slices of the
patients that train, and its labels of the measured ones are those known at test time: often wrong, as labels are.
`collect` adds truth, true labels and patients, in the layout that `benchmarks.chest` reads; figures go to
benchmarks/results. `material` is what `python -m reproduce chest128` reads: its `mean` is not of samples, which did
not come back, but what the network that did says in one evaluation. torch, numpy and safetensors are all that `segment`
needs.
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
SIGMA = 0.3
CLASSES = 4  # none, trachea, heart, lung
TRAINING, VALIDATION = 50, 6  # patients of 90; the others are measured


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
    if options.measured is not None:
        stacked["images"][split(stacked["patients"])["measured"][options.measured :]] = 0
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


def segment(options: argparse.Namespace) -> None:
    """Train a small U-net to tell organs in noisy slices of the patients that train, and label the measured ones."""
    import torch
    from torch.nn import functional

    from pixelbounds.diffusion import configuration, network_of

    begin = time.monotonic()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with np.load(options.data) as file:
        images, labels, patients = (file[name] for name in ("images", "labels", "patients"))
    numbers = split(patients)
    size = images.shape[-1]
    config = configuration(options.network, size=size, dropout=0.1, out_channels=CLASSES, divide_by_sigma=False)
    network = network_of(config).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    seen = torch.from_numpy(images[numbers["train"]]).to(device)
    organ = torch.from_numpy(labels[numbers["train"]]).to(device)
    rows = torch.Generator(device).manual_seed(0)
    level = torch.full((options.batch,), SIGMA, device=device)
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    steps = 0
    while time.monotonic() - begin < options.seconds:
        fall = 1 - (time.monotonic() - begin) / options.seconds
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (steps + 1) / 50) * max(fall, 0.01)
        some = torch.randint(len(seen), (options.batch,), generator=rows, device=device)
        x = seen[some, None].float() / 255
        x = x + SIGMA * torch.randn(x.shape, generator=rows, device=device)
        with half:
            told = network(x.contiguous(memory_format=torch.channels_last), level)
        loss = functional.cross_entropy(told.float(), organ[some].long())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        steps += 1
    network.eval()
    wanted = numbers["measured"][: options.images]
    found = []
    for start in range(0, len(wanted), options.batch):
        y = torch.from_numpy(observe(images, wanted[start : start + options.batch]))[:, None].to(device)
        with torch.no_grad(), half:
            told = network(y.contiguous(memory_format=torch.channels_last), level[: len(y)])
        found.append(told.argmax(1).byte().cpu().numpy())
    known = np.concatenate(found)
    figures = {"steps": steps, "seconds": round(time.monotonic() - begin, 1), "loss": float(loss.detach())}
    figures |= {"dice": dice(known, labels[wanted]), "parameters": sum(x.numel() for x in network.parameters())}
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "labels.npz", numbers=wanted, labels=known, figures=np.array(json.dumps(figures)))
    print("labels", json.dumps(figures), flush=True)


def dice(told: Array, true: Array) -> dict[str, float]:
    """Overlap of each organ over all slices, 2 |A and B| / (|A| + |B|)."""
    names = ("trachea", "heart", "lung")
    sums = {c: int((told == c).sum() + (true == c).sum()) for c in range(1, CLASSES)}
    return {
        name: 2 * int(((told == c) & (true == c)).sum()) / max(1, sums[c]) for c, name in zip(sums, names, strict=True)
    }


# ---------------------------------------------------------------- back home


def collect(options: argparse.Namespace) -> None:
    """What came back, as `benchmarks.chest` reads it, and the figures of network and labels."""
    from .coded_bands import decoded

    folder = Path(options.out)
    [(samples, numbers, lower, upper)] = decoded(folder, "ours-1")
    with np.load(options.data) as file:
        images, labels, patients = (file[name] for name in ("images", "labels", "patients"))
    if not np.array_equal(numbers, split(patients)["measured"][: len(numbers)]):
        raise SystemExit(f"{options.out} holds bands of slices that are not measured; was it another split?")
    with np.load(folder / "labels.npz") as file:
        if not np.array_equal(file["numbers"][: len(numbers)], numbers):
            raise SystemExit(f"{options.out} holds labels of other slices")
        known = file["labels"][: len(numbers)]
        segmentation = json.loads(str(file["figures"]))
    truth, organs = images[numbers].astype(np.float32) / 255, labels[numbers]
    np.savez(
        options.file, truth=truth, lower=lower, upper=upper, organs=organs, labels=known, patients=patients[numbers]
    )
    figures = json.loads((folder / "figures.json").read_text()) | {"segmentation": segmentation, "samples": samples}
    figures |= {
        "miss_rate": float(((truth < lower) | (truth > upper)).mean()),
        "mean_length": float((upper - lower).mean()),
        "patients": len(np.unique(patients[numbers])),
        "noise_psnr": float(-20 * np.log10(SIGMA)),
    }
    Path(options.figures).write_text(json.dumps(figures, indent=1) + "\n")
    print(options.file, len(numbers), "slices of", figures["patients"], "patients")


def material(options: argparse.Namespace) -> None:
    """What came back as arrays of an experiment, with the posterior mean of the network, which takes a while here."""
    import torch

    from pixelbounds.diffusion import posterior_mean
    from pixelbounds.diffusion.checkpoint import load_network

    from .coded_bands import decoded

    came, folder = Path(options.out), Path(options.file)
    [(_, numbers, lower, upper)] = decoded(came, "ours-1")
    with np.load(options.data) as file:
        images, patients = file["images"], file["patients"]
    y = observe(images, numbers)
    network, _, _ = load_network(came / "network.safetensors", kind="score")
    mean = np.concatenate([posterior_mean(network, torch.from_numpy(one)[None, None], SIGMA)[0].numpy() for one in y])
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"truth": images[numbers].astype(np.float32) / 255, "observation": y, "lower": lower, "upper": upper}
    for name, x in (arrays | {"mean": mean, "unit": patients[numbers]}).items():
        np.save(folder / f"{name}.npy", x)
    (folder / "figures.json").write_text((came / "figures.json").read_text())
    error = np.mean((np.clip(mean, 0, 1) - arrays["truth"]) ** 2, axis=(1, 2))
    print(folder, len(numbers), f"slices; the mean has {float(np.mean(-10 * np.log10(error))):.2f} dB")


def main() -> None:
    """Pack, segment or collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("does", choices=("images", "segment", "collect", "material"))
    parser.add_argument("--data", required=True, help="the npz of slices")
    parser.add_argument("--source", type=Path, default=Path("/work/shared/data/chest_128.zip"), help="images: the zip")
    parser.add_argument("--size", type=int, default=128, help="images: of a slice; smaller ones are averaged")
    parser.add_argument(
        "--measured", type=int, help="images: blank all measured slices but the first, to travel lighter"
    )
    parser.add_argument("--out", default=".", help="folder for what comes back")
    parser.add_argument("--file", help="collect: the npz to write; material: the folder")
    parser.add_argument("--figures", default=str(RESULTS / "chest128_network.json"), help="collect: the JSON to write")
    parser.add_argument("--network", default="small", help="segment: the U-net")
    parser.add_argument("--seconds", type=float, default=60, help="segment: to train")
    parser.add_argument("--images", type=int, default=1248, help="segment: slices that are labelled")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    {"images": pack, "segment": segment, "collect": collect, "material": material}[options.does](options)


if __name__ == "__main__":
    main()
