"""LIBERO and robomimic HDF5, read with h5py: ``hdf5:FILE`` or ``hdf5:DIRECTORY`` (all its .hdf5 and .h5 files).

LIBERO, known by ``obs/…_rgb``: the task is the file's name without ``_demo``, the instruction stands in
``problem_info``; the state (8) is ``ee_pos``, ``ee_ori`` (axis-angle) and ``gripper_states``; pictures are stored as
rendered, upside down, and are rotated by 180 degrees here, as LeRobot and openpi feed them.
robomimic, known by ``obs/…_image``: the task is ``env_name`` of ``env_args``, without instruction; the state (8) is
``robot0_eef_pos``, ``robot0_eef_quat`` as axis-angle and ``robot0_gripper_qpos``; pictures are stored upright.
In both, the gripper is the last of 7 actions, -1 opens and +1 closes, and the position comes first in the state.

Options: ``camera`` (``eye_in_hand_rgb`` …; by default the one in the hand), ``state`` (keys of ``obs`` joined by
``+``, in place of the above), ``rotate`` (0 or 180, in place of the above), ``size`` (longest side of a frame, 320),
``map`` (for a policy that looks: ``agentview:agentview_rgb``, where the names do not say which camera is which).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from besttake.core.rotations import axis_angle
from besttake.demos.base import Bad, choose_camera, match_cameras, uri_again
from besttake.demos.frames import LARGEST, Unreadable, fitted_array
from besttake.envs.libero_conventions import upright
from besttake.errors import LibraryError, need, one_line
from besttake.options import Reader
from besttake.types import F32, U8, Demo

_LIBERO_STATE = ("ee_pos", "ee_ori", "gripper_states")
_ROBOMIMIC_STATE = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")


class Hdf5Demos:
    """The demonstrations of one or more HDF5 files of the same kind."""

    def __init__(
        self,
        name: str,
        files: list[Path],
        camera: str | None = None,
        state: tuple[str, ...] | None = None,
        rotate: int | None = None,
        size: int = LARGEST,
        names: Mapping[str, str] | None = None,
        uri: str = "",
    ) -> None:
        self.name, self._files, self._size, self._map, self.uri = name, files, size, names or {}, uri
        attributes, observations, action_dim = _first_readable(files, name)
        self._cameras = [k for k, shape in observations.items() if len(shape) == 4]
        coloured = [k for k in self._cameras if observations[k][-1] == 3]
        if not coloured:
            raise LibraryError(
                f"{name} has no pictures under obs/; render them first (robomimic: dataset_states_to_obs.py)"
            )
        self.camera = choose_camera(coloured, camera, name)
        self._libero = self.camera.endswith("_rgb")
        known = _LIBERO_STATE if self._libero else _ROBOMIMIC_STATE
        self._state = state or (known if set(known) <= set(observations) else None)
        missing = set(self._state or ()) - set(observations)
        if missing:
            raise LibraryError(f"{name} has no obs/{sorted(missing)[0]}; it has {', '.join(sorted(observations))}")
        self._rotate = (180 if self._libero else 0) if rotate is None else rotate
        self.fps = float(_json(attributes, "env_args").get("env_kwargs", {}).get("control_freq", 20))
        self.gripper_dim = action_dim - 1 if action_dim == 7 else None
        self.gripper_open = -1
        self.eef_dims = (0, 1, 2) if self._state == known else None
        digest = hashlib.sha256(repr([self.camera, self._state, self._rotate, size]).encode())
        for path in files:
            digest.update(f"{path.name} {path.stat().st_size} {_edges(path)}\n".encode())
        self.fingerprint = digest.hexdigest()[:16]

    def __iter__(self) -> Iterator[Demo | Bad]:
        h5py = _h5py()
        for path in self._files:
            try:
                with h5py.File(path, "r") as file:
                    yield from self._demos(path, file)
            except (OSError, KeyError) as error:
                yield Bad(path.name, _why(path, error))

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether it has these cameras."""
        return match_cameras(cameras, self._cameras, self._map) is not None

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration ``demo``, full size."""
        file, _, key = demo.rpartition("/")
        path = next(p for p in self._files if p.name == file)
        matched = match_cameras(cameras, self._cameras, self._map) or {}
        try:
            with _h5py().File(path, "r") as opened:
                pictures = {w: np.asarray(opened["data"][key]["obs"][s][step]) for w, s in matched.items()}
        except (OSError, KeyError, ValueError) as error:
            raise LibraryError(f"{self.name}: {demo} cannot be shown ({one_line(error, 120)})") from error
        return {camera: upright(picture) if self._rotate else picture for camera, picture in pictures.items()}

    def _demos(self, path: Path, file: Any) -> Iterator[Demo | Bad]:
        attributes = dict(file["data"].attrs)
        instruction = str(_json(attributes, "problem_info").get("language_instruction", "")).strip('"')
        env = str(_json(attributes, "env_args").get("env_name", path.stem))
        task = re.sub("_demo$", "", path.stem) if self._libero else env
        for key in sorted(file["data"], key=_number):
            identity = f"{path.name}/{key}"
            try:
                yield self._demo(identity, task, instruction, file["data"][key])
            except (Unreadable, OSError, KeyError, ValueError, TypeError) as error:
                reason = str(error) if isinstance(error, Unreadable) else f"cannot be read ({one_line(error, 120)})"
                yield Bad(identity, reason)

    def _demo(self, identity: str, task: str, instruction: str, group: Any) -> Demo:
        if "obs" not in group or self.camera not in group["obs"]:
            raise Unreadable(f"has no camera {self.camera}")
        frames = np.asarray(group["obs"][self.camera][()])
        if self._rotate and frames.ndim == 4:
            frames = upright(frames)
        frames = fitted_array(np.ascontiguousarray(frames), self._size) if len(frames) else frames
        steps, actions = np.arange(len(frames), dtype=np.int64), np.asarray(group["actions"][()], np.float32)
        file, _, key = identity.rpartition("/")
        origin = {"file": file, "demo": key}
        return Demo(identity, task, frames, steps, self._states(group["obs"]), actions, instruction, origin)

    def _states(self, observations: Any) -> F32 | None:
        if self._state is None:
            return None
        parts = []
        for key in self._state:
            if key not in observations:
                raise Unreadable(f"has no obs/{key}")
            values = np.asarray(observations[key][()], np.float64)
            flat = values.reshape(len(values), int(np.prod(values.shape[1:])))
            parts.append(axis_angle(values) if key.endswith("_quat") else flat)
        return np.concatenate(parts, axis=1).astype(np.float32)


def make(
    rest: str,
    camera: str | None = None,
    state: str | None = None,
    rotate: int | str | None = None,
    size: int | str = LARGEST,
    map: str = "",
) -> Hdf5Demos:
    """The source ``hdf5:rest``: a file, or a directory of files."""
    path = Path(rest)
    files = [path] if path.is_file() else sorted(p for p in path.glob("*") if p.suffix in (".hdf5", ".h5"))
    if not files:
        raise LibraryError(f"hdf5:{rest}: no such file, and no directory with .hdf5 or .h5 files")
    read = Reader(f"hdf5:{rest}")
    turned = None if rotate is None else int(read.choice("rotate", str(rotate), ("0", "180")))
    keys = None if state is None else tuple(state.replace(" ", "+").split("+"))
    again = uri_again("hdf5", path, camera=camera, state=state, rotate=rotate, size=size, map=map)
    names = read.mapping("map", map)
    return Hdf5Demos(read.uri, files, camera, keys, turned, read.whole("size", size), names, again)


def _first_readable(files: list[Path], name: str) -> tuple[Mapping[str, Any], dict[str, tuple[int, ...]], int]:
    """Attributes, observation shapes and action size of the first demonstration that shows them."""
    h5py = _h5py()
    trouble = "has no demonstrations under data/"
    for path in files:
        try:
            with h5py.File(path, "r") as file:
                for key in sorted(file["data"], key=_number):
                    group = file["data"][key]
                    if "obs" in group and "actions" in group and len(group["obs"]):
                        shapes = {k: tuple(group["obs"][k].shape) for k in group["obs"]}
                        return dict(file["data"].attrs), shapes, int(group["actions"].shape[-1])
        except (OSError, KeyError, AttributeError) as error:
            trouble = f"{path.name} {_why(path, error)}"
    raise LibraryError(f"{name}: {trouble}")


def _json(attributes: Mapping[str, Any], key: str) -> dict[str, Any]:
    try:
        value = json.loads(attributes.get(key, "{}"))
    except (ValueError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(key: str) -> tuple[int, str]:
    digits = re.search(r"\d+$", key)
    return (int(digits.group()) if digits else -1, key)


def _edges(path: Path) -> str:
    """A digest of the first and last megabyte: enough to notice a file that was written again."""
    with path.open("rb") as file:
        head = file.read(1 << 20)
        file.seek(max(0, path.stat().st_size - (1 << 20)))
        return hashlib.sha256(head + file.read()).hexdigest()[:16]


def _why(path: Path, error: Exception) -> str:
    if isinstance(error, OSError) and not _h5py().is_hdf5(path):
        return "is not an HDF5 file"
    if isinstance(error, KeyError):
        return "is not a LIBERO or robomimic file (it has no group data)"
    return f"cannot be read ({one_line(error, 120)})"


def _h5py() -> Any:
    return need("h5py", "hdf5 demonstrations", "hdf5")
