"""Regions of images: the same on volumes, on channels, on images of many sizes, and from any library."""

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.images.ragged import Ragged


def ball(shape, radius):
    """A ball in the middle of an image, with a hole in its middle and a speck in a corner."""
    at = np.stack(np.meshgrid(*[np.arange(size) - size // 2 for size in shape], indexing="ij"))
    distance = np.sqrt((at**2).sum(axis=0))
    image = np.where(distance <= radius, 0.7, 0.05)
    image[distance < 1.5] = 0.05
    image[(0,) * len(shape)] = 0.9
    return image, distance


@pytest.mark.parametrize("shape", [(21, 21), (11, 12, 13)])
def test_the_body_is_the_largest_part_with_its_holes(shape):
    image, distance = ball(shape, 4)
    noise = np.random.default_rng(0).uniform(0, 0.1, shape)
    found = pb.regions.body((image + noise)[None])
    assert found.dtype == bool
    np.testing.assert_array_equal(found[0], distance <= 4)
    np.testing.assert_array_equal(pb.regions.body(image[None], threshold=0.5)[0], distance <= 4)
    assert not pb.regions.body(np.full((1, *shape), 0.3)).any()
    assert not pb.regions.body(image[None], threshold=2.0).any()


def test_channels_share_a_body():
    image, distance = ball((21, 21), 6)
    colours = np.stack([image, 0.5 * image, image])[None]
    np.testing.assert_array_equal(pb.regions.body(colours)[0], np.broadcast_to(distance <= 6, (3, 21, 21)))
    wide = pb.regions.dilate(colours > 0.6, 2)
    np.testing.assert_array_equal(wide[0, 0], pb.regions.dilate(image[None] > 0.6, 2)[0])
    assert not wide[0, 1].any()


def test_edges_are_the_sharpest_share_of_each_image():
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(3, 40, 40)) * np.array([1.0, 0.1, 0.0])[:, None, None]
    found = pb.regions.edges(images, top=0.05)
    assert found.reshape(3, -1).sum(axis=1).tolist() == [80, 80, 0]
    strength = pb.regions.edge_strength(images)
    assert strength[0][found[0]].min() > strength[0][~found[0]].max()
    assert pb.regions.edges(rng.uniform(size=(1, 9, 9, 9)), top=0.1).sum() == 72


def test_dilation_is_by_distance():
    spot = np.zeros((1, 9, 9, 9), bool)
    spot[0, 4, 4, 4] = True
    at = np.indices((9, 9, 9)) - 4
    np.testing.assert_array_equal(pb.regions.dilate(spot, 2.5)[0], (at**2).sum(axis=0) <= 2.5**2)
    np.testing.assert_array_equal(pb.regions.dilate(spot, 0), spot)
    assert not pb.regions.dilate(~spot & spot, 3).any()


def test_images_of_many_sizes_and_of_any_library_give_the_same(tmp_path):
    import dask.array as da
    import zarr

    images = np.stack([ball((16, 16), r)[0] for r in (3, 5)])
    body, edges = pb.regions.body(images), pb.regions.edges(images)
    labels = (images > 0.5).astype(np.uint8) * 3
    stored = zarr.create_array(tmp_path / "x.zarr", data=images)
    for other in (da.from_array(images, chunks=(1, 16, 16)), stored):
        np.testing.assert_array_equal(pb.regions.body(other), body)
        np.testing.assert_array_equal(pb.regions.edges(other), edges)
    np.testing.assert_array_equal(pb.regions.label(da.from_array(labels), [3, 4]), labels == 3)
    ragged = [images[0], images[1][:12]]
    for given in (ragged, Ragged(ragged)):
        found = pb.regions.body(given)
        assert isinstance(found, list)
        assert [x.shape for x in found] == [(16, 16), (12, 16)]
        np.testing.assert_array_equal(found[0], body[0])
    masks = pb.regions.label([x.astype(int) for x in (labels[0], labels[1][:12])], 3)
    np.testing.assert_array_equal(pb.regions.dilate(masks, 1)[0], pb.regions.dilate(labels[:1] == 3, 1)[0])
