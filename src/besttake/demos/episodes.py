"""What readers of recorded episodes have in common: episodes by key, each read alone, left out by name when damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from besttake.demos.base import Bad, match_cameras
from besttake.demos.frames import Unreadable
from besttake.errors import LibraryError
from besttake.types import F32, U8, Demo


class EpisodeReader(Protocol):
    """What a format has to say: `Unreadable` completes "demonstration KEY …"."""

    def ids(self) -> Iterable[str]:
        """The ids of all demonstrations, in order."""

    def task(self, key: str) -> str:
        """The task of one, told without decoding its pictures."""

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        """States and actions of one."""

    def demo(self, key: str) -> Demo:
        """All of one."""

    def picture(self, key: str, step: int, camera: str) -> U8:
        """What a camera, by its stored name, saw at ``step``, full size."""


@dataclass(frozen=True)
class About:
    """What a source says of itself, as `besttake.demos.base.Source` and `Noted` want it."""

    name: str
    uri: str
    camera: str
    fps: float
    fingerprint: str
    notes: tuple[str, ...]
    gripper_dim: int | None = None
    gripper_open: int | None = None
    eef_dims: tuple[int, ...] | None = None


def assumed_rate(rate: float, why: str) -> str:
    """The note of a reader whose data do not say how many steps a second they have."""
    return f"it does not say its rate: taken as {rate:g} steps a second, {why}; ?fps=… says otherwise"


class Episodes:
    """A `besttake.demos.base.Source` of what an `EpisodeReader` reads.

    ``cameras`` are the stored names of all cameras, ``named`` maps what an env calls them to those.
    """

    def __init__(self, reader: EpisodeReader, about: About, cameras: Sequence[str], named: Mapping[str, str]) -> None:
        self._reader, self._cameras, self._named = reader, cameras, named
        self.name, self.uri, self.camera, self.fps = about.name, about.uri, about.camera, about.fps
        self.fingerprint, self.notes = about.fingerprint, about.notes
        self.gripper_dim, self.gripper_open, self.eef_dims = about.gripper_dim, about.gripper_open, about.eef_dims

    def __iter__(self) -> Iterator[Demo | Bad]:
        return self.of_tasks(lambda _: True)

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo | Bad]:
        """The demonstrations whose task is ``wanted`` when their turn comes."""
        for key in self._reader.ids():
            try:
                if wanted(self._reader.task(key)):
                    yield self._reader.demo(key)
            except Unreadable as error:
                yield Bad(key, str(error))

    def rows(self) -> Iterator[tuple[F32 | None, F32 | None]]:
        """States and actions, one demonstration after the other."""
        for key in self._reader.ids():
            try:
                yield self._reader.numbers(key)
            except Unreadable:
                continue

    def shows(self, cameras: Sequence[str]) -> bool:
        """Whether it has these cameras."""
        return match_cameras(cameras, self._cameras, self._named) is not None

    def show(self, demo: str, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at ``step`` of the demonstration ``demo``, full size."""
        matched = match_cameras(cameras, self._cameras, self._named) or {}
        try:
            return {wanted: self._reader.picture(demo, step, stored) for wanted, stored in matched.items()}
        except Unreadable as error:
            raise LibraryError(f"{self.name}: {demo} {error}") from error
