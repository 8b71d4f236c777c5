"""One LIBERO task as a simulator that renders on demand and can be put back exactly.

Departures from robosuite's own loop, none of which changes a bit of what it computes (the integration tests and
`python -m bench.libero_bits` compare with it):

* cameras are not sampled at every step: when robosuite would sample them, the poses that a picture depends on are
  copied (a few kilobytes), and a picture is drawn from the copy if anyone asks for it;
* the position and velocity stages of MuJoCo run once per physics step instead of three times;
* the control step (`OscStep`) computes one Jacobian per physics step instead of four and looks names up once; its
  arithmetic (`controller`) is compiled where that gives the same bits (`compiled`). It knows the one set-up that LIBERO
  uses, and leaves any other (`unlike`) to robosuite;
* whether the goal holds is asked once per step instead of twice;
* what a camera cannot see is not drawn, and meshes stay uploaded when the scene is built anew (`renderer`);
* the whole state, of MuJoCo and of robosuite's Python objects, can be saved and restored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
_OWN = (
    *("step", "_pre_action", "_post_action", "_post_process", "_update_observables", "_get_observations", "reward"),
    "check_contact",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SimState:
    """Everything that what follows depends on: MuJoCo's state and poses, and robosuite's own variables.

    ``seen`` are the poses when robosuite last sampled its sensors, ``model`` what a start changes in the model.
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
        self._clock = self._watch_instead_of_observing()
        self._renderer: Renderer | None = None
        self._step: Callable[[Array], bool] = self.own_step
        self._lean = True

    @property
    def robosuite(self) -> Any:
        """The robosuite environment, for ground truth (scripted experts)."""
        return self._env

    def hard_reset(self, seed: int) -> None:
        """Build the scene anew. Where fixtures stand, and objects until `set_init_state`, is a function of ``seed``."""
        # LIBERO appends to this list at each reset and then draws once per entry.
        self._env.object_property_initializers.clear()
        self._env._observables = self._observables
        from robosuite.utils.errors import RandomizationError

        with global_seed(seed):
            for _ in range(100):
                with suppress(RandomizationError):
                    self._env.reset()
                    self._env._observables = {"besttake": self._clock}
                    self._renew()
                    return
        raise ComponentError(f"{self._env.bddl_file_name}: LIBERO found no valid placement with seed {seed}")

    def set_init_state(self, state: NDArray[np.float64]) -> None:
        """Go to one of LIBERO's fixed initial states (1 + nq + nv,)."""
        expected = 1 + self._env.sim.model.nq + self._env.sim.model.nv
        if state.shape != (expected,):
            sizes = f"an initial state has {state.size} numbers and this scene {expected}"
            raise ComponentError(f"{self._env.bddl_file_name}: {sizes}; the init file belongs to another task")
        self._control.set_init_state(state)

    def settle(self, steps: int) -> None:
        """Let objects come to rest with the gripper open, as every LIBERO evaluator does."""
        for _ in range(steps):
            self.step(np.asarray(REST, np.float64))

    def step(self, action: Array) -> bool:
        """One control step (50 ms); whether the goal holds after it."""
        # Right after a reset robosuite's controller acts, for one physics step, on what it saw before the reset.
        stale = not self._env.robots[0].controller.new_update
        return self.own_step(action) if stale else self._step(action)

    def own_step(self, action: Array) -> bool:
        """The same as `step`, by robosuite's own controller."""
        with _once_per_physics_step(self._env.sim):
            _, _, success, _ = self._env.step(action)
        return bool(success)

    def proprio(self, *, folded: bool = False) -> F32:
        """(8,): end effector position 3, axis-angle of its quaternion 3, finger positions 2.

        ``folded``: of q and -q, which are the same rotation, the one with the shorter turn.
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
        """(20,): end effector position 3, the first two columns of its rotation 6, zeros, as LeRobot gives X-VLA.

        The rotation is the one that the controller acts on: the end effector's at the last physics step.
        """
        robot = self._env.robots[0]
        turn = self._env.sim.data.site_xmat[robot.eef_site_id].reshape(3, 3)
        position = self._seen["site_xpos"][robot.eef_site_id]
        return np.concatenate([position, turn[:, 0], turn[:, 1], np.zeros(11)]).astype(np.float32)

    def take_poses(self) -> None:
        """From now until the next reset, actions are poses to go to, not changes."""
        self._env.robots[0].controller.use_delta = False

    def goal_poses(self) -> F32:
        """(10,): position 3 and quaternion xyzw 4 of what the goal moves, position 3 of where it goes."""
        goal = next((g for g in self._env.parsed_problem["goal_state"] if len(g) == 3), None)
        if goal is None or goal[1] not in self._env.objects_dict:
            file = self._env.bddl_file_name
            raise ComponentError(f"{file}: its goal moves no object, so state=objects has no meaning")
        item = self._env.obj_body_id[goal[1]]
        if goal[2] in self._env.obj_body_id:
            place = self._seen["xpos"][self._env.obj_body_id[goal[2]]]
        else:
            place = self._seen["site_xpos"][self._env.sim.model.site_name2id(goal[2])]
        turn = self._seen["xquat"][item][[1, 2, 3, 0]]
        return np.concatenate([self._seen["xpos"][item], turn, place]).astype(np.float32)

    def render(self, camera: str, size: int) -> U8:
        """The picture of ``camera`` as robosuite would have sampled it: (size, size, 3), bottom row first."""
        sim, now = self._env.sim, self._poses()
        renderer = self._renderer = self._renderer or self._make_renderer()
        self._put_poses(self._seen)
        try:
            return renderer.picture(sim.data._data, sim.model.camera_name2id(camera), size)
        finally:
            self._put_poses(now)

    def save(self) -> SimState:
        """The whole state; `restore` on any simulator of the same task goes on from it bit for bit."""
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
        """Put a snapshot of the same task back."""
        sim, robot, clock = self._env.sim, self._env.robots[0], self._clock
        for name, value in snapshot.model.items():
            getattr(sim.model, name)[:] = value
        mujoco.mj_setState(sim.model._model, sim.data._data, snapshot.state, _WHOLE)
        # Contacts and inertias follow from the state; poses may lag it by one physics step and are put back as seen.
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
        self._step = self.own_step
        with suppress(Exception):
            self._control.close()

    def _watch_instead_of_observing(self) -> Any:
        from robosuite.utils.observables import Observable, sensor

        for observable in self._env._observables.values():
            observable.set_enabled(False)

        @sensor(modality="besttake")  # type: ignore[untyped-decorator]
        def look(_: Any) -> NDArray[np.float64]:
            self._seen = {**self._poses(), "qpos": self._env.sim.data.qpos.copy()}
            return np.zeros(1)

        clock = Observable("besttake", look, sampling_rate=self._env.control_freq)
        # A reset wants to find all of them; a step goes through them 25 times.
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

    def _renew(self) -> None:
        """After a hard reset, which makes a new model and a new robot."""
        model = self._env.sim.model._model
        if self._renderer is not None and not self._renderer.adopt(model):
            self._free_renderer()
        if self._lean and (difference := unlike(self._env)):
            _log.info("LIBERO takes robosuite's own, slower step: %s", difference)
            self._lean = False
        self._step = OscStep(self._env, self._clock) if self._lean else self.own_step

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


@contextmanager
def _once_per_physics_step(sim: Any) -> Iterator[None]:
    # robosuite calls mj_forward twice and mj_step once per physics step, each of which starts with the same stages.
    model, data = sim.model._model, sim.data._data
    fresh = False

    def forward() -> None:
        nonlocal fresh
        if not fresh:
            mujoco.mj_step1(model, data)
            fresh = True

    def step(with_udd: bool = True) -> None:
        nonlocal fresh
        mujoco.mj_step2(model, data)
        fresh = False

    sim.forward, sim.step = forward, step
    try:
        yield
    finally:
        del sim.forward, sim.step


def _numbers(thing: Any) -> dict[str, Any]:
    kept = (np.ndarray, np.generic, float, int, bool, type(None))
    return {name: _copy(value) for name, value in vars(thing).items() if isinstance(value, kept)}


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def unlike(env: Any) -> str:
    """How ``env`` differs from the robot, controller and version that `OscStep` knows, in a few words; empty if not."""
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
    changed = [name for name in _OWN if not _as_known(type(env), name)]
    return f"{type(env).__name__} has its own {', '.join(changed)}" if changed else ""


class OscStep:
    """The control step of one scene; made anew when robosuite builds the scene anew.

    ``clock`` is the observable whose sampling times are robosuite's.
    """

    def __init__(self, env: Any, clock: Any) -> None:
        # These need robosuite, and robosuite numba.
        from besttake.envs.libero.compiled import runner
        from besttake.envs.libero.controller import arm_of

        self._env, self._clock = env, clock
        self._robot = env.robots[0]
        self._model, self._data = env.sim.model._model, env.sim.data._data
        self._substeps = int(env.control_timestep / env.model_timestep)
        self._arm, self._run = arm_of(env, self._data), runner(env)
        env.check_contact = partial(_touches, env)

    def __call__(self, action: NDArray[np.float64]) -> bool:
        """Execute one action (7,); whether the goal holds after it."""
        env, arm, clock, gripper = self._env, self._arm, self._clock, self._robot.gripper
        env.timestep += 1
        mujoco.mj_step1(self._model, self._data)
        self._set_goal(action[:6])
        arm.grip[:] = gripper.current_action
        arm.closing[:] = np.array([-1.0, 1.0]) * gripper.speed * np.sign(action[6:])
        done = 0
        for substep in range(1, self._substeps + 1):
            # The clock looks, once per period, at the poses after this physics step; otherwise it only counts.
            if not clock._sampled or substep == self._substeps:
                self._run(self._model, self._data, arm, substep - done, done == 0)
                done = substep
            clock.update(timestep=env.model_timestep, obs_cache=env._obs_cache)
        gripper.current_action = arm.grip.copy()
        env.cur_time += env.control_timestep
        # robosuite asks once for its reward and, after a look at what to light up, once more: nothing has moved.
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
    """Whether one of ``geoms_1`` touches one of ``geoms_2``, or anything: robosuite's `check_contact`, by numbers.

    Geoms are a name, several names or a model's. robosuite looks up four names for each contact.
    """
    numbers = env.sim.model._geom_name2id

    def among(pairs: NDArray[np.int32], geoms: Any) -> NDArray[np.bool_]:
        names = [geoms] if isinstance(geoms, str) else getattr(geoms, "contact_geoms", geoms)
        return np.isin(pairs, [numbers[name] for name in names if name in numbers])

    pairs = env.sim.data._data.contact.geom
    other = pairs[:, ::-1]
    return bool((among(pairs, geoms_1) & (geoms_2 is None or among(other, geoms_2))).any())


def _as_known(env: type, name: str) -> bool:
    """Whether a method is robosuite's own or LIBERO's base domain's; what lights up may be for each scene to say."""
    owner = next(cls for cls in env.__mro__ if name in vars(cls)).__module__
    scene = name == "_post_process" and owner.startswith("libero.libero.envs.problems.")
    return scene or owner.startswith("robosuite.") or owner == "libero.libero.envs.bddl_base_domain"
