"""SimplerEnv's Bridge tasks in ManiSkill 3: ``maniskill:carrot|spoon|stack?render=none|cpu|gpu``.

Every reset rebuilds the scene. In ManiSkill's soft reset, objects settle while the arm is still where the last take
left it, so that an episode id would not repeat bit for bit (and, after contacts, be off by millimetres).
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy.spatial.transform import Rotation

from besttake.conventions import BRIDGE_STATE, MANISKILL_BRIDGE, POSE_STATE
from besttake.envs.base import check_action, check_cameras, check_task
from besttake.errors import ComponentError, MissingExtra, one_line
from besttake.files import short_hash, versions
from besttake.options import Reader
from besttake.types import F32, Array, EnvSpec, Observation, Start, Step, TaskSpec

Render = Literal["none", "cpu", "gpu"]
Reading = Literal["last", "any", "grasp"]
Layout = Literal["pose", "bridge"]
_LAYOUTS: dict[Layout, str] = {"pose": POSE_STATE, "bridge": BRIDGE_STATE}
_POINTS_DOWN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
"""The orientation at which roll, pitch and yaw are 0 in Bridge's data: a gripper that points down."""

_TASKS = {
    "carrot": ("PutCarrotOnPlateInScene-v1", "put carrot on plate"),
    "spoon": ("PutSpoonOnTableClothInScene-v1", "put the spoon on the towel"),
    "stack": ("StackGreenCubeOnYellowCubeBakedTexInScene-v1", "stack the green block on the yellow block"),
}
_CAMERA = "3rd_view_camera"
_EPISODES = 24
_FINGERS = (0.015, 0.037)


def make(
    tasks: str = "", *, render: str = "gpu", success: str = "last", horizon: int | str = 60, state: str = "pose"
) -> ManiSkillEnv:
    """The env ``maniskill:TASK``: one task, several separated by commas, or all three if none is named.

    ``render=none`` is physics alone, with the poses of the objects in the state; ``cpu`` needs lavapipe of Mesa 25 or
    newer. ``success`` is read at the last step as SimplerEnv's evaluator does (``last``), or is sticky once the goal is
    met (``any``) or the object has been held for five steps (``grasp``). ``state=bridge`` gives the state as in
    Bridge's data, for policies trained on them.
    """
    names = tasks.split(",") if tasks else list(_TASKS)
    for name in names:
        if name not in _TASKS:
            raise ComponentError(f"maniskill:{name}: no such task; there are {', '.join(_TASKS)}")
    read = Reader(f"maniskill:{tasks}")
    backend: Render = read.choice("render", render, get_args(Render))
    reading: Reading = read.choice("success", success, get_args(Reading))
    layout: Layout = read.choice("state", state, get_args(Layout))
    if layout == "bridge" and backend == "none":
        raise ComponentError(f"{read.uri}: state=bridge needs cameras; with render=none use state=pose")
    return ManiSkillEnv(names, backend, reading, read.whole("horizon", horizon), layout)


class ManiSkillEnv:
    """The Bridge tasks as a BestTake env. Starts are the 24 episode ids of SimplerEnv."""

    def __init__(
        self, names: Sequence[str], render: Render, reading: Reading, horizon: int, layout: Layout = "pose"
    ) -> None:
        self._render, self._reading, self._horizon, self._layout = render, reading, horizon, layout
        self._registered = _import_maniskill(render)
        for name in names:
            if (missing := _TASKS[name][0]) not in self._registered:
                raise ComponentError(f"maniskill:{name}: this ManiSkill has no {missing}; install 3.0.1 or newer")
        _check_assets()
        tasks = tuple(TaskSpec(name, f"bridge_{name}", _TASKS[name][1], horizon) for name in names)
        settings = f"{','.join(names)} {render} {reading} {horizon}" + ("" if layout == "pose" else f" {layout}")
        means = replace(MANISKILL_BRIDGE, state="" if render == "none" else _LAYOUTS[layout])
        self.spec = EnvSpec(
            f"maniskill:{','.join(names)}", tasks, range(_EPISODES), action_dim=7,
            state_dim=22 if render == "none" else 8, cameras=(_CAMERA,), score_camera=_CAMERA,
            gripper_dim=6, gripper_open=1, eef_dims=(0, 1, 2), goes_on=True, at_once=2, fps=5.0,
            fingerprint=short_hash(settings, versions("mani-skill", "sapien")),
            convention=means, notes=("pictures are from a third-person camera; these tasks have no wrist camera",),
        )  # fmt: skip
        self._env: Any = None
        self._name, self._steps, self._reached = "", 0, False

    def reset(self, start: Start) -> None:
        """Rebuild the scene of ``start``, whose index is SimplerEnv's episode id."""
        check_task(self.spec, start.task)
        if not 0 <= start.index < _EPISODES:
            raise ComponentError(f"{self.spec.name}: starts are 0..{_EPISODES - 1}, not {start.index}")
        if start.task != self._name:
            self.close()
            self._env, self._name = self._build(_TASKS[start.task][0]), start.task
        import torch

        self._env.reset(seed=0, options={"episode_id": torch.tensor([start.index]), "reconfigure": True})
        self._steps, self._reached = 0, False

    def step(self, action: F32) -> Step:
        """Execute one action, which takes 0.2 s."""
        check_action(self.spec, action)
        *_, info = self._opened.step(np.asarray(action, np.float32))
        self._steps += 1
        if self._reading == "last":
            last = self._steps == self._horizon
            return Step(success=last and bool(info["success"]), done=self._steps >= self._horizon)
        key = "success" if self._reading == "any" else "consecutive_grasp"
        self._reached = self._reached or bool(info[key])
        return Step(success=self._reached, done=False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        """State (8,): position 3 and quaternion wxyz 4 of the gripper in the robot's base frame, openness 1; with
        ``state=bridge`` position 3, roll, pitch and yaw 3, a zero, openness 1.

        Without pictures the poses (7,) of the object to move and of its target follow: (22,).
        """
        check_cameras(self.spec, cameras)
        if cameras and self._render == "none":
            raise ComponentError(f"{self.spec.name}: cameras are off (render=none); use render=gpu or render=cpu")
        images = {}
        for camera in cameras:
            pictures = self._opened._get_obs_sensor_data()[_CAMERA]["rgb"]
            images[camera] = np.ascontiguousarray(pictures[0].cpu().numpy().astype(np.uint8))
        return Observation(images, self._state(), self.spec.task(self._name).instruction)

    def close(self) -> None:
        """Free the scene."""
        if self._env is not None:
            self._env.close()
            self._env, self._name = None, ""

    @property
    def _opened(self) -> Any:
        if self._env is None:
            raise ComponentError(f"{self.spec.name}: reset comes before step and observe")
        return self._env

    def _state(self) -> F32:
        env = self._opened
        robot = env.agent.robot
        things = [robot.links_map["ee_gripper_link"].pose]
        if self._render == "none":
            things += [env.objs[env.source_obj_name].pose, env.objs[env.target_obj_name].pose]
        base = robot.pose.inv()
        poses = [(base * pose).raw_pose[0].cpu().numpy() for pose in things]
        low, high = _FINGERS
        openness = np.clip((float(robot.get_qpos()[0, -2:].mean()) - low) / (high - low), 0.0, 1.0)
        if self._layout == "bridge":
            return bridge_state(poses[0], openness)
        return np.concatenate([poses[0], [openness], *poses[1:]]).astype(np.float32)

    def _build(self, task_id: str) -> Any:
        task = self._registered[task_id].cls
        options = {"num_envs": 1, "sim_backend": "physx_cpu", "render_backend": self._render}
        if self._render == "none":
            blind = {"SUPPORTED_OBS_MODES": ["state_dict"], "rgb_overlay_mode": "none"}
            env = type(task.__name__, (task,), blind)(obs_mode="state_dict", **options)
        else:
            try:
                env = task(obs_mode="rgb+segmentation", **options)
            except RuntimeError as error:
                raise ComponentError(
                    f"maniskill: cannot render here ({one_line(error, 200)}); use render=cpu with lavapipe of "
                    "Mesa 25 or newer (VK_ICD_FILENAMES names its json), or render=none"
                ) from error
        # Otherwise every step would render; observe() reads the sensors itself.
        env.get_obs = lambda info=None, unflattened=False: {}
        return env


def bridge_state(pose: Array, openness: float) -> F32:
    """Bridge's state (8,) of a gripper at ``pose`` (7,), position and quaternion wxyz in the robot's base frame."""
    rotation = Rotation.from_quat(pose[[4, 5, 6, 3]]).as_matrix() @ _POINTS_DOWN.T
    angles = Rotation.from_matrix(rotation).as_euler("xyz")
    return np.concatenate([pose[:3], angles, [0.0, openness]]).astype(np.float32)


def _import_maniskill(render: Render) -> Any:
    if render == "cpu":
        _choose_lavapipe()
    try:
        importlib.import_module("mani_skill.envs")
        from mani_skill.utils.logging_utils import logger
        from mani_skill.utils.registration import REGISTERED_ENVS
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "mani-skill", "maniskill", "maniskill:…") from error
    logger.setLevel(logging.ERROR)
    return REGISTERED_ENVS


def _check_assets() -> None:
    from mani_skill.envs.tasks.digital_twins.bridge_dataset_eval.base_env import BRIDGE_DATASET_ASSET_PATH

    if not (BRIDGE_DATASET_ASSET_PATH / "custom").is_dir():
        raise ComponentError(
            f"maniskill: no Bridge assets at {BRIDGE_DATASET_ASSET_PATH}; set MS_ASSET_DIR to where they are, or run "
            "python -m mani_skill.utils.download_asset bridge_v2_real2sim widowx250s"
        )


def _choose_lavapipe() -> None:
    named = os.environ.get("VK_ICD_FILENAMES") or os.environ.get("VK_DRIVER_FILES")
    if named:
        files = [Path(name) for name in named.split(os.pathsep)]
    else:
        folders = (Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d"), Path("/usr/local/share/vulkan/icd.d"))
        files = [file for folder in folders for file in sorted(folder.glob("lvp_icd*.json"))]
    if not files or not files[0].is_file():
        raise ComponentError(
            "maniskill?render=cpu: no lavapipe driver found; install mesa-vulkan-drivers 25 or newer (older ones crash"
            " inside SAPIEN), or let VK_ICD_FILENAMES name its json"
        )
    os.environ.setdefault("VK_ICD_FILENAMES", str(files[0]))
