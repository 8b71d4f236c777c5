"""Pictures of a MuJoCo scene as robosuite draws them, without drawing what no pixel can show.

A LIBERO scene has some 250,000 faces, most of them outside the view of the camera at the wrist, and on a CPU a picture
costs what its faces cost, whatever its size. `Renderer` leaves out bodies that lie wholly outside what the camera sees,
directly or in a mirror: such a body covers no sample of the picture, so the picture is the same to the last bit.

What is in view but behind something else is drawn: an oracle that knows what is hidden would save another 4 % of an
`agentview` picture and 15 % of a wrist picture.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from besttake.types import U8

F64 = NDArray[np.float64]
# robosuite shows groups 1 and 2: what is seen, not what collides.
_SHOWN, _HIDDEN = (1, 2), 5
# In metres: far more than MuJoCo's float32 can lose.
_MARGIN = 1e-3
_DRAWN = ("mesh", "tex", "mat", "hfield", "skin")


class Renderer:
    """A graphics context with the meshes and textures of a model, which can go on with another model that has the same.

    Any number may live in one process, and others beside them: each makes its own context current when it draws, and
    afterwards the one that was current before.
    """

    def __init__(self, model: Any, device: int) -> None:
        from robosuite.utils.binding_utils import GLContext

        self._con: Any = None
        self._camera, self._nothing = mujoco.MjvCamera(), mujoco.MjvPerturb()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._options = mujoco.MjvOption()
        self._options.geomgroup[:] = [group in _SHOWN for group in range(len(self._options.geomgroup))]
        self._drawn = _drawn_digest(model)
        self._set_model(model)
        with _giving_back():
            self._gl = GLContext(max_width=640, max_height=480, device_id=device)
            self._gl.make_current()
            self._upload()

    def adopt(self, model: Any) -> bool:
        """Draw ``model`` from now on, if its meshes and textures are those that were uploaded; whether they are."""
        if self._con is None or _drawn_digest(model) != self._drawn:
            return False
        self._set_model(model)
        return True

    def picture(self, data: Any, camera: int, size: int) -> U8:
        """(size, size, 3), bottom row first, of the poses in ``data``."""
        model = self._model
        self._camera.fixedcamid = camera
        groups = model.geom_group.copy()
        model.geom_group[unseen(model, data, camera)] = _HIDDEN
        try:
            every = mujoco.mjtCatBit.mjCAT_ALL
            mujoco.mjv_updateScene(model, data, self._options, self._nothing, self._camera, every, self._scene)
        finally:
            model.geom_group[:] = groups
        area, picture = mujoco.MjrRect(0, 0, size, size), np.empty((size, size, 3), np.uint8)
        with _giving_back():
            self._gl.make_current()
            self._make_room(size)
            mujoco.mjr_render(area, self._scene, self._con)
            mujoco.mjr_readPixels(picture, None, area, self._con)
        return picture

    def free(self) -> None:
        """Give the graphics context back."""
        if self._con is not None:
            with _giving_back():
                self._gl.make_current()
                self._con.free()
                self._gl.free()
            self._con = None

    def _set_model(self, model: Any) -> None:
        self._model = model
        self._scene = mujoco.MjvScene(model, maxgeom=1000)

    def _make_room(self, size: int) -> None:
        if size > min(self._con.offWidth, self._con.offHeight):
            room = self._model.vis.global_
            room.offwidth, room.offheight = max(size, room.offwidth), max(size, room.offheight)
            self._con.free()
            self._upload()

    def _upload(self) -> None:
        self._con = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_150)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._con)


@contextmanager
def _giving_back() -> Iterator[None]:
    """Afterwards the graphics context, or none, that was current is so again.

    robosuite's own renderer draws, and frees what it has uploaded, in whichever context is current. (OSMesa cannot be
    asked for all that was current; with it, others must not draw beside BestTake.)
    """
    if os.environ.get("MUJOCO_GL") != "egl":
        yield
        return
    from OpenGL import EGL

    context, display = EGL.eglGetCurrentContext(), EGL.eglGetCurrentDisplay()
    surfaces = [EGL.eglGetCurrentSurface(which) for which in (EGL.EGL_DRAW, EGL.EGL_READ)]
    try:
        yield
    finally:
        if context:
            EGL.eglMakeCurrent(display, *surfaces, context)
        elif ours := EGL.eglGetCurrentDisplay():
            EGL.eglMakeCurrent(ours, EGL.EGL_NO_SURFACE, EGL.EGL_NO_SURFACE, EGL.EGL_NO_CONTEXT)


def unseen(model: Any, data: Any, camera: int) -> NDArray[np.bool_]:
    """(ngeom,): which geoms cannot be seen by ``camera``, neither directly nor in a mirror.

    What is transparent (drawn in an order of its own), infinite or of unknown bounds is never left out, and nothing is
    where a light casts shadows or where the camera is not a plain one.
    """
    nobody = np.zeros(model.ngeom, bool)
    if model.light_castshadow.any() or model.cam_sensorsize[camera].any() or _projection(model, camera):
        return nobody
    view = _Pyramid.of_camera(data.cam_xpos[camera], data.cam_xmat[camera].reshape(3, 3), model.cam_fovy[camera])
    solid = (model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE) & _opaque(model)
    boxes = _Boxes.of_geoms(model, data)
    hidden: NDArray[np.bool_] = solid & view.excludes(boxes)
    mirrors = _mirrors(model)
    seen_mirrors = np.flatnonzero(mirrors & ~hidden)
    if mirrors.sum() > 1:
        # MuJoCo lets one mirror reflect, and which one may depend on those out of view.
        hidden &= ~mirrors
    for mirror in seen_mirrors:
        axes, center = data.geom_xmat[mirror].reshape(3, 3), data.geom_xpos[mirror]
        # The mirror is a plane itself, or the upper side of a box.
        box = model.geom_size[mirror] if model.geom_type[mirror] == mujoco.mjtGeom.mjGEOM_BOX else None
        reflected = view.mirrored(center if box is None else center + box[2] * axes[:, 2], axes[:, 2])
        hidden &= (reflected if box is None else reflected.through(axes, box)).excludes(boxes)
    return hidden


@dataclass(frozen=True)
class _Boxes:
    """Oriented boxes: centres (n, 3), axes in the columns of (n, 3, 3), half edges (n, 3)."""

    centers: F64
    axes: F64
    halves: F64

    @classmethod
    def of_geoms(cls, model: Any, data: Any) -> _Boxes:
        """A box for each geom that holds all that is drawn of it."""
        axes, bounds = data.geom_xmat.reshape(-1, 3, 3), model.geom_aabb.reshape(-1, 2, 3)
        return cls(data.geom_xpos + np.einsum("nij,nj->ni", axes, bounds[:, 0]), axes, bounds[:, 1])


@dataclass(frozen=True)
class _Pyramid:
    """What lies on the inner side of every plane: (k, 3) unit normals that point inwards, and a point of each."""

    normals: F64
    points: F64

    @classmethod
    def of_camera(cls, eye: F64, axes: F64, degrees_high: float) -> _Pyramid:
        """A square view along the camera's -z axis, from the eye on."""
        right, up, back = axes.T
        half = np.deg2rad(degrees_high) / 2
        sides = [np.cos(half) * side - np.sin(half) * back for side in (right, -right, up, -up)]
        return cls(np.array([*sides, -back]), np.tile(eye, (5, 1)))

    def mirrored(self, point: F64, normal: F64) -> _Pyramid:
        """What is seen in a mirror through ``point``: this pyramid's mirror image, in front of the mirror."""
        normals = self.normals - 2 * np.outer(self.normals @ normal, normal)
        points = self.points - 2 * np.outer((self.points - point) @ normal, normal)
        return _Pyramid(np.vstack([normals, normal]), np.vstack([points, point]))

    def through(self, axes: F64, halves: F64) -> _Pyramid:
        """What a mirrored pyramid sees through its mirror: the upper side, at its last point, of a box with these axes.

        A reflection shows only where the mirror itself does: on a ray from the mirrored eye that meets the box's mirror
        image, which rises from the mirror by the box's height.
        """
        eye, mirror = self.points[0], self.points[-1]
        away = (eye - mirror) @ axes
        if away[2] > -_MARGIN:
            return self
        normals = []
        for axis in (0, 1):
            edges = np.array([-1, 1]) * (halves[axis] + _MARGIN) - away[axis]
            slopes = np.divide.outer(edges, np.array([0, 2 * halves[2] + _MARGIN]) - away[2])
            normals += [axes[:, axis] - slopes.min() * axes[:, 2], slopes.max() * axes[:, 2] - axes[:, axis]]
        units = np.array(normals) / np.linalg.norm(normals, axis=1, keepdims=True)
        return _Pyramid(np.vstack([self.normals, units]), np.vstack([self.points, np.tile(eye, (4, 1))]))

    def excludes(self, boxes: _Boxes) -> NDArray[np.bool_]:
        """(n,): which boxes lie wholly beyond one of the planes."""
        depth = boxes.centers @ self.normals.T - np.einsum("ki,ki->k", self.normals, self.points)
        reach = np.einsum("nkj,nj->nk", np.abs(self.normals @ boxes.axes), boxes.halves)
        outside: NDArray[np.bool_] = np.any(depth + reach < -_MARGIN, axis=1)
        return outside


def _projection(model: Any, camera: int) -> bool:
    """Whether the camera projects otherwise than in perspective."""
    if hasattr(model, "cam_projection"):
        return bool(model.cam_projection[camera])
    return bool(model.cam_orthographic[camera])


def _opaque(model: Any) -> NDArray[np.bool_]:
    materials = np.append(model.mat_rgba[:, 3], 1.0)  # the last is that of geoms without one, whose index is -1
    opaque: NDArray[np.bool_] = np.minimum(model.geom_rgba[:, 3], materials[model.geom_matid]) >= 1.0
    return opaque


def _mirrors(model: Any) -> NDArray[np.bool_]:
    reflectance = np.append(model.mat_reflectance, 0.0)[model.geom_matid]
    flat = np.isin(model.geom_type, (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_BOX))
    mirrors: NDArray[np.bool_] = flat & (reflectance > 0) & np.isin(model.geom_group, _SHOWN)
    return mirrors


def _drawn_digest(model: Any) -> bytes:
    """Of all that MuJoCo uploads to a graphics context."""
    digest = hashlib.sha256(repr((model.vis, model.stat)).encode())
    for name in dir(model):
        values = getattr(model, name) if name.partition("_")[0] in _DRAWN else None
        if isinstance(values, np.ndarray) and not name.startswith("mesh_poly"):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(values).data)
    return digest.digest()
