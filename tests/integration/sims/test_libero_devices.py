"""LIBERO draws whatever the machine says about GPUs, and draws the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("assets")

CODE = """
import hashlib
from besttake import registry
from besttake.types import Start
env = registry.env("libero:object")
env.reset(Start(env.spec.tasks[0].name, env.spec.starts[0]))
print("PICTURE", hashlib.sha256(env.observe(("wrist",)).images["wrist"].tobytes()).hexdigest())
env.close()
"""


def picture(**variables: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env={**env, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.fixture(scope="module")
def plain(assets: object) -> str:
    return picture()


# As older versions of Ray tell a replica without a GPU; as users hide theirs; a GPU that EGL has not; a part of one.
@pytest.mark.parametrize("visible", ["", "-1", "7", "MIG-3f2a"])
def test_pictures_are_the_same_whatever_gpus_are_visible(plain: str, visible: str) -> None:
    assert picture(CUDA_VISIBLE_DEVICES=visible, MUJOCO_GL="egl") == plain
