"""A replica: a policy with its own simulators, in a process of its own or in a Ray actor.

It is told what to play (a `Course`), then gets takes to play, and answers as they finish. Its driver (`fleet`) keeps
the queue of takes and the run; a replica that dies loses nothing but its takes under way, which are played again.
"""

from __future__ import annotations

import os
import platform
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

from besttake.encoders.cache import frame_hash
from besttake.errors import one_line
from besttake.log import show_if_parent_does
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.orders import End, Failed, Job, Sampler
from besttake.takes.pool import LocalPool, Pool
from besttake.takes.queue import Queue
from besttake.takes.runner import Engine, UnderWay
from besttake.takes.take import Take
from besttake.takes.tempo import Load, Measured
from besttake.threads import one_thread
from besttake.types import F32, EnvSpec

_STOPS_WITHIN = 5.0
_MOST_WAITING = 1 << 30
"""Bytes of films that wait to be embedded; what comes beyond that is embedded where takes are scored."""


class Recipe(Protocol):
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
class Course:
    """What is played: whose actions, in which env, with whose randomness, and how many takes at once.

    None: as many as measured times ask for, or ``otherwise`` where the policy does not say how many rows it takes.
    ``embeds``: the frames of finished takes are embedded, too, by the sampler's encoder, while others are played.
    """

    recipe: Recipe
    env: EnvSpec
    draw: Callable[[TakeKey], Draw]
    takes: int | None
    otherwise: int = 32
    embeds: bool = False


@dataclass(frozen=True)
class Joined:
    """News: the replica is ready to play ``takes`` at once with its ``workers``; ``why`` where that was measured."""

    node: str
    pid: int
    workers: int
    takes: int
    why: str = ""


@dataclass(frozen=True)
class Embedded:
    """News: the embeddings of a take's frames, by their hashes; none where that failed.

    ``encoded`` of them were made for it, by an encoder that the driver does not have: the others were known.
    """

    vectors: dict[bytes, F32]
    encoded: int = 0


@dataclass(frozen=True)
class Broken:
    """News: the replica cannot go on, and another would not either; ``reason`` is one line."""

    reason: str


News = Joined | Broken | Embedded | list[End | Failed] | None
"""What a replica tells: it is ready, it cannot go on, frames are embedded, takes are over, or (None) it died."""
Message = Course | list[Job] | None
"""What it is told: what to play, more takes, or (None) that there will be no more."""


class Replica:
    """Obeys messages; tells news by ``tell``, from any thread. ``node`` is where it runs, this machine unless given."""

    _apart = True
    """Whether its encoder is another than the driver's."""

    def __init__(self, pool: Pool, tell: Callable[[News], None], node: str = "") -> None:
        self._pool, self._tell, self._node = pool, tell, node or platform.node()
        self._loaded: tuple[Recipe, Any] | None = None
        self._sampler: tuple[Recipe, str, Sampler] | None = None
        self._queue = Queue()
        self._course: Course | None = None
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None
        self._embedder: Embedder | None = None

    def obey(self, message: Message) -> None:
        """Do as told; what goes wrong is news."""
        try:
            if isinstance(message, Course):
                self._begin(message)
            elif message is None:
                self._end()
            elif self._engine is not None:
                self._engine.add([self._with_own_actor(job) for job in message])
        except Exception as error:
            self._tell(Broken(one_line(error, 300)))

    def close(self) -> None:
        """Stop, whatever is under way."""
        if self._engine is not None:
            self._engine.stop()
        if self._thread is not None:
            self._thread.join(_STOPS_WITHIN)
        if self._embedder is not None:
            self._embedder.stop()

    def _with_own_actor(self, job: Job) -> Job:
        """A job for a worker that acts itself: by the recipe of this node, where the library may lie elsewhere."""
        return job if job.actor is None or self._course is None else replace(job, actor=self._course.recipe)

    def _begin(self, course: Course) -> None:
        self._course = course
        sampler = self._sampler_of(course)
        under_way = UnderWay(course.takes, course.env.at_once, course.otherwise, self._loaded_by)
        self._queue = Queue(ended=False)
        self._engine = Engine(self._queue, sampler, course.draw, self._pool, under_way)
        self._embedder = None
        if course.embeds:
            self._embedder = Embedder(getattr(sampler, "encoder", None), self._tell, counts=self._apart)
        self._thread = threading.Thread(target=self._run, args=(self._engine,), name="engine", daemon=True)
        self._thread.start()
        self._tell(Joined(self._node, os.getpid(), self._pool.size, self._engine.takes))

    def _loaded_by(self, load: Load, measured: Measured) -> None:
        """Measured times asked for this load: the driver may send more takes."""
        self._tell(Joined(self._node, os.getpid(), self._pool.size, load.takes, str(measured)))

    def _run(self, engine: Engine) -> None:
        try:
            engine.run(self._over)
        except BaseException as error:
            self._tell(Broken(one_line(error, 300)))

    def _over(self, answer: End | Failed) -> None:
        self._tell([answer])
        if self._embedder is not None and isinstance(answer, End):
            self._embedder.add(answer.take)

    def _sampler_of(self, course: Course) -> Sampler:
        """The sampler of a course; what the last one loaded is used again where it is the same."""
        recipe, env = course.recipe, course.env
        if self._sampler is None or self._sampler[:2] != (recipe, env.name):
            if self._loaded is None or self._loaded[0] != recipe:
                self._loaded = None
                self._loaded = recipe, recipe.load()
            self._sampler = recipe, env.name, recipe.sampler_of(self._loaded[1], env)
        return self._sampler[2]

    def _end(self) -> None:
        self._queue.end()
        if self._thread is not None:
            self._thread.join()
            self._thread = self._engine = None
        if self._embedder is not None:
            self._embedder.end()
            self._embedder = None


class Embedder:
    """A thread that embeds the frames of takes and tells their `Embedded`, one per take."""

    def __init__(self, encoder: Any, tell: Callable[[News], None], *, counts: bool) -> None:
        self._encoder, self._tell, self._counts, self._stopped = encoder, tell, counts, False
        self._added = self._taken = 0  # bytes of films, each counted by one thread
        self._takes: queue.SimpleQueue[Take | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="embedding", daemon=True)
        self._thread.start()

    def add(self, take: Take) -> None:
        """Embed the frames of ``take`` when its turn comes, unless too many wait for theirs."""
        if self._added - self._taken > _MOST_WAITING:
            self._tell(Embedded({}))
            return
        self._added += len(take.film.data)
        self._takes.put(take)

    def end(self) -> None:
        """Wait until all takes are embedded."""
        self._takes.put(None)
        self._thread.join()

    def stop(self) -> None:
        """Embed nothing more."""
        self._stopped = True
        self._takes.put(None)

    def _work(self) -> None:
        encoded = getattr(self._encoder, "encoded", 0)
        while (take := self._takes.get()) is not None and not self._stopped:
            vectors: dict[bytes, F32] = {}
            # What goes wrong here goes wrong again where takes are scored, and is reported there.
            with suppress(Exception):
                frames = take.frames()
                embedded = self._encoder.encode(frames)
                vectors = {frame_hash(frame): vector for frame, vector in zip(frames, embedded, strict=True)}
            self._taken += len(take.film.data)
            before, encoded = encoded, getattr(self._encoder, "encoded", 0)
            self._tell(Embedded(vectors, (encoded - before) * self._counts))


def serve(descriptor: int) -> None:
    """The replica's side of a process: the first message is (workers, patience), then it obeys until the driver hangs
    up."""
    os.set_inheritable(descriptor, False)
    show_if_parent_does()
    pipe, one_at_a_time = Connection(descriptor), threading.Lock()

    def tell(news: News) -> None:
        with one_at_a_time, suppress(OSError):
            pipe.send(news)

    with one_thread(), suppress(EOFError, OSError):
        workers, patience = pipe.recv()
        pool = LocalPool(workers, patience)
        replica = Replica(pool, tell)
        try:
            while True:
                replica.obey(pipe.recv())
        finally:
            replica.close()
            pool.close()
