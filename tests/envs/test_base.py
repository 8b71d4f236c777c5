"""What adapters of simulators share: checks, declared options, and the device that a process draws on."""

from __future__ import annotations

import os

import numpy as np
import pytest

from besttake import registry
from besttake.envs import base
from besttake.envs.base import (
    check_action,
    check_cameras,
    check_task,
    choose_device,
    declared,
    without_visible_gpus,
)
from besttake.errors import ComponentError
from besttake.options import Reader

SPEC = registry.env("testbed").spec


def test_what_an_env_does_not_have_is_refused_with_what_it_has() -> None:
    check_task(SPEC, "pick")
    check_cameras(SPEC, ("wrist", "front"))
    check_action(SPEC, np.zeros(4, np.float32))
    with pytest.raises(ComponentError, match="testbed: no task 'fly'; it has pick, push, drawer, stack"):
        check_task(SPEC, "fly")
    with pytest.raises(ComponentError, match="no task 'drawers'; did you mean 'drawer'"):
        check_task(SPEC, "drawers")
    with pytest.raises(ComponentError, match="no camera 'top'; it has wrist, front"):
        check_cameras(SPEC, ("wrist", "top"))
    for wrong in (np.zeros(3), np.full(4, np.nan), np.zeros((1, 4))):
        with pytest.raises(ComponentError, match="an action is 4 finite numbers"):
            check_action(SPEC, wrong.astype(np.float32))


def test_declared_options_are_read_and_the_others_are_left() -> None:
    facts, left = declared(Reader("gym:X"), {"starts": "7", "eef_dims": "0:3", "rebuild": "true", "env_name": "reach"})
    assert (facts.starts, facts.horizon, facts.fps, facts.rebuild) == (7, None, None, True)
    assert facts.body == {"gripper_dim": None, "gripper_open": -1, "eef_dims": (0, 1, 2)}
    assert left == {"env_name": "reach"}
    with pytest.raises(ComponentError, match="gym:X: gripper_open=2 is not one of -1, 1"):
        declared(Reader("gym:X"), {"gripper_open": "2"})


@pytest.mark.parametrize(
    ("visible", "own", "devices", "drawn_on"),
    [
        (None, None, 4, None),  # the simulator's choice
        ("2", None, 4, "2"),
        ("2", None, 1, "0"),  # a GPU without a driver for graphics
        ("2", None, 0, "2"),  # EGL does not say how many it has
        ("", None, 4, "0"),  # as older versions of Ray tell those who have no GPU
        ("GPU-3f2a", None, 4, "0"),
        ("2,3", "3", 4, "3"),  # the user's choice
    ],
)
def test_a_process_draws_on_the_gpu_that_it_computes_on_or_on_the_first(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, own: str | None, devices: int, drawn_on: str | None
) -> None:
    for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("MUJOCO_EGL_DEVICE_ID", own), ("MUJOCO_GL", "egl")):
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYOPENGL_PLATFORM", "egl")
    monkeypatch.setattr(base, "egl_devices", lambda: devices)
    choose_device()
    assert os.environ.get("MUJOCO_EGL_DEVICE_ID") == drawn_on
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


def test_what_is_unmentioned_for_a_while_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-3f2a")
    with pytest.raises(ValueError, match="no"), without_visible_gpus():
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
        raise ValueError("no")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-3f2a"
