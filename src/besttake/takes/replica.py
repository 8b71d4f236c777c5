"""A replica: a policy with its own simulators, as a Ray actor.

It is told what to play (an `Assignment`) and then asked for takes, each by one call that returns when the take is over.
Its driver (`ray`) keeps the queue of takes and the run. A replica that dies loses only its takes in progress, which are
played again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import shutil
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from besttake.encoders.cache import frame_hash
from besttake.errors import RolloutError, one_line
from besttake.files import cache_dir, leads_out
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.messages import End, Failed, Job, Sampler
from besttake.takes.pool import LocalPool
from besttake.takes.runner import Concurrency, Engine
from besttake.takes.schedule import Queue
from besttake.takes.sizes import drawing, gpus
from besttake.takes.take import Take
from besttake.threads import one_thread
from besttake.types import F32, EnvSpec

THREADS = "OMP_NUM_THREADS"
_HEAD = "library.json"
_MOST_WAITING = 1 << 30
"""Bytes of films that wait to be embedded; what comes beyond that is embedded where takes are scored."""


class SamplerFactory(Protocol):
    """How a replica makes the sampler that the driver has: small and picklable."""

    @property
    def library(self) -> str | None:
        """The directory of the demonstrations."""
        ...

    def load(self) -> Any:
        """The policy, which takes long."""
        ...

    def sampler(self, env: EnvSpec) -> Sampler:
        """The sampler, for takes in ``env``, with a policy of its own."""
        ...

    def sampler_of(self, loaded: Any, env: EnvSpec) -> Sampler:
        """A sampler of the loaded policy, for takes in ``env``."""
        ...


@dataclass(frozen=True)
class Assignment:
    """What is played: whose actions, in which env, with whose randomness, and how many takes at once.

    None: as many as measured times ask for, or ``otherwise`` where the policy does not say how many rows it takes.
    ``embeds``: the frames of finished takes are embedded, too, by the sampler's encoder, while others are played.
    """

    factory: SamplerFactory
    env: EnvSpec
    draw: Callable[[TakeKey], Draw]
    takes: int | None
    otherwise: int = 32
    embeds: bool = False


@dataclass(frozen=True)
class Joined:
    """A replica is ready to play ``takes`` at once with its ``workers`` on ``node``."""

    node: str
    workers: int
    takes: int


@dataclass(frozen=True)
class LibraryCopy:
    """A library as Ray objects, for nodes that do not share the driver's file system.

    ``files`` by their path in its directory, and a ``name`` that is a hash of them all.
    """

    name: str
    files: dict[str, Any]

    @classmethod
    def of(cls, directory: Path, put: Callable[[bytes], Any]) -> LibraryCopy:
        """All files of ``directory``, but for links that lead out of it."""
        digest, files = hashlib.sha256(), {}
        own = (path for path in directory.rglob("*") if path.name != ".lock" and not leads_out(directory, path))
        for path in sorted(path for path in own if path.is_file()):
            data, name = path.read_bytes(), path.relative_to(directory).as_posix()
            digest.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
            files[name] = put(data)
        return cls(digest.hexdigest()[:24], files)

    def place(self, there: Path, get: Callable[[Any], bytes], home: Path) -> Path:
        """``there``, if this node has the same library at that path, else a copy under ``home``, made if need be."""
        head = self.files.get(_HEAD)
        if head is not None and (there / _HEAD).is_file() and (there / _HEAD).read_bytes() == get(head):
            return there
        copy = home / self.name
        if not copy.is_dir():
            half = home / f"{self.name}.{uuid.uuid4().hex}.tmp"
            for name, reference in self.files.items():
                (half / name).parent.mkdir(parents=True, exist_ok=True)
                (half / name).write_bytes(get(reference))
            with suppress(OSError):  # another replica of this node was faster
                half.rename(copy)
            shutil.rmtree(half, ignore_errors=True)
        return copy


class Replica:
    """The actor. ``threads`` is the driver's number of threads: sums over another number may differ in the last bit."""

    def __init__(self, workers: int, patience: float | None, threads: str) -> None:
        import ray

        os.environ[THREADS] = threads  # Ray sets it to the actor's cores
        for gpu in gpus()[:1]:  # those that Ray gave to this actor
            os.environ.update(drawing(gpu))
        self._one_thread = one_thread()  # for as long as it is kept
        self._one_thread.__enter__()
        self._node = f"{platform.node()} ({ray.get_runtime_context().get_node_id()[:6]})"
        self._pool = LocalPool(workers, patience)
        self._one_at_a_time = asyncio.Lock()
        self._assignment: Assignment | None = None
        self._loaded: tuple[SamplerFactory, Any] | None = None
        self._sampler: Any = None
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None
        self._waiting: dict[TakeKey, Future[End | Failed]] = {}
        self._embedding = ThreadPoolExecutor(1, "embedding")
        self._films: dict[TakeKey, Take] = {}

    async def begin(self, assignment: Assignment, library: LibraryCopy | None) -> Joined:
        """Make ready for takes of ``assignment``; a node that lacks the ``library`` gets it."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._begin, assignment, library)

    async def play(self, job: Job) -> tuple[End | Failed, int]:
        """Play a take; with it comes how many takes this replica can have in progress now."""
        assert self._engine is not None
        assert self._assignment is not None
        future = self._waiting[job.key] = Future()
        if job.actor is not None:  # a worker that acts itself does so by this node's library
            job = replace(job, actor=self._assignment.factory)
        self._engine.add([job])
        answer = await asyncio.wrap_future(future)
        return answer, self._engine.takes

    async def embed(self, key: TakeKey) -> tuple[dict[bytes, F32], int]:
        """The embeddings of a take's frames by their hashes, and how many the encoder had to make.

        None where too many frames wait, or where it fails: they are embedded where takes are scored.
        """
        return await asyncio.get_running_loop().run_in_executor(self._embedding, self._embed, key)

    def _begin(self, assignment: Assignment, library: LibraryCopy | None) -> Joined:
        import ray

        if self._engine is not None and self._thread is not None:
            self._engine.stop()
            self._thread.join()
        try:
            if library is not None and assignment.factory.library is not None:
                place = library.place(Path(assignment.factory.library), ray.get, cache_dir() / "libraries")
                factory: Any = assignment.factory
                assignment = replace(assignment, factory=replace(factory, library=str(place)))
            self._load(assignment)
        except ray.exceptions.RayError:
            raise
        except Exception as error:  # which may not be one that can be sent
            raise RolloutError(one_line(error, 300)) from None
        concurrency = Concurrency(assignment.takes, assignment.env.at_once, assignment.otherwise)
        self._engine = Engine(Queue(ended=False), self._sampler, assignment.draw, self._pool, concurrency)
        self._assignment = assignment
        self._thread = threading.Thread(target=self._run, args=(self._engine,), name="engine", daemon=True)
        self._thread.start()
        return Joined(self._node, self._pool.size, self._engine.takes)

    def _load(self, assignment: Assignment) -> None:
        """Make the sampler of an assignment; what the last one loaded is used again where it is the same."""
        if self._loaded is None or self._loaded[0] != assignment.factory:
            self._loaded = self._sampler = None  # their memory is needed for the next
            self._loaded = assignment.factory, assignment.factory.load()
        if self._sampler is None or self._assignment is None or self._assignment.env.name != assignment.env.name:
            self._sampler = assignment.factory.sampler_of(self._loaded[1], assignment.env)

    def _run(self, engine: Engine) -> None:
        try:
            engine.run(self._finish)
        except BaseException as error:
            for future in self._waiting.values():
                future.set_exception(RolloutError(one_line(error, 300)))

    def _finish(self, answer: End | Failed) -> None:
        key = answer.take.key if isinstance(answer, End) else answer.key
        if isinstance(answer, End) and self._embeds():
            self._films[key] = answer.take
        self._waiting.pop(key).set_result(answer)

    def _embeds(self) -> bool:
        waiting = sum(len(take.film.data) for take in list(self._films.values()))
        return self._assignment is not None and self._assignment.embeds and waiting < _MOST_WAITING

    def _embed(self, key: TakeKey) -> tuple[dict[bytes, F32], int]:
        encoder: Any = getattr(self._sampler, "encoder", None)
        before = getattr(encoder, "encoded", 0)
        vectors: dict[bytes, F32] = {}
        # What goes wrong here goes wrong again where takes are scored, and is reported there.
        with suppress(Exception):
            frames = self._films.pop(key).frames()
            vectors = dict(zip(map(frame_hash, frames), encoder.encode(frames), strict=True))
        return vectors, getattr(encoder, "encoded", 0) - before
