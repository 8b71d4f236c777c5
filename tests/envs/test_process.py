"""Which device a simulator draws on, and that a process keeps its own variables."""

from __future__ import annotations

import os

import pytest

from besttake.envs import process
from besttake.envs.process import choose_device, cuda_unmentioned


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
    monkeypatch.setattr(process, "egl_devices", lambda: devices)
    choose_device()
    assert os.environ.get("MUJOCO_EGL_DEVICE_ID") == drawn_on
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


def test_what_is_unmentioned_for_a_while_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-3f2a")
    with pytest.raises(ValueError, match="no"), cuda_unmentioned():
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
        raise ValueError("no")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-3f2a"
