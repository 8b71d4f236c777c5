"""Replicas as Ray actors: the same messages and news as those of processes, so the same takes, on one machine or many.

An actor is a policy with its simulators beside it, as processes of its own on the same node: only takes travel. Nodes
need not share a file system: a library that a node lacks is sent there, and modules of the user's that ``python:``
names go along with the job.
"""

from __future__ import annotations

import hashlib
import os
import platform
import queue
import shutil
import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from besttake.errors import ComponentError, MissingExtra
from besttake.files import cache_dir, leads_out
from besttake.registry import Uri
from besttake.takes import devices
from besttake.takes.pool import LocalPool
from besttake.takes.replica import Broken, Course, Message, News, Replica
from besttake.takes.sizes import Layout, laid_out
from besttake.threads import one_thread

_WAIT = 2.0
"""Seconds that an actor waits for news before it says that there are none."""
_ENDS_WITHIN = 10.0
_GROUPS = {"in": 1, "out": 1}
"""Threads of an actor: one obeys, one tells."""
HEAD = "library.json"
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Parcel:
    """A directory as Ray objects: ``files`` by their path in it, known as a whole by ``name``."""

    name: str
    files: dict[str, Any]

    @classmethod
    def of(cls, directory: Path, put: Callable[[bytes], Any]) -> Parcel:
        """All files of ``directory``, but for links that lead out of it."""
        whole, files = hashlib.sha256(), {}
        own = (path for path in directory.rglob("*") if path.name != ".lock" and not leads_out(directory, path))
        for path in sorted(path for path in own if path.is_file()):
            data, name = path.read_bytes(), path.relative_to(directory).as_posix()
            whole.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
            files[name] = put(data)
        return cls(whole.hexdigest()[:24], files)

    def here(self, place: Path, get: Callable[[Any], bytes], home: Path) -> Path:
        """``place``, if this node has the same library there, else a copy under ``home``."""
        head = self.files.get(HEAD)
        if head is not None and (place / HEAD).is_file() and (place / HEAD).read_bytes() == get(head):
            return place
        return self.unpacked(get, home)

    def unpacked(self, get: Callable[[Any], bytes], home: Path) -> Path:
        """The directory with the same files under ``home``, written unless it is there."""
        place = home / self.name
        if not place.is_dir():
            half = home / f"{self.name}.{uuid.uuid4().hex}.tmp"
            for name, reference in self.files.items():
                (half / name).parent.mkdir(parents=True, exist_ok=True)
                (half / name).write_bytes(get(reference))
            with suppress(OSError):  # another replica of this node was faster
                half.rename(place)
            shutil.rmtree(half, ignore_errors=True)
        return place


class Cluster:
    """The Ray cluster that RAY_ADDRESS names, else Ray on this machine. ``modules`` go along to every node."""

    def __init__(self, modules: Sequence[Path] = ()) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("ray", "ray", "`on` ray") from error
        self.ray: Any = ray
        self._started = not ray.is_initialized()
        self._parcels: dict[str, Parcel] = {}
        if self._started:
            along = {"runtime_env": {"py_modules": [str(path) for path in modules]}} if modules else {}
            try:
                ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False, **along)
            except Exception as error:
                raise ComponentError(f"Ray did not start ({error}); check RAY_ADDRESS, or set `on` to local") from error

    def layout(self, replicas: int | None, workers: int | None, gpus: float | None) -> Layout:
        """How many replicas, with how many workers and GPUs each; what is None is chosen from what the cluster has."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return laid_out(nodes, replicas, workers, gpus)

    def parcel(self, directory: str) -> Parcel:
        """A directory, put into Ray once."""
        if directory not in self._parcels:
            self._parcels[directory] = Parcel.of(Path(directory), self.ray.put)
        return self._parcels[directory]

    def forget(self) -> None:
        """Put directories into Ray anew when they are sent next: an object was lost."""
        self._parcels.clear()

    def close(self) -> None:
        """End Ray if it was started here."""
        if self._started:
            self.ray.shutdown()


class RayMember:
    """A replica as an actor with ``gpus`` GPUs and a core for each of its ``workers``."""

    def __init__(
        self, cluster: Cluster, workers: int, gpus: float, patience: float | None, tell: Callable[[News], None]
    ) -> None:
        self._cluster, self._tell, self._closed = cluster, tell, False
        self._sent: deque[Any] = deque()
        actor = cluster.ray.remote(max_restarts=0, concurrency_groups=_GROUPS)(RayReplica)
        options = actor.options(num_cpus=workers, num_gpus=gpus, scheduling_strategy="SPREAD")
        threads = os.environ.get(_THREADS, str(os.cpu_count() or 1))
        self._actor = options.remote(workers, patience, threads)
        self._listener = threading.Thread(target=self._listen, name="replica", daemon=True)
        self._listener.start()

    def send(self, message: Message) -> None:
        """Send a message, with the library that it names; a dead replica is noticed by its silence."""
        parcel = None
        if isinstance(message, Course) and message.recipe.library is not None:
            parcel = self._cluster.parcel(message.recipe.library)
        self._sent.append(self._actor.obey.options(concurrency_group="in").remote(message, parcel))

    def close(self) -> None:
        """End the actor, and whoever waits for its news: who asks Ray after its end starts it anew."""
        self._closed = True
        self._cluster.ray.kill(self._actor)
        self._listener.join(_ENDS_WITHIN)

    def _listen(self) -> None:
        """Hand on what the actor tells. An actor, its node, or what it made can be lost: then it has died."""
        while not self._closed:
            try:
                told = self._cluster.ray.get(self._actor.news.options(concurrency_group="out").remote())
            except Exception:
                if not self._closed:
                    self._tell(None)
                return
            for news in told:
                self._tell(news)
            if self._lost():
                self._cluster.forget()
                self._tell(None)
                return

    def _lost(self) -> bool:
        """Whether a part of a message was lost on its way to the actor, which then goes on without it.

        What the actor could not even read, such as a module that its node lacks, is news.
        """
        ray = self._cluster.ray
        while self._sent and ray.wait([self._sent[0]], timeout=0)[0]:
            try:
                ray.get(self._sent.popleft())
            except ray.exceptions.RayActorError:
                return False  # it died, as the next question will show
            except Exception as error:
                cause = getattr(error, "cause", None) or error
                if isinstance(cause, ray.exceptions.ObjectLostError):
                    return True
                self._tell(Broken(f"on Ray: {str(cause).strip().splitlines()[-1][:300]}"))
        return False


class RayReplica:
    """The actor."""

    def __init__(self, workers: int, patience: float | None, threads: str) -> None:
        # Ray sets it to the actor's cores; sums over another number of threads may differ in the last bit.
        os.environ[_THREADS] = threads
        for gpu in devices.gpus()[:1]:  # those that Ray gave to this actor
            os.environ.update(devices.drawing(gpu))
        one_thread().__enter__()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        import ray

        node = f"{platform.node()} ({ray.get_runtime_context().get_node_id()[:6]})"
        self._replica = Replica(LocalPool(workers, patience), self._news.put, node)

    def obey(self, message: Message, parcel: Parcel | None) -> None:
        """Do as told; a course gets the library of this node."""
        if isinstance(message, Course) and parcel is not None and message.recipe.library is not None:
            import ray

            place = parcel.here(Path(message.recipe.library), ray.get, cache_dir() / "libraries")
            recipe: Any = message.recipe
            message = replace(message, recipe=replace(recipe, library=str(place)))
        self._replica.obey(message)

    def news(self) -> list[News]:
        """What there is to tell; waits for something a little while."""
        told: list[News] = []
        with suppress(queue.Empty):
            told.append(self._news.get(timeout=_WAIT))
            while True:
                told.append(self._news.get_nowait())
        return told


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
