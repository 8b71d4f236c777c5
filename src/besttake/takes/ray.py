"""Several replicas as Ray actors, with one queue of takes and one writer, on one machine or many.

A replica is a policy and its simulators, as processes on one node; only finished takes travel. The driver (`Replicas`)
keeps the queue and the run. It gives each replica an `Assignment`, and then one call per take. If a replica dies, only
its takes in progress are played again. Every node needs the library of demonstrations at the same path; the user's own
modules that ``python:`` names are sent along. Takes are the same bits whoever plays them.
"""

from __future__ import annotations

import asyncio
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from besttake.arms.sampler import PolicyFactory
from besttake.demos.library import Library
from besttake.errors import ComponentError, RolloutError, failure, need, one_line
from besttake.registry import Uri
from besttake.takes.draws import Draw
from besttake.takes.engine import Engine, Queue, Tally, Writer
from besttake.takes.jobs import End, Failed, Job
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import WorkerPool
from besttake.takes.sizes import ReplicaLayout, drawing, gpus, laid_out
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import EnvSpec

_LIVES = 3
"""A replica that dies this often without a single take in between is not replaced again."""
_LONG = 60.0
"""Seconds after which we report which replicas have joined, even if not all have."""
_MOST_CALLS = 10_000
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Assignment:
    """What a replica plays: the policy, the env, the randomness, and how many takes (``slots``) per worker.

    ``library`` is the fingerprint that the demonstrations must have, if any are used.
    """

    factory: PolicyFactory
    env: EnvSpec
    draw: Callable[[TakeKey], Draw]
    slots: int
    library: str = ""


@dataclass(frozen=True)
class ReplicaReady:
    """The message that a replica is ready to play ``takes`` at once with its ``workers`` on ``node``."""

    node: str
    workers: int
    takes: int


class Replica:
    """The Ray actor. It uses the driver's number of ``threads``: with another, sums may differ in the last bit."""

    def __init__(self, workers: int, patience: float | None, threads: str) -> None:
        import ray

        os.environ[_THREADS] = threads  # Ray sets it to the actor's cores
        for gpu in gpus()[:1]:  # those that Ray gave to this actor
            os.environ.update(drawing(gpu))
        self._one_thread = one_thread()  # in force as long as it is referenced
        self._one_thread.__enter__()
        self._node = f"{platform.node()} ({ray.get_runtime_context().get_node_id()[:6]})"
        self._pool = WorkerPool(workers, patience)
        self._one_at_a_time = asyncio.Lock()
        self._assignment: Assignment | None = None
        self._loaded: tuple[PolicyFactory, Any] | None = None
        self._sampler: Any = None
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None
        self._waiting: dict[TakeKey, Future[End | Failed]] = {}
        self._error: RolloutError | None = None

    async def begin(self, assignment: Assignment) -> ReplicaReady:
        """Prepare for takes of ``assignment``."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._begin, assignment)

    async def play(self, job: Job) -> End | Failed:
        """Play a take."""
        assert self._engine is not None
        if self._error is not None:
            raise self._error
        future = self._waiting[job.key] = Future()
        self._engine.add([job])
        return await asyncio.wrap_future(future)

    def _begin(self, assignment: Assignment) -> ReplicaReady:
        if self._engine is not None and self._thread is not None:
            self._engine.stop()
            self._thread.join()
        try:
            path = assignment.factory.library
            if path is not None and Library.open(path).fingerprint != assignment.library:
                raise RolloutError(f"{self._node} has another library at {path}; every node needs the same")
            self._load(assignment)
        except BaseException as error:  # it may be of a kind that cannot be sent
            raise RolloutError(one_line(failure(error), 300)) from None
        self._engine = Engine(Queue(ended=False), self._sampler, assignment.draw, self._pool, assignment.slots)
        self._assignment = assignment
        self._thread = threading.Thread(target=self._run, args=(self._engine,), name="engine", daemon=True)
        self._thread.start()
        return ReplicaReady(self._node, self._pool.size, self._pool.size * assignment.slots)

    def _load(self, assignment: Assignment) -> None:
        """Make the sampler of an assignment; policy and sampler of the last one are reused if they are the same."""
        if self._loaded is None or self._loaded[0] != assignment.factory:
            self._loaded = self._sampler = None  # their memory is needed for the next ones
            self._loaded = assignment.factory, assignment.factory.load()
        if self._sampler is None or self._assignment is None or self._assignment.env.name != assignment.env.name:
            self._sampler = assignment.factory.sampler_of(self._loaded[1], assignment.env)

    def _run(self, engine: Engine) -> None:
        try:
            engine.run(self._finish)
        except BaseException as error:
            self._error = RolloutError(one_line(failure(error), 300))
            for future in list(self._waiting.values()):
                future.set_exception(self._error)

    def _finish(self, answer: End | Failed) -> None:
        self._waiting.pop(_key(answer)).set_result(answer)


class Cluster:
    """The cluster that RAY_ADDRESS names, else Ray on this machine; ``modules`` are sent to every node.

    With ``local_cores`` it is Ray on this machine in any case, with that many cores for the replicas.
    """

    def __init__(self, modules: Sequence[Path] = (), local_cores: int | None = None) -> None:
        self.ray: Any = need("ray", "a run with several replicas", "ray")
        self._started = not self.ray.is_initialized()
        if not self._started:
            return
        how: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
        if modules:
            how["runtime_env"] = {"py_modules": [str(path) for path in modules]}
        if local_cores is not None:
            how |= {"address": "local", "num_cpus": local_cores}
        try:
            self.ray.init(**how)
        except Exception as error:
            raise ComponentError(
                f"Ray did not start ({one_line(error)}); check RAY_ADDRESS, or use one replica here: `on` local,"
                " `replicas` 1"
            ) from error

    def layout(self, replicas: int | None, workers: int | None, gpus: float | None) -> ReplicaLayout:
        """How many replicas, with how many workers and GPUs each; None leaves a number to the size of the cluster."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return laid_out(nodes, replicas, workers, gpus)

    def close(self) -> None:
        """End Ray if it was started here."""
        if self._started:
            self.ray.shutdown()


@dataclass(eq=False)
class _Actor:
    """A replica as its driver knows it: where it runs once it has ``joined``, and the takes that it has."""

    handle: Any
    joined: ReplicaReady | None = None
    takes: int = 0
    jobs: dict[TakeKey, Job] = field(default_factory=dict)
    deaths: int = 0


class Replicas:
    """Ray actors that play one assignment after the other, each with ``workers`` cores and ``gpus`` GPUs.

    Takes go to whichever actor is free. The takes of an actor that dies go back to the queue, and it is replaced.
    """

    def __init__(
        self, cluster: Cluster, count: int, workers: int, gpus: float, patience: float | None,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._ray, self._note = cluster.ray, note
        self.workers, self._gpus, self._patience = workers, gpus, patience
        self._reported, self._since = False, time.monotonic()
        self._actors = [_Actor(self._start()) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors:
            self._ray.kill(actor.handle)

    def play(
        self,
        assignment: Assignment,
        jobs: Sequence[Job],
        store: Store,
        on_take: Callable[[Row], None] = lambda row: None,
    ) -> Tally:
        """Play ``jobs`` and write their takes to ``store``."""
        queue, beginning, playing = Queue(jobs), dict[Any, _Actor](), dict[Any, _Actor]()

        def begin(actor: _Actor) -> None:
            actor.joined, actor.takes, actor.jobs = None, 0, {}
            beginning[actor.handle.begin.remote(assignment)] = actor

        for actor in self._actors:
            begin(actor)
        with Writer(store, on_take) as writer:
            while queue or playing:
                for call in self._ended([*beginning, *playing]):
                    actor = (beginning if call in beginning else playing).pop(call)
                    if actor not in self._actors:
                        continue  # it was replaced
                    if (result := self._result(call, actor)) is None:
                        for failed in queue.give_back(list(actor.jobs.values()), "the replica"):
                            writer.put(failed)
                            actor.deaths = 0  # the take was to blame, and is out
                        begin(self._replace(actor))
                    elif isinstance(result, ReplicaReady):
                        actor.joined, actor.takes = result, result.takes
                        self._report_joined()
                    else:
                        actor.deaths = 0
                        del actor.jobs[_key(result)]
                        writer.put(result)
                for actor in self._actors:
                    others = [other for other in self._actors if other.takes]
                    for job in hand_out(queue, actor.jobs, actor.takes, [other.jobs for other in others]):
                        playing[actor.handle.play.remote(job)] = actor
                writer.check()
        return Tally(writer.done, writer.failed)

    def _ended(self, calls: list[Any]) -> list[Any]:
        """Wait up to a minute for calls to end; return all that have."""
        ended, _ = self._ray.wait(calls, num_returns=1, timeout=_LONG)
        if not ended and not any(actor.joined for actor in self._actors):
            self._note("no replica has started yet; are its GPU and its cores free?")
        self._report_joined()
        ended, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        return list(ended)

    def _result(self, call: Any, actor: _Actor) -> Any:
        """The result of a call; None if its actor, its node or an object was lost. An error in ``actor`` ends the run.

        The actor may fail as early as when it reads a message, such as one that names a module that its node lacks.
        """
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            if isinstance(cause, self._ray.exceptions.RayError):
                return None
            reason = str(cause).strip().splitlines()[-1][:300]
            raise RolloutError(f"replica {self._actors.index(actor) + 1}: {reason}") from None
        except self._ray.exceptions.RayError:
            return None

    def _start(self) -> Any:
        actor = self._ray.remote(max_restarts=0, max_concurrency=_MOST_CALLS)(Replica)
        options = actor.options(num_cpus=self.workers, num_gpus=self._gpus, scheduling_strategy="SPREAD")
        threads = os.environ.get(_THREADS, str(os.cpu_count() or 1))
        return options.remote(self.workers, self._patience, threads)

    def _replace(self, actor: _Actor) -> _Actor:
        """Replace an actor that died; RolloutError if it keeps dying."""
        index, deaths = self._actors.index(actor), actor.deaths + 1
        where = "" if actor.joined is None else f" on {actor.joined.node}"
        if deaths >= _LIVES:
            raise RolloutError(
                f"replica {index + 1}{where} died {_LIVES} times without a take in between; is memory short? Use fewer"
                " `replicas`, and run the same command again: finished takes are safe"
            )
        self._note(f"replica {index + 1}{where} died and is replaced; its takes are played again")
        self._reported, self._since = False, time.monotonic()
        self._ray.kill(actor.handle)
        self._actors[index] = _Actor(self._start(), deaths=deaths)
        return self._actors[index]

    def _report_joined(self) -> None:
        """Report where the replicas run, once all have joined or have had the time to."""
        joined, planned = [actor.joined for actor in self._actors if actor.joined], len(self._actors)
        if self._reported or not joined or (len(joined) < planned and time.monotonic() < self._since + _LONG):
            return
        self._reported, nodes = len(joined) == planned, len({each.node for each in joined})
        count = f"{'' if self._reported else f'{len(joined)} of '}{_counted(planned, 'replica')}"
        self._note(f"{count} on {_counted(nodes, 'node')}, {_counted(sum(each.workers for each in joined), 'worker')}")


def hand_out(queue: Queue, own: dict[TakeKey, Job], takes: int, everyone: Sequence[Mapping[TakeKey, Job]]) -> list[Job]:
    """Choose the jobs that a replica gets now, and add them to its jobs (``own``); ``everyone`` has all jobs in play.

    A replica has as many jobs as it can play at once (``takes``) and a few in reserve, so that it never waits; but no
    more than its share of all that are left, so that all replicas finish together.
    """
    jobs: list[Job] = []
    if not takes:
        return jobs
    left = len(queue) + sum(map(len, everyone))
    most = min(takes + max(2, takes // 4), -(-left // len(everyone)))
    while len(own) < most and (job := queue.next(own.values())) is not None:
        own[job.key] = job
        jobs.append(job)
    return jobs


def _key(answer: End | Failed) -> TakeKey:
    return answer.take.key if isinstance(answer, End) else answer.key


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def own_modules(uris: Sequence[str]) -> list[Path]:
    """The files or packages of the user's own modules that ``python:`` URIs name, without installed ones."""
    places = []
    for uri in uris:
        parsed = Uri.parse(uri)
        if parsed.scheme != "python":
            continue
        spec = find_spec(parsed.rest.partition(":")[0].partition(".")[0])
        if spec is None or spec.origin is None or "site-packages" in spec.origin:
            continue
        place = Path(spec.origin)
        places.append(place.parent if place.name == "__init__.py" else place)
    return list(dict.fromkeys(places))
