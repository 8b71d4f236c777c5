"""ALOHA, ManiSkill and DROID: data sets whose episodes keep their numbers in HDF5, each with its own layout.

``aloha:DIRECTORY`` or ``aloha:FILE``, one file per episode (``episode_0.hdf5`` …). Actions (14) are the joint positions
that both arms are sent to, states (14) are ``observations/qpos``; the grippers are numbers 6 and 13, 1 open and 0
closed. Pictures under ``observations/images`` are plain RGB, or JPEG bytes padded to one length. Mobile ALOHA hands its
RGB pictures to OpenCV's encoder, which takes them for BGR: red and blue are exchanged back here, unless
``colours=rgb`` says that the writer did it. Options: ``task`` (by default the name of the directory), ``colours``.

``maniskill:FILE.h5`` with the ``FILE.json`` beside it, or a folder of such files. An episode ``traj_N`` holds one
observation more than actions. Pictures are under ``obs/sensor_data`` (ManiSkill 3) or ``obs/image`` (ManiSkill 2); the
state is the pose of the tool (position and quaternion, ``obs/extra/tcp_pose``) and the joints of the fingers, or all
joints where there is no pose. The gripper is the last action; +1 opens. Option: ``state`` (paths under ``obs`` joined
by ``+``).

``droid:DIRECTORY`` with any number of DROID's raw folders in it, at any depth. An episode is a folder with
``trajectory.h5``, ``metadata_*.json`` and ``recordings/MP4/SERIAL.mp4``. The state (7) is ``cartesian_position`` and
``gripper_position`` of the robot, the action (7) the commanded ``cartesian_velocity`` and ``gripper_position``; 0 is
open and 1 closed. The task is ``current_task``. Folders without metadata are unfinished recordings.

Episodes of ManiSkill and DROID that failed are left out, and counted in the notes. All have the options ``camera``,
``fps``, ``size`` (longest side of a frame, 320) and ``map`` (``wrist:hand_camera``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from besttake.demos import hdf5
from besttake.demos.base import Episodes, first_readable, frame_rate, uri_again
from besttake.demos.cameras import choose_camera
from besttake.demos.reading import (
    FULL_SIZE,
    LARGEST,
    Unreadable,
    check_count,
    check_links,
    decoded,
    digest,
    fitted,
    inside,
    picture,
    read_json,
    stacked,
    video_frames,
)
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8

_BRIDGE = re.compile(r"InScene-v\d+$")
"""The tasks of SimplerEnv's Bridge in ManiSkill 3, whose rate is their own and stands in no trajectory file."""
_POSE, _JOINTS = "extra/tcp_pose", "agent/qpos"
_DROID_CAMERAS = ("wrist", "ext1", "ext2")
_DROID_STATE = ("observation/robot_state/cartesian_position", "observation/robot_state/gripper_position")
_DROID_ACTION = ("action/cartesian_velocity", "action/gripper_position")


@dataclass(frozen=True)
class _AlohaReader:
    """Reads episodes by the name of their file."""

    files: Mapping[str, Path]
    camera: str
    task_of_all: str
    size: int
    exchanged: bool

    def ids(self) -> Iterable[str]:
        return self.files

    def task(self, key: str) -> tuple[str, str]:
        return self.task_of_all, self.task_of_all.replace("_", " ")

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        with hdf5.opened(self.files[key]) as file:
            return hdf5.numbers(file, "observations/qpos"), hdf5.numbers(file, "action")

    def frames(self, key: str) -> U8:
        path = f"observations/images/{self.camera}"
        with hdf5.opened(self.files[key]) as file:
            values = hdf5.dataset(file, path)
            if values.ndim != 2:
                return hdf5.pictures(file, path, self.size)
            if values.dtype != np.uint8 or values.size > 1 << 32:
                raise Unreadable(f"has {path} of {values.dtype} {values.shape}, not JPEG bytes")
            hdf5.check_written(values, path)
            return stacked([self._decoded(row, self.size) for row in values], path)

    def picture(self, key: str, step: int, camera: str) -> U8:
        path = f"observations/images/{camera}"
        with hdf5.opened(self.files[key]) as file:
            values = hdf5.dataset(file, path)
            if values.ndim != 2:
                return hdf5.one_picture(file, path, step)
            return self._decoded(values[step], FULL_SIZE)

    def _decoded(self, data: Any, largest: int) -> U8:
        shown = picture(np.asarray(data, np.uint8).tobytes(), largest)
        return np.ascontiguousarray(shown[..., ::-1]) if self.exchanged else shown


def make_aloha(
    rest: str, camera: str | None = None, task: str | None = None, fps: float | str | None = None, colours: str = "bgr",
    size: int | str = LARGEST, map: str = "",
) -> Episodes:  # fmt: skip
    """The source ``aloha:rest``: a directory of episodes, or one of them."""
    name, read, path = f"aloha:{rest}", Reader(f"aloha:{rest}"), Path(rest)
    found = hdf5.files_of(path, name)
    files = {key: found[key] for key in sorted(found, key=lambda file: hdf5.by_number(Path(file).stem))}
    exchanged = read.choice("colours", colours, ("bgr", "rgb")) == "bgr"
    nothing = "has no pictures under observations/images"
    cameras, compressed = first_readable(files, lambda key: _aloha_cameras(files[key]), name, nothing)
    named = read.mapping("map", map)
    stored, called = choose_camera(cameras, camera, named, name)
    folder = path.parent if path.is_file() else path
    reader = _AlohaReader(files, stored, task or folder.resolve().name, read.whole("size", size), exchanged)
    rate, rate_note = frame_rate(read, fps, None, 50.0, "as ALOHA runs")
    notes = [
        f"ALOHA HDF5, {len(files)} episodes; actions are joint positions of two arms",
        "past the end of a demonstration, positions should be repeated: build it with `pad` repeat",
    ]
    if compressed:
        taken = "exchanged, as Mobile ALOHA writes them; ?colours=rgb takes them" if exchanged else "taken"
        notes.append(f"red and blue of its JPEG pictures were {taken} as they are")
    return Episodes(
        reader, cameras, named, name,
        uri_again("aloha", path, camera=camera, task=task, fps=fps, colours=colours, size=size, map=map),
        called, rate,
        digest(files.values(), reader.camera, reader.task_of_all, reader.size, compressed and exchanged),
        (*notes, *rate_note), gripper_open=1,
    )  # fmt: skip


def _aloha_cameras(path: Path) -> tuple[list[str], bool] | None:
    """The cameras of an episode, and whether their pictures are JPEG bytes."""
    with hdf5.opened(path) as file:
        cameras = hdf5.names(file, "observations/images")
        if not cameras or hdf5.item(file, "action") is None:
            return None
        return cameras, hdf5.dataset(file, f"observations/images/{cameras[0]}").ndim == 2


@dataclass(frozen=True)
class _ManiSkillReader:
    """Reads episodes by ``FILE/traj_N``."""

    files: Mapping[str, Path]
    episodes: Mapping[str, str]
    """The task of each episode."""
    cameras: Mapping[str, str]
    """Where the pictures of each camera lie in an episode."""
    camera: str
    state: tuple[str, ...] | None
    size: int

    def ids(self) -> Iterable[str]:
        return self.episodes

    def task(self, key: str) -> tuple[str, str]:
        return self.episodes[key], ""

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        with _trajectory(self.files, key) as group:
            actions = hdf5.numbers(group, "actions")
            parts = [hdf5.numbers(group, f"obs/{path}")[: len(actions)] for path in self.state or ()]
        if any(len(part) != len(actions) for part in parts):
            raise Unreadable(f"has states of other lengths than its {len(actions)} actions")
        if _POSE in (self.state or ()):  # then the joints that matter are the two fingers; they come last
            parts = [p[:, -2:] if k == _JOINTS else p for k, p in zip(self.state or (), parts, strict=True)]
        return np.concatenate(parts, axis=1) if parts else None, actions

    def frames(self, key: str) -> U8:
        with _trajectory(self.files, key) as group:
            return hdf5.pictures(group, self.cameras[self.camera], self.size)

    def picture(self, key: str, step: int, camera: str) -> U8:
        with _trajectory(self.files, key) as group:
            return hdf5.one_picture(group, self.cameras[camera], step)


def _trajectory(files: Mapping[str, Path], key: str) -> AbstractContextManager[Any]:
    file, _, episode = key.rpartition("/")
    return hdf5.opened(files[file], episode)


def make_maniskill(
    rest: str, camera: str | None = None, state: str | None = None, fps: float | str | None = None,
    size: int | str = LARGEST, map: str = "",
) -> Episodes:  # fmt: skip
    """The source ``maniskill:rest``: a file, or a folder of files."""
    name, read, path = f"maniskill:{rest}", Reader(f"maniskill:{rest}"), Path(rest)
    files = hdf5.files_of(path, name)
    episodes, said, left_out = _maniskill_episodes(files, name)
    cameras, keys, action_dim = first_readable(episodes, lambda key: _maniskill_first(files, key), name, "is empty")
    if not cameras:
        raise LibraryError(
            f"{name} has no pictures; replay it with"
            " `python -m mani_skill.trajectory.replay_trajectory --obs-mode rgb --save-traj`"
        )
    named = read.mapping("map", map)
    stored, called = choose_camera(list(cameras), camera, named, name)
    states = tuple(state.split("+")) if state else tuple(keys) or None
    reader = _ManiSkillReader(files, episodes, cameras, stored, states, read.whole("size", size))
    usual = 5.0 if any(_BRIDGE.search(task) for task in episodes.values()) else 20.0
    rate, rate_note = frame_rate(read, fps, said, usual, "as its env has by default")
    notes = [f"ManiSkill trajectories, {len(episodes)} episodes in {len(files)} files"]
    if left_out:
        notes.append(f"{left_out} episodes failed and were left out")
    return Episodes(
        reader, list(cameras), named, name,
        uri_again("maniskill", path, camera=camera, state=state, fps=fps, size=size, map=map), called, rate,
        digest(files.values(), reader.camera, states, reader.size), (*notes, *rate_note),
        gripper_dim=action_dim - 1 if action_dim in (7, 8) else None, gripper_open=1,
        eef_dims=(0, 1, 2) if states and states[0] == _POSE else None,
    )  # fmt: skip


def _maniskill_episodes(files: Mapping[str, Path], name: str) -> tuple[dict[str, str], float | None, int]:
    """Return the task of each episode to read, the steps per second if known, and how many episodes failed."""
    episodes: dict[str, str] = {}
    rate, left_out = None, 0
    for file, path in files.items():
        beside = path.with_suffix(".json")
        if not beside.is_file():
            raise LibraryError(f"{name}: there is no {beside.name}, which says which episodes failed; copy it as well")
        try:
            about = read_json(inside(path.parent, beside.name), name)
        except Unreadable as error:
            raise LibraryError(f"{name}: it {error}") from error
        given: Any = about
        for part in ("env_info", "env_kwargs", "sim_config", "control_freq"):
            given = given.get(part) if isinstance(given, dict) else None
        rate = float(given) if isinstance(given, int | float) and 0 < given < 1e6 else rate
        info, listed = about.get("env_info"), about.get("episodes")
        task = str(info.get("env_id", path.stem)) if isinstance(info, dict) else path.stem
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        failed = {f"traj_{row.get('episode_id')}" for row in rows if row.get("success") is False}
        promised = {f"traj_{row.get('episode_id')}" for row in rows}
        there = _maniskill_groups(path)
        there += sorted(promised.difference(there), key=hdf5.by_number)  # reading these says that they are not there
        left_out += sum(key in failed for key in there)
        episodes |= {f"{file}/{key}": task for key in there if key not in failed}
    if not episodes:
        raise LibraryError(f"{name} has no episodes traj_0 … that succeeded")
    return episodes, rate, left_out


def _maniskill_groups(path: Path) -> list[str]:
    try:
        with hdf5.opened(path) as file:
            return sorted((key for key in file if key.startswith("traj_")), key=hdf5.by_number)
    except Unreadable:
        return ["traj_0"]  # reading it says what is wrong with the file


def _maniskill_first(files: Mapping[str, Path], key: str) -> tuple[dict[str, str], list[str], int]:
    """Return an episode's cameras and their places, the numbers under ``obs``, and the size of an action."""
    with _trajectory(files, key) as group:
        cameras = {
            camera: f"obs/{kind}/{camera}/rgb"
            for kind in ("sensor_data", "image")
            for camera in hdf5.names(group, f"obs/{kind}")
            if hdf5.item(group, f"obs/{kind}/{camera}/rgb") is not None
        }
        known = [k for k in (_POSE, _JOINTS) if hdf5.item(group, f"obs/{k}") is not None]
        return cameras, known, int(hdf5.dataset(group, "actions").shape[-1])


@dataclass(frozen=True)
class _DroidReader:
    """Reads episodes by their folder; ``episodes`` has the metadata of each."""

    root: Path
    episodes: Mapping[str, Mapping[str, Any]]
    camera: str
    size: int

    def ids(self) -> Iterable[str]:
        return self.episodes

    def task(self, key: str) -> tuple[str, str]:
        if not self.episodes[key]:
            raise Unreadable("has metadata that are damaged; copy them again")
        words = str(self.episodes[key].get("current_task") or "").strip()
        return words, words

    def numbers(self, key: str) -> tuple[F32, F32]:
        with hdf5.opened(inside(self.root, f"{key}/trajectory.h5")) as file:
            states, actions = (
                np.concatenate([hdf5.numbers(file, k) for k in keys], axis=1) for keys in (_DROID_STATE, _DROID_ACTION)
            )
        promised = self.episodes[key].get("trajectory_length")
        check_count(len(actions), promised if isinstance(promised, int) else None, "steps", f"metadata of {key}")
        return states, actions

    def frames(self, key: str) -> U8:
        return video_frames(self._video(key, self.camera), self.size)

    def picture(self, key: str, step: int, camera: str) -> U8:
        video = self._video(key, camera)
        for _, image in islice(decoded(video), step, None):
            return fitted(image, FULL_SIZE)
        raise Unreadable(f"has no frame {step} in {video.name}")

    def _video(self, key: str, camera: str) -> Path:
        """The video of a camera; metadata name it by a path that begins elsewhere, so only its name is used."""
        about = self.episodes[key]
        named = about.get(f"{camera}_mp4_path") or f"{about.get(f'{camera}_cam_serial')}.mp4"
        return inside(self.root, f"{key}/recordings/MP4/{PurePosixPath(str(named)).name}")


def make_droid(
    rest: str, camera: str | None = None, fps: float | str = 15.0, size: int | str = LARGEST, map: str = ""
) -> Episodes:
    """The source ``droid:rest``."""
    name, read, root = f"droid:{rest}", Reader(f"droid:{rest}"), Path(rest)
    check_links(root, name)
    episodes, unfinished, failures = _droid_episodes(root)
    if not episodes:
        raise LibraryError(f"{name} has no folder with trajectory.h5 and metadata_….json of an episode that succeeded")
    named = read.mapping("map", map)
    stored, called = choose_camera(_DROID_CAMERAS, camera, named, name)
    reader = _DroidReader(root, episodes, stored, read.whole("size", size))
    notes = [f"DROID folders, {len(episodes)} episodes"]
    if unfinished or failures:
        notes.append(f"{unfinished} folders without metadata and {failures} that failed were left out")
    files = [path for key in episodes if (path := root / key / "trajectory.h5").is_file()]
    return Episodes(
        reader, _DROID_CAMERAS, named, name, uri_again("droid", root, camera=camera, fps=fps, size=size, map=map),
        called, read.number("fps", fps, 1e-3), digest(files, stored, reader.size), tuple(notes),
        gripper_dim=6, gripper_open=-1, eef_dims=(0, 1, 2),
    )  # fmt: skip


def _droid_episodes(root: Path) -> tuple[dict[str, Mapping[str, Any]], int, int]:
    """The metadata of each episode's folder (empty where damaged), and how many folders have none or failed."""
    episodes: dict[str, Mapping[str, Any]] = {}
    unfinished = failures = 0
    for folder, inner, files in os.walk(root):
        inner.sort()
        described = sorted(f for f in files if f.startswith("metadata_") and f.endswith(".json"))
        if not described:
            unfinished += "trajectory.h5" in files
            continue
        key = Path(folder).relative_to(root).as_posix()
        try:
            about = read_json(inside(root, f"{key}/{described[0]}"), "droid")
        except (LibraryError, Unreadable):
            about = {}
        if about.get("success") is False:
            failures += 1
        else:
            episodes[key] = about
    return episodes, unfinished, failures
