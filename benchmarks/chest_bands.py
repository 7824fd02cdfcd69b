"""Bands of chest CT for `benchmarks.chest`, made on a CPU: a small regressor and a small segmentation network.

    nice -n 19 python -m benchmarks.chest_bands chest_128.zip local/chest.npz --seconds 1500

Slices are averaged to 64 x 64 and get Gaussian noise of deviation 0.3. A `tiny` regressor of this project (in patches
of 2 x 2) and a small convolutional network that labels the noisy slice learn from some patients; bands and labels of
all others are written, with the truth, the true labels and the patients. So the labels known at test time are made from
the noisy slice alone.
"""

from __future__ import annotations

import argparse
import io
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from pixelbounds.diffusion.batches import keep
from pixelbounds.diffusion.network import configuration
from pixelbounds.diffusion.regression import predict, quantile_loss, regressor
from pixelbounds.diffusion.sde import VESDE
from pixelbounds.diffusion.trainer import Settings, train

SIGMA = 0.3
SIZE = 64
CLASSES = 4  # none, trachea, heart, lung
LEARNING = 30  # patients


def slices(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels (n, size, size), and the patient of each, from the zip."""
    images = []
    labels = []
    patients = []
    with zipfile.ZipFile(path) as zipped:
        for name in sorted(x for x in zipped.namelist() if "/images/" in x and x.endswith(".png")):
            image = np.asarray(Image.open(io.BytesIO(zipped.read(name))), np.float32) / 255
            label = np.asarray(Image.open(io.BytesIO(zipped.read(name.replace("/images/", "/labels/")))), np.uint8)
            f = image.shape[0] // SIZE
            images.append(image.reshape(SIZE, f, SIZE, f).mean(axis=(1, 3)))
            parts = [(label == c).reshape(SIZE, f, SIZE, f).mean(axis=(1, 3)) for c in range(CLASSES)]
            labels.append(np.argmax(parts, axis=0).astype(np.uint8))
            patients.append(int(name.split("/")[-2].removeprefix("patient")))
    return np.stack(images), np.stack(labels), np.array(patients)


class Segmenter(nn.Module):
    """A small U of convolutions: noisy slices (b, 1, h, w) -> logits (b, classes, h, w); it sees the position too."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = _pair(3, width)
        self.second = _pair(width, 2 * width)
        self.third = _pair(2 * width, 4 * width)
        self.back = _pair(6 * width, 2 * width)
        self.last = nn.Sequential(_pair(3 * width, width), nn.Conv2d(width, CLASSES, 1))

    def forward(self, y: Tensor) -> Tensor:
        """Logits of every pixel."""
        line = torch.linspace(-1, 1, y.shape[-1]).expand(len(y), 1, y.shape[-2], -1)
        fine = self.first(torch.cat([y, line, line.transpose(-1, -2)], 1))
        half = self.second(nn.functional.max_pool2d(fine, 2))
        low = self.third(nn.functional.max_pool2d(half, 2))
        half = self.back(torch.cat([half, nn.functional.interpolate(low, scale_factor=2.0)], 1))
        return self.last(torch.cat([fine, nn.functional.interpolate(half, scale_factor=2.0)], 1))


def _pair(ins: int, outs: int) -> nn.Sequential:
    parts = [(ins, outs), (outs, outs)]
    return nn.Sequential(
        *(layer for a, b in parts for layer in (nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU()))
    )


def segmented(images: np.ndarray, labels: np.ndarray, noisy: np.ndarray, seconds: float) -> np.ndarray:
    """Labels of noisy slices, by a network that learned from other slices."""
    torch.manual_seed(0)
    network = Segmenter()
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    weight = torch.tensor([1.0, 4.0, 1.0, 1.0])
    ends = time.monotonic() + seconds
    x, target = torch.from_numpy(images)[:, None], torch.from_numpy(labels).long()
    while (left := ends - time.monotonic()) > 0:
        optimizer.param_groups[0]["lr"] = 2e-3 * min(1.0, 2 * left / seconds)
        some = torch.randint(len(x), (16,))
        found = network(x[some] + SIGMA * torch.randn(x[some].shape))
        loss = nn.functional.cross_entropy(found, target[some], weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.inference_mode():
        parts = [network(torch.from_numpy(noisy[i : i + 64])[:, None]).argmax(1) for i in range(0, len(noisy), 64)]
    return torch.cat(parts).numpy().astype(np.uint8)


def main() -> None:
    """Train, and write what `benchmarks.chest` reads."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("zip", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1500)
    given = parser.parse_args()
    torch.set_num_threads(1)
    images, labels, patients = slices(given.zip)
    everyone = np.random.default_rng(0).permutation(np.unique(patients))
    learns = np.isin(patients, everyone[:LEARNING])
    rng = np.random.default_rng(1)
    noisy = images[~learns] + np.float32(SIGMA) * rng.standard_normal(images[~learns].shape, np.float32)
    estimate = segmented(images[learns], labels[learns], noisy, given.seconds / 5)
    agree = float((estimate == labels[~learns]).mean())
    print(f"labels of the noisy slices agree with the true ones on {agree:.1%} of the pixels", flush=True)
    network = regressor(configuration("tiny", size=SIZE, patch=2))
    settings = Settings(seconds=given.seconds * 4 / 5, batch=16, learning_rate=2e-3, warmup=50, ema=0.99, augment=keep)

    def tell(line: dict[str, Any]) -> None:
        if line.get("step", 0) % 100 == 0:
            print(line, flush=True)

    trained = train(
        network, images[learns], quantile_loss(0.1), sde=VESDE(SIGMA - 0.001, SIGMA + 0.001), settings=settings,
        device="cpu", progress=tell,
    )  # fmt: skip
    lower, middle, upper = predict(trained.network, noisy, SIGMA)
    print(f"{trained.step} steps, loss {trained.loss:.4f} of {trained.trivial:.4f}")
    np.savez(
        given.out, truth=images[~learns], lower=np.minimum(lower, middle), upper=np.maximum(upper, middle),
        organs=labels[~learns], labels=estimate, patients=patients[~learns],
    )  # fmt: skip


if __name__ == "__main__":
    main()
