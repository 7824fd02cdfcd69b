"""The sweep of what generalises: no scan is on two sides, and EDM's network starts as Wiener's filter."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2]))

from pixelbounds.diffusion import posterior_mean  # noqa: E402
from pixelbounds.diffusion.splits import split_images  # noqa: E402
from reproduce.gpu import chest, coded_bands, generalise, variants  # noqa: E402


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
    plain = variants.variant("plain").architecture
    assert both.architecture == plain == variants.variant("dropout-0.2@3").architecture  # compiled once for all
    assert plain != variants.variant("width-32").architecture
    assert variants.seed_of("decay-1,edm-loss@3") == 3
    assert variants.seed_of("plain") == 0


def test_a_network_that_was_used_starts_anew_as_a_fresh_one():
    used, other = (variants.variant(name) for name in ("dropout-0.2", "dropout-0.0"))
    network = variants.network_of(used, 16, (0.2, 0.5))
    for weight in network.parameters():
        torch.nn.init.ones_(weight)
    variants.start_anew(network, other, 16, (0.2, 0.5), seed=4)
    fresh = variants.network_of(other, 16, (0.2, 0.5), seed=4)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), fresh.parameters(), strict=True))
    x = torch.ones(2, 3, 4, 4)
    dropped = next(module for module in network.modules() if isinstance(module, variants.Dropped))
    assert torch.equal(dropped(x), x)  # nothing is dropped any more
    dropped.share.fill_(0.2)
    kept = dropped(torch.ones(1, 1, 400, 400))
    assert sorted(set(kept.flatten().tolist())) == [0.0, 1.25]
    assert abs(float(kept.mean()) - 1) < 0.01


def test_a_list_says_what_is_tried(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("plain\nedm-loss@2 seconds=9 split=confirm budget=1\n")
    found, ends = generalise.tasks(path, 60)
    assert found == [generalise.Task("plain", 60), generalise.RiskTest("edm-loss@2", 9, "confirm", True)]
    assert not ends
    assert found[1].label == "edm-loss_2-confirm-9"  # a file of other characters does not come back from the GPU
    path.write_text(path.read_text() + "end\n")
    assert generalise.tasks(path, 60) == (found, True)


def test_codes_round_outward():
    x = np.random.default_rng(0).uniform(-0.2, 1.2, 1000).astype(np.float32)
    lower, upper = generalise.codes(x - 0.01, x + 0.01)
    assert (lower / 2048 <= np.clip(x - 0.01, 0, 1)).all()
    assert (upper / 2048 >= np.clip(x + 0.01, 0, 1)).all()
    assert ((upper.astype(int) - lower) / 2048 <= 0.02 + 2 / 2048 + 1e-6).all()


def test_chest_slices_are_split_by_patient():
    patients = np.repeat(np.arange(18), 5)
    found = chest.split(patients)
    who = [set(patients[found[name]].tolist()) for name in chest.PARTS]
    assert [len(x) for x in who] == [10, 1, 7]
    assert sum(map(len, who)) == len(set.union(*who)) == 18
    alone, together = chest.observe(np.zeros((9, 3, 3), np.uint8), np.array([4])), np.arange(9)
    np.testing.assert_array_equal(alone[0], chest.observe(np.zeros((9, 3, 3), np.uint8), together)[4])


def test_bands_come_back_in_files(tmp_path):
    ends = np.random.default_rng(0).random((2, 9, 3, 3)).astype(np.float32)
    lower, upper = ends.min(axis=0), ends.max(axis=0)
    numbers = np.arange(9) * 7
    kept = coded_bands.CodedBands(tmp_path, "ours-1", numbers, 4)
    for low, high in zip(lower, upper, strict=True):
        kept.add({19: generalise.codes(low, high)})
    kept.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"ours-1-{i}.npz" for i in range(3)]
    [(samples, read, low, high)] = coded_bands.decoded(tmp_path, "ours-1")
    assert samples == 19
    np.testing.assert_array_equal(read, numbers)
    assert (low <= lower).all()
    assert (high >= upper).all()
    assert (high - low <= upper - lower + 2 / 2048 + 1e-6).all()
