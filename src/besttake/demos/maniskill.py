"""ManiSkill trajectories: ``maniskill:FILE.h5`` with the ``FILE.json`` beside it, or a folder of such files.

An episode ``traj_N`` holds one observation more than actions, the last of which is not used. Pictures are those under
``obs/sensor_data`` (ManiSkill 3) or ``obs/image`` (ManiSkill 2); the state is the pose of the tool (position and
quaternion, ``obs/extra/tcp_pose``) and the joints of the fingers, or all joints where there is no pose. Episodes that
the JSON file says failed are left out, and counted in the notes. The gripper is the last action; +1 opens.

Options: ``camera`` (by default the one in the hand), ``state`` (paths under ``obs`` joined by ``+``), ``failed``
(``keep`` them), ``fps`` (by default what the JSON file says, else 20, or 5 for the tasks of Bridge), ``size`` (longest
side of a frame, 320), ``map`` (``wrist:hand_camera``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from besttake.demos import h5
from besttake.demos.base import Episodes, SourceInfo, assumed_rate, choose_camera, uri_again
from besttake.demos.frames import LARGEST, Unreadable
from besttake.demos.paths import inside, read_json
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8, Demo

_RATE, _BRIDGE_RATE = 20.0, 5.0
_BRIDGE = re.compile(r"InScene-v\d+$")
"""The tasks of SimplerEnv's Bridge in ManiSkill 3, whose rate is their own and stands in no trajectory file."""
_POSE, _JOINTS = "extra/tcp_pose", "agent/qpos"


@dataclass(frozen=True)
class ManiSkillReader:
    """Reads episodes by ``FILE/traj_N``."""

    files: Mapping[str, Path]
    episodes: Mapping[str, str]
    """The task of each episode."""
    cameras: Mapping[str, str]
    """Where the pictures of each camera lie in an episode."""
    camera: str
    state: tuple[str, ...] | None
    size: int

    def ids(self) -> Iterator[str]:
        """All episodes, file by file."""
        yield from self.episodes

    def task(self, key: str) -> str:
        """The task of an episode."""
        return self.episodes[key]

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of an episode."""
        with self._opened(key) as group:
            return self._numbers(group)

    def demo(self, key: str) -> Demo:
        """Read an episode as a demonstration."""
        with self._opened(key) as group:
            states, actions = self._numbers(group)
            frames = h5.pictures(group, self.cameras[self.camera], self.size)
        if len(frames) != len(actions) + 1:
            raise Unreadable(f"has {len(frames)} pictures for {len(actions)} actions, not one more")
        file, _, episode = key.rpartition("/")
        steps, origin = np.arange(len(actions), dtype=np.int64), {"file": file, "episode": episode}
        return Demo(key, self.task(key), frames[:-1], steps, states, actions, "", origin)

    def picture(self, key: str, step: int, camera: str) -> U8:
        """The full-size image of ``camera`` at ``step``."""
        with self._opened(key) as group:
            return h5.one_picture(group, self.cameras[camera], step)

    def _opened(self, key: str) -> Any:
        file, _, episode = key.rpartition("/")
        return h5.opened_at(self.files[file], episode)

    def _numbers(self, group: Any) -> tuple[F32 | None, F32]:
        actions = h5.numbers(group, "actions")
        if self.state is None:
            return None, actions
        parts = []
        for path in self.state:
            values = h5.numbers(group, f"obs/{path}")[: len(actions)]
            if len(values) != len(actions):
                raise Unreadable(f"has {len(values)} rows of obs/{path} for {len(actions)} actions")
            # With a pose, the joints that matter are the two fingers; they come last.
            parts.append(values[:, -2:] if path == _JOINTS and _POSE in self.state else values)
        return np.concatenate(parts, axis=1), actions


def make(
    rest: str,
    camera: str | None = None,
    state: str | None = None,
    failed: str = "leave out",
    fps: float | str | None = None,
    size: int | str = LARGEST,
    map: str = "",
) -> Episodes:
    """The source ``maniskill:rest``: a file, or a folder of files."""
    name, read, path = f"maniskill:{rest}", Reader(f"maniskill:{rest}"), Path(rest)
    files = {p.name: p for p in h5.files_of(path, name)}
    if not files:
        raise LibraryError(f"{name}: no such file, and no directory with .h5 files")
    keep = read.choice("failed", failed, ("leave out", "keep")) == "keep"
    episodes, said, left_out = _listed(files, keep, name)
    usual = _BRIDGE_RATE if any(_BRIDGE.search(task) for task in episodes.values()) else _RATE
    cameras, keys, action_dim = _first(files, episodes, name)
    if not cameras:
        raise LibraryError(
            f"{name} has no pictures; replay it with"
            " `python -m mani_skill.trajectory.replay_trajectory --obs-mode rgb --save-traj`"
        )
    named = read.mapping("map", map)
    chosen = choose_camera(list(cameras), camera, named, name)
    states = tuple(state.split("+")) if state else tuple(keys) or None
    reader = ManiSkillReader(files, episodes, cameras, chosen.stored, states, read.whole("size", size))
    notes = [f"ManiSkill trajectories, {len(episodes)} episodes in {len(files)} files"]
    if left_out:
        notes.append(f"{left_out} episodes failed and were left out; ?failed=keep keeps them")
    given = None if fps is None else read.number("fps", fps, 1e-3)
    if given is None and said is None:
        notes.append(assumed_rate(usual, "as its env has by default"))
    again = uri_again("maniskill", path, camera=camera, state=state, failed=failed, fps=fps, size=size, map=map)
    print_of = h5.digest(files.values(), reader.camera, states, keep, reader.size)
    about = SourceInfo(
        name, again, chosen.name, given or said or usual, print_of, tuple(notes),
        action_dim - 1 if action_dim in (7, 8) else None, 1,
        (0, 1, 2) if states and states[0] == _POSE else None,
    )  # fmt: skip
    return Episodes(reader, about, list(cameras), named)


def _listed(files: Mapping[str, Path], keep: bool, name: str) -> tuple[dict[str, str], float | None, int]:
    """The task of each episode to read, steps a second if said, and how many episodes failed and are left out."""
    episodes: dict[str, str] = {}
    rate, left_out = None, 0
    for file, path in files.items():
        beside = path.with_suffix(".json")
        about = read_json(inside(path.parent, beside.name), name) if beside.is_file() else {}
        info = about.get("env_info")
        settings = info.get("env_kwargs") if isinstance(info, dict) else None
        sim = settings.get("sim_config") if isinstance(settings, dict) else None
        given = sim.get("control_freq") if isinstance(sim, dict) else None
        rate = float(given) if isinstance(given, int | float) and 0 < given < 1e6 else rate
        task = str(info.get("env_id", path.stem)) if isinstance(info, dict) else path.stem
        listed = about.get("episodes")
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        failed = {f"traj_{row.get('episode_id')}" for row in rows if row.get("success") is False}
        for key in _groups(path):
            if key in failed and not keep:
                left_out += 1
            else:
                episodes[f"{file}/{key}"] = task
    if not episodes:
        raise LibraryError(f"{name} has no episodes traj_0 … that succeeded; ?failed=keep reads the others")
    return episodes, rate, left_out


def _groups(path: Path) -> list[str]:
    try:
        with h5.opened(path) as file:
            return h5.by_number(key for key in file if key.startswith("traj_"))
    except Unreadable:
        return ["traj_0"]  # reading it says what is wrong with the file


def _first(files: Mapping[str, Path], episodes: Mapping[str, str], name: str) -> tuple[dict[str, str], list[str], int]:
    """Cameras and their places, numbers under obs, and the size of an action, of the first readable episode."""
    trouble = "holds no episode"
    for key in episodes:
        file, _, episode = key.rpartition("/")
        try:
            with h5.opened_at(files[file], episode) as group:
                cameras = {
                    camera: f"obs/{kind}/{camera}/rgb"
                    for kind in ("sensor_data", "image")
                    for camera in h5.names(group, f"obs/{kind}")
                    if h5.item(group, f"obs/{kind}/{camera}/rgb") is not None
                }
                known = [k for k in (_POSE, _JOINTS) if h5.item(group, f"obs/{k}") is not None]
                return cameras, known, int(h5.dataset(group, "actions").shape[-1])
        except Unreadable as error:
            trouble = f"{key} {error}"
    raise LibraryError(f"{name}: {trouble}")
