"""The contract of a source of demonstrations, what readers share, and checks of a single demonstration."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import quote, urlencode

import numpy as np

from besttake.demos.reading import Unreadable, check_count
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8, Demo


@dataclass(frozen=True)
class UnreadableDemo:
    """A demonstration that could not be read, with its ``id`` and a one-line reason."""

    id: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", " ".join(self.reason.splitlines()))


class Source(Protocol):
    """An iterable of demonstrations, read one at a time; every iteration yields the same ones.

    A demonstration that cannot be read is yielded as `UnreadableDemo`, so that the others remain usable.
    """

    @property
    def name(self) -> str:
        """Name of the source for messages and provenance."""

    @property
    def camera(self) -> str:
        """Camera that took the frames."""

    @property
    def fps(self) -> float:
        """Steps per second."""

    @property
    def fingerprint(self) -> str:
        """A hash that changes when the demonstrations change."""

    @property
    def gripper_dim(self) -> int | None:
        """Index of the gripper command in the action; None if unknown."""

    @property
    def gripper_open(self) -> int | None:
        """Sign of the gripper command that opens; None if unknown."""

    @property
    def eef_dims(self) -> tuple[int, ...] | None:
        """Indexes of the end effector's position in the state; None if unknown."""

    def __iter__(self) -> Iterator[Demo | UnreadableDemo]: ...


@runtime_checkable
class NumericSource(Protocol):
    """A source that can return states and actions without decoding pictures."""

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """Yield states (T, s) and actions (T, a) of each readable demonstration."""


@runtime_checkable
class AnnotatedSource(Protocol):
    """A source with notes for the user: what it assumed about the data, and what it does not read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence each, without a full stop."""


@runtime_checkable
class PartitionedSource(Protocol):
    """A source that can be split into parts for several processes to read in parallel."""

    def parts(self) -> Sequence[Iterable[Demo | UnreadableDemo]]:
        """Picklable parts that, concatenated, give this source."""


@runtime_checkable
class TaskSource(Protocol):
    """A source that knows the task of a demonstration before decoding its pictures."""

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo | UnreadableDemo]:
        """Yield the demonstrations whose task is ``wanted`` (asked once for each, in order); others are not decoded."""


@runtime_checkable
class CameraSource(Protocol):
    """A source that can return the full-size image of any of its cameras at any step, as input for a policy."""

    @property
    def uri(self) -> str:
        """URI that opens this source again."""

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether it has these cameras (`match_cameras`)."""

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration with id ``demo``."""


def match_cameras(wanted: Sequence[str], there: Sequence[str], named: Mapping[str, str]) -> dict[str, str] | None:
    """Match each ``wanted`` camera with one of the cameras ``there``; None unless all are there.

    As ``named``; else of the same name or last word (``observation.images.wrist`` is ``wrist``); else the only wrist
    camera is the wrist camera and the only other one the other.
    """
    hands, matched = wrist_cameras(there), {}
    for camera in wanted:
        alike = [t for t in there if camera in (t, last_word(t))]
        if camera in named:
            alike = [t for t in there if named[camera] in (t, last_word(t))]
        elif not alike and sum(is_wrist(w) == is_wrist(camera) for w in wanted) == 1:
            alike = [t for t in there if (t in hands) == is_wrist(camera)]
        if len(alike) != 1:
            return None
        matched[camera] = alike[0]
    return matched


def is_wrist(camera: str) -> bool:
    """Whether a camera's name says that it sits in the hand; LeRobot's LIBERO sets call that one ``image2``."""
    return _says_wrist(camera) or last_word(camera) == "image2"


def wrist_cameras(cameras: Sequence[str]) -> list[str]:
    """Which of the cameras of one data set sit in the hand: those that say so, else ``image2`` beside ``image``."""
    named = [camera for camera in cameras if _says_wrist(camera)]
    if named or "image" not in map(last_word, cameras):
        return named
    return [camera for camera in cameras if last_word(camera) == "image2"]


def last_word(camera: str) -> str:
    """``observation.images.wrist`` is ``wrist``, and so is ``observation/wrist``."""
    return re.split(r"[./]", camera)[-1]


def _says_wrist(camera: str) -> bool:
    return any(word in camera.lower() for word in ("wrist", "hand", "gripper"))


def choose_camera(cameras: Sequence[str], wanted: str | None, named: Mapping[str, str], source: str) -> tuple[str, str]:
    """The stored name of the camera to score by, and what to call it.

    It is the one ``wanted``, by its name or last word; by default the one in the hand, else the first. ``named`` maps
    what an env calls its cameras to stored names: a camera that it names as a wrist camera is one, and the default.
    """
    if wanted is None:
        hands = [stored for name, stored in named.items() if is_wrist(name)] or wrist_cameras(cameras)
        wanted = hands[0] if hands else cameras[0]
    for camera in cameras:
        if wanted in (camera, last_word(camera)):
            names = [name for name, stored in named.items() if stored in (camera, last_word(camera))]
            return camera, names[0] if names else camera
    raise LibraryError(f"{source} has no camera {wanted}; it has {', '.join(cameras)}")


def uri_again(scheme: str, path: Path, **options: Any) -> str:
    """The URI that opens the same source again, from any directory."""
    given = {name: value for name, value in options.items() if value not in (None, "")}
    return f"{scheme}:{path.resolve()}?{urlencode(given, quote_via=quote)}"


def frame_rate(
    read: Reader, given: float | str | None, stored: float | None, usual: float, why: str
) -> tuple[float, list[str]]:
    """Steps a second: as the option ``fps`` says, else as the data say, else the ``usual`` rate, with a note."""
    if given is not None:
        return read.number("fps", given, 1e-3), []
    if stored is not None:
        return stored, []
    return usual, [f"it does not say its rate: taken as {usual:g} steps a second, {why}; ?fps=… says otherwise"]


def choose_columns(
    present: Collection[str], wanted: str | None, usual: Sequence[tuple[str, ...]], name: str
) -> tuple[str, ...] | None:
    """The columns that make up states or actions: those ``wanted``, joined by ``+``, else the first ``usual`` ones."""
    if wanted is None:
        return next((keys for keys in usual if all(key in present for key in keys)), None)
    keys = tuple(wanted.split("+"))
    for key in keys:
        if key not in present:
            raise LibraryError(f"{name} has no numbers {key}; it has {', '.join(present)}")
    return keys


def missing_notes(features: Iterable[str], **chosen: object) -> list[str]:
    """A note on each of ``state`` and ``action`` that was not found among the ``features`` of a data set."""
    return [
        f"it has no {option}s: it can score takes but not be retrieved from; if one of its features is the {option},"
        f" name it with ?{option}=… (features: {', '.join(features)})"
        for option, columns in chosen.items()
        if columns is None
    ]


Look = TypeVar("Look")


def first_readable(keys: Iterable[str], look: Callable[[str], Look | None], name: str, trouble: str) -> Look:
    """What ``look`` sees in the first file or episode where it sees anything; LibraryError where it sees nothing."""
    for key in keys:
        try:
            if (seen := look(key)) is not None:
                return seen
        except Unreadable as error:
            trouble = f"{key} {error}"
    raise LibraryError(f"{name}: {trouble}")


class EpisodeReader(Protocol):
    """Reads the episodes of one format by their ids; the text of an `Unreadable` completes "demonstration KEY …"."""

    def ids(self) -> Iterable[str]:
        """The ids of all demonstrations, in order."""

    def task(self, key: str) -> tuple[str, str]:
        """The task of an episode and its instruction, without decoding its pictures."""

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of an episode."""

    def frames(self, key: str) -> U8:
        """The pictures of an episode, one per step; one more, after the last action, is not used."""

    def picture(self, key: str, step: int, camera: str) -> U8:
        """The full-size image of a camera, given by its stored name, at ``step``."""


@dataclass(frozen=True)
class Episodes:
    """A `Source` that reads its episodes with an `EpisodeReader`.

    ``cameras`` are the stored names of all cameras; ``named`` maps an env's camera names to stored names. The other
    fields are those of `Source`, `AnnotatedSource` and `CameraSource`.
    """

    reader: EpisodeReader
    cameras: Sequence[str]
    named: Mapping[str, str]
    name: str
    uri: str
    camera: str
    fps: float
    fingerprint: str
    notes: tuple[str, ...]
    gripper_dim: int | None = None
    gripper_open: int | None = None
    eef_dims: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return sum(1 for _ in self.reader.ids())

    def __iter__(self) -> Iterator[Demo | UnreadableDemo]:
        return self.of_tasks(lambda _: True)

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo | UnreadableDemo]:
        """Yield the demonstrations whose task is ``wanted``."""
        for key in self.reader.ids():
            try:
                task, instruction = self.reader.task(key)
                if wanted(task):
                    yield self._demo(key, task, instruction)
            except Unreadable as error:
                yield UnreadableDemo(key, str(error))

    def _demo(self, key: str, task: str, instruction: str) -> Demo:
        states, actions = self.reader.numbers(key)
        frames = self.reader.frames(key)
        if actions is not None:
            frames = frames[: -1 if len(frames) == len(actions) + 1 else None]
        rows, whose = (states, "its states") if actions is None else (actions, "its actions")
        if rows is not None:
            check_count(min(len(frames), len(rows)), len(rows), "frames", whose)
        return Demo(key, task, frames, np.arange(len(frames), dtype=np.int64), states, actions, instruction)

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """States and actions, one demonstration after the other."""
        for key in self.reader.ids():
            try:
                yield self.reader.numbers(key)
            except Unreadable:
                continue

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether it has these cameras."""
        return match_cameras(cameras, self.cameras, self.named) is not None

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration ``demo``, full size."""
        matched = match_cameras(cameras, self.cameras, self.named) or {}
        try:
            return {wanted: self.reader.picture(demo, step, stored) for wanted, stored in matched.items()}
        except Unreadable as error:
            raise LibraryError(f"{self.name}: {demo} {error}") from error


@dataclass(frozen=True)
class Shape:
    """Action and state sizes shared by all demonstrations of a library; None if there are no actions or states."""

    action_dim: int | None
    state_dim: int | None

    @classmethod
    def of(cls, demo: Demo) -> Shape:
        """The sizes of ``demo``."""
        return cls(*(None if rows is None else rows.shape[-1] for rows in (demo.actions, demo.states)))


def length_of(demo: Demo) -> int:
    """Number of steps of a demonstration: of its actions, else of its states, else up to its last frame."""
    rows = demo.states if demo.actions is None else demo.actions
    if rows is not None:
        return len(rows)
    return int(demo.frame_steps[-1]) + 1 if len(demo.frame_steps) else 0


def fault(demo: Demo, shape: Shape | None) -> str | None:
    """The reason why ``demo`` cannot be added to a library of ``shape``; None if it can."""
    length = length_of(demo)
    if length < 2:
        return f"has {length} step{'s' * (length != 1)}, and a demonstration needs at least 2"
    if not len(demo.frames):
        return "has no frames"
    if demo.frames.ndim != 4 or demo.frames.shape[3] != 3 or demo.frames.dtype != np.uint8:
        return f"has frames {demo.frames.dtype} {demo.frames.shape}, not uint8 (F, H, W, 3)"
    steps = demo.frame_steps
    if len(steps) != len(demo.frames) or steps[0] < 0 or steps[-1] >= length or (np.diff(steps) <= 0).any():
        return f"has {len(demo.frames)} frames that do not belong to its {length} steps"
    for name, values in (("actions", demo.actions), ("states", demo.states)):
        if values is None:
            continue
        if len(values) != length:
            return f"has {len(values)} {name} for {length} steps"
        if len(wrong := np.flatnonzero(~np.isfinite(values).all(axis=1))):
            return f"has {name} that are not numbers, first at step {wrong[0]}"
    own = Shape.of(demo)
    if shape is not None and own != shape:
        mine, theirs = (
            ["none" if dim is None else f"{dim} numbers" for dim in (each.action_dim, each.state_dim)]
            for each in (own, shape)
        )
        return f"has actions of {mine[0]} and states of {mine[1]}, the others {theirs[0]} and {theirs[1]}"
    return None
