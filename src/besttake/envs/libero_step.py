"""LIBERO's control step without robosuite's repeated work, to the same bits.

robosuite computes four Jacobians per physics step where one does, looks names up again and again and asks for its
action limits three times; a control step of LIBERO is 25 physics steps. `OscStep` does the same arithmetic, with the
same functions of robosuite, numpy and MuJoCo on arrays of the same layout (on which the last bits of a product depend),
and finds what does not change once per scene. It knows one set-up, the one that LIBERO uses; `unlike` says how another
one differs from it, and `LiberoSim` then takes robosuite's own step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from besttake.errors import ComponentError
from besttake.files import version

ROBOSUITE = "1.4.0"
_OWN = ("step", "_pre_action", "_post_action", "_update_observables", "_get_observations", "reward")


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
        from robosuite.utils import control_utils

        self._env, self._clock, self._formulas = env, clock, control_utils
        self._robot = env.robots[0]
        controller, gripper = self._robot.controller, self._robot.gripper
        self._model, self._data = env.sim.model._model, env.sim.data._data
        model, data = self._model, self._data
        self._substeps = int(env.control_timestep / env.model_timestep)
        self._site = env.sim.model.site_name2id(controller.eef_name)
        self._dofs = _span(controller.qvel_index)
        # These are views: MuJoCo writes where they point.
        self._eef_pos, self._eef_mat = data.site_xpos[self._site], data.site_xmat[self._site].reshape(3, 3)
        self._joint_pos, self._joint_vel = data.qpos[_span(controller.qpos_index)], data.qvel[self._dofs]
        self._qvel, self._bias = data.qvel, data.qfrc_bias[self._dofs]
        self._arm_ctrl = data.ctrl[_span(self._robot._ref_joint_actuator_indexes)]
        self._low, self._high = self._robot.torque_limits
        fingers = _span([env.sim.model.actuator_name2id(name) for name in gripper.actuators])
        self._finger_ctrl, limits = data.ctrl[fingers], model.actuator_ctrlrange[fingers]
        self._finger_bias, self._finger_weight = (
            0.5 * (limits[:, 1] + limits[:, 0]),
            0.5 * (limits[:, 1] - limits[:, 0]),
        )
        self._jac_pos, self._jac_ori = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        self._all_masses = np.zeros((model.nv, model.nv))
        # robosuite picks columns with a list of indexes, which leaves its arrays in Fortran order.
        joints = len(controller.qvel_index)
        self._j_pos, self._j_ori = np.empty((3, joints), order="F"), np.empty((3, joints), order="F")
        self._j_full, self._mass = np.empty((6, joints), order="F"), np.empty((joints, joints), order="F")

    def __call__(self, action: NDArray[np.float64]) -> bool:
        """Execute one action (7,); whether the goal holds after it."""
        env, model, data, gripper = self._env, self._model, self._data, self._robot.gripper
        env.timestep += 1
        closing = np.array([-1.0, 1.0]) * gripper.speed * np.sign(action[6:])
        for substep in range(self._substeps):
            mujoco.mj_step1(model, data)
            if substep == 0:
                self._set_goal(action[:6])
            torques = self._torques()
            gripper.current_action = np.minimum(np.maximum(gripper.current_action + closing, -1.0), 1.0)
            self._finger_ctrl[:] = self._finger_bias + self._finger_weight * gripper.current_action
            self._arm_ctrl[:] = np.minimum(np.maximum(torques, self._low), self._high)
            mujoco.mj_step2(model, data)
            self._clock.update(timestep=env.model_timestep, obs_cache=env._obs_cache)
        env.cur_time += env.control_timestep
        env._post_action(action)
        return bool(env._check_success())

    def _set_goal(self, arm_action: NDArray[np.float64]) -> None:
        controller = self._robot.controller
        controller.ee_pos, controller.ee_ori_mat = self._eef_pos.copy(), self._eef_mat.copy()
        controller.new_update = False
        controller.set_goal(arm_action)
        controller.new_update = True
        self._gains = tuple(np.array(part) for gain in (controller.kp, controller.kd) for part in (gain[:3], gain[3:]))

    def _torques(self) -> NDArray[np.float64]:
        """Those of robosuite's operational space controller at the current state, before they are clipped."""
        controller, formulas, dofs = self._robot.controller, self._formulas, self._dofs
        kp_pos, kp_ori, kd_pos, kd_ori = self._gains
        mujoco.mj_jacSite(self._model, self._data, self._jac_pos, self._jac_ori, self._site)
        mujoco.mj_fullM(self._model, self._all_masses, self._data.qM)
        self._j_pos[:] = self._j_full[:3] = self._jac_pos[:, dofs]
        self._j_ori[:] = self._j_full[3:] = self._jac_ori[:, dofs]
        self._mass[:] = self._all_masses[dofs, dofs]

        turn = formulas.orientation_error(controller.goal_ori, self._eef_mat)
        force = (controller.goal_pos - self._eef_pos) * kp_pos + -np.dot(self._jac_pos, self._qvel) * kd_pos
        torque = turn * kp_ori + -np.dot(self._jac_ori, self._qvel) * kd_ori
        _, lambda_pos, lambda_ori, nullspace = formulas.opspace_matrices(
            self._mass, self._j_full, self._j_pos, self._j_ori
        )
        wrench = np.concatenate((np.dot(lambda_pos, force), np.dot(lambda_ori, torque)))
        torques: NDArray[np.float64] = np.dot(self._j_full.T, wrench) + self._bias
        torques += formulas.nullspace_torques(
            self._mass, nullspace, controller.initial_joint, self._joint_pos, self._joint_vel
        )
        return torques


def _span(indexes: Sequence[int]) -> slice:
    first, count = int(indexes[0]), len(indexes)
    if list(indexes) != list(range(first, first + count)):
        raise ComponentError(f"the robot's indexes {list(indexes)} are not in a row")
    return slice(first, first + count)


def _as_known(env: type, name: str) -> bool:
    """Whether a method is LIBERO's base domain's or robosuite's own."""
    owner = next(cls for cls in env.__mro__ if name in vars(cls))
    return owner.__module__.startswith("robosuite.") or owner.__module__ == "libero.libero.envs.bddl_base_domain"
