"""Build a library on disk from a source of demonstrations, one demonstration at a time."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.core.events import event_starts, onset_frames, phases
from besttake.demos.base import CameraSource, PartitionedSource, Source, TaskSource, UnreadableDemo
from besttake.demos.layout import DataHints, Layout, layout_of
from besttake.demos.library import Library
from besttake.demos.storage import FORMAT, DemoHead, EncoderHead, LibraryHead, LibraryWriter, writing
from besttake.encoders.base import Encoder, Fitted, embeddings_of
from besttake.errors import LibraryError, blaming, blaming_each
from besttake.types import F32, U8, Demo

_log = logging.getLogger(__name__)
_FIT_FRAMES = 2048
_FIT_BYTES = 160 << 20
_HELD_BYTES = 96 << 20
_SLOW_BATCH = 8
"""Frames per call of a slow encoder, after each of which progress is reported."""


@dataclass(frozen=True)
class Shape:
    """Action and state sizes shared by all demonstrations of a library; None if there are no actions or states."""

    action_dim: int | None
    state_dim: int | None

    @classmethod
    def of(cls, demo: Demo) -> Shape:
        """The sizes of ``demo``."""
        return cls(*(None if rows is None else rows.shape[-1] for rows in (demo.actions, demo.states)))

    def __str__(self) -> str:
        actions, states = ("none" if dim is None else f"{dim} numbers" for dim in (self.action_dim, self.state_dim))
        return f"actions of {actions} and states of {states}"


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
    if shape is not None and shape != Shape.of(demo):
        return f"has {Shape.of(demo)}, the others have {shape}"
    return None


@dataclass(frozen=True)
class Options(DataHints):
    """Options of a build, including the user's hints about the data (`DataHints`).

    Attributes:
        stride: Embed every stride-th frame of the source, and always the frames of events.
        tasks: Use only these tasks.
        max_demos: Limit per task. A source that knows tasks in advance (`TaskSource`) does not read further ones, so
            damage in them goes unnoticed.
        pad: What a chunk holds past the end (`Library.chunk`).
        skip_bad: Leave out unusable demonstrations and list them in the library, instead of stopping.
        encoder_uri: URI of the encoder (default: its name).
        first: Read at most this many demonstrations.
    """

    stride: int = 1
    tasks: tuple[str, ...] | None = None
    max_demos: int | None = None
    pad: Literal["hold", "repeat"] = "hold"
    skip_bad: bool = False
    encoder_uri: str = ""
    layout: Layout | None = None
    first: int | None = None

    def resolved(self, source: Source) -> Options:
        """Return these options with the layout of the source filled in."""
        return self if self.layout is not None else replace(self, layout=layout_of(source, self))


@dataclass(frozen=True)
class BuildHooks:
    """Callbacks for progress and parallel reading; they do not change what is built.

    ``each`` is a `map` that may read the parts of a `PartitionedSource` in other processes. ``frames`` is called with
    the number of frames embedded so far and the expected total (extrapolated from the demonstrations read; 0 if the
    source does not know how many it has). ``patience`` is the time limit of one encoder call, in seconds.
    """

    each: Callable[..., Iterable[Any]] = map
    frames: Callable[[int, int], None] = lambda done, expected: None
    patience: float | None = None


def build(
    source: Source, encoder: Encoder | Fitted, out: str | Path, options: Options | None = None,
    hooks: BuildHooks | None = None,
) -> Library:  # fmt: skip
    """Build a library from ``source`` in directory ``out``."""
    options, hooks = (options or Options()).resolved(source), hooks or BuildHooks()
    if options.stride < 1:
        raise LibraryError(f"stride must be at least 1, not {options.stride}")
    demos: list[Demo | UnreadableDemo] | None = None
    if isinstance(encoder, Fitted):
        frames, demos = _frames_to_fit(_chosen_demos(source, options, hooks.each), options.stride)
        if not len(frames):
            _fail_empty(source, [item for item in demos or () if isinstance(item, UnreadableDemo)])
        with blaming(f"the encoder {options.encoder_uri or type(encoder).__name__}"):
            encoder = encoder.fit(frames)
        del frames
    items = _chosen_demos(source, options, hooks.each) if demos is None else demos
    _LibraryBuilder(source, encoder, options, hooks).run(Path(out), items)
    return Library.open(out)


def build_cached(
    source: Source, encoder: Encoder | Fitted, cache: Path, options: Options | None = None,
    hooks: BuildHooks | None = None,
) -> Library:  # fmt: skip
    """Open the library in ``cache`` whose name is a hash of all that it depends on, or build it there."""
    options = (options or Options()).resolved(source)
    spec = encoder.spec  # type: ignore[union-attr]
    parts = [FORMAT, source.name, source.fingerprint, source.camera, spec.name, spec.fingerprint, asdict(options)]
    out = cache / hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]
    try:
        library = Library.open(out)
    except LibraryError as error:
        if out.exists():
            _log.warning("%s", str(error).replace("build the library again", "it is built again"))
        _log.info("library of %s: building at %s", source.name, out)
        return build(source, encoder, out, options, hooks)
    _log.info("library of %s: found in the cache at %s", source.name, out)
    return library


class _LibraryBuilder:
    def __init__(self, source: Source, encoder: Encoder, options: Options, hooks: BuildHooks) -> None:
        assert options.layout is not None
        self._source, self._encoder, self._options, self._hooks = source, encoder, options, hooks
        self._layout, self._gripper_moves = options.layout, False
        self._embedded, self._total = 0, _most_demos(source, options)
        self._shape: Shape | None = None
        self._demos: list[DemoHead] = []
        self._left_out: list[UnreadableDemo] = []

    def run(self, out: Path, items: Iterable[Demo | UnreadableDemo]) -> None:
        with writing(out) as writer:
            for item in items:
                reason = item.reason if isinstance(item, UnreadableDemo) else fault(item, self._shape)
                if reason is not None:
                    self._refuse(item.id, reason)
                elif isinstance(item, Demo):
                    self._add(writer, item)
            if not self._demos:
                _fail_empty(self._source, self._left_out)
            writer.finish(self._head(), self._encoder.arrays() if isinstance(self._encoder, Fitted) else None)

    def _refuse(self, name: str, reason: str) -> None:
        if not self._options.skip_bad:
            raise LibraryError(
                f"{self._source.name}: demonstration {name} {reason}; repair it, or leave it out"
                " (`besttake library build` with `skip_bad`)"
            )
        self._left_out.append(UnreadableDemo(name, reason))

    def _add(self, writer: LibraryWriter, demo: Demo) -> None:
        if self._shape is None:
            self._shape = Shape.of(demo)
            self._check_dims(self._shape)
        demo = self._with_gripper_mapped(demo)
        starts = self._events(demo)
        strided = range(0, len(demo.frames), self._options.stride)
        rows = np.array(sorted({*strided, *onset_frames(demo.frame_steps, starts).tolist()}))
        frames = demo.frames[rows]
        embeddings = self._encode(frames)
        if not np.isfinite(embeddings).all():
            raise LibraryError(f"{self._encoder.spec.name} gave embeddings that are not numbers for {demo.id}")
        number = len(self._demos)
        writer.append("embeddings", embeddings, "<f4")
        writer.append("frame_demo", np.full(len(rows), number), "<i8")
        writer.append("frame_step", demo.frame_steps[rows], "<i8")
        writer.append_pictures(frames)
        for name, values in (("states", demo.states), ("actions", demo.actions)):
            if values is not None:
                writer.append(name, values, "<f4")
        origin = {name: getattr(demo, name) for name in ("id", "task", "instruction", "source")}
        self._demos.append(DemoHead(**origin, length=length_of(demo), frames=len(rows), events=starts.tolist()))

    def _with_gripper_mapped(self, demo: Demo) -> Demo:
        """``demo`` with its gripper commands converted to those of the library."""
        mapping, gripper = self._layout.turn, self._layout.gripper_dim
        if mapping is None or gripper is None or demo.actions is None:
            return demo
        actions = demo.actions.copy()
        actions[:, gripper] = mapping(actions[:, gripper])
        return replace(demo, actions=actions)

    def _encode(self, frames: U8) -> F32:
        """Embed the frames of a demonstration; a slow encoder gets a few at a time, so that progress is visible.

        A cheap encoder gets them all at once: the number of rows of a matrix product can change its last bits.
        """
        blocks, size = [], len(frames) if self._encoder.spec.cheap else _SLOW_BATCH
        for first in range(0, len(frames), size):
            blocks.append(embeddings_of(self._encoder, frames[first : first + size]))
            self._hooks.frames(self._embedded + sum(map(len, blocks)), self._expected(len(frames)))
        self._embedded += len(frames)
        return np.concatenate(blocks)

    def _expected(self, current: int) -> int:
        """The expected number of frames of the library, extrapolated from the demonstrations so far."""
        read = len(self._demos) + 1
        return round((self._embedded + current) * max(self._total, read) / read) if self._total else 0

    def _events(self, demo: Demo) -> NDArray[np.int64]:
        layout = self._layout
        positions = None if demo.states is None or layout.eef_dims is None else demo.states[:, list(layout.eef_dims)]
        gripper = None if demo.actions is None or layout.gripper_dim is None else demo.actions[:, layout.gripper_dim]
        if gripper is not None and not self._gripper_moves:
            self._gripper_moves = len(set(phases(gripper, layout.events).tolist())) > 1
        return event_starts(length_of(demo), positions, gripper, layout.events)

    def _notes(self) -> tuple[str, ...]:
        layout, notes = self._layout, list(self._layout.notes)
        assert self._shape is not None
        if self._shape.action_dim is None and not any("no actions" in note for note in notes):
            notes.append("it has no actions: it can score takes but not be retrieved from")
        elif (
            layout.gripper_dim is not None and not self._gripper_moves and not any("never changes" in n for n in notes)
        ):
            notes.append(
                f"no demonstration opens or closes the gripper (action {layout.gripper_dim} never crosses"
                f" {layout.events.gripper_threshold:g}); if it should, say `gripper_dim` or `gripper_threshold`"
            )
        return tuple(notes)

    def _check_dims(self, shape: Shape) -> None:
        gripper = () if self._layout.gripper_dim is None else (self._layout.gripper_dim,)
        for option, dims, size, rows in (
            ("`gripper_dim`", gripper, shape.action_dim, "actions"),
            ("`eef_dims`", self._layout.eef_dims or (), shape.state_dim, "states"),
        ):
            for dim in dims:
                if size is not None and not -size <= dim < size:
                    raise LibraryError(f"{self._source.name}: {option} {dim} is outside {rows} of {size} numbers")

    def _head(self) -> LibraryHead:
        source, options, spec, layout = self._source, self._options, self._encoder.spec, self._layout
        assert self._shape is not None
        uri = options.encoder_uri or spec.name
        encoder = EncoderHead(uri=uri, name=spec.name, dim=spec.dim, fingerprint=spec.fingerprint)
        return LibraryHead(
            format=FORMAT, source_fingerprint=source.fingerprint, encoder=encoder, camera=source.camera, fps=source.fps,
            stride=options.stride, pad=options.pad, **asdict(self._shape), gripper_dim=layout.gripper_dim,
            eef_dims=layout.eef_dims, event_config=layout.events, demos=tuple(self._demos),
            left_out=tuple(self._left_out), notes=self._notes(), source=source.name,
            shows=source.uri if isinstance(source, CameraSource) else None,
        )  # fmt: skip


def _most_demos(source: Source, options: Options) -> int:
    """The largest number of demonstrations that will be used; 0 if the source does not know how many it has."""
    count = len(source) if isinstance(source, Sized) else 0
    tasks = options.tasks if options.tasks is not None else getattr(source, "tasks", None)
    if not count or options.max_demos is None or tasks is None:
        return count
    return min(count, options.max_demos * len(tasks))


def _chosen_demos(
    source: Source, options: Options, each: Callable[..., Iterable[Any]]
) -> Iterator[Demo | UnreadableDemo]:
    """The demonstrations of the wanted tasks, at most ``max_demos`` usable ones of each."""
    if not isinstance(source, PartitionedSource):
        return _limited(source, options)
    return _limited(chain.from_iterable(each(partial(_read_part, options), source.parts())), options)


def _read_part(options: Options, part: Iterable[Demo | UnreadableDemo]) -> list[Demo | UnreadableDemo]:
    return [*_limited(part, options)]


def _limited(items: Iterable[Demo | UnreadableDemo], options: Options) -> Iterator[Demo | UnreadableDemo]:
    limit, used = np.inf if options.max_demos is None else options.max_demos, Counter[str]()

    def wanted(task: str) -> bool:
        return (options.tasks is None or task in options.tasks) and used[task] < limit

    demos = items.of_tasks(wanted) if isinstance(items, TaskSource) else items
    for item in islice(blaming_each(demos, "reading the demonstrations"), options.first):
        if isinstance(item, UnreadableDemo):
            yield item
        elif wanted(item.task):
            used[item.task] += fault(item, None) is None
            yield item


def _frames_to_fit(
    items: Iterable[Demo | UnreadableDemo], stride: int
) -> tuple[U8, list[Demo | UnreadableDemo] | None]:
    """Frames spread evenly over the source, and the demonstrations themselves if they are few enough to hold.

    The number of frames is not known in advance: take all until they are too many, then every second one, and so on.
    """
    frames: list[U8] = []
    demos: list[Demo | UnreadableDemo] | None = []
    seen, every, size = 0, 1, 0
    for item in items:
        if demos is not None:
            demos.append(item)
            size += 0 if isinstance(item, UnreadableDemo) else item.frames.nbytes
            demos = demos if size <= _HELD_BYTES else None
        if isinstance(item, UnreadableDemo) or fault(item, None) is not None:
            continue
        for frame in item.frames[::stride]:
            if frames and frame.shape != frames[0].shape:
                continue
            if seen % every == 0:
                frames.append(frame.copy())
            seen += 1
            if len(frames) > max(64, min(_FIT_FRAMES, _FIT_BYTES // frame.nbytes)):
                frames, every = frames[::2], every * 2
    return np.array(frames, np.uint8) if frames else np.zeros((0, 1, 1, 3), np.uint8), demos


def _fail_empty(source: Source, left_out: list[UnreadableDemo]) -> None:
    reason = f"; the first was left out because it {left_out[0].reason}" if left_out else ""
    raise LibraryError(f"{source.name}: no demonstration is left to build a library from{reason}")
