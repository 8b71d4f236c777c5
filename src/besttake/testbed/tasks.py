"""The four tasks: their starts, states and success conditions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import length
from besttake.testbed import scene
from besttake.testbed.engine import mujoco
from besttake.types import F32

TASKS = ("pick", "push", "drawer", "stack")
INSTRUCTIONS = {
    "pick": "pick up the red cube and put it on the green disc",
    "push": "push the blue puck onto the green disc",
    "drawer": "pull the drawer open by its handle",
    "stack": "put the red cube on the blue cube",
}
HORIZONS = {"pick": 80, "push": 80, "drawer": 60, "stack": 80}

ACTION_DIM = 4
STATE_DIM = 20
REACH = 0.032
"""Distance in metres from the hand to its set point at an action of 1."""
CONTROL_HZ = 20.0

_SUBSTEPS = 5
_HELD_STEPS = 2
_HOME = np.array([0, 0, scene.HOME_HEIGHT])
_LOW = (-0.35, -0.35, -0.188)
_HIGH = (0.35, 0.35, 0.2)
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Snapshot:
    """The whole state of a `World`: MuJoCo's integration state (including its warm start) and our two counters."""

    task: str
    physics: Vector
    held: int
    succeeded: bool


class World:
    """The simulation of one task.

    An action is (4,) in [-1, 1]: three displacements of the hand, in units of `REACH`, and the gripper (below 0
    opens it). A state is (20,), in metres: hand 3, opening 1, object 3, goal 3, object - hand 3, goal - object 3,
    and the task as one of four.
    """

    def __init__(self, task: str) -> None:
        self.task = task
        self.model = scene.model(task)
        self.data = mujoco.MjData(self.model)
        self.succeeded = False
        self._held = 0
        self._told = np.zeros(STATE_DIM)
        self._told[TASKS.index(task) - len(TASKS)] = 1
        # Views of MuJoCo's memory: looking up names at every step would take half as long as the physics.
        data, model = self.data, self.model
        self._qpos, self._ctrl, self._mocap = data.qpos, data.ctrl, data.mocap_pos
        self._object = data.geom("handle").xpos if task == "drawer" else data.body("object").xpos
        self._base = data.body("base").xpos if task == "stack" else None
        self._drawer = int(model.joint("drawer").qposadr[0]) if task == "drawer" else -1

    def reset(self, seed: int) -> None:
        """Go to the start that is drawn with ``seed``, bit for bit the same each time."""
        draw = np.random.default_rng([seed, TASKS.index(self.task)])
        data = self.data
        mujoco.mj_resetData(self.model, data)
        if self.task == "drawer":
            data.mocap_pos[0] = [draw.uniform(-0.17, 0.17), draw.uniform(0.24, 0.32), draw.uniform(0.055, 0.085)]
        else:
            self._lay_out(draw)
        home = np.array([draw.uniform(-0.08, 0.08), draw.uniform(-0.12, 0.0), draw.uniform(-0.03, 0.03)])
        data.qpos[:3] = data.ctrl[:3] = home
        data.qpos[3:5] = data.ctrl[3:] = 0.035
        self.succeeded, self._held = False, 0
        self._advance()

    def step(self, action: F32 | Vector) -> bool:
        """Execute one action; return whether the task has, by now, held for two steps in a row."""
        *move, grip = np.asarray(action, np.float64).tolist()
        at = self._qpos[:3].tolist()
        self._ctrl[:3] = [
            min(max(x + min(max(m, -1.0), 1.0) * REACH, low), high)
            for x, m, low, high in zip(at, move, _LOW, _HIGH, strict=True)
        ]
        self._ctrl[3:] = scene.FINGER_OPEN if grip < 0 else 0.0
        self._advance()
        self._held = self._held + 1 if self._holds() else 0
        self.succeeded = self.succeeded or self._held >= _HELD_STEPS
        return self.succeeded

    def hand(self) -> Vector:
        """Position of the fingertips (3,)."""
        return np.asarray(self._qpos[:3] + _HOME, np.float64)

    def opening(self) -> float:
        """Distance between the fingers; 0 when closed."""
        return float(self._qpos[3] + self._qpos[4])

    def object(self) -> Vector:
        """Position (3,) of the object to move: the cube, the puck or the drawer's handle."""
        return np.array(self._object)

    def goal(self) -> Vector:
        """Position (3,) of its goal: the disc or the lower cube; for the drawer, its closed position."""
        if self._base is not None:
            return np.array(self._base)
        place = np.array(self._mocap[0])
        if self.task != "drawer":
            place[2] = 0.0
        return place

    def state(self) -> F32:
        """The state that a policy gets, float32 (20,)."""
        told, goal = self._told, self.goal()
        told[0:3] = self.hand()
        told[3] = self.opening()
        told[4:7] = self._object
        told[7:10] = goal
        told[10:13] = told[4:7] - told[0:3]
        told[13:16] = goal - told[4:7]
        return told.astype(np.float32)

    def save(self) -> Snapshot:
        """A snapshot of the whole state; any world of the same task can `restore` it bit for bit."""
        physics = np.empty(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, self.data, physics, _STATE)
        return Snapshot(self.task, physics, self._held, self.succeeded)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore ``snapshot``."""
        mujoco.mj_setState(self.model, self.data, snapshot.physics, _STATE)
        self._held, self.succeeded = snapshot.held, snapshot.succeeded
        self._place()

    def _advance(self) -> None:
        mujoco.mj_step(self.model, self.data, _SUBSTEPS)
        self._place()

    def _place(self) -> None:
        # mj_step leaves positions one substep old. Recomputing them makes observations a function of the saved state
        # alone, which an exact restore needs.
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def _lay_out(self, draw: np.random.Generator) -> None:
        near, far = (0.13, 0.2) if self.task == "push" else (0.2, 0.2)
        while True:
            thing, goal = draw.uniform(-near, near, 2), draw.uniform(-far, far, 2)
            if 0.13 < length(thing - goal) < 0.3:
                break
        self._put("object", [*thing, 0.0201])
        if self.task == "stack":
            self._put("base", [*goal, 0.0221])
        else:
            self.data.mocap_pos[0] = [*goal, 0.001]
            self.data.mocap_pos[1] = [*draw.uniform(-0.25, 0.25, 2), 0.0015]

    def _put(self, joint: str, where: list[float]) -> None:
        at = self.model.joint(joint).qposadr[0]
        self.data.qpos[at : at + 7] = [*where, 1, 0, 0, 0]

    def _holds(self) -> bool:
        if self.task == "drawer":
            return bool(self._qpos[self._drawer] > 0.12)
        x, y, height = self._object.tolist()
        goal_x, goal_y, _ = (self._mocap[0] if self._base is None else self._base).tolist()
        away = math.hypot(x - goal_x, y - goal_y)
        if self.task == "push":
            return away < 0.05
        released = bool(self._qpos[3] > 0.024)
        if self.task == "pick":
            return away < 0.035 and height < 0.024 and released
        return away < 0.025 and 0.055 < height < 0.072 and released
