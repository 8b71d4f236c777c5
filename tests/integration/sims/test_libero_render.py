"""What is left out of a picture never shows in it: random scenes, drawn with and without."""

from __future__ import annotations

import gc
from typing import Any

import mujoco
import numpy as np
import pytest

from besttake import registry
from besttake.envs.libero import renderer as libero_render
from besttake.envs.libero.env import LiberoEnv
from besttake.envs.libero.install import import_libero, locate
from besttake.envs.libero.renderer import Renderer, unseen
from besttake.types import Start

pytestmark = pytest.mark.usefixtures("assets")
SHAPES = ("box", "sphere", "capsule", "cylinder", "ellipsoid", "odd")
MESHES = SHAPES[5:]


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
            patch.setattr(libero_render, "unseen", lambda model, *_: np.zeros(model.ngeom, bool))
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
            patch.setattr(libero_render, "unseen", lambda model, *_: np.zeros(model.ngeom, bool))
            assert np.array_equal(lean, renderer.picture(data, 0, 128)), f"seed {seed}"
            patch.setattr(libero_render, "_mirrors", lambda model: np.zeros(model.ngeom, bool))
            beyond = unseen(model, data, 0)
            patch.setattr(libero_render, "unseen", lambda *_, beyond=beyond: beyond)
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


def test_robosuites_own_renderer_and_ours_draw_beside_each_other_as_alone() -> None:
    """robosuite never makes its context current again, and each of its resets frees what it has uploaded."""
    env = registry.env("libero:object?task=0&size=64&convention=vla-eval")
    assert isinstance(env, LiberoEnv)
    start, bddl = Start(env.spec.tasks[0].name, 0), str(env.bddl(env.spec.tasks[0].name))

    def drawn(*, by_us: bool, by_them: bool) -> list[list[bytes]]:
        ours, theirs = [], []
        if by_them:
            size = {"camera_heights": 64, "camera_widths": 64}
            robosuites = import_libero(locate())(bddl, ignore_done=True, has_offscreen_renderer=True, **size)
        for _ in range(2):
            if by_us:
                env.reset(start)
                ours += [env.observe((camera,)).images[camera].tobytes() for camera in ("agentview", "wrist")]
            if by_them:
                robosuites.env.object_property_initializers.clear()
                np.random.seed(0)  # noqa: NPY002
                theirs.append(robosuites.reset()["agentview_image"].tobytes())
            for _ in range(3):
                if by_us:
                    env.step(np.full(7, 0.1, np.float32))
                    ours.append(env.observe(("wrist",)).images["wrist"].tobytes())
                if by_them:
                    theirs.append(robosuites.step([0.1] * 7)[0]["agentview_image"].tobytes())
        if by_them:
            robosuites.close()
            del robosuites
            gc.collect()
        if by_us:
            ours.append(env.observe(("agentview",)).images["agentview"].tobytes())
        return [ours, theirs]

    alone = [drawn(by_us=True, by_them=False)[0], drawn(by_us=False, by_them=True)[1]]
    env.close()
    assert drawn(by_us=True, by_them=True) == alone
    assert all(len(set(pictures)) > 3 for pictures in alone)
    env.close()


def _scene(rng: Any, mirrors: int) -> Any:
    """Things around a camera that looks somewhere, some of them translucent, some of them mirrors."""
    geoms = []
    for number in range(60):
        shape = SHAPES[rng.integers(len(SHAPES))]
        place, turn = _words(rng.uniform(-2, 2, 3)), _words(rng.normal(size=4))
        alpha = 0.5 if rng.random() < 0.1 else 1
        color = _words([*rng.uniform(0.2, 1, 3), alpha])
        kind, sizes = shape, f'size="{_words(rng.uniform(0.02, 0.25, 3))}"'
        if shape in MESHES:
            kind, sizes = "mesh", f'mesh="{shape}"'
        looks = 'material="mirror" type="box"' if number < mirrors else f'rgba="{color}" type="{kind}"'
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
