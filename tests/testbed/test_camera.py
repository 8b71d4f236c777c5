import subprocess
import sys

import numpy as np
import pytest

from besttake.testbed.camera import RayCamera
from besttake.testbed.engine import mujoco
from besttake.testbed.tasks import World

_PLAY = """
import os, re
os.environ.pop("MUJOCO_GL", None)
import numpy as np
from besttake import registry
from besttake.types import Start
env = registry.env("testbed")
for task in ("pick", "drawer"):
    env.reset(Start(task, 0))
    env.step(np.zeros(4, np.float32))
    env.observe(("wrist", "front"))
maps = open("/proc/self/maps").read()
print(sorted(set(re.findall(r"\\S*(?:libGL|libEGL|OSMesa|glfw)\\S*", maps))), "MUJOCO_GL" in os.environ)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_stepping_and_rendering_load_no_gl_library_and_leave_the_choice_of_one_to_others():
    said = subprocess.run([sys.executable, "-c", _PLAY], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[] False"


@pytest.fixture
def world():
    world = World("pick")
    world.reset(10_003)
    return world


def test_the_picture_agrees_with_single_rays(world):
    camera = RayCamera(world.model, "front", 24, groups=(0, 1, 2, 3, 4))
    at = np.array(world.data.cam_xpos[camera._camera])
    rays = camera._rays @ world.data.cam_xmat[camera._camera].reshape(3, 3).T
    geom, distance, _ = camera._cast(world.data, at, np.ascontiguousarray(rays))
    one = np.zeros(1, np.int32)
    for index, ray in enumerate(rays):
        far = mujoco.mj_ray(world.model, world.data, at, ray, camera._groups, 1, -1, one)
        assert one[0] == geom[index]
        assert far == pytest.approx(distance[index])


def test_the_red_cube_is_seen_where_the_lens_puts_it(world):
    px = 64
    image = RayCamera(world.model, "wrist", px)(world.data).astype(int)
    rows, columns = np.nonzero((image[..., 0] > 90) & (image[..., 0] > 2.5 * image[..., 1]))
    eye = world.model.camera("wrist").id
    turn = world.data.cam_xmat[eye].reshape(3, 3)
    x, y, z = turn.T @ (world.object() - world.data.cam_xpos[eye])
    scale = px / 2 / np.tan(np.deg2rad(world.model.cam_fovy[eye]) / 2)
    assert columns.mean() == pytest.approx(px / 2 + x / -z * scale, abs=2)
    assert rows.mean() == pytest.approx(px / 2 - y / -z * scale, abs=2)
