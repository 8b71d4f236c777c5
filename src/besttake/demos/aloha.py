"""ALOHA's HDF5, one file per episode: ``aloha:DIRECTORY`` or ``aloha:FILE`` (``episode_0.hdf5`` …).

Actions (14) are the joint positions that both arms are sent to, states (14) are ``observations/qpos``; the grippers
are numbers 6 and 13, 1 open and 0 closed. Pictures under ``observations/images`` are plain, or JPEG bytes padded to
one length, which are decoded as the RGB pictures that they are. The task is the option ``task``, by default the name of
the directory.

Options: ``camera`` (by default the first wrist camera), ``task``, ``fps`` (50), ``size`` (longest side of a frame,
320), ``map`` (``wrist:cam_left_wrist``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from besttake.demos import h5
from besttake.demos.base import choose_camera, uri_again
from besttake.demos.episodes import About, Episodes
from besttake.demos.frames import LARGEST, Unreadable, picture
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8, Demo

_FULL = 1 << 20


@dataclass(frozen=True)
class AlohaReader:
    """Reads episodes by the name of their file."""

    files: Mapping[str, Path]
    camera: str
    task: str
    size: int

    def ids(self) -> Iterator[str]:
        """All files, ``episode_2`` before ``episode_10``."""
        yield from self.files

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of an episode."""
        with h5.opened(self.files[key]) as file:
            return h5.numbers(file, "observations/qpos"), h5.numbers(file, "action")

    def demo(self, key: str) -> Demo:
        """An episode."""
        with h5.opened(self.files[key]) as file:
            states, actions = h5.numbers(file, "observations/qpos"), h5.numbers(file, "action")
            frames = _frames(file, f"observations/images/{self.camera}", self.size)
        if not len(frames) == len(states) == len(actions):
            raise Unreadable(f"has {len(frames)} pictures and {len(states)} states for {len(actions)} actions")
        steps = np.arange(len(actions), dtype=np.int64)
        words = self.task.replace("_", " ")
        return Demo(key, self.task, frames, steps, states, actions, words, {"file": key})

    def picture(self, key: str, step: int, camera: str) -> U8:
        """What ``camera`` saw at ``step``, full size."""
        path = f"observations/images/{camera}"
        with h5.opened(self.files[key]) as file:
            values = h5.dataset(file, path)
            if values.ndim != 2:
                return h5.one_picture(file, path, step)
            if not 0 <= step < len(values):
                raise Unreadable(f"has no step {step}")
            return picture(np.asarray(values[step], np.uint8).tobytes(), _FULL)


def make(
    rest: str,
    camera: str | None = None,
    task: str | None = None,
    fps: float | str = 50.0,
    size: int | str = LARGEST,
    map: str = "",
) -> Episodes:
    """The source ``aloha:rest``: a directory of episodes, or one of them."""
    name, read, path = f"aloha:{rest}", Reader(f"aloha:{rest}"), Path(rest)
    files = {p.name: p for p in h5.files_of(path)}
    files = {key: files[key] for key in sorted(files, key=lambda n: h5.by_number_key(Path(n).stem))}
    if not files:
        raise LibraryError(f"{name}: no such file, and no directory with .hdf5 files")
    cameras = _cameras(files, name)
    named = read.mapping("map", map)
    chosen = choose_camera(cameras, camera, named, name)
    folder = path.parent if path.is_file() else path
    reader = AlohaReader(files, chosen.stored, task or folder.resolve().name, read.whole("size", size))
    notes = (
        f"ALOHA HDF5, {len(files)} episodes; actions are joint positions of two arms",
        "past the end of a demonstration, positions should be repeated: build it with `pad` repeat",
    )
    again = uri_again("aloha", path, camera=camera, task=task, fps=fps, size=size, map=map)
    print_of = h5.digest(files.values(), reader.camera, reader.task, reader.size)
    about = About(name, again, chosen.name, read.number("fps", fps, 1e-3), print_of, notes, None, 1)
    return Episodes(reader, about, cameras, named)


def _cameras(files: Mapping[str, Path], name: str) -> list[str]:
    """The cameras of the first episode that can be read."""
    trouble = "has no pictures under observations/images"
    for key, path in files.items():
        try:
            with h5.opened(path) as file:
                cameras = h5.names(file, "observations/images")
                if cameras and h5.item(file, "action") is not None:
                    return cameras
        except Unreadable as error:
            trouble = f"{key} {error}"
    raise LibraryError(f"{name}: {trouble}")


def _frames(file: Any, path: str, largest: int) -> U8:
    values = h5.dataset(file, path)
    if values.ndim != 2:
        return h5.pictures(file, path, largest)
    if values.dtype != np.uint8 or values.size > 1 << 32:
        raise Unreadable(f"has {path} of {values.dtype} {values.shape}, not JPEG bytes")
    frames = [picture(np.asarray(values[i], np.uint8).tobytes(), largest) for i in range(len(values))]
    if len({frame.shape for frame in frames}) > 1:
        raise Unreadable(f"has pictures of different size in {path}")
    return np.stack(frames) if frames else np.zeros((0, 1, 1, 3), np.uint8)
