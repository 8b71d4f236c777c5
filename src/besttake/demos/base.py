"""What a reader of demonstrations gives, and what makes a demonstration unusable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, urlencode

import numpy as np
from numpy.typing import NDArray

from besttake.errors import LibraryError
from besttake.types import F32, U8, Demo


@dataclass(frozen=True)
class Bad:
    """A demonstration that could not be read: its ``id`` and one line that says why."""

    id: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", " ".join(self.reason.splitlines()))


class Source(Protocol):
    """Demonstrations, read one at a time; iterating twice gives the same twice.

    A demonstration that cannot be read is yielded as `Bad`, so that the others still can be.
    """

    @property
    def name(self) -> str:
        """What to call the source in messages and provenance."""

    @property
    def camera(self) -> str:
        """The camera whose frames they are."""

    @property
    def fps(self) -> float:
        """Steps a second."""

    @property
    def fingerprint(self) -> str:
        """Changes when the demonstrations do."""

    @property
    def gripper_dim(self) -> int | None:
        """Index of the gripper command in the action; None where it is not known."""

    @property
    def gripper_open(self) -> int | None:
        """Sign of the gripper command that opens; None where it is not known."""

    @property
    def eef_dims(self) -> tuple[int, ...] | None:
        """Indexes of the end effector's position in the state; None where they are not known."""

    def __iter__(self) -> Iterator[Demo | Bad]: ...


@runtime_checkable
class Sampled(Protocol):
    """A source that can tell how its robot moves without reading a picture."""

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """States (T, s) and actions (T, a) of one demonstration after the other, without those that are unreadable."""


@runtime_checkable
class Noted(Protocol):
    """A source with remarks for the user: what it took the data for, what it does not read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence each, without a full stop."""


@runtime_checkable
class Divided(Protocol):
    """A source in parts that can be read by several processes at once."""

    def parts(self) -> Sequence[Iterable[Demo | Bad]]:
        """What, one after the other, is this source. Each can be sent to another process."""


@runtime_checkable
class ByTask(Protocol):
    """A source that knows the task of a demonstration before it decodes a picture."""

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo | Bad]:
        """The demonstrations whose task is ``wanted`` when their turn comes; the others are not decoded."""


@runtime_checkable
class Showing(Protocol):
    """A source that can also show any of its cameras at any step, at full size, for a policy to look at."""

    @property
    def uri(self) -> str:
        """How to open this source again."""

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether it has these cameras (`match_cameras`)."""

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration with id ``demo``."""


@runtime_checkable
class Started(Protocol):
    """A source that knows the simulator's state at the beginning of a demonstration."""

    def start_state(self, demo: str) -> NDArray[np.float64] | None:
        """The state (n,) before the first action of the demonstration with id ``demo``; None where it is not kept."""


def match_cameras(wanted: Sequence[str], there: Sequence[str], named: Mapping[str, str]) -> dict[str, str] | None:
    """Which of the cameras ``there`` each one ``wanted`` is; None unless all are there.

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


@dataclass(frozen=True)
class Camera:
    """The camera to score by: the name that the data set has ``stored``, and what to call it."""

    stored: str
    name: str


def choose_camera(cameras: Sequence[str], wanted: str | None, named: Mapping[str, str], source: str) -> Camera:
    """The camera ``wanted``, by its name or last word; by default the one in the hand, else the first.

    ``named`` maps what an env calls its cameras to stored names: a camera that it names as a wrist camera is one, and
    the default.
    """
    if wanted is None:
        hands = [stored for name, stored in named.items() if is_wrist(name)] or wrist_cameras(cameras)
        wanted = hands[0] if hands else cameras[0]
    for camera in cameras:
        if wanted in (camera, last_word(camera)):
            names = [name for name, stored in named.items() if stored in (camera, last_word(camera))]
            return Camera(camera, names[0] if names else camera)
    raise LibraryError(f"{source} has no camera {wanted}; it has {', '.join(cameras)}")


def uri_again(scheme: str, path: Path, **options: Any) -> str:
    """The URI that opens the same source again, from any directory."""
    given = {name: value for name, value in options.items() if value not in (None, "")}
    return f"{scheme}:{path.resolve()}?{urlencode(given, quote_via=quote)}"


@dataclass(frozen=True)
class Shape:
    """The sizes that all demonstrations of a library share; None without states or actions."""

    action_dim: int | None
    state_dim: int | None

    @classmethod
    def of(cls, demo: Demo) -> Shape:
        """The sizes of ``demo``."""
        return cls(*(None if rows is None else rows.shape[-1] for rows in (demo.actions, demo.states)))


def length_of(demo: Demo) -> int:
    """Steps of a demonstration: its actions, else its states, else up to its last frame."""
    rows = demo.states if demo.actions is None else demo.actions
    if rows is not None:
        return len(rows)
    return int(demo.frame_steps[-1]) + 1 if len(demo.frame_steps) else 0


def fault(demo: Demo, shape: Shape | None) -> str | None:
    """Why ``demo`` cannot stand in a library whose demonstrations have ``shape``; None when it can."""
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
