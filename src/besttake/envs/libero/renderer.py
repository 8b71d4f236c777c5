"""Render a MuJoCo scene as robosuite does, without the geoms that no pixel can show.

A LIBERO scene has some 250,000 faces, most of them outside the view of the wrist camera, and on a CPU the time for a
picture depends on the number of faces, not on its size. `Renderer` leaves out geoms that lie entirely outside the
camera's view, directly or in a mirror. They cover no sample of the picture, so the picture is the same to the last bit.

Geoms in view but hidden behind others are rendered: leaving them out could save another 4 % of the time of an
`agentview` picture and 15 % of that of a wrist picture.
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
# robosuite shows groups 1 and 2, which are the visual geoms, not those for collisions.
_SHOWN, _HIDDEN = (1, 2), 5
# In metres, far above the rounding errors of MuJoCo's float32.
_MARGIN = 1e-3
_DRAWN = ("mesh", "tex", "mat", "hfield", "skin")


class Renderer:
    """A graphics context with the meshes and textures of a model; another model that has the same can reuse it.

    A process may have several renderers, also of others: each makes its own context current while it renders, and
    then restores the previous one.
    """

    def __init__(self, model: Any, device: int) -> None:
        from robosuite.utils.binding_utils import GLContext

        self._con: Any = None
        self._camera, self._nothing = mujoco.MjvCamera(), mujoco.MjvPerturb()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._options = mujoco.MjvOption()
        self._options.geomgroup[:] = [group in _SHOWN for group in range(len(self._options.geomgroup))]
        self._uploaded = _digest_of_uploads(model)
        self._set_model(model)
        with _restored_context():
            self._gl = GLContext(max_width=640, max_height=480, device_id=device)
            self._gl.make_current()
            self._upload()

    def adopt(self, model: Any) -> bool:
        """Render ``model`` from now on if its meshes and textures are those uploaded; return whether they are."""
        if self._con is None or _digest_of_uploads(model) != self._uploaded:
            return False
        self._set_model(model)
        return True

    def picture(self, data: Any, camera: int, size: int) -> U8:
        """Render the poses in ``data``: (size, size, 3), bottom row first."""
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
        with _restored_context():
            self._gl.make_current()
            self._enlarge_buffer(size)
            mujoco.mjr_render(area, self._scene, self._con)
            mujoco.mjr_readPixels(picture, None, area, self._con)
        return picture

    def free(self) -> None:
        """Free the graphics context."""
        if self._con is not None:
            with _restored_context():
                self._gl.make_current()
                self._con.free()
                self._gl.free()
            self._con = None

    def _set_model(self, model: Any) -> None:
        self._model = model
        self._scene = mujoco.MjvScene(model, maxgeom=1000)

    def _enlarge_buffer(self, size: int) -> None:
        if size > min(self._con.offWidth, self._con.offHeight):
            settings = self._model.vis.global_
            settings.offwidth, settings.offheight = max(size, settings.offwidth), max(size, settings.offheight)
            self._con.free()
            self._upload()

    def _upload(self) -> None:
        self._con = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_150)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._con)


@contextmanager
def _restored_context() -> Iterator[None]:
    """Restore the current graphics context (or none) at the end of the block.

    robosuite's own renderer renders and frees its uploads in whichever context is current. (OSMesa cannot report the
    current context completely; with it, others must not render in the same process.)
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
    """Which geoms (ngeom,) ``camera`` cannot see, neither directly nor in a mirror.

    Transparent (rendered in a separate order), infinite and unbounded geoms always count as seen, and all geoms do if a
    light casts shadows or the camera is not a plain perspective one.
    """
    if model.light_castshadow.any() or model.cam_sensorsize[camera].any() or _is_orthographic(model, camera):
        return np.zeros(model.ngeom, bool)
    view = _Pyramid.of_camera(data.cam_xpos[camera], data.cam_xmat[camera].reshape(3, 3), model.cam_fovy[camera])
    solid = (model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE) & _opaque(model)
    boxes = _Boxes.of_geoms(model, data)
    hidden: NDArray[np.bool_] = solid & view.excludes(boxes)
    mirrors = _mirrors(model)
    seen_mirrors = np.flatnonzero(mirrors & ~hidden)
    if mirrors.sum() > 1:
        # MuJoCo lets only one mirror reflect, and which one may depend on mirrors out of view.
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
        """The bounding box of each geom."""
        axes, bounds = data.geom_xmat.reshape(-1, 3, 3), model.geom_aabb.reshape(-1, 2, 3)
        return cls(data.geom_xpos + np.einsum("nij,nj->ni", axes, bounds[:, 0]), axes, bounds[:, 1])


@dataclass(frozen=True)
class _Pyramid:
    """The space on the inner side of several planes: their unit normals (k, 3), inwards, and a point of each (k, 3)."""

    normals: F64
    points: F64

    @classmethod
    def of_camera(cls, eye: F64, axes: F64, degrees_high: float) -> _Pyramid:
        """The square view of a camera at ``eye`` along its -z axis."""
        right, up, back = axes.T
        half = np.deg2rad(degrees_high) / 2
        sides = [np.cos(half) * side - np.sin(half) * back for side in (right, -right, up, -up)]
        return cls(np.array([*sides, -back]), np.tile(eye, (5, 1)))

    def mirrored(self, point: F64, normal: F64) -> _Pyramid:
        """The space seen in a mirror through ``point``: this pyramid's mirror image, in front of the mirror."""
        normals = self.normals - 2 * np.outer(self.normals @ normal, normal)
        points = self.points - 2 * np.outer((self.points - point) @ normal, normal)
        return _Pyramid(np.vstack([normals, normal]), np.vstack([points, point]))

    def through(self, axes: F64, halves: F64) -> _Pyramid:
        """The part of a mirrored pyramid seen through its mirror: the upper side, at its last point, of a box.

        ``axes`` and ``halves`` are those of the box. A reflection is visible only where the mirror is: on rays from the
        mirrored eye through the box's mirror image, which rises from the mirror by the box's height.
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
        """Which boxes (n,) lie entirely beyond one of the planes."""
        depth = boxes.centers @ self.normals.T - np.einsum("ki,ki->k", self.normals, self.points)
        reach = np.einsum("nkj,nj->nk", np.abs(self.normals @ boxes.axes), boxes.halves)
        outside: NDArray[np.bool_] = np.any(depth + reach < -_MARGIN, axis=1)
        return outside


def _is_orthographic(model: Any, camera: int) -> bool:
    """Whether the camera has another projection than perspective."""
    if hasattr(model, "cam_projection"):
        return bool(model.cam_projection[camera])
    return bool(model.cam_orthographic[camera])


def _opaque(model: Any) -> NDArray[np.bool_]:
    materials = np.append(model.mat_rgba[:, 3], 1.0)  # the last is for geoms without a material, whose index is -1
    opaque: NDArray[np.bool_] = np.minimum(model.geom_rgba[:, 3], materials[model.geom_matid]) >= 1.0
    return opaque


def _mirrors(model: Any) -> NDArray[np.bool_]:
    reflectance = np.append(model.mat_reflectance, 0.0)[model.geom_matid]
    flat = np.isin(model.geom_type, (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_BOX))
    mirrors: NDArray[np.bool_] = flat & (reflectance > 0) & np.isin(model.geom_group, _SHOWN)
    return mirrors


def _digest_of_uploads(model: Any) -> bytes:
    """A hash of everything that MuJoCo uploads to a graphics context."""
    digest = hashlib.sha256(repr((model.vis, model.stat)).encode())
    for name in dir(model):
        values = getattr(model, name) if name.partition("_")[0] in _DRAWN else None
        if isinstance(values, np.ndarray) and not name.startswith("mesh_poly"):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(values).data)
    return digest.digest()
