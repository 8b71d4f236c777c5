"""A library on disk: demonstrations with their embedded frames, states, actions, events and provenance.

```
library.json         format, source, encoder, camera, sizes, demos with their events
embeddings.npy       float32 or float16 (F, d)               frame_demo.npy, frame_step.npy   int64 (F,)
states.npy           float32 (S, state_dim), per step        actions.npy   float32 (S, action_dim)
pictures.bin         JPEG of each frame, at most 128 px      picture_ends.npy                 int64 (F,)
encoder.safetensors  the encoder, where it is fitted to the library
```

``library.json`` has the sha256 of every file and of itself. The head is compared when a library is opened, each file
when it is first used.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake import registry
from besttake.demos.base import CameraSource, ReplayableSource
from besttake.demos.checks import check_encoder
from besttake.demos.storage import FILE, LibraryHead
from besttake.demos.view import Matched, View
from besttake.encoders.base import Encoder, Fitted
from besttake.errors import BestTakeError, LibraryError, one_clear_error, one_line
from besttake.files import sha256_of
from besttake.types import F32, F64, I64, U8


class Library:
    """An opened library. Open one with `Library.open`, build one with `besttake.demos.build`."""

    def __init__(self, path: Path, head: LibraryHead) -> None:
        self.path, self.head, self.demos = path, head, head.demos
        self._first = list(accumulate((demo.length for demo in head.demos), initial=0))
        self._views: dict[tuple[Matched | int, ...], View] = {}
        self._whole: set[str] = set()

    @classmethod
    def open(cls, path: str | Path) -> Library:
        """The library in directory ``path``; LibraryError when it is missing, damaged or of a newer format."""
        directory = Path(path)
        head = LibraryHead.read(directory)
        for name, file in head.files.items():
            size = (directory / name).stat().st_size if (directory / name).is_file() else None
            if size != file.size:
                what = "is missing" if size is None else f"has {size} bytes instead of {file.size}"
                raise LibraryError(f"{directory}/{name} {what}; build the library again")
        return cls(directory, head)

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
        """Float32 (F, d), memory-mapped unless they are kept as float16."""
        return np.asarray(self._array("embeddings", self.head.encoder.dim), np.float32)

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
        return None if self.head.state_dim is None else self._array("states", self.head.state_dim)

    @cached_property
    def actions(self) -> F32 | None:
        """Float32 (S, action_dim) over the steps of all demos, memory-mapped; None for a library of pictures only."""
        return None if self.head.action_dim is None else self._array("actions", self.head.action_dim)

    def state(self, demo: int, step: int) -> F32:
        """The state (state_dim,) of ``demo`` at ``step``."""
        if self.states is None:
            raise LibraryError(f"{self.path} holds no states; build it from demonstrations that have them")
        return np.array(self.states[self._first[demo] + step])

    def chunk(self, demo: int, step: int, horizon: int) -> F32:
        """The actions of ``demo`` from ``step`` on: (horizon, action_dim).

        Past its end the arm rests: with ``pad`` "hold" no motion and the last gripper command (for actions that are
        differences; all zero if the gripper dimension is unknown), with "repeat" the last action again.
        """
        own: F32 = self.chunks(np.array([demo]), np.array([step]), horizon)[0]
        return own

    def chunks(self, demo: I64, step: I64, horizon: int) -> F32:
        """`chunk` of each of several steps: (n, horizon, action_dim)."""
        if self.actions is None:
            raise LibraryError(
                f"{self.path} holds no actions, only pictures; it can score takes but not be retrieved from"
            )
        ends = np.array(self._first)[demo + 1, None]
        rows = (self.rows_of(demo, step)[:, None] + np.arange(horizon)).clip(max=ends)
        past = rows == ends
        done: F32 = np.asarray(self.actions[rows - past])
        if self.head.pad == "hold" and past.any():
            moves = np.ones(done.shape[2], bool)
            if self.head.gripper_dim is not None:
                moves[self.head.gripper_dim] = False
            done[past[:, :, None] & moves] = 0
        return done

    def rows_of(self, demo: I64, step: I64) -> I64:
        """The rows (n,) of ``actions`` and ``states`` at each ``step`` (n,) of ``demo`` (n,)."""
        rows: I64 = np.array(self._first)[demo] + step
        return rows

    def frame_image(self, frame: int) -> U8:
        """A thumbnail of frame ``frame``: uint8 (h, w, 3), at most 128 px, within JPEG error."""
        from PIL import Image

        start, end = int(self._ends[frame - 1]) if frame else 0, int(self._ends[frame])
        with self.file("pictures.bin").open("rb") as file:
            file.seek(start)
            with Image.open(io.BytesIO(file.read(end - start)), formats=("JPEG",)) as picture:
                return np.asarray(picture.convert("RGB"))

    def encoder(self) -> Encoder:
        """The encoder that made the embeddings; LibraryError if it is not available or has changed."""
        made: Any = registry.encoder(self._named(self.head.encoder.uri))
        if isinstance(made, Fitted) and _ENCODER in self.head.files:
            from safetensors.numpy import load_file

            stored = self.file(_ENCODER)
            with one_clear_error(f"{stored} is damaged ({{}}); build the library again"):
                made = type(made).from_arrays(load_file(stored))
        check_encoder(self, made)
        return made  # type: ignore[no-any-return]

    def view(self, task: str, instruction: str = "") -> View:
        """The demonstrations of a task: by its name, else by its instruction, else all of them (see `View.matched`)."""
        rows, matched = self.demos_of(task, instruction)
        key = (matched, *rows)
        if key not in self._views:
            self._views[key] = View(self, np.array(rows, np.int64), matched)
        return self._views[key]

    def demos_of(self, task: str, instruction: str) -> tuple[list[int], Matched]:
        """The demonstrations of a task, and how they were matched (`view`)."""
        tries: list[tuple[Matched, str]] = [("task", task), ("instruction", instruction), ("instruction", task)]
        for field, wanted in tries:
            rows = [i for i, d in enumerate(self.demos) if wanted and _words(getattr(d, field)) == _words(wanted)]
            if rows:
                return rows, field
        return list(range(len(self.demos))), "all"

    def can_show(self, cameras: Sequence[str]) -> bool:
        """Whether `show` can return these cameras: the source still exists, is unchanged, and has them."""
        return not cameras or (self._source is not None and self._source.shows(cameras))

    def show(self, demo: int, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The full-size images of ``cameras`` at a step of ``demo``, read from the source as input for a policy."""
        if not cameras:
            return {}
        if self._source is None or not self._source.shows(cameras):
            raise LibraryError(f"{self.path} cannot show {', '.join(cameras)}: {self.head.source} is gone or has none")
        return self._source.show(self.demos[demo].id, step, cameras)

    def _named(self, uri: str) -> registry.FromFile:
        """Mark a URI from ``library.json`` as untrusted, since anyone may have written the file."""
        return registry.FromFile(uri, self.path / FILE)

    def start_state(self, demo: int) -> F64 | None:
        """The simulator's state before the first action of ``demo``; None if it is not available."""
        return self._source.start_state(self.demos[demo].id) if isinstance(self._source, ReplayableSource) else None

    @cached_property
    def _source(self) -> CameraSource | None:
        if self.head.shows is None:
            return None
        uri = self._named(self.head.shows)
        registry.check_harmless("demos", uri)
        try:
            source = registry.demos(uri)
        except BestTakeError:
            return None
        same = source is not None and source.fingerprint == self.head.source_fingerprint
        return source if same and isinstance(source, CameraSource) else None

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
    def _ends(self) -> I64:
        return self._array("picture_ends")

    def file(self, name: str) -> Path:
        """The path of a file of the library, after verifying its checksum; LibraryError if it does not match."""
        path = self.path / name
        if name not in self._whole:
            try:
                same = name in self.head.files and sha256_of(path) == self.head.files[name].sha256
            except OSError as error:
                raise LibraryError(f"{path} cannot be read ({error.strerror}); build the library again") from error
            if not same:
                uses = f", and {_USES[name]} rest on it" if name in _USES else ""
                raise LibraryError(f"{path} is damaged (its checksum differs){uses}; build the library again")
            self._whole.add(name)
        return path

    def _array(self, name: str, width: int | None = None) -> NDArray[Any]:
        path = self.file(f"{name}.npy")
        try:
            array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise LibraryError(f"{path} is damaged ({one_line(error, 150)}); build the library again") from error
        shape = array.shape
        rows = self._first[-1] if name in ("states", "actions") else sum(demo.frames for demo in self.demos)
        if shape[:1] != (rows,) or (width is not None and shape[1:] != (width,)) or array.dtype.kind not in "fi":
            raise LibraryError(f"{path} is damaged ({array.dtype} {shape} for {rows} rows); build the library again")
        return array


_ENCODER = "encoder.safetensors"
_USES = {
    "embeddings.npy": "scores and retrieval", "frame_demo.npy": "scores and retrieval",
    "frame_step.npy": "scores and retrieval", "states.npy": "retrieval and the demonstration-fit error",
    "actions.npy": "retrieval and the demonstration-fit error", "pictures.bin": "the pictures of reports",
    "picture_ends.npy": "the pictures of reports", _ENCODER: "embeddings of takes",
}  # fmt: skip


def _words(name: str) -> str:
    """The words of a task's name or instruction: ``pick_up_the_bowl`` is "Pick up the bowl."."""
    return name.replace("_", " ").strip(" .").casefold()
