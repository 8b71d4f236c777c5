"""A library on disk: demonstrations with their embedded frames, states, actions, events and provenance.

```
library.json         format, source, encoder, camera, sizes, demos with their events
embeddings.npy       float32 (F, d)                          frame_demo.npy, frame_step.npy   int64 (F,)
states.npy           float32 (S, state_dim), per step        actions.npy   float32 (S, action_dim)
pictures.bin         JPEG of each frame, at most 128 px      picture_ends.npy                 int64 (F,)
encoder.safetensors  the encoder, if it was fitted to the library
```

``library.json`` contains the sha256 of every file and of itself. `Library.open` compares all of them; nothing is
checked afterwards. A `View` is the part of a library that belongs to one task.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from besttake import registry
from besttake.core.events import event_starts, onset_frames, phases
from besttake.core.retrieve import Candidates, Part, RetrievalConfig, Retriever
from besttake.core.search import Index, Rows, Space, Table
from besttake.demos.base import CameraSource
from besttake.demos.cameras import is_wrist
from besttake.demos.storage import FILE, LibraryHead
from besttake.encoders.base import Encoder, Fitted
from besttake.errors import BestTakeError, LibraryError
from besttake.files import short_hash
from besttake.types import F32, F64, I64, U8, EnvSpec, TaskSpec, WorldSpec

_ENCODER = "encoder.safetensors"
Matched = Literal["task", "instruction", "all"]


class Library:
    """An opened library. Open one with `Library.open`, build one with `besttake.demos.build`."""

    def __init__(self, path: Path, head: LibraryHead) -> None:
        self.path, self.head, self.demos = path, head, head.demos
        self._first_rows = np.cumsum([0, *(demo.length for demo in head.demos)])
        self._views: dict[tuple[Matched | int, ...], View] = {}

    @classmethod
    def open(cls, path: str | Path) -> Library:
        """The library in directory ``path``; LibraryError if it is missing, damaged or of a newer format."""
        return cls(Path(path), LibraryHead.read(Path(path)))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that scores and retrieval depend on."""
        return self.head.fingerprint

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks demonstrated, in order of appearance."""
        return tuple(dict.fromkeys(d.task for d in self.demos))

    @cached_property
    def embeddings(self) -> F32:
        """Float32 (F, d), memory-mapped."""
        return self._array("embeddings")

    @cached_property
    def frame_demo(self) -> I64:
        """Int64 (F,): the demonstration of each frame."""
        return np.array(self._array("frame_demo"))

    @cached_property
    def frame_step(self) -> I64:
        """Int64 (F,): the step of each frame."""
        return np.array(self._array("frame_step"))

    @cached_property
    def states(self) -> F32 | None:
        """Float32 (S, state_dim) over the steps of all demos, memory-mapped; None for a library of pictures only."""
        return None if self.head.state_dim is None else self._array("states")

    @cached_property
    def actions(self) -> F32 | None:
        """Float32 (S, action_dim) over the steps of all demos, memory-mapped; None for a library of pictures only."""
        return None if self.head.action_dim is None else self._array("actions")

    def state(self, demo: int, step: int) -> F32:
        """The state (state_dim,) of ``demo`` at ``step``."""
        if self.states is None:
            raise LibraryError(f"{self.path} holds no states; build it from demonstrations that have them")
        return np.array(self.states[self._first_rows[demo] + step])

    def chunk(self, demo: int, step: int, horizon: int) -> F32:
        """The actions of ``demo`` from ``step`` on: (horizon, action_dim).

        Past the end of ``demo`` the chunk is padded: with ``pad`` "hold" by no motion and the last gripper command (for
        actions that are differences; all zero if the gripper dimension is unknown), with "repeat" by the last action.
        """
        actions: F32 = self.chunks(np.array([demo]), np.array([step]), horizon)[0]
        return actions

    def chunks(self, demo: I64, step: I64, horizon: int) -> F32:
        """`chunk` for each of several steps: (n, horizon, action_dim)."""
        if self.actions is None:
            raise LibraryError(
                f"{self.path} holds no actions, only pictures; it can score takes but not be retrieved from"
            )
        ends = self._first_rows[demo + 1, None]
        rows = (self.rows_of(demo, step)[:, None] + np.arange(horizon)).clip(max=ends)
        past = rows == ends
        actions: F32 = np.asarray(self.actions[rows - past])
        if self.head.pad == "hold" and past.any():
            moves = np.ones(actions.shape[2], bool)
            if self.head.gripper_dim is not None:
                moves[self.head.gripper_dim] = False
            actions[past[:, :, None] & moves] = 0
        return actions

    def rows_of(self, demo: I64, step: I64) -> I64:
        """The rows (n,) of ``actions`` and ``states`` that hold each ``step`` (n,) of ``demo`` (n,)."""
        rows: I64 = self._first_rows[demo] + step
        return rows

    def frame_image(self, frame: int) -> U8:
        """A thumbnail of frame ``frame``: uint8 (h, w, 3), at most 128 px a side, stored as JPEG."""
        from PIL import Image

        start, end = int(self._picture_ends[frame - 1]) if frame else 0, int(self._picture_ends[frame])
        with (self.path / "pictures.bin").open("rb") as file:
            file.seek(start)
            with Image.open(io.BytesIO(file.read(end - start)), formats=("JPEG",)) as picture:
                return np.asarray(picture.convert("RGB"))

    def encoder(self) -> Encoder:
        """The encoder that made the embeddings; LibraryError if it is not available or has changed."""
        encoder: Any = registry.encoder(self._untrusted(self.head.encoder.uri))
        if isinstance(encoder, Fitted) and _ENCODER in self.head.files:
            from safetensors.numpy import load_file

            encoder = type(encoder).from_arrays(load_file(self.path / _ENCODER))
        self.check_encoder(encoder)
        return encoder  # type: ignore[no-any-return]

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise LibraryError unless the embeddings were made by ``encoder``."""
        used, other = self.head.encoder, encoder.spec
        if other.fingerprint != used.fingerprint:
            raise LibraryError(
                f"{self.path} was embedded by {used.uri} ({used.fingerprint}), not by {other.name}"
                f" ({other.fingerprint}); use {used.uri} or build the library again"
            )

    def view(self, task: str, instruction: str = "") -> View:
        """The demonstrations of a task: by its name, else by its instruction, else all of them (`View.matched`)."""
        rows, matched = self.demos_of(task, instruction)
        key = (matched, *rows)
        if key not in self._views:
            self._views[key] = View(self, np.array(rows, np.int64), matched)
        return self._views[key]

    def demos_of(self, task: str, instruction: str) -> tuple[list[int], Matched]:
        """The indexes of a task's demonstrations, and how they were matched (`view`)."""
        keys: list[tuple[Matched, str]] = [("task", task), ("instruction", instruction), ("instruction", task)]
        for field, wanted in keys:
            name = _plain_name(wanted)
            rows = [i for i, demo in enumerate(self.demos) if wanted and _plain_name(getattr(demo, field)) == name]
            if rows:
                return rows, field
        return list(range(len(self.demos))), "all"

    @property
    def has_events(self) -> bool:
        """Whether some demonstration has an event after its start."""
        return any(len(demo.events) > 1 for demo in self.demos)

    def check_events(self) -> None:
        """Raise LibraryError unless retrieval has events to match: some demonstration has one after its start."""
        if not self.has_events:
            known = self.head.gripper_dim is not None or self.head.eef_dims is not None
            raise LibraryError(
                f"{self.path} has no events beyond episode starts; retrieve by `rule` frame"
                + ("" if known else ", or build it again with `gripper_dim` and `eef_dims`")
            )

    def can_show(self, cameras: Sequence[str]) -> bool:
        """Whether `show` can return these cameras: the source still exists, is unchanged, and has them."""
        return not cameras or (self._source is not None and self._source.shows(cameras))

    def show(self, demo: int, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The full-size images of ``cameras`` at a step of ``demo``, read from the source for a policy."""
        if not cameras:
            return {}
        if self._source is None or not self._source.shows(cameras):
            raise LibraryError(f"{self.path} cannot show {', '.join(cameras)}: {self.head.source} is gone or has none")
        return self._source.show(self.demos[demo].id, step, cameras)

    def _untrusted(self, uri: str) -> registry.FromFile:
        """Mark a URI from ``library.json`` as untrusted, since anyone may have written the file."""
        return registry.FromFile(uri, self.path / FILE)

    @cached_property
    def _source(self) -> CameraSource | None:
        if self.head.shows is None:
            return None
        uri = self._untrusted(self.head.shows)
        registry.check_harmless("demos", uri)
        try:
            source = registry.demos(uri)
        except BestTakeError:
            return None
        unchanged = source is not None and source.fingerprint == self.head.source_fingerprint
        return source if unchanged and isinstance(source, CameraSource) else None

    def summary(self) -> dict[str, Any]:
        """A summary of the library as plain values, for JSON."""
        head = self.head
        return {
            "source": {"name": head.source, "fingerprint": head.source_fingerprint},
            "encoder": head.encoder.model_dump(), "camera": head.camera, "fps": head.fps,
            "demos": len(self.demos), "tasks": {t: sum(d.task == t for d in self.demos) for t in self.tasks},
            "frames": len(self.frame_demo), "steps": sum(d.length for d in self.demos),
            "events": sum(len(d.events) for d in self.demos), "stride": head.stride,
            "turns": "every" if head.event_config == head.event_config.every_turn() else "spaced",
            "left_out": [asdict(bad) for bad in head.left_out], "notes": list(head.notes),
            "fingerprint": self.fingerprint,
        }  # fmt: skip

    @cached_property
    def _picture_ends(self) -> I64:
        return self._array("picture_ends")

    def _array(self, name: str) -> NDArray[Any]:
        return np.asarray(np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False))


def events_of(library: Library, demo: int, angle: float | None = None) -> I64:
    """The steps (E,) at which the events of ``demo`` begin, with turns of at least ``angle`` if it is given."""
    head, entry = library.head, library.demos[demo]
    if angle is None or angle == head.event_config.angle or library.states is None or head.eef_dims is None:
        return np.array(entry.events, np.int64)
    positions = np.stack([library.state(demo, step) for step in range(entry.length)])[:, list(head.eef_dims)]
    gripper = None if head.gripper_dim is None else library.chunk(demo, 0, entry.length)[:, head.gripper_dim]
    return event_starts(entry.length, positions, gripper, replace(head.event_config, angle=angle))


def _plain_name(name: str) -> str:
    """A task's name or instruction in comparable form: ``pick_up_the_bowl`` equals "Pick up the bowl."."""
    return name.replace("_", " ").strip(" .").casefold()


class View:
    """The demonstrations of one task. ``frames``, int64 (F,), are their rows among the frames of the whole library.

    ``matched`` says how they were found: by "task", by "instruction", or "all" because neither matched.
    """

    def __init__(self, library: Library, demos: I64, matched: Matched) -> None:
        self.library, self.demos, self.matched = library, demos, matched
        self.frames: I64 = np.flatnonzero(np.isin(library.frame_demo, demos))
        self.frame_demo, self.frame_step = library.frame_demo[self.frames], library.frame_step[self.frames]
        self._spaces: dict[str, Space] = {}

    @cached_property
    def embeddings(self) -> F32:
        """Float32 (F, d); memory-mapped if the task's frames are contiguous."""
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
        """The candidates for retrieval: the events of the task's demonstrations, or all frames with rule `frame`."""
        library = self.library
        if config.rule == "frame":
            rows, demo, step = self.frames, self.frame_demo, self.frame_step
        else:
            library.check_events()
            events = {int(d): events_of(library, int(d), config.angle) for d in self.demos}
            demo = np.concatenate([np.full(len(steps), d) for d, steps in events.items()])
            step = np.concatenate([*events.values()])
            rows = np.concatenate([self._onset_frames(d, steps) for d, steps in events.items()])
        dim, step_rows = library.head.action_dim, library.rows_of(demo, step)
        states = library.states
        return Candidates(
            _picked(library.embeddings, rows),
            Rows(lambda which: library.chunks(demo[which], step[which], horizon), (len(demo), horizon, dim or 0)),
            demo, step, None if states is None else np.asarray(states[step_rows]), self._gripper_open(step_rows),
        )  # fmt: skip

    def retriever(self, config: RetrievalConfig, horizon: int) -> Retriever:
        """The task's events (or frames) prepared for queries that ask for chunks of ``horizon``."""
        candidates = self.candidates(config, horizon)
        rows = short_hash(candidates.demo.tobytes(), candidates.step.tobytes())

        def prepare(part: Part, values: Table) -> Space:
            width = f" {horizon}" if part in ("chunk", "returns") else ""
            key = f"{part} {rows}{width}" + (f" {config.rule} {config.lead}" if part == "returns" else "")
            if key not in self._spaces:
                self._spaces[key] = Space(values)
            return self._spaces[key]

        return Retriever(candidates, config, prepare)

    def _onset_frames(self, demo: int, steps: I64) -> I64:
        """The library's frame at each of the events that begin at ``steps`` of ``demo``."""
        frames = np.flatnonzero(self.frame_demo == demo)
        rows: I64 = self.frames[frames[onset_frames(self.frame_step[frames], steps)]]
        return rows

    def _gripper_open(self, step_rows: I64) -> NDArray[np.bool_] | None:
        """Whether the gripper is open at each of ``step_rows`` (`Library.rows_of`); None if that is unknown."""
        library, gripper = self.library, self.library.head.gripper_dim
        if gripper is None or library.actions is None:
            return None
        is_open = np.zeros(len(library.actions), bool)
        for d in map(int, self.demos):
            commands = library.chunk(d, 0, library.demos[d].length)[:, gripper]
            rows = library.rows_of(np.array(d), np.arange(len(commands)))
            is_open[rows] = phases(commands, library.head.event_config)
        return is_open[step_rows]


def _picked(table: F32, rows: I64) -> Table:
    """``rows`` of ``table`` without a copy: a slice if they are contiguous, else rows that are read on demand."""
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return table[rows[0] : rows[0] + len(rows)]
    return Rows(lambda which: table[rows[which]], (len(rows), *table.shape[1:]))


def check_retrieval(library: Library, env: EnvSpec | WorldSpec, config: RetrievalConfig | None = None) -> None:
    """Check that chunks can be retrieved for ``env``: camera, actions, states and events must match."""
    check_chunks(library, env)
    _check_size(library, env, "states", library.head.state_dim, env.state_dim)
    if config is None or config.rule != "frame":
        library.check_events()


def check_gripper(library: Library, env: EnvSpec | WorldSpec) -> None:
    """Check that the library's gripper commands match those of ``env``, if both declare them."""
    head, opens = library.head, getattr(env, "gripper_open", None)
    if head.gripper_dim is None or env.gripper_dim is None or opens is None:
        return
    sign, threshold = head.event_config.gripper_open, head.event_config.gripper_threshold
    if sign != opens or abs(threshold) > 0.25:
        side, env_side = ("above" if way > 0 else "below" for way in (sign, opens))
        raise LibraryError(
            f"{library.path} has gripper commands that open {side} {threshold:g}, but those of {env.name} open"
            f" {env_side} 0; build it again with `gripper_as` {opens},{-opens}"
        )


def check_chunks(library: Library, env: EnvSpec | WorldSpec) -> None:
    """Check that demonstrated chunks can be compared with those of a policy in ``env``: camera and actions match."""
    check_camera(library, env)
    _check_size(library, env, "actions", library.head.action_dim, env.action_dim)
    check_gripper(library, env)


def _check_size(library: Library, env: EnvSpec | WorldSpec, rows: str, size: int | None, env_size: int) -> None:
    if size is None:
        raise LibraryError(
            f"{library.path} holds no {rows}, only pictures; it can score takes but not be retrieved from"
        )
    if size != env_size:
        raise LibraryError(
            f"{library.path} has {rows} of {size} numbers, but {env.name} has {env_size}; use the same robot"
        )


def check_camera(library: Library, env: EnvSpec | WorldSpec) -> None:
    """Check that the library shows a wrist camera if and only if ``env`` is scored by one."""
    if is_wrist(library.head.camera) != is_wrist(env.score_camera):
        raise LibraryError(
            f"{library.path} shows camera {library.head.camera}, but {env.name} is scored by {env.score_camera};"
            " build it with the matching ?camera=…"
        )


def check_tasks(library: Library, tasks: Sequence[TaskSpec]) -> list[str]:
    """Check that each task has a demonstration, and return notes on how tasks were matched.

    If library and plan have one task each under different names, these are assumed to be the same, and a note says so.
    A library without task names is used for all tasks.
    """
    notes = []
    for task in tasks:
        rows, matched = library.demos_of(task.name, task.instruction)
        if matched == "all" and any(library.tasks):
            if len(tasks) > 1 or len(library.tasks) > 1:
                rows = []
            else:
                notes.append(f"the library calls its task {library.tasks[0]!r}; it was taken for {task.name}")
        if not rows:
            raise LibraryError(
                f"{library.path} has no demonstration of {task.name} (its tasks: {', '.join(library.tasks)}); add some,"
                " or leave the task out"
            )
    return notes
