"""LIBERO's control step without robosuite's repeated work, to the same bits.

robosuite computes four Jacobians per physics step where one does, looks names up again and again and asks for its
action limits three times; a control step of LIBERO is 25 physics steps. `OscStep` does the same arithmetic
(`controller`), compiled where that gives the same bits (`compiled`), and finds what does not change once per
scene. It knows one set-up, the one that LIBERO uses; `unlike` says how another one differs from it, and `LiberoSim`
then takes robosuite's own step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from besttake.files import version

ROBOSUITE = "1.4.0"
_OWN = (
    *("step", "_pre_action", "_post_action", "_post_process", "_update_observables", "_get_observations", "reward"),
    "check_contact",
)


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
