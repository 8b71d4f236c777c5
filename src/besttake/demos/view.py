"""The part of a library that one task uses: its frames to score by, its events to retrieve from."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.core.events import onset_frame, phases
from besttake.core.retrieve import Candidates, RetrievalConfig, Retriever
from besttake.core.search import Index
from besttake.demos.checks import check_events
from besttake.types import F32

if TYPE_CHECKING:
    from besttake.demos.library import Library

I64 = NDArray[np.int64]
Matched = Literal["task", "instruction", "all"]


class View:
    """The demonstrations of one task. ``frames`` int64 (F,) are its rows among the frames of the whole library.

    ``matched`` says how they were found: by "task", by "instruction", or "all" because neither matched.
    """

    def __init__(self, library: Library, demos: I64, matched: Matched) -> None:
        self.library, self.demos, self.matched = library, demos, matched
        self.frames: I64 = np.flatnonzero(np.isin(library.frame_demo, demos))
        self.frame_demo, self.frame_step = library.frame_demo[self.frames], library.frame_step[self.frames]

    @cached_property
    def embeddings(self) -> F32:
        """Float32 (F, d); still memory-mapped where the task's frames lie together."""
        first, last = int(self.frames[0]), int(self.frames[-1]) + 1
        together = last - first == len(self.frames)
        return self.library.embeddings[first:last] if together else self.library.embeddings[self.frames]

    @cached_property
    def index(self) -> Index:
        """The frames prepared for search; row i of a result is ``frames[i]`` of the library."""
        return Index.build(self.embeddings)

    @cached_property
    def action_spread(self) -> NDArray[np.float64]:
        """Standard deviation (action_dim,) of the task's actions."""
        library = self.library
        parts = [library.chunk(int(d), 0, library.demos[d].length) for d in self.demos]
        spread: NDArray[np.float64] = np.concatenate(parts).std(axis=0, dtype=np.float64)
        return spread

    def candidates(self, config: RetrievalConfig, horizon: int) -> Candidates:
        """What can be matched: the events of the task's demonstrations, or by rule `frame` all frames."""
        if config.rule == "frame":
            rows, demo, step = np.arange(len(self.frames)), self.frame_demo, self.frame_step
        else:
            check_events(self.library)
            demo = np.concatenate([np.full(len(self.library.demos[d].events), d) for d in self.demos])
            step = np.concatenate([self.library.demos[d].events for d in self.demos])
            rows = np.array([self._row(int(d), int(s)) for d, s in zip(demo, step, strict=True)])
        chunks = np.stack([self.library.chunk(int(d), int(s), horizon) for d, s in zip(demo, step, strict=True)])
        states = None
        if self.library.states is not None:
            states = np.stack([self.library.state(int(d), int(s)) for d, s in zip(demo, step, strict=True)])
        return Candidates(self.embeddings[rows], chunks, demo, step, states, self._open(demo, step))

    def retriever(self, config: RetrievalConfig, horizon: int) -> Retriever:
        """The task's events (or frames) prepared for queries that ask for chunks of ``horizon``."""
        return Retriever(self.candidates(config, horizon), config)

    def _row(self, demo: int, step: int) -> int:
        own = np.flatnonzero(self.frame_demo == demo)
        return int(own[onset_frame(self.frame_step[own], step)])

    def _open(self, demo: I64, step: I64) -> NDArray[np.bool_] | None:
        library, gripper = self.library, self.library.head.gripper_dim
        if gripper is None or library.actions is None:
            return None
        phase = {
            int(d): phases(library.chunk(int(d), 0, library.demos[d].length)[:, gripper], library.head.event_config)
            for d in self.demos
        }
        return np.array([phase[int(d)][int(s)] for d, s in zip(demo, step, strict=True)])
