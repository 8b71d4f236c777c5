from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from besttake.encoders.pixels import Pixels, shrink
from besttake.errors import ComponentError
from besttake.registry import encoder


def scenes(n, side=64, seed=0):
    """A bright square that moves over a gradient, which is what a wrist camera roughly sees."""
    rng = np.random.default_rng(seed)
    images = np.tile(np.linspace(40, 160, side)[None, :, None, None], (n, 1, side, 3)) + rng.normal(
        0, 6, (n, side, side, 3)
    )
    for i in range(n):
        x, y = int(side * 0.7 * i / n), int(side * (0.3 + 0.3 * np.sin(i / 7)))
        images[i, y : y + side // 6, x : x + side // 6] = (200, 60, 30)
    return images.clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def fitted():
    return Pixels().fit(scenes(200))


def test_axes_are_the_principal_ones_of_the_frames(fitted):
    flat = shrink(scenes(200), 32).astype(float)
    flat -= flat.mean(0)
    size = np.linalg.svd(flat, full_matrices=False)[1]
    kept = np.linalg.norm(flat @ fitted.axes, axis=0)
    np.testing.assert_allclose(kept[:8], size[:8], rtol=1e-3)
    np.testing.assert_allclose(fitted.axes.T @ fitted.axes, np.eye(64), atol=1e-6)


@pytest.mark.parametrize("cut", [1, 7, 64, 255])
def test_a_picture_has_the_same_bits_alone_and_in_a_batch(fitted, cut):
    images = scenes(400, seed=1)
    whole = fitted.encode(images)
    parts = np.concatenate([fitted.encode(images[i : i + cut]) for i in range(0, 40 * cut, cut) if i < 400])
    np.testing.assert_array_equal(parts, whole[: len(parts)])


def test_a_stored_encoder_is_the_same_encoder(fitted):
    again = Pixels.from_arrays(fitted.arrays())
    assert again.spec == fitted.spec
    np.testing.assert_array_equal(again.encode(scenes(5)), fitted.encode(scenes(5)))


def test_few_frames_give_few_dimensions_and_equal_frames_still_give_unit_rows():
    few = Pixels().fit(scenes(5))
    assert few.spec.dim == 4
    assert few.encode(scenes(5)).shape == (5, 4)
    same = np.full((3, 64, 64, 3), 90, np.uint8)
    rows = Pixels().fit(same).encode(same)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_the_registry_makes_it_and_wrong_use_gives_one_line():
    assert encoder("pixels?dim=16&size=8").spec.dim == 16
    for wrong in ("pixels:big", "pixels?dim=many", "pixels?size=0", "pixels?depth=3"):
        with pytest.raises(ComponentError):
            encoder(wrong)
    with pytest.raises(ComponentError, match="fitted to a library"):
        Pixels().encode(scenes(2))
    with pytest.raises(ComponentError, match="uint8"):
        Pixels().fit(scenes(3).astype(float))


@pytest.mark.parametrize(
    ("height", "width", "size"), [(48, 48, 32), (64, 64, 32), (50, 83, 16), (31, 97, 32), (40, 40, 24)]
)
def test_pictures_shrunk_together_are_those_shrunk_alone(height, width, size):
    images = np.random.default_rng(0).integers(0, 256, (37, height, width, 3), np.uint8)
    alone = [np.asarray(Image.fromarray(i).resize((size, size), Image.Resampling.BOX)).reshape(-1) for i in images]
    np.testing.assert_array_equal(shrink(images, size), alone)
