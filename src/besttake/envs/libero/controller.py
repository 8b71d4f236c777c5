"""robosuite's operational space controller, which acts between two physics steps of LIBERO, bit for bit the same.

`control` calls the same functions of robosuite and numpy as robosuite does, on arrays of the same memory layout, on
which the last bits of a product depend. It is plain Python that numba can compile (`compiled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from besttake.errors import ComponentError

# Every module of BestTake can be imported without the libraries that it needs to run.
with suppress(ImportError):
    from robosuite.utils.control_utils import nullspace_torques, opspace_matrices, orientation_error

F64 = NDArray[np.float64]


class RobotArm(NamedTuple):
    """The arrays that the controller of one scene reads and writes; most are views of MuJoCo's own data.

    ``goal_pos`` to ``closing`` are set before each control step: the goal pose, the gains (kp and kd of position and
    orientation), the joint angles to stay near, the gripper's command and its change per physics step.
    """

    goal_pos: F64
    goal_ori: F64
    gains: F64
    rest: F64
    grip: F64
    closing: F64
    site: int
    eef_pos: F64
    eef_mat: F64
    joint_pos: F64
    joint_vel: F64
    qvel: F64
    qM: F64
    bias: F64
    jac_pos: F64
    jac_ori: F64
    masses: F64
    arm_jac_pos: F64
    arm_jac_ori: F64
    arm_masses: F64
    j_pos: F64
    j_ori: F64
    j_full: F64
    mass: F64
    low: F64
    high: F64
    torques: F64
    finger_bias: F64
    finger_weight: F64
    fingers: F64


def arm_of(env: Any, data: Any) -> RobotArm:
    """The arrays for a robosuite environment in ``data``, which need not be the environment's own."""
    robot = env.robots[0]
    controller, gripper, model = robot.controller, robot.gripper, env.sim.model._model
    site = env.sim.model.site_name2id(controller.eef_name)
    dofs, joints = _span(controller.qvel_index), len(controller.qvel_index)
    fingers = _span([env.sim.model.actuator_name2id(name) for name in gripper.actuators])
    limits = model.actuator_ctrlrange[fingers]
    low, high = robot.torque_limits
    jac_pos, jac_ori, masses = np.zeros((3, model.nv)), np.zeros((3, model.nv)), np.zeros((model.nv, model.nv))

    # robosuite selects columns by a list of indexes, so that its arrays are in Fortran order.
    def fortran(*shape: int) -> F64:
        return np.zeros(shape, order="F")

    return RobotArm(
        goal_pos=np.zeros(3), goal_ori=np.zeros((3, 3)), gains=np.zeros((4, 3)), rest=np.zeros(joints),
        grip=np.zeros(len(limits)), closing=np.zeros(len(limits)),
        site=site, eef_pos=data.site_xpos[site], eef_mat=data.site_xmat[site].reshape(3, 3),
        joint_pos=data.qpos[_span(controller.qpos_index)], joint_vel=data.qvel[dofs], qvel=data.qvel, qM=data.qM,
        bias=data.qfrc_bias[dofs], jac_pos=jac_pos, jac_ori=jac_ori, masses=masses,
        arm_jac_pos=jac_pos[:, dofs], arm_jac_ori=jac_ori[:, dofs], arm_masses=masses[dofs, dofs],
        j_pos=fortran(3, joints), j_ori=fortran(3, joints), j_full=fortran(6, joints), mass=fortran(joints, joints),
        low=np.array(low), high=np.array(high), torques=data.ctrl[_span(robot._ref_joint_actuator_indexes)],
        finger_bias=0.5 * (limits[:, 1] + limits[:, 0]), finger_weight=0.5 * (limits[:, 1] - limits[:, 0]),
        fingers=data.ctrl[fingers],
    )  # fmt: skip


def control(arm: RobotArm) -> None:
    """Command the motors as robosuite's controllers do; Jacobians and masses must be those of the current state."""
    arm.j_pos[:] = arm.arm_jac_pos
    arm.j_ori[:] = arm.arm_jac_ori
    arm.j_full[:3] = arm.arm_jac_pos
    arm.j_full[3:] = arm.arm_jac_ori
    arm.mass[:] = arm.arm_masses
    turn = orientation_error(arm.goal_ori, arm.eef_mat)
    force = (arm.goal_pos - arm.eef_pos) * arm.gains[0] + -np.dot(arm.jac_pos, arm.qvel) * arm.gains[2]
    torque = turn * arm.gains[1] + -np.dot(arm.jac_ori, arm.qvel) * arm.gains[3]
    _, lambda_pos, lambda_ori, nullspace = opspace_matrices(arm.mass, arm.j_full, arm.j_pos, arm.j_ori)
    wrench = np.concatenate((np.dot(lambda_pos, force), np.dot(lambda_ori, torque)))
    torques = np.dot(arm.j_full.T, wrench) + arm.bias
    torques += nullspace_torques(arm.mass, nullspace, arm.rest, arm.joint_pos, arm.joint_vel)
    arm.grip[:] = np.minimum(np.maximum(arm.grip + arm.closing, -1.0), 1.0)
    arm.fingers[:] = arm.finger_bias + arm.finger_weight * arm.grip
    arm.torques[:] = np.minimum(np.maximum(torques, arm.low), arm.high)


def run(model: Any, data: Any, arm: RobotArm, count: int, begun: bool) -> None:
    """Run ``count`` physics steps; ``begun``: the first one is done up to the controller."""
    for number in range(count):
        if number or not begun:
            mujoco.mj_step1(model, data)
        mujoco.mj_jacSite(model, data, arm.jac_pos, arm.jac_ori, arm.site)
        mujoco.mj_fullM(model, arm.masses, arm.qM)
        control(arm)
        mujoco.mj_step2(model, data)


def _span(indexes: Sequence[int]) -> slice:
    first, count = int(indexes[0]), len(indexes)
    if list(indexes) != list(range(first, first + count)):
        raise ComponentError(f"the robot's indexes {list(indexes)} are not contiguous")
    return slice(first, first + count)
