"""LIBERO and robomimic HDF5, read with h5py: ``hdf5:FILE`` or ``hdf5:DIRECTORY`` (all its .hdf5 and .h5 files).

LIBERO, known by ``obs/…_rgb``: the task is the file's name without ``_demo``, the instruction stands in
``problem_info``; the state (8) is ``ee_pos``, ``ee_ori`` (axis-angle) and ``gripper_states``; pictures are stored as
rendered, upside down, and are rotated by 180 degrees here, as LeRobot and openpi feed them.
robomimic, known by ``obs/…_image``: the task is ``env_name`` of ``env_args``, without instruction; the state (8) is
``robot0_eef_pos``, ``robot0_eef_quat`` as axis-angle and ``robot0_gripper_qpos``; pictures are stored upright.
In both, the gripper is the last of 7 actions, -1 opens and +1 closes, and the position comes first in the state.

A file pairs each action with the observation **before** it (robomimic; OpenVLA's ``regenerate_libero_dataset.py``), or
**after** it (LIBERO's ``create_dataset.py``, which steps first and then records). The latter are shifted by one, so
that a demonstration always says what was done at what was seen. Which of the two a file is can be seen where it holds
the simulator's states, which both scripts take before the action: the joints in them are those of the same
observation, or of the one before. Otherwise LIBERO's own attributes tell it.

Options: ``camera`` (``eye_in_hand_rgb`` …; by default the one in the hand), ``state`` (keys of ``obs`` joined by
``+``, in place of the above), ``rotate`` (0 or 180, in place of the above), ``pairing`` (``before`` or ``after``, in
place of the above), ``fps`` (by default what the files say, else 20), ``size`` (longest side of a frame, 320), ``map``
(``agentview:agentview_rgb``, where the names do not say which camera is which).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.conventions import axis_angle
from besttake.demos import h5
from besttake.demos.base import Episodes, SourceInfo, assumed_rate, choose_camera, uri_again
from besttake.demos.frames import LARGEST, Unreadable
from besttake.envs.libero.harness import upright
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8, Demo

Pairing = Literal["before", "after"]
_USUAL_RATE = 20.0
_LIBERO_STATE = ("ee_pos", "ee_ori", "gripper_states")
_ROBOMIMIC_STATE = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
_LIBERO_WRITES = ("bddl_file_content", "problem_info", "macros_image_convention")
_PAIRED = {
    "before": "each action stands beside the observation before it",
    "after": "each action stands beside the observation after it, so actions were shifted by one step",
}


@dataclass(frozen=True)
class _First:
    """What the first readable demonstration shows."""

    attributes: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    action_dim: int
    pairing: Pairing


@dataclass(frozen=True)
class Hdf5Reader:
    """Reads demonstrations by ``FILE/demo_N``; a file that cannot be read is one key, its name."""

    files: Mapping[str, Path]
    camera: str
    state: tuple[str, ...] | None
    rotate: int
    pairing: Pairing | None
    size: int

    @property
    def is_libero(self) -> bool:
        """Whether these are LIBERO's files, by their camera, and not robomimic's."""
        return self.camera.endswith("_rgb")

    def ids(self) -> Iterator[str]:
        """All demonstrations, file by file, ``demo_2`` before ``demo_10``."""
        for name in self.files:
            try:
                with self._data(name) as data:
                    keys = [f"{name}/{key}" for key in h5.by_number(data)]
            except Unreadable:
                keys = [name]  # reading it says what is wrong with the file
            yield from keys

    def task(self, key: str) -> str:
        """LIBERO has a file per task; robomimic names the env."""
        name = key.partition("/")[0]
        stem = self.files[name].stem
        if self.is_libero:
            return re.sub("_demo$", "", stem)
        with self._data(name) as data:
            return str(h5.json_attribute(h5.attributes(data), "env_args").get("env_name", stem))

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of a demonstration."""
        with self._group(key) as group:
            shift, states, actions = self._shift(group), self._states(group), h5.numbers(group, "actions")
        return states if states is None else states[: len(states) - shift], actions[shift:]

    def demo(self, key: str) -> Demo:
        """A demonstration."""
        with self._group(key) as group:
            if h5.item(group, f"obs/{self.camera}") is None:
                raise Unreadable(f"has no camera {self.camera}")
            frames = self._upright(h5.pictures(group, f"obs/{self.camera}", self.size))
            actions, states, shift = h5.numbers(group, "actions"), self._states(group), self._shift(group)
            about = h5.json_attribute(h5.attributes(group.parent), "problem_info")
        if len(frames) != len(actions):
            raise Unreadable(f"has {len(frames)} pictures for {len(actions)} actions")
        if shift:
            frames, states, actions = frames[:-1], None if states is None else states[:-1], actions[1:]
        steps = np.arange(len(frames), dtype=np.int64)
        file, _, name = key.partition("/")
        origin = {"file": file, "demo": name, "pairing": "after" if shift else "before"}
        words = str(about.get("language_instruction", "")).strip('"')
        return Demo(key, self.task(key), frames, steps, states, actions, words, origin)

    def picture(self, key: str, step: int, camera: str) -> U8:
        """The full-size image of ``camera`` at ``step``."""
        with self._group(key) as group:
            return self._upright(h5.one_picture(group, f"obs/{camera}", step))

    def start_state(self, key: str) -> NDArray[np.float64] | None:
        """The simulator's state before the first action (LIBERO's and robomimic's ``states``); None without one."""
        with self._group(key) as group:
            if h5.item(group, "states") is None:
                return None
            # states[j] comes before actions[j], and the library's first action is that of the shift.
            return np.asarray(h5.dataset(group, "states")[self._shift(group)], np.float64)

    @contextmanager
    def _data(self, name: str) -> Iterator[Any]:
        with h5.opened(self.files[name]) as file:
            data = h5.item(file, "data")
            if not isinstance(data, h5.h5py().Group):
                raise Unreadable("is not a LIBERO or robomimic file (it has no group data)")
            yield data

    @contextmanager
    def _group(self, key: str) -> Iterator[Any]:
        file, _, name = key.partition("/")
        with self._data(file) as data:
            group = h5.item(data, name)
            if not isinstance(group, h5.h5py().Group):
                raise Unreadable(f"has no camera {self.camera}")
            yield group

    def _upright(self, pictures: U8) -> U8:
        return np.ascontiguousarray(upright(pictures)) if self.rotate else pictures

    def _shift(self, group: Any) -> int:
        return 1 if (self.pairing or _pairing(group)) == "after" else 0

    def _states(self, group: Any) -> F32 | None:
        if self.state is None:
            return None
        parts = []
        for key in self.state:
            if h5.item(group, f"obs/{key}") is None:
                raise Unreadable(f"has no obs/{key}")
            values = h5.numbers(group, f"obs/{key}")
            if key.endswith("_quat") and values.shape[1] != 4:
                raise Unreadable(f"has obs/{key} of {values.shape[1]} numbers, not 4")
            parts.append(axis_angle(values.astype(np.float64)) if key.endswith("_quat") else values)
        if len({len(part) for part in parts}) > 1:
            raise Unreadable("has states of different length under obs/")
        return np.concatenate(parts, axis=1).astype(np.float32)


class Hdf5Demos(Episodes):
    """The demonstrations of one or more HDF5 files of the same kind."""

    def __init__(self, reader: Hdf5Reader, about: SourceInfo, cameras: Sequence[str], named: Mapping[str, str]) -> None:
        super().__init__(reader, about, cameras, named)
        self._start_state = reader.start_state

    def start_state(self, demo: str) -> NDArray[np.float64] | None:
        """The simulator's state before the first action of ``demo``; None where it is not kept."""
        try:
            return self._start_state(demo)
        except (Unreadable, OSError, IndexError, TypeError, ValueError) as error:
            raise LibraryError(f"{self.name}: {demo} has no start: it {error}") from error


def make(
    rest: str,
    camera: str | None = None,
    state: str | None = None,
    rotate: int | str | None = None,
    pairing: str | None = None,
    fps: float | str | None = None,
    size: int | str = LARGEST,
    map: str = "",
) -> Hdf5Demos:
    """The source ``hdf5:rest``: a file, or a directory of files."""
    path = Path(rest)
    files = h5.files_of(path, f"hdf5:{rest}")
    if not files:
        raise LibraryError(f"hdf5:{rest}: no such file, and no directory with .hdf5 or .h5 files")
    read = Reader(f"hdf5:{rest}")
    turned = None if rotate is None else int(read.choice("rotate", str(rotate), ("0", "180")))
    paired: Pairing | None = None if pairing is None else read.choice("pairing", pairing, ("before", "after"))
    named, first = read.mapping("map", map), _first_readable(files, read.uri)
    cameras = [key for key, shape in first.shapes.items() if len(shape) == 4 and shape[3] == 3]
    if not cameras:
        raise LibraryError(
            f"{read.uri} has no pictures under obs/; render them first (robomimic: dataset_states_to_obs.py)"
        )
    chosen = choose_camera(cameras, camera, named, read.uri)
    is_libero = chosen.stored.endswith("_rgb")
    known = _LIBERO_STATE if is_libero else _ROBOMIMIC_STATE
    keys = tuple(state.split("+")) if state else known if set(known) <= set(first.shapes) else None
    missing = set(keys or ()) - set(first.shapes)
    if missing:
        raise LibraryError(f"{read.uri} has no obs/{sorted(missing)[0]}; it has {', '.join(sorted(first.shapes))}")
    turned = (180 if is_libero else 0) if turned is None else turned
    reader = Hdf5Reader({p.name: p for p in files}, chosen.stored, keys, turned, paired, read.whole("size", size))
    said = (None if fps is None else read.number("fps", fps, 1e-3)) or _rate(first.attributes)
    notes = [f"{'LIBERO' if is_libero else 'robomimic'} HDF5, where {_PAIRED[paired or first.pairing]}"]
    if not said:
        notes.append(assumed_rate(_USUAL_RATE, "as robosuite runs by default"))
    again = uri_again(
        "hdf5", path, camera=camera, state=state, rotate=rotate, pairing=pairing, fps=fps, size=size, map=map
    )  # fmt: skip
    about = SourceInfo(
        read.uri, again, chosen.name, said or _USUAL_RATE,
        h5.digest(files, chosen.stored, keys, turned, reader.size, paired, 2), tuple(notes),
        first.action_dim - 1 if first.action_dim == 7 else None, -1, (0, 1, 2) if keys == known else None,
    )  # fmt: skip
    return Hdf5Demos(reader, about, cameras, named)


def _groups(file: Any) -> Iterator[tuple[str, Any]]:
    """The demonstrations under ``data`` that are in this file, in the order of their numbers."""
    data = h5.item(file, "data")
    for key in h5.by_number(data) if isinstance(data, h5.h5py().Group) else ():
        try:
            group = h5.item(data, key)
        except Unreadable:
            continue
        if isinstance(group, h5.h5py().Group):
            yield key, group


def _first_readable(files: list[Path], name: str) -> _First:
    """What the first demonstration shows that has observations and actions."""
    trouble = "has no demonstrations under data/"
    for path in files:
        try:
            with h5.opened(path) as file:
                data = h5.item(file, "data")
                if data is None:
                    raise Unreadable("is not a LIBERO or robomimic file (it has no group data)")
                for _, group in _groups(file):
                    obs = h5.item(group, "obs")
                    actions = h5.item(group, "actions")
                    if isinstance(obs, h5.h5py().Group) and len(obs) and len(getattr(actions, "shape", ())) == 2:
                        shapes = {k: tuple(getattr(h5.item(obs, k), "shape", ())) for k in obs}
                        return _First(h5.attributes(data), shapes, int(actions.shape[1]), _pairing(group))
        except Unreadable as error:
            trouble = f"{path.name} {error}"
    raise LibraryError(f"{name}: {trouble}")


def _pairing(group: Any) -> Pairing:
    """Whether the observations of a demonstration were made before or after the actions beside them."""
    simulator, joints = h5.item(group, "states"), h5.item(group, "obs/joint_states")
    if simulator is not None and joints is not None:
        states, seen = h5.numbers(group, "states"), h5.numbers(group, "obs/joint_states")
        count = seen.shape[1]
        # A flattened MuJoCo state is the time, then all positions, those of the robot's joints first.
        if len(states) == len(seen) > 2 and states.shape[1] > count + 1 and np.isfinite(states).all():
            at, own = states[:, 1 : 1 + count], seen
            before, after = np.abs(at[1:] - own[1:]).mean(), np.abs(at[1:] - own[:-1]).mean()
            if min(before, after) < 0.1 * max(before, after):
                return "before" if before < after else "after"
    written = h5.attributes(group.parent)
    is_libero = any(str(key).endswith("_rgb") for key in h5.item(group, "obs") or ())
    return "after" if is_libero and any(key in written for key in _LIBERO_WRITES) else "before"


def _rate(attributes: Mapping[str, Any]) -> float | None:
    """Steps a second as the file says; None where it does not."""
    settings = h5.json_attribute(attributes, "env_args").get("env_kwargs", {})
    rate = settings.get("control_freq") if isinstance(settings, dict) else None
    return float(rate) if isinstance(rate, int | float) and 0 < rate < 1e6 else None
