"""What is left out of a picture never shows in it: random scenes, drawn with and without."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from besttake.envs import libero_render
from besttake.envs.libero_render import Renderer, unseen
from besttake.envs.libero_setup import import_libero, locate

pytestmark = pytest.mark.usefixtures("assets")
SHAPES = ("box", "sphere", "capsule", "cylinder", "ellipsoid", "mesh")


@pytest.fixture(scope="module", autouse=True)
def can_render(assets: Any) -> None:
    import_libero(locate())
    try:
        Renderer(_scene(np.random.default_rng(0), mirrors=0), -1).free()
    except Exception as error:
        pytest.skip(f"no graphics here: {error}")


@pytest.mark.parametrize("mirrors", [0, 1, 2])
def test_pictures_without_what_is_unseen_are_the_same(monkeypatch: pytest.MonkeyPatch, mirrors: int) -> None:
    left_out = geoms = 0
    for seed in range(8):
        model = _scene(np.random.default_rng([seed, mirrors]), mirrors)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        renderer = Renderer(model, -1)
        lean = renderer.picture(data, 0, 96)
        left_out, geoms = left_out + int(unseen(model, data, 0).sum()), geoms + model.ngeom
        with monkeypatch.context() as patch:
            patch.setattr(libero_render, "unseen", lambda model, data, camera: np.zeros(model.ngeom, bool))
            assert np.array_equal(lean, renderer.picture(data, 0, 96)), f"seed {seed}"
        renderer.free()
    # Most of what was scattered around is out of view; in mirrors more of it shows.
    assert left_out > geoms * (0.5 if mirrors == 0 else 0.1)


def test_of_what_is_out_of_view_a_small_mirror_draws_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = left_out = geoms = 0
    for seed in range(12):
        model = _above_a_mirror(np.random.default_rng(seed))
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        renderer = Renderer(model, -1)
        lean = renderer.picture(data, 0, 128)
        out = unseen(model, data, 0)
        left_out, geoms = left_out + int(out.sum()), geoms + model.ngeom
        with monkeypatch.context() as patch:
            patch.setattr(libero_render, "unseen", lambda model, data, camera: np.zeros(model.ngeom, bool))
            assert np.array_equal(lean, renderer.picture(data, 0, 128)), f"seed {seed}"
            patch.setattr(libero_render, "_mirrors", lambda model: np.zeros(model.ngeom, bool))
            beyond = unseen(model, data, 0)
            patch.setattr(libero_render, "unseen", lambda model, data, camera, beyond=beyond: beyond)
            shown += not np.array_equal(lean, renderer.picture(data, 0, 128))
        renderer.free()
    # With the whole view mirrored, and not what the mirror itself shows, it would be 46 %.
    assert left_out > 0.75 * geoms
    assert shown >= 6, "mirrors that show nothing prove nothing"


def test_nothing_is_left_out_where_lights_cast_shadows_or_the_camera_is_not_a_plain_one() -> None:
    model = _scene(np.random.default_rng(1), mirrors=0)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert unseen(model, data, 0).any()
    model.light_castshadow[0] = True
    assert not unseen(model, data, 0).any()
    model.light_castshadow[0] = False
    model.cam_sensorsize[0] = 0.01
    assert not unseen(model, data, 0).any()


def test_the_groups_of_the_model_are_as_before_after_a_picture() -> None:
    model = _scene(np.random.default_rng(1), mirrors=0)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    before, renderer = model.geom_group.copy(), Renderer(model, -1)
    renderer.picture(data, 0, 32)
    renderer.free()
    assert np.array_equal(model.geom_group, before)


def test_a_picture_larger_than_the_buffer_is_whole() -> None:
    model = _scene(np.random.default_rng(2), mirrors=0)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    renderer = Renderer(model, -1)
    picture = renderer.picture(data, 0, 700)
    renderer.free()
    assert picture.shape == (700, 700, 3)
    assert len(np.unique(picture[660:].reshape(-1, 3), axis=0)) > 1


def _scene(rng: Any, mirrors: int) -> Any:
    """Things around a camera that looks somewhere, some of them translucent, some of them mirrors."""
    geoms = []
    for number in range(60):
        shape = SHAPES[rng.integers(len(SHAPES))]
        place, turn = _words(rng.uniform(-2, 2, 3)), _words(rng.normal(size=4))
        alpha = 0.5 if rng.random() < 0.1 else 1
        color = _words([*rng.uniform(0.2, 1, 3), alpha])
        sizes = 'mesh="odd"' if shape == "mesh" else f'size="{_words(rng.uniform(0.02, 0.25, 3))}"'
        looks = 'material="mirror" type="box"' if number < mirrors else f'rgba="{color}" type="{shape}"'
        if number < mirrors:
            sizes = f'size="{_words([*rng.uniform(0.5, 1.5, 2), 0.05])}"'
        geoms.append(f'<geom {looks} {sizes} pos="{place}" quat="{turn}" group="1"/>')
    corners = _words(rng.uniform(-0.3, 0.3, 36))
    return mujoco.MjModel.from_xml_string(f"""
<mujoco>
  <asset>
    <mesh name="odd" vertex="{corners}"/>
    <material name="mirror" reflectance="0.6" rgba=".3 .3 .3 1"/>
    <texture type="skybox" builtin="gradient" rgb1=".2 .4 .6" rgb2="0 0 0" width="32" height="32"/>
  </asset>
  <worldbody>
    <light pos="1 1 3" castshadow="false"/>
    <light pos="-1 0 3" castshadow="false"/>
    <camera pos="{_words(rng.uniform(-0.5, 0.5, 3))}" quat="{_words(rng.normal(size=4))}" fovy="{rng.uniform(30, 80)}"/>
    <geom type="plane" size="0 0 1" pos="0 0 -2.5" rgba=".5 .6 .5 1" group="1"/>
    {"".join(geoms)}
  </worldbody>
</mujoco>""")


def _above_a_mirror(rng: Any) -> Any:
    """A camera over a small thick mirror, among things most of which are above it."""
    geoms = []
    for _ in range(80):
        place, color = [*rng.uniform(-1.5, 1.5, 2), rng.uniform(0.1, 3)], [*rng.uniform(0.2, 1, 3), 1]
        looks = f'type="{SHAPES[rng.integers(5)]}" rgba="{_words(color)}" size="{_words(rng.uniform(0.02, 0.15, 3))}"'
        geoms.append(f'<geom {looks} pos="{_words(place)}" quat="{_words(rng.normal(size=4))}" group="1"/>')
    halves, tilt = _words(rng.uniform([0.05, 0.05, 0.01], [0.3, 0.3, 0.1])), _words([1, *rng.uniform(-0.15, 0.15, 3)])
    place = _words([*rng.uniform(-0.2, 0.2, 2), rng.uniform(0.6, 1.2)])
    return mujoco.MjModel.from_xml_string(f"""
<mujoco>
  <asset><material name="mirror" reflectance="0.6" rgba=".3 .3 .3 1"/></asset>
  <worldbody>
    <light pos="1 1 3" castshadow="false"/>
    <camera pos="{place}" quat="{_words([1, *rng.uniform(-0.2, 0.2, 3)])}" fovy="{rng.uniform(40, 80)}"/>
    <geom type="box" material="mirror" size="{halves}" quat="{tilt}" group="1"/>
    {"".join(geoms)}
  </worldbody>
</mujoco>""")


def _words(numbers: Any) -> str:
    return " ".join(f"{number:.5f}" for number in numbers)
