"""What a step of training draws: images, noise levels, and how images are turned."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gaussian_world as world  # noqa: E402
from small_training import LITTLE, SDE  # noqa: E402

from pixelbounds.diffusion import batches  # noqa: E402
from pixelbounds.diffusion.trainer import Settings, train  # noqa: E402

torch.set_num_threads(1)


def test_every_image_is_seen_once_per_epoch_and_the_order_changes():
    steps = [batches.batch_indices(10, batch=4, step=step, seed=1) for step in range(5)]
    fixed_sequence_test = np.concatenate(steps)
    assert sorted(fixed_sequence_test[:10]) == sorted(fixed_sequence_test[10:]) == list(range(10))
    assert list(fixed_sequence_test[:10]) != list(fixed_sequence_test[10:])


def test_levels_follow_the_law_of_the_process():
    generator = torch.Generator().manual_seed(0)
    sigma = torch.cat([batches.noise_levels(SDE, 16, generator, sigma_top=0.5) for _ in range(500)]).double()
    t = torch.log(sigma / SDE.sigma_min) / np.log(0.5 / SDE.sigma_min)
    assert -1e-6 < t.min() < 0.01
    assert 0.99 < t.max() < 1 + 1e-6
    assert np.abs(np.sort(t.numpy()) - np.linspace(0, 1, len(t))).max() < 0.02


@pytest.mark.parametrize("pixels", [(8, 8), (2, 8, 8)])
def test_zarr_arrays_and_chosen_rows_give_the_pixels_of_the_array(pixels, rng):
    zarr = pytest.importorskip("zarr")
    x = rng.random((7, *pixels), dtype=np.float32)
    stored, rows, index = zarr.array(x, chunks=(2, *pixels)), np.array([0, 2, 3, 6]), np.array([3, 0, 3, 1])
    for source in (x, stored):
        chosen = batches.Pixels(source, rows=rows)
        assert (len(chosen), chosen.shape) == (4, (1, 8, 8) if len(pixels) == 2 else pixels)
        assert np.array_equal(chosen.take(index).numpy(), x[rows[index]].reshape(4, *chosen.shape))
        assert chosen.digest == batches.Pixels(x[rows]).digest != batches.Pixels(x).digest
    x[6, ..., 0, 0] = 2.0
    with pytest.raises(ValueError, match="image 6 spans"):  # its number in the array
        batches.Pixels(x, rows=rows)
    with pytest.raises(ValueError, match="rows name none of 7 images"):
        batches.Pixels(x, rows=rows[:0])


@pytest.mark.parametrize("name", batches.AUGMENTATIONS)
def test_augmentations_keep_shape_range_and_seed(name, rng):
    augment = batches.AUGMENTATIONS[name]
    x = torch.from_numpy(rng.random((64, 2, 8, 8), dtype=np.float32))
    turned = augment(x, torch.Generator().manual_seed(1))
    assert turned.shape == x.shape
    assert 0 <= turned.min() <= turned.max() <= 1
    assert torch.equal(turned, augment(x, torch.Generator().manual_seed(1)))
    assert torch.equal(turned, x) is (name == "keep")
    flat = torch.full((4, 1, 8, 8), 0.25)
    assert torch.allclose(augment(flat, torch.Generator().manual_seed(2)), flat)
    if name in ("flips", "quarter_turns"):  # pixels move, none is made up
        assert torch.equal(turned.flatten(2).sort().values, x.flatten(2).sort().values)


def test_crops_are_squares_of_the_images_and_train_a_network_for_them():
    x = torch.arange(2 * 3 * 12 * 20, dtype=torch.float32).reshape(2, 3, 12, 20)
    for crops in (batches.random_crops(x, 8, torch.Generator().manual_seed(seed)) for seed in range(20)):
        for crop, image in zip(crops, x, strict=True):
            row, column = divmod(int(crop[0, 0, 0] - image[0, 0, 0]), 20)
            assert torch.equal(crop, image[:, row : row + 8, column : column + 8])
    large = np.random.default_rng(0).random((6, 16, 24), dtype=np.float32)
    settings = Settings(steps=2, crop=8, **LITTLE)
    done = train(world.network(base=8), large, sde=SDE, settings=settings, validation=large)
    with torch.inference_mode():
        assert done.network(torch.zeros(1, 1, 16, 24), torch.ones(1)).shape == (1, 1, 16, 24)
    with pytest.raises(ValueError, match="crop is 32, but images are 16 x 24"):
        train(world.network(base=8), large, sde=SDE, settings=Settings(steps=2, crop=32, **LITTLE))
