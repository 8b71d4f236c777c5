"""DROID's raw folders: ``droid:DIRECTORY`` with any number of episodes in it, at any depth.

An episode is a folder with ``trajectory.h5``, ``metadata_*.json`` and ``recordings/MP4/SERIAL.mp4``. The state (7) is
``cartesian_position`` and ``gripper_position`` of the robot, the action (7) the commanded ``cartesian_velocity`` and
``gripper_position``; 0 is open and 1 closed. The task is ``current_task``. Folders without metadata are unfinished
recordings, and those that say ``success: false`` failures: both are left out, and counted in the notes.

Options: ``camera`` (``wrist``, ``ext1`` or ``ext2``), ``failed`` (``keep`` them), ``fps`` (15), ``size`` (longest side
of a frame, 320), ``map`` (``agentview:ext1``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from besttake.demos import h5
from besttake.demos.base import Episodes, SourceInfo, choose_camera, uri_again
from besttake.demos.frames import LARGEST, Unreadable, video_frame, video_frames
from besttake.demos.paths import check_links, inside, read_json
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8, Demo

CAMERAS = ("wrist", "ext1", "ext2")
_STATE = ("observation/robot_state/cartesian_position", "observation/robot_state/gripper_position")
_ACTION = ("action/cartesian_velocity", "action/gripper_position")


@dataclass(frozen=True)
class DroidReader:
    """Reads episodes by their folder; ``episodes`` has the metadata of each."""

    root: Path
    episodes: Mapping[str, Mapping[str, Any]]
    camera: str
    size: int

    def ids(self) -> Iterator[str]:
        """All folders, by name."""
        yield from self.episodes

    def task(self, key: str) -> str:
        """The task of an episode."""
        return str(self.episodes[key].get("current_task") or "").strip()

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of an episode."""
        with h5.opened(inside(self.root, f"{key}/trajectory.h5")) as file:
            states, actions = (
                np.concatenate([h5.numbers(file, k) for k in keys], axis=1) for keys in (_STATE, _ACTION)
            )
        if len(states) != len(actions):
            raise Unreadable(f"has {len(states)} states for {len(actions)} actions")
        return states, actions

    def demo(self, key: str) -> Demo:
        """Read an episode as a demonstration."""
        states, actions = self.numbers(key)
        assert states is not None
        assert actions is not None
        frames, length = video_frames(self._video(key, self.camera), self.size), len(actions)
        if not length <= len(frames) <= length + 1:
            raise Unreadable(f"has {len(frames)} pictures of {self.camera} for {length} steps")
        words = self.task(key)
        steps = np.arange(length, dtype=np.int64)
        return Demo(key, words, frames[:length], steps, states, actions, words, {"folder": key})

    def picture(self, key: str, step: int, camera: str) -> U8:
        """The full-size image of ``camera`` at ``step``."""
        return video_frame(self._video(key, camera), step)

    def _video(self, key: str, camera: str) -> Path:
        """The video of a camera; metadata name it by a path that begins elsewhere, so only its name is used."""
        about = self.episodes[key]
        named = about.get(f"{camera}_mp4_path") or f"{about.get(f'{camera}_cam_serial')}.mp4"
        return inside(self.root, f"{key}/recordings/MP4/{PurePosixPath(str(named)).name}")


def make(
    rest: str,
    camera: str | None = None,
    failed: str = "leave out",
    fps: float | str = 15.0,
    size: int | str = LARGEST,
    map: str = "",
) -> Episodes:
    """The source ``droid:rest``."""
    name, read, root = f"droid:{rest}", Reader(f"droid:{rest}"), Path(rest)
    keep = read.choice("failed", failed, ("leave out", "keep")) == "keep"
    check_links(root, name)
    episodes, unfinished, failures = _episodes(root, keep)
    if not episodes:
        raise LibraryError(f"{name} has no folder with trajectory.h5 and metadata_….json of an episode that succeeded")
    named = read.mapping("map", map)
    chosen = choose_camera(CAMERAS, camera, named, name)
    reader = DroidReader(root, episodes, chosen.stored, read.whole("size", size))
    notes = [f"DROID folders, {len(episodes)} episodes"]
    if unfinished or failures:
        notes.append(f"{unfinished} folders without metadata and {failures} that failed were left out")
    again = uri_again("droid", root, camera=camera, failed=failed, fps=fps, size=size, map=map)
    files = [root / key / "trajectory.h5" for key in episodes]
    about = SourceInfo(
        name, again, chosen.name, read.number("fps", fps, 1e-3), h5.digest(files, chosen.stored, reader.size),
        tuple(notes), 6, -1, (0, 1, 2),
    )  # fmt: skip
    return Episodes(reader, about, CAMERAS, named)


def _episodes(root: Path, keep: bool) -> tuple[dict[str, Mapping[str, Any]], int, int]:
    """The metadata of each episode's folder, and how many folders have none or failed."""
    episodes: dict[str, Mapping[str, Any]] = {}
    unfinished = failures = 0
    for folder, inner, files in os.walk(root):
        inner.sort()
        if "trajectory.h5" not in files:
            continue
        key = Path(folder).relative_to(root).as_posix()
        described = sorted(f for f in files if f.startswith("metadata_") and f.endswith(".json"))
        try:
            about = read_json(inside(root, f"{key}/{described[0]}"), "droid") if described else {}
        except (LibraryError, Unreadable):
            about = {}
        failure = about.get("success") is False
        if not about:
            unfinished += 1
        elif failure and not keep:
            failures += 1
        else:
            episodes[key] = about
    return episodes, unfinished, failures
