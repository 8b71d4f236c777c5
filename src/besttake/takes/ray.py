"""Several replicas as Ray actors: one queue of takes, one writer, on one machine or many.

An actor is a policy with its simulators beside it, as processes of its own on the same node: only takes travel. Nodes
need not share a file system: a library that a node lacks is sent there, and modules of the user's that ``python:``
names go along with the job. Takes are the same bits whoever plays them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from besttake.errors import ComponentError, RolloutError, need, one_line
from besttake.registry import Uri
from besttake.takes.key import Row, TakeKey
from besttake.takes.messages import End, Failed, Job
from besttake.takes.replica import THREADS, Assignment, Joined, LibraryCopy, Replica
from besttake.takes.runner import Tally
from besttake.takes.schedule import Queue
from besttake.takes.sizes import ReplicaLayout, laid_out
from besttake.takes.store import Store
from besttake.takes.writer import Writer
from besttake.types import F32

_LIVES = 3
"""A replica that dies so often without a single take in between is not replaced again."""
_LONG = 60.0
"""Seconds after which we say who has joined, where not all have."""
_MOST_CALLS = 10_000

OnVectors = Callable[[Mapping[bytes, F32], int], None]
"""Gets embeddings of frames by their hashes, and how many were made for it."""


class Cluster:
    """The cluster that RAY_ADDRESS names, else Ray on this machine; ``modules`` go along to every node.

    With ``local_cores`` it is Ray on this machine in any case, with so many cores to share among replicas.
    """

    def __init__(self, modules: Sequence[Path] = (), local_cores: int | None = None) -> None:
        self.ray: Any = need("ray", "a run with several replicas", "ray")
        self._started = not self.ray.is_initialized()
        self._copies: dict[str, LibraryCopy] = {}
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
        """How many replicas, with how many workers and GPUs each; what is None is chosen from what the cluster has."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return laid_out(nodes, replicas, workers, gpus)

    def library_copy(self, directory: str | None) -> LibraryCopy | None:
        """A library for nodes that lack it, put into Ray once."""
        if directory is None:
            return None
        if directory not in self._copies:
            self._copies[directory] = LibraryCopy.of(Path(directory), self.ray.put)
        return self._copies[directory]

    def forget_copies(self) -> None:
        """Put libraries into Ray anew when they are sent next: an object may have been lost."""
        self._copies.clear()

    def close(self) -> None:
        """End Ray if it was started here."""
        if self._started:
            self.ray.shutdown()


@dataclass(eq=False)
class _Actor:
    """A replica as its driver sees it: where it runs once it has ``joined``, and which takes it has."""

    handle: Any
    joined: Joined | None = None
    takes: int = 0
    jobs: dict[TakeKey, Job] = field(default_factory=dict)
    deaths: int = 0


class Replicas:
    """Actors that play one assignment after the other, each with ``workers`` cores and ``gpus`` GPUs.

    Takes go to whoever is free. An actor that dies gives its takes back and is replaced.
    """

    def __init__(
        self, cluster: Cluster, count: int, workers: int, gpus: float, patience: float | None,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._cluster, self._ray, self._note = cluster, cluster.ray, note
        self._workers, self._gpus, self._patience = workers, gpus, patience
        self._said, self._since = "", time.monotonic()
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
        on_vectors: OnVectors = lambda vectors, encoded: None,
    ) -> Tally:
        """Play ``jobs`` and keep their takes in ``store``; embeddings that it asks for go to ``on_vectors``."""
        queue, beginning, playing, embedding = Queue(jobs), dict[Any, _Actor](), dict[Any, _Actor](), set[Any]()

        def begin(actor: _Actor) -> None:
            actor.joined, actor.takes, actor.jobs = None, 0, {}
            library = self._cluster.library_copy(assignment.factory.library)
            beginning[actor.handle.begin.remote(assignment, library)] = actor

        for actor in self._actors:
            begin(actor)
        with Writer(store, on_take) as writer:
            while queue or playing or embedding:
                for call in self._ended([*beginning, *playing, *embedding]):
                    if call in embedding:
                        embedding.discard(call)
                        if (embedded := self._result(call)) is not None:
                            on_vectors(*embedded)
                        continue
                    actor = (beginning if call in beginning else playing).pop(call)
                    if actor not in self._actors:
                        continue  # it was replaced
                    if (result := self._result(call, actor)) is None:
                        for failed in queue.give_back(list(actor.jobs.values()), "the replica"):
                            writer.put(failed)
                            actor.deaths = 0  # the take was to blame, and is out
                        begin(self._replace(actor))
                    elif isinstance(result, Joined):
                        actor.joined, actor.takes = result, result.takes
                        self._say_who_is_there()
                    else:
                        answer, actor.takes = result
                        actor.deaths = 0
                        del actor.jobs[_key(answer)]
                        writer.put(answer)
                        if assignment.embeds and isinstance(answer, End):
                            embedding.add(actor.handle.embed.remote(answer.take.key))
                for actor in self._actors:
                    others = [other for other in self._actors if other.takes]
                    for job in hand_out(queue, actor.jobs, actor.takes, [other.jobs for other in others]):
                        playing[actor.handle.play.remote(job)] = actor
                writer.check()
        return Tally(writer.done, writer.failed)

    def _ended(self, calls: list[Any]) -> list[Any]:
        """Calls that have ended, after waiting for one; none where all take long."""
        ended, _ = self._ray.wait(calls, num_returns=1, timeout=_LONG)
        if not ended and not any(actor.joined for actor in self._actors):
            self._note("no replica has started yet; are its GPU and its cores free?")
        if not self._said:
            self._say_who_is_there()
        ended, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        return list(ended)

    def _result(self, call: Any, actor: _Actor | None = None) -> Any:
        """What a call gave; None where its actor, its node or an object was lost. What ``actor`` raised ends the run.

        That may be as early as when it reads a message, such as one that names a module that its node lacks.
        """
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            if actor is None or isinstance(cause, self._ray.exceptions.RayError):
                return None
            reason = str(cause).strip().splitlines()[-1][:300]
            raise RolloutError(f"replica {self._actors.index(actor) + 1}: {reason}") from None
        except self._ray.exceptions.RayError:
            return None

    def _start(self) -> Any:
        actor = self._ray.remote(max_restarts=0, max_concurrency=_MOST_CALLS)(Replica)
        options = actor.options(num_cpus=self._workers, num_gpus=self._gpus, scheduling_strategy="SPREAD")
        threads = os.environ.get(THREADS, str(os.cpu_count() or 1))
        return options.remote(self._workers, self._patience, threads)

    def _replace(self, actor: _Actor) -> _Actor:
        """Put a new actor in the place of one that died."""
        index, deaths = self._actors.index(actor), actor.deaths + 1
        where = "" if actor.joined is None else f" on {actor.joined.node}"
        if deaths >= _LIVES:
            raise RolloutError(
                f"replica {index + 1}{where} died {_LIVES} times without a take in between; is memory short? Use fewer"
                " `replicas`, and run the same command again: finished takes are safe"
            )
        self._note(f"replica {index + 1}{where} died and is replaced; its takes are played again")
        self._said, self._since = "", time.monotonic()
        self._ray.kill(actor.handle)
        self._cluster.forget_copies()
        self._actors[index] = _Actor(self._start(), deaths=deaths)
        return self._actors[index]

    def _say_who_is_there(self) -> None:
        """Note where the replicas are, when all have joined or should have."""
        joined, all_of_them = [actor.joined for actor in self._actors if actor.joined], len(self._actors)
        if not joined or (len(joined) < all_of_them and time.monotonic() < self._since + _LONG):
            return
        count = _counted(all_of_them, "replica")
        if len(joined) < all_of_them:
            count = f"{len(joined)} of {count}"
        nodes = _counted(len({each.node for each in joined}), "node")
        text = f"{count} on {nodes}, {_counted(sum(each.workers for each in joined), 'worker')}"
        if text != self._said:
            self._note(text)
        self._said = text


def hand_out(queue: Queue, own: dict[TakeKey, Job], takes: int, everyone: Sequence[Mapping[TakeKey, Job]]) -> list[Job]:
    """The jobs that a replica gets now, noted in ``own``: those that it has. ``everyone`` are all that have joined.

    It has as many as it can play at once (``takes``) and a few in reserve, so that it never waits for the next; but no
    more than its part of all that is left, so that replicas finish together.
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
    """The user's modules that ``python:`` URIs name: a file or a package each; those that are installed are not."""
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
