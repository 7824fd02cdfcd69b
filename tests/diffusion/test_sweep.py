"""The sweep of what generalises: no scan is on two sides, and EDM's network starts as Wiener's filter."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.gpu import generalise, variants  # noqa: E402
from pixelbounds.diffusion import posterior_mean  # noqa: E402
from pixelbounds.diffusion.splits import split_images  # noqa: E402


@pytest.mark.parametrize("split", ["sweep", "confirm"])
def test_scans_train_choose_or_are_measured(split):
    scan = np.repeat(np.arange(180), 27)
    parts = generalise.parts("ct64", split, scan, 384)
    scans = [set(scan[numbers]) for numbers in vars(parts).values()]
    assert len(set.union(*scans)) == sum(map(len, scans))
    assert len(parts.measured) == 384
    assert len(parts.validation) >= 300
    usual = split_images(len(scan), held_out=768, tune=564, units=scan)
    measured_in = "development" if split == "sweep" else "held_out"
    assert set(parts.measured) <= set(usual[measured_in])


def test_a_preconditioned_network_starts_as_wieners_filter():
    network = variants.network_of(variants.variant("edm-network"), 16, (0.2, 0.5)).eval()
    y = torch.rand(2, 1, 16, 16)
    expected = 0.2 + (y - 0.2) * 0.5**2 / (0.5**2 + 0.3**2)
    assert torch.allclose(posterior_mean(network, y, 0.3), expected, atol=1e-5)


def test_variants_join():
    both = variants.variant("decay-1,edm-loss")
    assert both.weighted
    assert both.settings == {"weight_decay": 1.0}
    assert both.architecture == variants.variant("plain").architecture != variants.variant("dropout-0.2").architecture
