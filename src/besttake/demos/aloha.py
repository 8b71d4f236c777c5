"""ALOHA's HDF5, one file per episode: ``aloha:DIRECTORY`` or ``aloha:FILE`` (``episode_0.hdf5`` …).

Actions (14) are the joint positions that both arms are sent to, states (14) are ``observations/qpos``; the grippers
are numbers 6 and 13, 1 open and 0 closed. Pictures under ``observations/images`` are plain RGB, or JPEG bytes padded to
one length. Mobile ALOHA hands its RGB pictures to OpenCV's encoder, which takes them for BGR, and reads them back the
same way: to any other decoder red and blue are exchanged, so they are exchanged back here. ``colours=rgb`` leaves JPEG
pictures as they are, for files whose writer turned them (openpi's converter expects those). The task is the option
``task``, by default the name of the directory.

Options: ``camera`` (by default the first wrist camera), ``task``, ``fps`` (50), ``colours`` (``bgr`` or ``rgb``, of
JPEG pictures), ``size`` (longest side of a frame, 320), ``map`` (``wrist:cam_left_wrist``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from besttake.demos import h5
from besttake.demos.base import Episodes, SourceInfo, assumed_rate, choose_camera, uri_again
from besttake.demos.frames import LARGEST, Unreadable, picture
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8, Demo

_FULL = 1 << 20
_RATE = 50.0


@dataclass(frozen=True)
class AlohaReader:
    """Reads episodes by the name of their file."""

    files: Mapping[str, Path]
    camera: str
    task_of_all: str
    size: int
    exchanged: bool

    def ids(self) -> Iterator[str]:
        """All files, ``episode_2`` before ``episode_10``."""
        yield from self.files

    def task(self, key: str) -> str:
        """The task of an episode."""
        return self.task_of_all

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of an episode."""
        with h5.opened(self.files[key]) as file:
            return h5.numbers(file, "observations/qpos"), h5.numbers(file, "action")

    def demo(self, key: str) -> Demo:
        """Read an episode as a demonstration."""
        with h5.opened(self.files[key]) as file:
            states, actions = h5.numbers(file, "observations/qpos"), h5.numbers(file, "action")
            frames = _frames(file, f"observations/images/{self.camera}", self.size, self.exchanged)
        if not len(frames) == len(states) == len(actions):
            raise Unreadable(f"has {len(frames)} pictures and {len(states)} states for {len(actions)} actions")
        steps = np.arange(len(actions), dtype=np.int64)
        words = self.task_of_all.replace("_", " ")
        return Demo(key, self.task_of_all, frames, steps, states, actions, words, {"file": key})

    def picture(self, key: str, step: int, camera: str) -> U8:
        """The full-size image of ``camera`` at ``step``."""
        path = f"observations/images/{camera}"
        with h5.opened(self.files[key]) as file:
            values = h5.dataset(file, path)
            if values.ndim != 2:
                return h5.one_picture(file, path, step)
            if not 0 <= step < len(values):
                raise Unreadable(f"has no step {step}")
            return _decoded(values[step], _FULL, self.exchanged)


def make(
    rest: str,
    camera: str | None = None,
    task: str | None = None,
    fps: float | str | None = None,
    colours: str = "bgr",
    size: int | str = LARGEST,
    map: str = "",
) -> Episodes:
    """The source ``aloha:rest``: a directory of episodes, or one of them."""
    name, read, path = f"aloha:{rest}", Reader(f"aloha:{rest}"), Path(rest)
    files = {p.name: p for p in h5.files_of(path, name)}
    files = {key: files[key] for key in sorted(files, key=lambda n: h5.by_number_key(Path(n).stem))}
    if not files:
        raise LibraryError(f"{name}: no such file, and no directory with .hdf5 files")
    exchanged = read.choice("colours", colours, ("bgr", "rgb")) == "bgr"
    cameras, compressed = _cameras(files, name)
    named = read.mapping("map", map)
    chosen = choose_camera(cameras, camera, named, name)
    folder = path.parent if path.is_file() else path
    reader = AlohaReader(files, chosen.stored, task or folder.resolve().name, read.whole("size", size), exchanged)
    notes = [
        f"ALOHA HDF5, {len(files)} episodes; actions are joint positions of two arms",
        "past the end of a demonstration, positions should be repeated: build it with `pad` repeat",
    ]
    if compressed:
        taken = "exchanged, as Mobile ALOHA writes them; ?colours=rgb takes them" if exchanged else "taken"
        notes.append(f"red and blue of its JPEG pictures were {taken} as they are")
    rate = _RATE if fps is None else read.number("fps", fps, 1e-3)
    if fps is None:
        notes.append(assumed_rate(rate, "as ALOHA runs"))
    again = uri_again("aloha", path, camera=camera, task=task, fps=fps, colours=colours, size=size, map=map)
    print_of = h5.digest(files.values(), reader.camera, reader.task_of_all, reader.size, compressed and exchanged)
    about = SourceInfo(name, again, chosen.name, rate, print_of, tuple(notes), None, 1)
    return Episodes(reader, about, cameras, named)


def _cameras(files: Mapping[str, Path], name: str) -> tuple[list[str], bool]:
    """The cameras of the first episode that can be read, and whether their pictures are JPEG bytes."""
    trouble = "has no pictures under observations/images"
    for key, path in files.items():
        try:
            with h5.opened(path) as file:
                cameras = h5.names(file, "observations/images")
                if cameras and h5.item(file, "action") is not None:
                    return cameras, h5.dataset(file, f"observations/images/{cameras[0]}").ndim == 2
        except Unreadable as error:
            trouble = f"{key} {error}"
    raise LibraryError(f"{name}: {trouble}")


def _decoded(data: Any, largest: int, exchanged: bool) -> U8:
    shown = picture(np.asarray(data, np.uint8).tobytes(), largest)
    return np.ascontiguousarray(shown[..., ::-1]) if exchanged else shown


def _frames(file: Any, path: str, largest: int, exchanged: bool) -> U8:
    values = h5.dataset(file, path)
    if values.ndim != 2:
        return h5.pictures(file, path, largest)
    if values.dtype != np.uint8 or values.size > 1 << 32:
        raise Unreadable(f"has {path} of {values.dtype} {values.shape}, not JPEG bytes")
    frames = [_decoded(values[i], largest, exchanged) for i in range(len(values))]
    if len({frame.shape for frame in frames}) > 1:
        raise Unreadable(f"has pictures of different size in {path}")
    return np.stack(frames) if frames else np.zeros((0, 1, 1, 3), np.uint8)
