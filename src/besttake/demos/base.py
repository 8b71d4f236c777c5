"""The contract of a source of demonstrations, and what readers of formats share: `Episodes` and their options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import quote, urlencode

import numpy as np

from besttake.demos.cameras import match_cameras
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

    def __iter__(self) -> Iterator[Demo | UnreadableDemo]:
        """Yield all demonstrations."""


@runtime_checkable
class NumericSource(Protocol):
    """A source that reads states and actions without decoding pictures."""

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """Yield states (T, s) and actions (T, a) of each readable demonstration."""


@runtime_checkable
class AnnotatedSource(Protocol):
    """A source with notes for the user: what it assumes about the data, and what it does not read."""

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
        """Yield the demonstrations whose task is ``wanted`` (called once for each, in order); decode no others."""


@runtime_checkable
class CameraSource(Protocol):
    """A source that can give a policy the full-size image of any of its cameras at any step."""

    @property
    def uri(self) -> str:
        """URI that opens this source again."""

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether the source has these cameras (`match_cameras`)."""

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The images of ``cameras`` at ``step`` of the demonstration with id ``demo``."""


def uri_again(scheme: str, path: Path, **options: Any) -> str:
    """The URI that opens the same source again from any directory."""
    given = {name: value for name, value in options.items() if value not in (None, "")}
    return f"{scheme}:{path.resolve()}?{urlencode(given, quote_via=quote)}"


def frame_rate(
    read: Reader, given: float | str | None, stored: float | None, usual: float, why: str
) -> tuple[float, list[str]]:
    """Steps per second: the option ``fps`` if given, else the ``stored`` rate, else the ``usual`` one with a note."""
    if given is not None:
        return read.number("fps", given, 1e-3), []
    if stored is not None:
        return stored, []
    return usual, [f"it does not say its rate: taken as {usual:g} steps a second, {why}; ?fps=… says otherwise"]


def choose_columns(
    present: Collection[str], wanted: str | None, usual: Sequence[tuple[str, ...]], name: str
) -> tuple[str, ...] | None:
    """The columns that make up states or actions: those ``wanted`` (joined by ``+``), else the first ``usual`` set."""
    if wanted is None:
        return next((keys for keys in usual if all(key in present for key in keys)), None)
    keys = tuple(wanted.split("+"))
    for key in keys:
        if key not in present:
            raise LibraryError(f"{name} has no numbers {key}; it has {', '.join(present)}")
    return keys


def missing_notes(features: Iterable[str], **chosen: object) -> list[str]:
    """A note for each of ``state`` and ``action`` for which no column of ``features`` was ``chosen``."""
    return [
        f"it has no {option}s: it can score takes but not be retrieved from; if one of its features is the {option},"
        f" name it with ?{option}=… (features: {', '.join(features)})"
        for option, columns in chosen.items()
        if columns is None
    ]


Content = TypeVar("Content")


def first_readable(keys: Iterable[str], read: Callable[[str], Content | None], name: str, problem: str) -> Content:
    """The content of the first file or episode in which ``read`` finds any; LibraryError if there is none."""
    for key in keys:
        try:
            if (content := read(key)) is not None:
                return content
        except Unreadable as error:
            problem = f"{key} {error}"
    raise LibraryError(f"{name}: {problem}")


class EpisodeReader(Protocol):
    """Reads the episodes of one format by their ids; the text of an `Unreadable` completes "demonstration KEY …"."""

    def ids(self) -> Iterable[str]:
        """The ids of all episodes, in order."""

    def task(self, key: str) -> tuple[str, str]:
        """The task of an episode and its instruction, without decoding its pictures."""

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of an episode."""

    def frames(self, key: str) -> U8:
        """The frames of an episode, one per step; a further one, after the last action, is ignored."""

    def picture(self, key: str, step: int, camera: str) -> U8:
        """The full-size image at ``step`` of the camera whose stored name is ``camera``."""


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
        rows, source = (states, "its states") if actions is None else (actions, "its actions")
        if rows is not None:
            check_count(min(len(frames), len(rows)), len(rows), "frames", source)
        return Demo(key, task, frames, np.arange(len(frames), dtype=np.int64), states, actions, instruction)

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """Yield states and actions of each readable demonstration."""
        for key in self.reader.ids():
            try:
                yield self.reader.numbers(key)
            except Unreadable:
                continue

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether the data set has these cameras."""
        return match_cameras(cameras, self.cameras, self.named) is not None

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The full-size images of ``cameras`` at ``step`` of the demonstration ``demo``."""
        matched = match_cameras(cameras, self.cameras, self.named) or {}
        try:
            return {wanted: self.reader.picture(demo, step, stored) for wanted, stored in matched.items()}
        except Unreadable as error:
            raise LibraryError(f"{self.name}: {demo} {error}") from error
