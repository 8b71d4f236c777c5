"""HDF5 files of any layout, read safely with h5py, and the layout of LIBERO and robomimic: ``hdf5:FILE``.

``hdf5:DIRECTORY`` reads all its .hdf5 and .h5 files. The plug-in ``contrib/formats`` reads other layouts.

LIBERO, recognised by ``obs/…_rgb``: the task is the file's name without ``_demo``, the instruction comes from
``problem_info``; the state (8) is ``ee_pos``, ``ee_ori`` (axis-angle) and ``gripper_states``; pictures are stored as
rendered, upside down, and are rotated by 180 degrees here, as LeRobot and openpi do.
robomimic, recognised by ``obs/…_image``: the task is ``env_name`` of ``env_args``, without instruction; the state (8)
is ``robot0_eef_pos``, ``robot0_eef_quat`` as axis-angle and ``robot0_gripper_qpos``; pictures are stored upright.
In both, the gripper is the last of 7 actions, -1 opens and +1 closes, and the position comes first in the state.

A file pairs each action with the observation **before** it (robomimic; OpenVLA's ``regenerate_libero_dataset.py``), or
**after** it (LIBERO's ``create_dataset.py``); in the latter case actions are shifted by one step. The simulator's
states, which are always recorded before the action, show which: the joints in them are those of the same observation,
or of the previous one. Where there are no such states, LIBERO's own attributes decide.

Options: ``camera``, ``state`` (keys of ``obs`` joined by ``+``), ``rotate`` (0 or 180), ``pairing`` (``before`` or
``after``), ``fps``, ``size`` (longest side of a frame, 320), ``map`` (``agentview:agentview_rgb``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from besttake import files
from besttake.conventions import axis_angle
from besttake.demos.base import Episodes, choose_columns, first_readable, frame_rate, uri_again
from besttake.demos.cameras import choose_camera
from besttake.demos.reading import LARGEST, Unreadable, check_count, check_links, check_size, digest, fitted_array
from besttake.envs.libero.harness import upright
from besttake.errors import LibraryError, need, one_line
from besttake.options import Reader
from besttake.types import F32, U8

SUFFIXES = (".hdf5", ".h5")
Pairing = Literal["before", "after"]
_MOST_NUMBERS = 1 << 28
_MOST_LINKS = 16
_BLOCK = 64
_LIBERO_STATE = ("ee_pos", "ee_ori", "gripper_states")
_ROBOMIMIC_STATE = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
_LIBERO_WRITES = ("bddl_file_content", "problem_info", "macros_image_convention")
_NO_DEMOS = (
    "has no demonstrations under data/; other layouts are named by their scheme, as in maniskill:PATH or aloha:PATH"
)
_PAIRED = {
    "before": "each action stands beside the observation before it",
    "after": "each action stands beside the observation after it, so actions were shifted by one step",
}


def h5py() -> Any:
    """Import h5py, or raise `MissingExtra`."""
    return need("h5py", "hdf5 demonstrations", "hdf5")


@contextmanager
def opened(path: Path, group: str = "") -> Iterator[Any]:
    """Open a file, or a ``group`` in it, for reading; all errors, also those in the block, become `Unreadable`."""
    try:
        with h5py().File(path, "r") as file:
            content = item(file, group)
            if not isinstance(content, h5py().Group):
                raise Unreadable(f"has no group {group}")
            yield content
    except (OSError, LookupError, ValueError, TypeError, RuntimeError, AttributeError, OverflowError, MemoryError) as e:
        if isinstance(e, OSError) and not h5py().is_hdf5(path):
            raise Unreadable("is not an HDF5 file" if path.exists() else f"has no file {path.name}") from e
        raise Unreadable(f"cannot be read ({one_line(e, 120)})") from e


def item(group: Any, path: str, links: int = _MOST_LINKS) -> Any:
    """The group or dataset at ``path``; None if there is none, `Unreadable` if it lies outside this file."""
    library = h5py()
    for part in (part for part in path.split("/") if part):
        if not isinstance(group, library.Group):
            return None
        # Examine the link itself: ``part in group`` would follow it and open the file that it leads to.
        entries, name = group.id.links, part.encode()
        if not entries.exists(name):
            return None
        kind = entries.get_info(name).type
        if kind == library.h5l.TYPE_SOFT:
            if not links:
                raise Unreadable(f"has links at {part} that lead nowhere")
            target = entries.get_val(name).decode("utf-8", "replace")
            group = item(group.file if target.startswith("/") else group, target, links - 1)
        elif kind == library.h5l.TYPE_HARD:
            group = group[part]
        else:
            raise Unreadable(f"has {part} in another file, which is not read")
    if isinstance(group, library.Dataset) and (group.external or group.is_virtual):
        raise Unreadable(f"has {path} in another file, which is not read")
    return group


def names(group: Any, path: str) -> list[str]:
    """Names of the members of the group at ``path``; empty if there is no such group."""
    content = item(group, path)
    return [str(key) for key in content] if isinstance(content, h5py().Group) else []


def dataset(group: Any, path: str) -> Any:
    """The dataset at ``path``; `Unreadable` if there is none."""
    values = item(group, path)
    if not isinstance(values, h5py().Dataset):
        raise Unreadable(f"has no {path}")
    return values


def numbers(group: Any, path: str) -> F32:
    """The numbers at ``path`` as float32 (T, n)."""
    values = dataset(group, path)
    if values.dtype.kind not in "fiub" or values.ndim < 1:
        raise Unreadable(f"has {path} that are not numbers ({values.dtype})")
    if values.size > _MOST_NUMBERS:
        raise Unreadable(f"has {values.size} numbers in {path}, more than the {_MOST_NUMBERS} that are read")
    check_written(values, path)
    rows = np.asarray(values[()], np.float64)
    return rows.reshape(len(rows), int(np.prod(rows.shape[1:]))).astype(np.float32)


def pictures(group: Any, path: str, largest: int) -> U8:
    """The pictures at ``path`` as uint8 (T, h, w, 3), their longest side at most ``largest``, read in blocks."""
    values = dataset(group, path)
    if values.ndim != 4 or values.shape[3] != 3 or values.dtype != np.uint8:
        raise Unreadable(f"has {path} of {values.dtype} {values.shape}, not pictures uint8 (T, H, W, 3)")
    count, height, width = values.shape[:3]
    if not count:
        return np.zeros((0, 1, 1, 3), np.uint8)
    check_size(width, height, count, largest)
    check_written(values, path)
    blocks = [fitted_array(np.asarray(values[i : i + _BLOCK]), largest) for i in range(0, count, _BLOCK)]
    return np.concatenate(blocks)


def one_picture(group: Any, path: str, step: int) -> U8:
    """The full-size picture at ``path`` of one ``step``."""
    values = dataset(group, path)
    if values.ndim != 4 or not 0 <= step < len(values):
        raise Unreadable(f"has no step {step} in {path}")
    check_size(values.shape[2], values.shape[1])
    check_written(values, path)
    return np.asarray(values[step], np.uint8)


def check_written(values: Any, path: str) -> None:
    """Raise `Unreadable` if parts of a dataset were never written, since they would be read as zeros."""
    if values.chunks is not None:
        needed = [-(-size // chunk) for size, chunk in zip(values.shape, values.chunks, strict=True)]
        check_count(values.id.get_num_chunks(), int(np.prod(needed)), "chunks", path)
    elif values.size and not values.id.get_storage_size():
        check_count(0, values.size, "numbers", path)


def json_attribute(group: Any, key: str) -> dict[str, Any]:
    """The JSON object in an attribute; empty if there is none."""
    try:
        value = files.read_json(group.attrs[key])
    except (KeyError, OSError, ValueError, TypeError, RuntimeError):
        return {}
    return value if isinstance(value, dict) else {}


def by_number(name: str) -> tuple[int, str]:
    """Sort key that puts ``demo_2`` before ``demo_10``: the number at the end of ``name``, and the name."""
    digits = re.search(r"\d{1,15}$", name)
    return (int(digits.group()) if digits else -1, name)


def files_of(path: Path, name: str) -> dict[str, Path]:
    """The HDF5 files at ``path``, by name: the file itself, or those of a directory; LibraryError if there is none."""
    if path.is_file():
        return {path.name: path}
    check_links(path, name)
    inner = sorted(p for p in path.glob("*") if p.suffix in SUFFIXES and p.is_file()) if path.is_dir() else []
    if not inner:
        raise LibraryError(f"{name}: no such file, and no directory with .hdf5 or .h5 files")
    return {each.name: each for each in inner}


@dataclass(frozen=True)
class _Hdf5Reader:
    """Reads demonstrations by ``FILE/demo_N``; a file that cannot be read has one key, its name."""

    files: Mapping[str, Path]
    camera: str
    state: tuple[str, ...] | None
    rotate: int
    pairing: Pairing | None
    size: int

    def ids(self) -> Iterator[str]:
        return _ids(self.files)

    def task(self, key: str) -> tuple[str, str]:
        """LIBERO has a file per task; robomimic stores the name of the env."""
        path = self.files[key.partition("/")[0]]
        with opened(path, "data") as data:
            instruction = str(json_attribute(data, "problem_info").get("language_instruction", "")).strip('"')
            if is_libero(self.camera):
                return re.sub("_demo$", "", path.stem), instruction
            return str(json_attribute(data, "env_args").get("env_name", path.stem)), instruction

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        with _opened_demo(self.files, key) as group:
            shift, states, actions = self._shift(group), self._states(group), numbers(group, "actions")
            promised = group.attrs.get("num_samples")
            check_count(len(actions), None if promised is None else int(promised), "actions", key)
        return states if states is None else states[: len(states) - shift], actions[shift:]

    def frames(self, key: str) -> U8:
        with _opened_demo(self.files, key) as group:
            frames = self._upright(pictures(group, f"obs/{self.camera}", self.size))
            return frames[: len(frames) - self._shift(group)]

    def picture(self, key: str, step: int, camera: str) -> U8:
        with _opened_demo(self.files, key) as group:
            return self._upright(one_picture(group, f"obs/{camera}", step))

    def _upright(self, pictures: U8) -> U8:
        return np.ascontiguousarray(upright(pictures)) if self.rotate else pictures

    def _shift(self, group: Any) -> int:
        return 1 if (self.pairing or _pairing(group)) == "after" else 0

    def _states(self, group: Any) -> F32 | None:
        if self.state is None:
            return None
        parts = []
        for key in self.state:
            values = numbers(group, f"obs/{key}")
            if key.endswith("_quat") and values.shape[1] != 4:
                raise Unreadable(f"has obs/{key} of {values.shape[1]} numbers, not 4")
            parts.append(axis_angle(values.astype(np.float64)) if key.endswith("_quat") else values)
        if len({len(part) for part in parts}) > 1:
            raise Unreadable("has states of different length under obs/")
        return np.concatenate(parts, axis=1).astype(np.float32)


def is_libero(camera: str) -> bool:
    """Whether a ``camera`` of this name belongs to a file of LIBERO, not of robomimic."""
    return camera.endswith("_rgb")


def make(
    rest: str, camera: str | None = None, state: str | None = None, rotate: int | str | None = None,
    pairing: str | None = None, fps: float | str | None = None, size: int | str = LARGEST, map: str = "",
) -> Episodes:  # fmt: skip
    """The source ``hdf5:rest``: a file, or a directory of files."""
    name, read, path = f"hdf5:{rest}", Reader(f"hdf5:{rest}"), Path(rest)
    paths = files_of(path, name)
    degrees = None if rotate is None else int(read.choice("rotate", str(rotate), ("0", "180")))
    given: Pairing | None = None if pairing is None else read.choice("pairing", pairing, ("before", "after"))
    named = read.mapping("map", map)
    shapes, action_dim, stored_rate, measured = first_readable(
        _ids(paths), lambda key: _first_demo(paths, key), name, _NO_DEMOS
    )
    cameras = [key for key, shape in shapes.items() if len(shape) == 4 and shape[3] == 3]
    if not cameras:
        raise LibraryError(
            f"{name} has no pictures under obs/; render them first (robomimic: dataset_states_to_obs.py)"
        )
    stored, called = choose_camera(cameras, camera, named, name)
    kind, usual = ("LIBERO", _LIBERO_STATE) if is_libero(stored) else ("robomimic", _ROBOMIMIC_STATE)
    keys = choose_columns(shapes, state, (usual,), name)
    degrees = (180 if is_libero(stored) else 0) if degrees is None else degrees
    reader = _Hdf5Reader(paths, stored, keys, degrees, given, read.whole("size", size))
    rate, notes = frame_rate(read, fps, stored_rate, 20.0, "as robosuite runs by default")
    options = {"camera": camera, "state": state, "rotate": rotate, "pairing": pairing}
    return Episodes(
        reader, cameras, named, name, uri_again("hdf5", path, **options, fps=fps, size=size, map=map), called, rate,
        digest(paths.values(), stored, keys, degrees, reader.size, given, 2),
        (f"{kind} HDF5, where {_PAIRED[given or measured]}", *notes),
        gripper_dim=6 if action_dim == 7 else None, gripper_open=-1, eef_dims=(0, 1, 2) if keys == usual else None,
    )  # fmt: skip


def _ids(files: Mapping[str, Path]) -> Iterator[str]:
    for name, path in files.items():
        try:
            with opened(path, "data") as data:
                keys = [f"{name}/{key}" for key in sorted(data, key=by_number)]
        except Unreadable:
            keys = [name]  # reading this key will say what is wrong with the file
        yield from keys


def _opened_demo(files: Mapping[str, Path], key: str) -> AbstractContextManager[Any]:
    file, _, name = key.partition("/")
    return opened(files[file], f"data/{name}")


def _first_demo(
    files: Mapping[str, Path], key: str
) -> tuple[dict[str, tuple[int, ...]], int, float | None, Pairing] | None:
    """The shapes under ``obs``, the size of an action, the steps per second and the pairing of a demonstration."""
    with _opened_demo(files, key) as group:
        obs, actions = names(group, "obs"), dataset(group, "actions")
        if not obs or actions.ndim != 2:
            return None
        shapes = {k: tuple(getattr(item(group, f"obs/{k}"), "shape", ())) for k in obs}
        return shapes, int(actions.shape[1]), _rate(group.parent), _pairing(group)


def _pairing(group: Any) -> Pairing:
    """Whether the observations of a demonstration were made before or after the actions beside them."""
    if item(group, "states") is not None and item(group, "obs/joint_states") is not None:
        states, observed = numbers(group, "states"), numbers(group, "obs/joint_states")
        count = observed.shape[1]
        # A flattened MuJoCo state is the time, then all positions, those of the robot's joints first.
        if len(states) == len(observed) > 2 and states.shape[1] > count + 1 and np.isfinite(states).all():
            joints = states[1:, 1 : 1 + count]
            before, after = np.abs(joints - observed[1:]).mean(), np.abs(joints - observed[:-1]).mean()
            if min(before, after) < 0.1 * max(before, after):
                return "before" if before < after else "after"
    from_libero = any(map(is_libero, names(group, "obs")))
    return "after" if from_libero and any(key in group.parent.attrs for key in _LIBERO_WRITES) else "before"


def _rate(data: Any) -> float | None:
    """The steps per second that the file states; None if it does not."""
    settings = json_attribute(data, "env_args").get("env_kwargs", {})
    rate = settings.get("control_freq") if isinstance(settings, dict) else None
    return float(rate) if isinstance(rate, int | float) and 0 < rate < 1e6 else None
