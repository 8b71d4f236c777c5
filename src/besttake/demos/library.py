"""Demonstrations as a library on disk: frames embedded once, states, actions, events, and where all of it came from.

```
library.json         format, source, encoder, camera, sizes, demos with their events, retrieval (tuned) or null
embeddings.npy       float32 (F, d), memory-mapped          frame_demo.npy, frame_step.npy   int64 (F,)
states.npy           float32 (S, state_dim), per step        actions.npy   float32 (S, action_dim)
pictures.bin         JPEG of each frame, at most 128 px      picture_ends.npy                 int64 (F,)
encoder.safetensors  the encoder, where it is fitted to the library
```
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.events import EventConfig
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import FORMAT, build_cached_at, build_to
from besttake.demos.source import Bad, Showing, Source, is_wrist
from besttake.demos.view import Matched, View
from besttake.demos.write import library_text
from besttake.encoders.base import Encoder, Fitted
from besttake.errors import BestTakeError, LibraryError
from besttake.files import sha256_of, write_text
from besttake.types import F32, U8, EnvSpec, TaskSpec, World

__all__ = ["Bad", "Library", "Source", "View", "build", "build_cached"]

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class DemoInfo:
    """One demonstration: ``first`` is its first row in states and actions, ``events`` its event steps (E,)."""

    id: str
    task: str
    instruction: str
    length: int
    first: int
    events: I64
    source: Mapping[str, Any]


class Library:
    """An opened library. Open one with `Library.open`, make one with `build` or `build_cached`."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self.path, self.head = path, head
        self.fingerprint: str = head["fingerprint"]
        self.source = {"name": head["source"], "fingerprint": head["source_fingerprint"]}
        self.camera: str = head["camera"]
        self.action_dim: int | None = head["action_dim"]
        self.state_dim: int | None = head["state_dim"]
        self.gripper_dim: int | None = head["gripper_dim"]
        self.eef_dims: tuple[int, ...] | None = None if head["eef_dims"] is None else tuple(head["eef_dims"])
        self.events = EventConfig(**head["event_config"])
        self.left_out = tuple(Bad(b["id"], b["reason"]) for b in head["left_out"])
        first = np.cumsum([0, *(d["length"] for d in head["demos"])])
        self.demos = tuple(
            DemoInfo(
                d["id"], d["task"], d["instruction"], d["length"], int(f), np.array(d["events"], np.int64), d["source"]
            )
            for d, f in zip(head["demos"], first, strict=False)
        )
        self._views: dict[tuple[Matched | int, ...], View] = {}

    @classmethod
    def open(cls, path: str | Path) -> Library:
        """The library in directory ``path``; LibraryError when it is missing, damaged or of a newer format."""
        directory = Path(path)
        try:
            head = json.loads((directory / "library.json").read_text(encoding="utf-8"))
            version = int(head["format"])
        except FileNotFoundError:
            raise LibraryError(
                f"{directory} is not a library (it has no library.json); make one with `besttake library build`"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LibraryError(f"{directory}/library.json is damaged ({error}); build the library again") from error
        if version > FORMAT:
            raise LibraryError(
                f"{directory} was written by a newer BestTake (format {version}, this one knows {FORMAT}); upgrade"
            )
        try:
            for name, file in head["files"].items():
                found = (directory / name).stat().st_size if (directory / name).is_file() else None
                if found != file["size"]:
                    what = "is missing" if found is None else f"has {found} bytes instead of {file['size']}"
                    raise LibraryError(f"{directory}/{name} {what}; build the library again")
            return cls(directory, head)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LibraryError(f"{directory}/library.json is damaged ({error}); build the library again") from error

    def check(self) -> None:
        """Read every byte and compare; LibraryError names the first file that is not what was written."""
        for name, file in self.head["files"].items():
            if sha256_of(self.path / name) != file["sha256"]:
                raise LibraryError(f"{self.path}/{name} is damaged; build the library again")

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
        return None if self.state_dim is None else self._array("states")

    @cached_property
    def actions(self) -> F32 | None:
        """Float32 (S, action_dim) over the steps of all demos, memory-mapped; None for a library of pictures only."""
        return None if self.action_dim is None else self._array("actions")

    def state(self, demo: int, step: int) -> F32:
        """The state (state_dim,) of ``demo`` at ``step``."""
        if self.states is None:
            raise LibraryError(f"{self.path} holds no states; build it from demonstrations that have them")
        return np.array(self.states[self.demos[demo].first + step])

    def chunk(self, demo: int, step: int, horizon: int) -> F32:
        """What ``demo`` did from ``step`` on: (horizon, action_dim).

        Past its end the arm rests: by ``pad`` "hold" no motion and the last gripper command (for actions that are
        differences; all zero where the gripper's place is unknown), by "repeat" the last action again.
        """
        if self.actions is None:
            raise LibraryError(
                f"{self.path} holds no actions, only pictures; it can score takes but not be retrieved from"
            )
        info = self.demos[demo]
        done = np.array(self.actions[info.first + step : info.first + min(step + horizon, info.length)])
        if len(done) == horizon:
            return done
        last = np.array(self.actions[info.first + info.length - 1])
        if self.head["pad"] == "hold":
            keep = np.zeros_like(last)
            if self.gripper_dim is not None:
                keep[self.gripper_dim] = last[self.gripper_dim]
            last = keep
        return np.concatenate([done, np.tile(last, (horizon - len(done), 1))])

    def instruction(self, demo: int) -> str:
        """The instruction of ``demo``."""
        return self.demos[demo].instruction

    def frame_image(self, frame: int) -> U8:
        """Frame ``frame`` for people: uint8 (h, w, 3), at most 128 px, within JPEG error."""
        from PIL import Image

        with Image.open(io.BytesIO(self.picture_bytes(frame))) as picture:
            return np.asarray(picture.convert("RGB"))

    def picture_bytes(self, frame: int) -> bytes:
        """Frame ``frame`` as JPEG."""
        start, end = int(self._ends[frame - 1]) if frame else 0, int(self._ends[frame])
        with (self.path / "pictures.bin").open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def encoder(self) -> Encoder:
        """The encoder that made the embeddings; LibraryError when it is not to be had as it was."""
        from besttake import registry

        spec, stored = self.head["encoder"], self.path / "encoder.safetensors"
        made: Any = registry.encoder(spec["uri"])
        if isinstance(made, Fitted) and stored.exists():
            from safetensors.numpy import load_file

            made = type(made).from_arrays(load_file(stored))
        self.check_encoder(made)
        return made  # type: ignore[no-any-return]

    def check_encoder(self, encoder: Encoder) -> None:
        """LibraryError when ``encoder`` is not the one that made the embeddings."""
        spec = self.head["encoder"]
        if encoder.spec.fingerprint != spec["fingerprint"]:
            raise LibraryError(
                f"{self.path} was embedded by {spec['uri']} ({spec['fingerprint']}), not by {encoder.spec.name}"
                f" ({encoder.spec.fingerprint}); use that encoder or build the library again"
            )

    def check_encoder_uri(self, uri: str) -> None:
        """LibraryError when ``uri`` names another encoder than the one that made the embeddings."""
        from besttake import registry

        if uri not in (self.head["encoder"]["uri"], self.head["encoder"]["name"]):
            self.check_encoder(registry.encoder(uri))

    def view(self, task: str, instruction: str = "") -> View:
        """The demonstrations of a task: by its name, else by its instruction, else all of them (see `View.matched`)."""
        rows, matched = self._demos_of(task, instruction)
        key = (matched, *rows)
        if key not in self._views:
            self._views[key] = View(self, np.array(rows, np.int64), matched)
        return self._views[key]

    def check_fit(self, env: EnvSpec | World, config: RetrievalConfig | None = None) -> None:
        """LibraryError when retrieval from this library cannot serve ``env``: camera, actions, states, events."""
        self.check_camera(env)
        for what, here, there in (
            ("actions", self.action_dim, env.action_dim),
            ("states", self.state_dim, env.state_dim),
        ):
            if here is None:
                raise LibraryError(
                    f"{self.path} holds no {what}, only pictures; it can score takes but not be retrieved from"
                )
            if here != there:
                raise LibraryError(
                    f"{self.path} has {what} of {here} numbers, but {env.name} has {there}; use its own robot's"
                )
        if config is None or config.rule != "frame":
            self.check_events()

    def check_camera(self, env: EnvSpec | World) -> None:
        """LibraryError when the library shows the wrist and ``env`` is scored by another camera, or the reverse."""
        if is_wrist(self.camera) != is_wrist(env.score_camera):
            raise LibraryError(
                f"{self.path} shows camera {self.camera}, but {env.name} is scored by {env.score_camera};"
                " build it with the matching ?camera=…"
            )

    def check_events(self) -> None:
        """LibraryError when no demonstration has an event after its start, so that there is nothing to match."""
        if all(len(d.events) < 2 for d in self.demos):
            known = self.gripper_dim is not None or self.eef_dims is not None
            raise LibraryError(
                f"{self.path} has no events beyond episode starts; retrieve by --rule frame"
                + ("" if known else ", or build it again with --gripper-dim and --eef-dims")
            )

    def check_tasks(self, tasks: Sequence[TaskSpec], least: int = 1) -> list[str]:
        """LibraryError when a task has fewer than ``least`` demonstrations; else what is to be said about the names.

        Where library and plan have one task each and call it differently, the one is taken for the other, and that is
        said. A library that names no tasks serves all.
        """
        notes = []
        for task in tasks:
            rows, matched = self._demos_of(task.name, task.instruction)
            if matched == "all" and any(self.tasks):
                if len(tasks) > 1 or len(self.tasks) > 1:
                    rows = []
                else:
                    notes.append(f"the library calls its task {self.tasks[0]!r}; it was taken for {task.name}")
            if len(rows) < least:
                raise LibraryError(
                    f"{self.path} has {len(rows)} of the {least} demonstrations of {task.name} that are needed (its"
                    f" tasks: {', '.join(self.tasks)}); add more, or leave the task out"
                )
        return notes

    @property
    def retrieval(self) -> RetrievalConfig | None:
        """The frozen configuration that `besttake library tune` wrote; None when it was never tuned."""
        tuned = self.head["retrieval"]
        return None if tuned is None else RetrievalConfig.from_dict(tuned["config"])

    @property
    def tuned_on(self) -> Mapping[str, Any] | None:
        """Which starts and demonstrations the frozen configuration was chosen on."""
        tuned = self.head["retrieval"]
        return None if tuned is None else tuned["tuned_on"]

    def with_retrieval(self, config: RetrievalConfig, tuned_on: Mapping[str, Any]) -> Library:
        """Freeze ``config`` into the library, with what it was tuned on; the fingerprint stays."""
        retrieval = {"config": config.to_dict(), "tuned_on": dict(tuned_on)}
        write_text(self.path / "library.json", library_text({**self.head, "retrieval": retrieval}))
        return Library.open(self.path)

    def can_show(self, cameras: Sequence[str]) -> bool:
        """Whether `show` can give these cameras: the source is still there, unchanged, and has them."""
        return not cameras or (self._shower is not None and self._shower.shows(cameras))

    def show(self, demo: int, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """Pictures of ``cameras`` at a step, full size, for a policy to look at; read from the source itself."""
        if not cameras:
            return {}
        if self._shower is None or not self._shower.shows(cameras):
            raise LibraryError(
                f"{self.path} cannot show {', '.join(cameras)}: {self.source['name']} is gone or has none"
            )
        return self._shower.show(self.demos[demo].id, step, cameras)

    @cached_property
    def _shower(self) -> Showing | None:
        from besttake import registry

        uri = self.head.get("shows")
        try:
            source = None if uri is None else registry.demos(uri)
        except BestTakeError:
            return None
        same = source is not None and source.fingerprint == self.source["fingerprint"]
        return source if same and isinstance(source, Showing) else None

    def summary(self) -> dict[str, Any]:
        """What to tell about this library: plain values, for JSON."""
        head = self.head
        return {
            "source": self.source, "encoder": head["encoder"], "camera": self.camera, "fps": head["fps"],
            "demos": len(self.demos), "tasks": {t: sum(d.task == t for d in self.demos) for t in self.tasks},
            "frames": len(self.frame_demo), "steps": sum(d.length for d in self.demos),
            "events": sum(len(d.events) for d in self.demos), "stride": head["stride"],
            "left_out": [{"id": b.id, "reason": b.reason} for b in self.left_out],
            "retrieval": head["retrieval"], "fingerprint": self.fingerprint,
        }  # fmt: skip

    def _demos_of(self, task: str, instruction: str) -> tuple[list[int], Matched]:
        tries: list[tuple[Matched, str, str]] = [
            ("task", "task", task), ("instruction", "instruction", instruction), ("instruction", "instruction", task),
        ]  # fmt: skip
        for matched, field, wanted in tries:
            rows = [i for i, d in enumerate(self.demos) if wanted and _same(getattr(d, field), wanted)]
            if rows:
                return rows, matched
        return list(range(len(self.demos))), "all"

    @cached_property
    def _ends(self) -> I64:
        return self._array("picture_ends")

    def _array(self, name: str) -> NDArray[Any]:
        try:
            return np.asarray(np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise LibraryError(f"{self.path}/{name}.npy is damaged ({error}); build the library again") from error


def build(source: Source, encoder: Encoder | Fitted, out: str | Path, **options: Any) -> Library:
    """Make a library of ``source`` in directory ``out``; the options are those of `besttake.demos.build.Options`."""
    return Library.open(build_to(source, encoder, Path(out), **options))


def build_cached(source: Source, encoder: Encoder | Fitted, cache: str | Path, **options: Any) -> Library:
    """`build` in a directory of ``cache`` named by all that the library depends on, unless it is there already."""

    def whole(path: Path) -> bool:
        try:
            Library.open(path)
        except LibraryError:
            return False
        return True

    return Library.open(build_cached_at(source, encoder, Path(cache), whole, **options))


def _same(one: str, other: str) -> bool:
    """Whether two task names or instructions are the same words: ``pick_up_the_bowl`` is "Pick up the bowl."."""
    return one.replace("_", " ").strip(" .").casefold() == other.replace("_", " ").strip(" .").casefold()
