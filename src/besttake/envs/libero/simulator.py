"""One LIBERO task as a simulator that renders on demand and can be restored exactly.

It differs from robosuite's own loop as follows, without changing a bit of its results (the integration tests and
`python -m bench.libero_bits` compare them):

* cameras are not sampled at every step: when robosuite would sample them, the poses on which a picture depends are
  copied (a few kilobytes), and a picture is rendered from the copy on demand;
* the control step (`OscStep`) runs MuJoCo's position and velocity stages once per physics step instead of three times,
  computes one Jacobian instead of four and looks up names once; its arithmetic (`controller`) is compiled if that gives
  the same bits (`compiled`). It supports only the set-up that LIBERO uses; any other (`unlike`) is left to robosuite;
* the goal is checked once per step instead of twice;
* geoms that a camera cannot see are not rendered, and meshes stay uploaded when the scene is rebuilt (`renderer`);
* the whole state, of MuJoCo and of robosuite's Python objects, can be saved and restored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from besttake.conventions import axis_angle
from besttake.envs.base import global_seed
from besttake.envs.libero.harness import REST
from besttake.envs.libero.renderer import Renderer
from besttake.errors import ComponentError, one_line
from besttake.files import version
from besttake.types import F32, U8, Array

_POSES = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "subtree_com"),
    *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir"),
)
_MODEL = ("body_pos", "body_quat", "site_rgba", "geom_rgba")
_WHOLE = mujoco.mjtState.mjSTATE_INTEGRATION
ROBOSUITE = "1.4.0"
_STEP_METHODS = (
    *("step", "_pre_action", "_post_action", "_post_process", "_update_observables", "_get_observations", "reward"),
    "check_contact",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SimState:
    """The whole state of a simulation: MuJoCo's state and poses, and robosuite's own variables.

    ``seen`` are the poses when robosuite last sampled its sensors, ``model`` those values of the model that depend on
    the start.
    """

    state: Array
    poses: dict[str, Array]
    seen: dict[str, Array]
    model: dict[str, Array]
    controller: dict[str, Any]
    gripper: Array
    clock: tuple[Any, ...]
    time: tuple[Any, ...]


class LiberoSim:
    """The simulator of one BDDL file."""

    def __init__(self, control_env: Any, bddl: Path) -> None:
        with global_seed(0):
            self._control = control_env(str(bddl), use_camera_obs=False, has_offscreen_renderer=False, ignore_done=True)
        self._env = self._control.env
        self._seen: dict[str, Array] = {}
        self._observables: dict[str, Any] = {}
        self._clock = self._replace_observables()
        self._renderer: Renderer | None = None
        self._step: Callable[[Array], bool] = self.robosuite_step
        self._fast = True

    @property
    def robosuite(self) -> Any:
        """The robosuite environment, from which scripted experts read ground truth."""
        return self._env

    def hard_reset(self, seed: int) -> None:
        """Rebuild the scene. ``seed`` determines the places of fixtures and, until `set_init_state`, of objects."""
        # LIBERO appends to this list at each reset and then samples once per entry.
        self._env.object_property_initializers.clear()
        self._env._observables = self._observables
        from robosuite.utils.errors import RandomizationError

        with global_seed(seed):
            for _ in range(100):
                with suppress(RandomizationError):
                    self._env.reset()
                    self._env._observables = {"besttake": self._clock}
                    self._adopt_scene()
                    return
        raise ComponentError(f"{self._env.bddl_file_name}: LIBERO found no valid placement with seed {seed}")

    def set_init_state(self, state: NDArray[np.float64]) -> None:
        """Go to one of LIBERO's fixed initial states (1 + nq + nv,)."""
        expected = 1 + self._env.sim.model.nq + self._env.sim.model.nv
        if state.shape != (expected,):
            raise ComponentError(
                f"{self._env.bddl_file_name}: an initial state has {state.size} numbers and this scene {expected};"
                " the init file belongs to another task"
            )
        self._control.set_init_state(state)

    def settle(self, steps: int) -> None:
        """Let objects come to rest with the gripper open, as in every LIBERO evaluation."""
        for _ in range(steps):
            self.step(np.asarray(REST, np.float64))

    def step(self, action: Array) -> bool:
        """Execute one control step (50 ms), and return whether the goal holds after it."""
        # Right after a reset robosuite's controller acts, for one physics step, on its data from before the reset.
        is_stale = not self._env.robots[0].controller.new_update
        return self.robosuite_step(action) if is_stale else self._step(action)

    def robosuite_step(self, action: Array) -> bool:
        """The same as `step`, by robosuite's own loop and controller."""
        _, _, success, _ = self._env.step(action)
        return bool(success)

    def proprio(self, *, folded: bool = False) -> F32:
        """The proprioceptive state (8,): end effector position 3, axis-angle of its quaternion 3, finger positions 2.

        ``folded``: convert the quaternion with the shorter angle of q and -q, which are the same rotation.
        """
        robot = self._env.robots[0]
        position = self._seen["site_xpos"][robot.eef_site_id]
        body = self._env.sim.model.body_name2id(robot.robot_model.eef_name)
        quaternion = self._seen["xquat"][body][[1, 2, 3, 0]]
        if folded and quaternion[3] < 0:
            quaternion = -quaternion
        fingers = self._seen["qpos"][robot._ref_gripper_joint_pos_indexes]
        return np.concatenate([position, axis_angle(quaternion), fingers]).astype(np.float32)

    def ee6d(self) -> F32:
        """The state (20,) that LeRobot gives X-VLA: end effector position 3, two columns of its rotation 6, zeros.

        The rotation is that on which the controller acts: the end effector's at the last physics step.
        """
        robot = self._env.robots[0]
        rotation = self._env.sim.data.site_xmat[robot.eef_site_id].reshape(3, 3)
        position = self._seen["site_xpos"][robot.eef_site_id]
        return np.concatenate([position, rotation[:, 0], rotation[:, 1], np.zeros(11)]).astype(np.float32)

    def use_absolute_actions(self) -> None:
        """Interpret actions, until the next reset, as target poses instead of changes."""
        self._env.robots[0].controller.use_delta = False

    def goal_poses(self) -> F32:
        """The goal's poses (10,): position 3 and quaternion xyzw 4 of the object to move, position 3 of its target."""
        goal = next((g for g in self._env.parsed_problem["goal_state"] if len(g) == 3), None)
        if goal is None or goal[1] not in self._env.objects_dict:
            file = self._env.bddl_file_name
            raise ComponentError(f"{file}: its goal moves no object, so state=objects has no meaning")
        item = self._env.obj_body_id[goal[1]]
        if goal[2] in self._env.obj_body_id:
            target = self._seen["xpos"][self._env.obj_body_id[goal[2]]]
        else:
            target = self._seen["site_xpos"][self._env.sim.model.site_name2id(goal[2])]
        quaternion = self._seen["xquat"][item][[1, 2, 3, 0]]
        return np.concatenate([self._seen["xpos"][item], quaternion, target]).astype(np.float32)

    def render(self, camera: str, size: int) -> U8:
        """The picture of ``camera`` at robosuite's last sampling time: (size, size, 3), bottom row first."""
        sim, now = self._env.sim, self._poses()
        renderer = self._renderer = self._renderer or self._make_renderer()
        self._put_poses(self._seen)
        try:
            return renderer.picture(sim.data._data, sim.model.camera_name2id(camera), size)
        finally:
            self._put_poses(now)

    def save(self) -> SimState:
        """The whole state; any simulator of the same task can `restore` it bit for bit."""
        sim, robot, clock = self._env.sim, self._env.robots[0], self._clock
        state = np.empty(mujoco.mj_stateSize(sim.model._model, _WHOLE))
        mujoco.mj_getState(sim.model._model, sim.data._data, state, _WHOLE)
        model = {name: getattr(sim.model, name).copy() for name in _MODEL}
        gripper = np.array(robot.gripper.current_action)
        sampling = (clock._time_since_last_sample, clock._sampled, clock._current_delay)
        time = (self._env.timestep, self._env.cur_time)
        seen = dict(self._seen)
        return SimState(state, self._poses(), seen, model, _numbers(robot.controller), gripper, sampling, time)

    def restore(self, snapshot: SimState) -> None:
        """Restore a snapshot of the same task."""
        sim, robot, clock = self._env.sim, self._env.robots[0], self._clock
        for name, value in snapshot.model.items():
            getattr(sim.model, name)[:] = value
        mujoco.mj_setState(sim.model._model, sim.data._data, snapshot.state, _WHOLE)
        # Contacts and inertias follow from the state; poses may lag it by one physics step and are restored separately.
        mujoco.mj_forward(sim.model._model, sim.data._data)
        self._put_poses(snapshot.poses)
        self._seen = dict(snapshot.seen)
        for name, value in snapshot.controller.items():
            setattr(robot.controller, name, _copy(value))
        robot.gripper.current_action = np.array(snapshot.gripper)
        clock._time_since_last_sample, clock._sampled, clock._current_delay = snapshot.clock
        self._env.timestep, self._env.cur_time = snapshot.time
        self._env.done = False

    def close(self) -> None:
        """Free the renderer and the simulator."""
        self._free_renderer()
        self._step = self.robosuite_step
        with suppress(Exception):
            self._control.close()

    def _replace_observables(self) -> Any:
        """Disable robosuite's observables in favour of one that keeps the poses whenever those would be sampled."""
        from robosuite.utils.observables import Observable, sensor

        for observable in self._env._observables.values():
            observable.set_enabled(False)

        @sensor(modality="besttake")  # type: ignore[untyped-decorator]
        def keep_poses(_: Any) -> NDArray[np.float64]:
            self._seen = {**self._poses(), "qpos": self._env.sim.data.qpos.copy()}
            return np.zeros(1)

        clock = Observable("besttake", keep_poses, sampling_rate=self._env.control_freq)
        # A reset needs all observables, but a step would go through them 25 times.
        self._observables = {**self._env._observables, "besttake": clock}
        self._env._observables = {"besttake": clock}
        return clock

    def _poses(self) -> dict[str, Array]:
        data = self._env.sim.data
        return {name: getattr(data, name).copy() for name in _POSES}

    def _put_poses(self, poses: dict[str, Array]) -> None:
        data = self._env.sim.data
        for name in _POSES:
            getattr(data, name)[:] = poses[name]

    def _adopt_scene(self) -> None:
        """Use the new model and robot of a hard reset."""
        model = self._env.sim.model._model
        if self._renderer is not None and not self._renderer.adopt(model):
            self._free_renderer()
        if self._fast and (difference := unlike(self._env)):
            _log.info("LIBERO uses robosuite's own, slower step: %s", difference)
            self._fast = False
        self._step = OscStep(self._env, self._clock) if self._fast else self.robosuite_step

    def _make_renderer(self) -> Renderer:
        try:
            return Renderer(self._env.sim.model._model, self._env.render_gpu_device_id)
        except Exception as error:
            raise ComponentError(
                f"LIBERO cannot render here ({one_line(error, 200)}): install EGL or OSMesa "
                "(apt-get install libegl1 libgl1 libosmesa6) and set MUJOCO_GL to egl or osmesa"
            ) from error

    def _free_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.free()
            self._renderer = None


def _numbers(controller: Any) -> dict[str, Any]:
    kinds = (np.ndarray, np.generic, float, int, bool, type(None))
    return {name: _copy(value) for name, value in vars(controller).items() if isinstance(value, kinds)}


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def unlike(env: Any) -> str:
    """How ``env`` differs from the robot, controller and version that `OscStep` supports; empty if it does not."""
    from robosuite.controllers.osc import OperationalSpaceController
    from robosuite.models.grippers.panda_gripper import PandaGripper
    from robosuite.robots.single_arm import SingleArm

    robot = env.robots[0]
    controller, gripper = robot.controller, robot.gripper
    installed = version("robosuite")
    if installed != ROBOSUITE:
        return f"robosuite is {installed}, not {ROBOSUITE}"
    if len(env.robots) != 1 or type(robot) is not SingleArm or type(gripper) is not PandaGripper:
        return f"the robot is {type(robot).__name__} with {type(gripper).__name__}"
    if type(controller) is not OperationalSpaceController:
        return f"the controller is {type(controller).__name__}"
    settings = controller.impedance_mode == "fixed" and controller.use_delta and controller.use_ori
    if not settings or not controller.uncoupling or controller.interpolator_pos or controller.interpolator_ori:
        return "the controller has other settings"
    changed = [name for name in _STEP_METHODS if not _is_known_method(type(env), name)]
    return f"{type(env).__name__} has its own {', '.join(changed)}" if changed else ""


class OscStep:
    """The control step of one scene; robosuite's hard reset needs a new one.

    ``clock`` is the observable that has robosuite's sampling times.
    """

    def __init__(self, env: Any, clock: Any) -> None:
        # These need robosuite, which needs numba.
        from besttake.envs.libero.compiled import runner
        from besttake.envs.libero.controller import arm_of

        self._env, self._clock = env, clock
        self._robot = env.robots[0]
        self._model, self._data = env.sim.model._model, env.sim.data._data
        self._substeps = int(env.control_timestep / env.model_timestep)
        self._arm, self._run = arm_of(env, self._data), runner(env)
        env.check_contact = partial(_touches, env)

    def __call__(self, action: NDArray[np.float64]) -> bool:
        """Execute one action (7,), and return whether the goal holds after it."""
        env, arm, clock, gripper = self._env, self._arm, self._clock, self._robot.gripper
        env.timestep += 1
        mujoco.mj_step1(self._model, self._data)
        self._set_goal(action[:6])
        arm.grip[:] = gripper.current_action
        arm.closing[:] = np.array([-1.0, 1.0]) * gripper.speed * np.sign(action[6:])
        done = 0
        for substep in range(1, self._substeps + 1):
            # Once per period the clock keeps the poses after this physics step; otherwise it only counts.
            if not clock._sampled or substep == self._substeps:
                self._run(self._model, self._data, arm, substep - done, done == 0)
                done = substep
            clock.update(timestep=env.model_timestep, obs_cache=env._obs_cache)
        gripper.current_action = arm.grip.copy()
        env.cur_time += env.control_timestep
        # robosuite checks for success twice, before and after highlighting; nothing moves in between.
        success = bool(env._check_success())
        env._post_process()
        return success

    def _set_goal(self, arm_action: NDArray[np.float64]) -> None:
        controller, arm = self._robot.controller, self._arm
        controller.ee_pos, controller.ee_ori_mat = arm.eef_pos.copy(), arm.eef_mat.copy()
        controller.new_update = False
        controller.set_goal(arm_action)
        controller.new_update = True
        arm.goal_pos[:], arm.goal_ori[:] = controller.goal_pos, controller.goal_ori
        arm.rest[:] = controller.initial_joint
        arm.gains[:] = [part for gain in (controller.kp, controller.kd) for part in (gain[:3], gain[3:])]


def _touches(env: Any, geoms_1: Any, geoms_2: Any = None) -> bool:
    """Whether one of ``geoms_1`` touches one of ``geoms_2``, or anything if that is None: a fast `check_contact`.

    Geoms are a name, several names or a model with ``contact_geoms``. robosuite looks up four names for each contact.
    """
    ids = env.sim.model._geom_name2id

    def among(pairs: NDArray[np.int32], geoms: Any) -> NDArray[np.bool_]:
        names = [geoms] if isinstance(geoms, str) else getattr(geoms, "contact_geoms", geoms)
        return np.isin(pairs, [ids[name] for name in names if name in ids])

    pairs = env.sim.data._data.contact.geom
    other = pairs[:, ::-1]
    return bool((among(pairs, geoms_1) & (geoms_2 is None or among(other, geoms_2))).any())


def _is_known_method(env: type, name: str) -> bool:
    """Whether a method is robosuite's or that of LIBERO's base domain; highlighting may be defined by each scene."""
    owner = next(cls for cls in env.__mro__ if name in vars(cls)).__module__
    highlights = name == "_post_process" and owner.startswith("libero.libero.envs.problems.")
    return highlights or owner.startswith("robosuite.") or owner == "libero.libero.envs.bddl_base_domain"
