"""The part of a library that belongs to one task: frames for scoring, events for retrieval."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.core.events import event_starts, onset_frames, phases
from besttake.core.retrieve import Candidates, Part, RetrievalConfig, Retriever
from besttake.core.search import Index, Rows, Space, Table
from besttake.demos.checks import check_events
from besttake.demos.storage import FILE
from besttake.errors import LibraryError
from besttake.files import short_hash
from besttake.types import F32, F64, I64

if TYPE_CHECKING:
    from besttake.demos.library import Library

Matched = Literal["task", "instruction", "all"]


def events_of(library: Library, demo: int, angle: float | None = None) -> I64:
    """The steps (E,) at which ``demo`` begins an event; with an ``angle``, where such a turn begins one."""
    head, own = library.head, library.demos[demo]
    if angle is None or angle == head.event_config.angle or library.states is None or head.eef_dims is None:
        return np.array(own.events, np.int64)
    positions = np.stack([library.state(demo, step) for step in range(own.length)])[:, list(head.eef_dims)]
    gripper = None if head.gripper_dim is None else library.chunk(demo, 0, own.length)[:, head.gripper_dim]
    return event_starts(own.length, positions, gripper, replace(head.event_config, angle=angle))


class View:
    """The demonstrations of one task. ``frames`` int64 (F,) are its rows among the frames of the whole library.

    ``matched`` says how they were found: by "task", by "instruction", or "all" because neither matched.
    """

    def __init__(self, library: Library, demos: I64, matched: Matched) -> None:
        self.library, self.demos, self.matched = library, demos, matched
        self.frames: I64 = np.flatnonzero(np.isin(library.frame_demo, demos))
        self.frame_demo, self.frame_step = library.frame_demo[self.frames], library.frame_step[self.frames]
        self._spaces: dict[str, Space] = {}

    @cached_property
    def embeddings(self) -> F32:
        """Float32 (F, d); still memory-mapped where the task's frames lie together."""
        return np.asarray(_picked(self.library.embeddings, self.frames))

    @cached_property
    def index(self) -> Index:
        """The frames prepared for search; row i of a result is ``frames[i]`` of the library."""
        return Index.build(self.embeddings)

    @cached_property
    def action_spread(self) -> F64:
        """Standard deviation (action_dim,) of the task's actions."""
        library = self.library
        parts = [library.chunk(int(d), 0, library.demos[d].length) for d in self.demos]
        spread: F64 = np.concatenate(parts).std(axis=0, dtype=np.float64)
        return spread

    def candidates(self, config: RetrievalConfig, horizon: int) -> Candidates:
        """The candidates for retrieval: the events of the task's demonstrations, or with rule `frame` all frames."""
        library = self.library
        self._check()
        if config.rule == "frame":
            rows, demo, step = self.frames, self.frame_demo, self.frame_step
        else:
            check_events(library)
            events = {int(d): events_of(library, int(d), config.angle) for d in self.demos}
            demo = np.concatenate([np.full(len(own), d) for d, own in events.items()])
            step = np.concatenate([*events.values()])
            rows = np.concatenate([self._rows(d, own) for d, own in events.items()])
        dim, place = library.head.action_dim, library.rows_of(demo, step)
        states = library.states
        return Candidates(
            _picked(library.embeddings, rows),
            Rows(lambda which: library.chunks(demo[which], step[which], horizon), (len(demo), horizon, dim or 0)),
            demo, step, None if states is None else np.asarray(states[place]), self._open(place),
        )  # fmt: skip

    def retriever(self, config: RetrievalConfig, horizon: int) -> Retriever:
        """The task's events (or frames) prepared for queries that ask for chunks of ``horizon``."""
        known = self.candidates(config, horizon)
        rows = short_hash(known.demo.tobytes(), known.step.tobytes())

        def prepare(part: Part, values: Table) -> Space:
            wide = f" {horizon}" if part in ("chunk", "returns") else ""
            key = f"{part} {rows}{wide}" + (f" {config.rule} {config.lead}" if part == "returns" else "")
            if key not in self._spaces:
                self._spaces[key] = Space(values)
            return self._spaces[key]

        return Retriever(known, config, prepare)

    def _rows(self, demo: int, steps: I64) -> I64:
        """The library frame at each of the events that begin at ``steps`` of ``demo``."""
        own = np.flatnonzero(self.frame_demo == demo)
        rows: I64 = self.frames[own[onset_frames(self.frame_step[own], steps)]]
        return rows

    def _open(self, place: I64) -> NDArray[np.bool_] | None:
        """Whether the gripper is open at each ``place`` among the steps of all demonstrations."""
        library, gripper = self.library, self.library.head.gripper_dim
        if gripper is None or library.actions is None:
            return None
        is_open = np.zeros(len(library.actions), bool)
        for d in map(int, self.demos):
            commands = library.chunk(d, 0, library.demos[d].length)[:, gripper]
            first = int(library.rows_of(np.array([d]), np.array([0]))[0])
            is_open[first : first + len(commands)] = phases(commands, library.head.event_config)
        return is_open[place]

    def _check(self) -> None:
        """Check that every demonstration has valid frames and an event, which the totals of a library do not show."""
        library = self.library
        lengths = np.array([demo.length for demo in library.demos])
        frames = np.bincount(self.frame_demo, minlength=len(lengths))
        outside = set(self.frame_demo[(self.frame_step < 0) | (self.frame_step >= lengths[self.frame_demo])].tolist())
        for d in map(int, self.demos):
            lacks = [what for what, there in (("frames", frames[d]), ("events", library.demos[d].events)) if not there]
            if lacks or d in outside:
                what = f"no {lacks[0]}" if lacks else "frames at steps that it has not"
                raise LibraryError(
                    f"{library.path / FILE} is damaged ({library.demos[d].id[:60]} has {what}); build the library again"
                )


def _picked(table: F32, rows: I64) -> Table:
    """``rows`` of ``table`` without a copy: a slice if they are contiguous, else read on demand."""
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return table[rows[0] : rows[0] + len(rows)]
    return Rows(lambda which: table[rows[which]], (len(rows), *table.shape[1:]))
