"""`GroundTruth`: what a scripted expert looks at, the poses, shapes and goals that the simulator knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

F64 = NDArray[np.float64]

_WIDEST_GRASP = 0.075


@dataclass(frozen=True)
class Goal:
    """One condition of the task's goal: ``relation`` ("on" or "in") of ``item`` to ``place``."""

    relation: str
    item: str
    place: str


@dataclass(frozen=True)
class Grasp:
    """Where the point between the fingertips goes (3,), and how far the hand turns about the vertical."""

    point: F64
    yaw: float


class GroundTruth:
    """The true state of a LIBERO scene, read from its robosuite environment."""

    def __init__(self, robosuite: Any) -> None:
        self._env = robosuite
        self._robot = robosuite.robots[0]
        self._home = self._orientation()
        self._fingers = self._finger_direction()

    def goals(self) -> list[Goal] | None:
        """The goal's conditions, or None if one of them is not "put this on or in that"."""
        goals = []
        for relation, *names in self._env.parsed_problem["goal_state"]:
            if relation not in ("on", "in") or len(names) != 2:
                return None
            goals.append(Goal(relation, *names))
        return goals

    def hand(self) -> F64:
        """The point between the fingertips (3,)."""
        return np.array(self._env.sim.data.site_xpos[self._robot.eef_site_id])

    def turn_error(self, yaw: float) -> F64:
        """Rotation vector (3,) from the hand's orientation to the home orientation turned by ``yaw``."""
        wanted = Rotation.from_rotvec([0, 0, yaw]) * self._home
        return np.asarray((wanted * self._orientation().inv()).as_rotvec())

    def position(self, name: str) -> F64:
        """Where an object, fixture or region is (3,)."""
        return np.array(self._env.object_states_dict[name].get_geom_state()["pos"])

    def shape(self, name: str) -> F64:
        """Points on the collision shape of an object or fixture (n, 3); a region has the shape of its owner.

        What can be seen but not touched, as some occluders of LIBERO-Occ, has none.
        """
        model, data = self._env.sim.model._model, self._env.sim.data._data
        owner = self._owner(name)
        if owner is None:
            return self.position(name)[None]
        root = model.body_rootid[self._env.obj_body_id[owner]]
        geoms = np.flatnonzero((model.body_rootid[model.geom_bodyid] == root) & (model.geom_contype > 0))
        return np.concatenate([np.zeros((0, 3)), *(_geom_points(model, data, int(geom)) for geom in geoms)])

    def holds(self, goal: Goal) -> bool:
        """Whether a condition is met."""
        return bool(self._env._eval_predicate([goal.relation, goal.item, goal.place]))

    def obstacles(self, item: str) -> F64:
        """Points on everything that stands around ``item`` (n, 3)."""
        names = [name for name in (*self._env.objects_dict, *self._env.fixtures_dict) if name != item]
        names = [name for name in names if name in self._env.obj_body_id and "table" not in name and name != "floor"]
        return np.concatenate([np.zeros((0, 3)), *map(self.shape, names)])

    def grasp(self, item: str, attempt: int = 0) -> Grasp:
        """Across the narrowest side where one fits between the fingers, else by the rim.

        Each further ``attempt`` grasps deeper, or at another place of the rim.
        """
        points = self.shape(item)
        top, bottom = points[:, 2].max(), points[:, 2].min()
        depth = min(0.035, 0.6 * (top - bottom)) + 0.006 * attempt
        upper = points[points[:, 2] > top - max(0.05, 0.4 * (top - bottom))]
        yaws = [float(yaw) for yaw in np.radians(np.arange(-90, 90, 5))]
        widths = [float(np.ptp(upper[:, :2] @ _turned(self._fingers, yaw))) for yaw in yaws]
        if min(widths) >= _WIDEST_GRASP:
            return self._rim_grasp(item, points, attempt)
        pairs = zip(yaws, widths, strict=True)
        _, yaw = min((width + 0.01 * abs(yaw), yaw) for yaw, width in pairs if width < _WIDEST_GRASP)
        across = _turned(self._fingers, yaw)
        along = np.array([-across[1], across[0]])
        middle = [(span.max() + span.min()) / 2 for span in (upper[:, :2] @ across, upper[:, :2] @ along)]
        xy = middle[0] * across + middle[1] * along
        return Grasp(np.array([*xy, top - depth]), yaw)

    def _rim_grasp(self, item: str, points: F64, attempt: int) -> Grasp:
        top = points[:, 2].max()
        rim = points[points[:, 2] > top - 0.02]
        centre = (rim[:, :2].max(axis=0) + rim[:, :2].min(axis=0)) / 2
        others = self.obstacles(item)
        others = others[others[:, 2] > top - 0.03]
        candidates = []
        for yaw in np.radians([0, -45, 45, 90]):
            for side in (1, -1):
                out = side * _turned(self._fingers, yaw)
                radius = np.quantile((rim[:, :2] - centre) @ out, 0.98)
                point = centre + (radius - 0.006) * out
                outer = point + 0.03 * out
                clear = np.min(np.linalg.norm(others[:, :2] - outer, axis=1), initial=0.08)
                candidates.append((clear - 0.02 * abs(yaw), point, float(yaw)))
        candidates.sort(key=lambda candidate: -candidate[0])
        _, point, yaw = candidates[attempt % len(candidates)]
        return Grasp(np.array([*point, top - 0.022]), yaw)

    def _owner(self, name: str) -> str | None:
        if name in self._env.obj_body_id:
            return name
        parent = getattr(self._env.object_states_dict[name], "parent_name", None)
        if parent is None or "table" in parent or parent == "floor" or parent not in self._env.obj_body_id:
            return None
        return str(parent)

    def _orientation(self) -> Rotation:
        return Rotation.from_matrix(self._env.sim.data.site_xmat[self._robot.eef_site_id].reshape(3, 3))

    def _finger_direction(self) -> F64:
        body = self._env.sim.data.get_body_xpos
        across = np.array(body("gripper0_leftfinger") - body("gripper0_rightfinger"))[:2]
        return np.asarray(across / np.linalg.norm(across))


def _turned(direction: F64, yaw: float) -> F64:
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([cos * direction[0] - sin * direction[1], sin * direction[0] + cos * direction[1]])


def _geom_points(model: Any, data: Any, geom: int) -> F64:
    kind, size = model.geom_type[geom], model.geom_size[geom]
    corners = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        local = model.mesh_vert[first : first + model.mesh_vertnum[mesh]]
    elif kind in (mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_CAPSULE):
        turn = np.linspace(0, 2 * np.pi, 16, endpoint=False)
        ring = np.stack([np.cos(turn), np.sin(turn)], axis=1) * size[0]
        half = size[1] + (size[0] if kind == mujoco.mjtGeom.mjGEOM_CAPSULE else 0)
        local = np.concatenate([np.column_stack([ring, np.full(16, z)]) for z in (-half, half)])
    elif kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        local = corners / np.sqrt(3) * size[0]
    else:
        local = corners * size
    return np.asarray(local @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom])
