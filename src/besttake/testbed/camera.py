"""A camera that casts rays with ``mj_multiRay``: it needs no GL library, and its pictures are the same bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import length, product
from besttake.testbed.engine import mujoco
from besttake.types import U8

_TO_SUN = np.array([0.35, -0.45, 0.82])
_SUN = _TO_SUN / length(_TO_SUN)
_LAMP = np.array([0.45, -0.55, 1.15])
_SKY = np.array([0.80, 0.87, 0.93])
_AMBIENT = 0.5
_CHECKS_PER_METRE = 12.5
_CUTOFF = 3.0


class RayCamera:
    """Renders one camera of a model: uint8 (px, px, 3).

    ``groups`` are the geom groups that it sees. ``shadows`` casts a second ray per pixel, from the lamp.
    """

    def __init__(
        self, model: Any, name: str, px: int, groups: tuple[int, ...] = (0, 1, 2), shadows: bool = False
    ) -> None:
        self._model = model
        self._camera = model.camera(name).id
        self._px = px
        self._shadows = shadows
        self._table = model.geom("table").id
        self._groups = np.array([i in groups for i in range(6)], np.uint8)
        self._rays = _rays(px, float(model.cam_fovy[self._camera]))
        self._colour = 255 * np.concatenate([model.geom_rgba[:, :3], _SKY[None]])
        self._gives_normals = "normal:" in (mujoco.mj_multiRay.__doc__ or "")

    def __call__(self, data: Any) -> U8:
        """Render ``data``, whose kinematics and cameras must be up to date."""
        origin = np.array(data.cam_xpos[self._camera])
        rays = product(self._rays, data.cam_xmat[self._camera].reshape(3, 3).T)
        geom, distance, normal = self._cast(data, origin, rays)
        light = np.clip(product(normal, _SUN[:, None])[:, 0], 0, 1)
        if self._shadows:
            light *= self._lit(data, origin + rays * distance[:, None], normal)
        shade = _AMBIENT + (1 - _AMBIENT) * light
        tile = np.floor((origin[:2] + rays[:, :2] * distance[:, None]) * _CHECKS_PER_METRE).astype(np.int32)
        shade[(geom == self._table) & ((tile[:, 0] ^ tile[:, 1]) & 1 == 1)] *= 0.84
        shade[geom < 0] = 1
        # A ray that hits nothing has geom -1 and thus the last colour, the sky.
        picture: U8 = (self._colour.take(geom, axis=0, mode="wrap") * shade[:, None]).astype(np.uint8)
        return picture.reshape(self._px, self._px, 3)

    def _cast(
        self, data: Any, origin: NDArray[np.float64], rays: NDArray[np.float64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        count = len(rays)
        geom, distance, normal = np.zeros(count, np.int32), np.zeros(count), np.zeros((count, 3))
        before = (self._model, data, origin, rays.ravel(), self._groups, 1, -1, geom, distance)
        if self._gives_normals:
            mujoco.mj_multiRay(*before, normal.reshape(-1), count, _CUTOFF)
        else:
            mujoco.mj_multiRay(*before, count, _CUTOFF)
            normal = _normals_of_depth(origin + rays * distance[:, None], rays, self._px)
        return geom, distance, normal

    def _lit(self, data: Any, where: NDArray[np.float64], normal: NDArray[np.float64]) -> NDArray[np.float64]:
        """The share of the lamp's light that reaches each point: 1, or less in shadow."""
        ray = where + 1e-3 * normal - _LAMP
        far = length(ray)
        _, distance, _ = self._cast(data, _LAMP, ray / far[:, None])
        return np.where((distance >= 0) & (distance < far - 2e-3), 0.35, 1.0)


def _rays(px: int, fovy: float) -> NDArray[np.float64]:
    """Unit directions (px * px, 3) in the camera frame (x right, y up, looking along -z), rows from the top."""
    # Round to float32, because CPUs differ in the last bit of a tangent.
    edge = np.float64(np.float32(np.tan(np.deg2rad(fovy) / 2)))
    centre = ((np.arange(px) + 0.5) / px * 2 - 1) * edge
    x, y = np.meshgrid(centre, -centre)
    rays = np.stack([x, y, -np.ones_like(x)], axis=-1).reshape(-1, 3)
    return np.asarray(rays / length(rays)[:, None], np.float64)


def _normals_of_depth(where: NDArray[np.float64], rays: NDArray[np.float64], px: int) -> NDArray[np.float64]:
    """Surface normals (n, 3) from differences of neighbouring hits, for MuJoCo versions whose rays return none."""
    grid = where.reshape(px, px, 3)
    normal = np.cross(np.gradient(grid, axis=1), np.gradient(grid, axis=0)).reshape(-1, 3)
    normal /= length(normal)[:, None] + 1e-9
    return np.asarray(normal * -np.sign(np.sum(normal * rays, axis=1, keepdims=True)), np.float64)
