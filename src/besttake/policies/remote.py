"""Policies behind a websocket server: ``openpi:ws://host:port`` and ``vla-eval:ws://host:port``.

`RemotePolicy` is their common base, `Connection` is one websocket with its timeouts, and `remote_wire` converts
messages to bytes and back.

An openpi server greets with a metadata frame, answers each observation with ``{"actions": (horizon, action_dim)}``, and
reports errors as text frames. Its protocol carries no noise.

A vla-eval server may buffer a chunk and return one action per observation. Rows must not depend on history, so each
sample starts a new episode, which empties the buffer, and sends the same observation until it has ``horizon`` actions.
A server with a buffer then returns the rest of its chunk without another inference; one that returns whole chunks is
asked once.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import numpy as np

from besttake.errors import ComponentError, need, one_line
from besttake.options import Reader
from besttake.policies.remote_wire import (
    MOST_BYTES,
    VLA_EVAL_VERSION,
    Message,
    last_line,
    pack_message,
    pack_openpi,
    unpack_message,
    unpack_openpi,
)
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Observation, PolicySpec, Warms

NOTES = (
    "a server: its protocol carries no noise, so seeds have no effect and two runs differ",
    "no warm start and no cooling: the arms cooled, shuffled and retrieve cannot be measured through it",
)
_OPTIONS = ("map", "state_dim", "horizon", "replan", "connections", "token", "state", "timeout")

T = TypeVar("T")
Shape = tuple[int | None, int | None]
"""(horizon, action_dim) of a chunk; None accepts any number."""


@dataclass(frozen=True)
class RemoteSettings:
    """How to talk to a server (see docs/policies.md). ``images`` maps the server's keys to env cameras."""

    state_key: str
    timeout: float
    images: Mapping[str, str] | None
    state_dim: int
    horizon: int | None
    replan: int | None
    connections: int | None
    token: str | None


def settings(uri: str, options: Mapping[str, Any], state: str, timeout: float) -> RemoteSettings:
    """Check the ``options`` of ``uri``; ``state`` and ``timeout`` are the defaults of the protocol."""
    read = Reader(uri)
    read.only(options, _OPTIONS)
    return RemoteSettings(
        state_key=options.get("state", state),
        timeout=read.number("timeout", options.get("timeout", timeout), least=0.001),
        images=read.mapping("map", options["map"]) if "map" in options else None,
        state_dim=read.whole("state_dim", options.get("state_dim", 8), least=0),
        horizon=read.optional_whole("horizon", options.get("horizon")),
        replan=read.optional_whole("replan", options.get("replan")),
        connections=read.optional_whole("connections", options.get("connections")),
        token=options.get("token"),
    )


_MOST_CONNECTIONS = 16
"""The most connections to a server that samples several clients at once, unless the option ``connections`` is given."""
_MOST_ACTIONS = 10_000
"""The most steps of a chunk, and numbers of an action, that are accepted from a server."""


@dataclass(frozen=True)
class Greeting:
    """What `besttake serve` says about its policy in its greeting; other servers say nothing."""

    horizon: int
    action_dim: int
    replan: int
    cameras: tuple[str, ...]
    at_once: int = 1

    @classmethod
    def read(cls, greeting: Any) -> Greeting | None:
        """The ``besttake`` entry of a greeting, if there is one."""
        entry = greeting.get("besttake") if isinstance(greeting, dict) else None
        if not isinstance(entry, dict):
            return None
        try:
            sizes = [int(entry[name]) for name in ("horizon", "action_dim", "replan")]
            cameras = tuple(map(str, entry["cameras"]))
            at_once = int(entry.get("at_once", 1))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ComponentError(f"the server's description of its policy is damaged: {one_line(error)}") from None
        if not all(1 <= size <= _MOST_ACTIONS for size in sizes):
            raise ComponentError(f"the server's policy has chunks of {sizes[0]} x {sizes[1]}, which no policy has")
        return cls(sizes[0], sizes[1], sizes[2], cameras, min(max(at_once, 1), _MOST_CONNECTIONS))


class RemotePolicy(ABC):
    """A policy behind a websocket. A subclass implements a protocol: how to greet, and how to ask for a chunk.

    ``default_images`` maps the server's keys to env cameras if neither the user nor the server does; `besttake serve`
    names its cameras, whose keys begin with ``prefix``. With ``whole_chunks`` a server returns whole chunks, not
    ``replan`` actions.
    """

    scheme: ClassVar[str]
    default_images: ClassVar[Mapping[str, str]]
    prefix: ClassVar[str] = ""
    whole_chunks: ClassVar[bool] = False

    def __init__(self, url: str, options: RemoteSettings) -> None:
        self.uri, self.options = f"{self.scheme}:{url}", options
        connect = partial(Connection, url, self.greet, options.timeout, options.token)
        self._connections = [connect()]
        served = self._connections[0].call(lambda connection: Greeting.read(connection.greeting))
        count = options.connections or (1 if served is None else served.at_once)
        self._connections += [connect() for _ in range(count - 1)]
        self.images = self.default_images
        if served is not None:
            self.images = {f"{self.prefix}{camera}": camera for camera in served.cameras}
        if options.images is not None:
            self.images = options.images
        if served is not None:
            horizon = options.horizon or (served.horizon if self.whole_chunks else served.replan)
            action_dim, replan = served.action_dim, options.replan or min(served.replan, horizon)
        else:
            # A request with a blank observation shows the shape of a chunk, and warms the server up.
            seen, draw = blank(tuple(self.images.values()), options.state_dim), Draw(0, "probe", 0, 0)
            probe = self._connections[0].call(partial(self.ask, seen=seen, draw=draw, shape=(None, None)))
            horizon, action_dim = options.horizon or len(probe), probe.shape[1]
            replan = options.replan or horizon
        if replan > horizon:
            raise ComponentError(f"{self.uri}: replan={replan} is more than the {horizon} actions of a chunk")
        fingerprint = f"{self.uri}/h{horizon}/a{action_dim}/r{replan}"
        cameras = tuple(self.images.values())
        self.spec = PolicySpec(
            self.uri, "flow", horizon, action_dim, replan, cameras, seeded=False, fingerprint=fingerprint, notes=NOTES
        )

    @abstractmethod
    def greet(self, connection: Connection) -> dict[str, Any]:
        """Exchange greetings on a new connection; return what the server says about itself."""

    @abstractmethod
    def ask(self, connection: Connection, *, seen: Observation, draw: Draw, shape: Shape) -> F32:
        """Ask for one chunk and check that it has ``shape``."""

    @property
    def server(self) -> dict[str, Any]:
        """What the server said about itself."""
        return dict(self._connections[0].greeting or {})

    def sample(self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """Sample one chunk per row; the draws have no effect on the server's noise."""
        if any(row is not None for row in warm or ()):
            raise ComponentError(f"{self.uri}: a server cannot be warm-started or cooled; use the arm base")
        rows = list(zip(observations, draws, strict=True))
        shape = (self.spec.horizon, self.spec.action_dim)
        out = np.empty((len(rows), *shape), np.float32)
        used = self._connections[: len(rows)]

        def fill(first: int, connection: Connection) -> None:
            for row in range(first, len(rows), len(used)):
                seen, draw = rows[row]
                out[row] = connection.call(partial(self.ask, seen=seen, draw=draw, shape=shape))

        if len(used) == 1:
            fill(0, used[0])
        elif used:
            with ThreadPoolExecutor(len(used)) as pool:
                list(pool.map(fill, range(len(used)), used))
        return out

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    def pictures(self, seen: Observation) -> dict[str, U8]:
        """The images for the server, under its own keys."""
        return {key: picture(seen, camera, self.uri) for key, camera in self.images.items()}

    def chunk(self, reply: Mapping[Any, Any], horizon: int | None, action_dim: int | None) -> F32:
        """The ``actions`` of a reply as float32 (horizon, action_dim), checked; None accepts any number."""
        if "actions" not in reply:
            raise ComponentError(f"{self.uri}: answered without actions; it has: {', '.join(map(str, reply))}")
        array = np.asarray(reply["actions"])
        if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
            raise self._wrong(f"actions of {array.dtype} {array.shape}; expected (horizon, action_dim)")
        if max(array.shape, default=0) > _MOST_ACTIONS or not array.size:
            raise self._wrong(f"actions of shape {array.shape}, which no policy has")
        chunk = np.atleast_2d(array).astype(np.float32)
        if action_dim is not None and chunk.shape[1] != action_dim:
            raise self._wrong(f"{chunk.shape[1]} action dimensions where {action_dim} were agreed")
        if horizon is not None and len(chunk) < horizon:
            raise self._wrong(f"{len(chunk)} actions where {horizon} were agreed; lower ?horizon=")
        if not np.isfinite(chunk).all():
            raise self._wrong("actions that are not finite (NaN or Inf)")
        return chunk[:horizon]

    def _wrong(self, answer: str) -> ComponentError:
        return ComponentError(f"{self.uri}: answered {answer}")


def picture(observation: Observation, camera: str, who: str) -> U8:
    """The image of ``camera``, or an error that lists the cameras there are."""
    if camera not in observation.images:
        have = ", ".join(observation.images) or "none"
        raise ComponentError(f"{who} needs camera {camera!r}; the env gave: {have}; see its map option")
    return observation.images[camera]


def blank(cameras: Sequence[str], state_dim: int, size: int = 224) -> Observation:
    """An all-zero observation, to learn the shape of a policy's answer."""
    black = np.zeros((size, size, 3), np.uint8)
    return Observation(dict.fromkeys(cameras, black), np.zeros(state_dim, np.float32), "do nothing")


class ConnectionLost(ComponentError):
    """The server cannot be reached, does not answer, or disconnected twice."""


class Connection:
    """A websocket that opens when it is first needed and reopens once when it breaks.

    ``greet(connection)`` runs after each opening; its result is kept as ``greeting``. Without ``token`` it is read from
    $BESTTAKE_TOKEN, which keeps it out of plans and runs.
    """

    def __init__(self, url: str, greet: Callable[[Connection], Any], timeout: float, token: str | None = None) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise ComponentError(f"{url!r} is not a websocket address: write ws://host:port")
        try:
            urlsplit(url).port  # noqa: B018
        except ValueError as error:
            raise ComponentError(f"{url!r} is not a websocket address ({error}): write ws://host:port") from None
        self.url, self.timeout, self._greet = url, timeout, greet
        self._token = token or os.environ.get("BESTTAKE_TOKEN")
        self.greeting: Any = None
        self._socket: Any = None

    def call(self, exchange: Callable[[Connection], T]) -> T:
        """Run ``exchange`` (sends and receives) and return its result; repeat it once if the socket breaks.

        A timeout is not retried: the server is slow, and asking again would only queue more work.
        """
        for attempt in (1, 2):
            try:
                self.open()
                return exchange(self)
            except TimeoutError:
                self.close()
                raise ConnectionLost(
                    f"{self.url}: no answer within {self.timeout:g} s; raise it with ?timeout="
                ) from None
            except OSError as error:
                self.close()
                if attempt == 2:
                    reason = error.strerror or str(error) or type(error).__name__
                    raise ConnectionLost(f"{self.url}: {reason}; is the server running?") from None
            except BaseException:
                # A late answer must not be mistaken for the next one.
                self.close()
                raise
        raise AssertionError("unreachable")

    def open(self) -> None:
        """Connect and greet, unless connected."""
        if self._socket is not None:
            return
        need("websockets", "talking to a model server", "serve")
        from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
        from websockets.sync.client import connect

        headers = {"Authorization": f"Bearer {self._token}"} if self._token else None
        # No pings: a server that compiles its model can be silent for longer than they allow.
        limits = {"open_timeout": self.timeout, "close_timeout": 1, "max_size": MOST_BYTES, "ping_interval": None}
        try:
            entered = connect(self.url, compression=None, additional_headers=headers, proxy=None, **limits)
            self._socket = entered.__enter__()  # newer versions warn about any other use
        except InvalidURI as error:
            raise ComponentError(f"{self.url!r} is not a websocket address: {error}") from None
        except InvalidStatus as error:
            status = error.response.status_code
            asks_for_token = status in (401, 403)
            hint = "give its token in $BESTTAKE_TOKEN or with ?token=" if asks_for_token else "is it a model server?"
            raise ConnectionLost(f"{self.url}: refused with HTTP {status}; {hint}") from None
        except InvalidHandshake as error:
            raise ConnectionLost(f"{self.url}: not a websocket server ({error})") from None
        self.greeting = self._greet(self)

    def send(self, frame: bytes) -> None:
        """Send one binary frame."""
        with _closing_as_connection_error():
            self._socket.send(frame)

    def receive(self) -> bytes | str:
        """The next frame; TimeoutError after ``timeout`` seconds."""
        with _closing_as_connection_error():
            frame: bytes | str = self._socket.recv(timeout=self.timeout)
            return frame

    def close(self) -> None:
        """Close the socket; the next call opens another."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()


@contextmanager
def _closing_as_connection_error() -> Iterator[None]:
    from websockets.exceptions import ConnectionClosed

    try:
        yield
    except ConnectionClosed as error:
        raise ConnectionError(f"the connection was closed ({error})") from None


def make_openpi(rest: str, *, prompt: str = "prompt", **options: Any) -> OpenpiPolicy:
    """Connect to ``ws://host:port``; docs/policies.md lists the options."""
    return OpenpiPolicy(rest, settings(f"openpi:{rest}", options, state="observation/state", timeout=120), prompt)


class OpenpiPolicy(RemotePolicy):
    """A policy behind openpi's server; the instruction goes under the key ``prompt``."""

    scheme = "openpi"
    default_images: ClassVar = {"observation/image": "agentview", "observation/wrist_image": "wrist"}
    prefix = "observation/"
    whole_chunks = True

    def __init__(self, url: str, options: RemoteSettings, prompt: str = "prompt") -> None:
        self._prompt = prompt
        super().__init__(url, options)

    def greet(self, connection: Connection) -> dict[str, Any]:
        """Receive the metadata frame."""
        frame = connection.receive()
        if isinstance(frame, str):
            raise ComponentError(f"{connection.url}: expected openpi's metadata frame, got text: {last_line(frame)}")
        return unpack_openpi(frame)

    def ask(self, connection: Connection, *, seen: Observation, draw: Draw, shape: Shape) -> F32:
        """Send one observation and receive one whole chunk."""
        request = {**self.pictures(seen), self.options.state_key: seen.state, self._prompt: seen.instruction}
        connection.send(pack_openpi(request))
        frame = connection.receive()
        if isinstance(frame, str):
            raise ComponentError(f"{self.uri}: the server failed: {last_line(frame)}")
        return self.chunk(unpack_openpi(frame), *shape)


def make_vla_eval(rest: str, **options: Any) -> VlaEvalPolicy:
    """Connect to ``ws://host:port``; docs/policies.md lists the options."""
    return VlaEvalPolicy(rest, settings(f"vla-eval:{rest}", options, state="states", timeout=60))


class VlaEvalPolicy(RemotePolicy):
    """A policy behind a vla-eval model server; a draw only names the episode to it."""

    scheme = "vla-eval"
    default_images: ClassVar = {"agentview": "agentview"}

    def greet(self, connection: Connection) -> dict[str, Any]:
        """Exchange hello messages."""
        hello = {"harness_version": "besttake", "protocol_version": VLA_EVAL_VERSION}
        connection.send(pack_message(Message("hello", hello)))
        reply = _vla_eval_answer(connection, 0, kind="hello")
        version = reply.get("protocol_version")
        if version != VLA_EVAL_VERSION:
            raise ComponentError(
                f"{connection.url}: speaks vla-eval protocol {version}, this is {VLA_EVAL_VERSION}; update one"
            )
        return reply

    def ask(self, connection: Connection, *, seen: Observation, draw: Draw, shape: Shape) -> F32:
        """Play an episode of as many observations as it takes to get the actions of a chunk."""
        horizon, action_dim = shape
        payload = {"images": self.pictures(seen), "task_description": seen.instruction}
        payload[self.options.state_key] = seen.state
        task = {"name": seen.instruction or draw.task, "episode_idx": draw.start}
        connection.send(pack_message(Message("episode_start", {"task": task})))
        parts: list[F32] = []
        while not parts or sum(map(len, parts)) < (horizon or 1):
            connection.send(pack_message(Message("observation", payload, len(parts) + 1)))
            parts.append(self.chunk(_vla_eval_answer(connection, len(parts) + 1), None, action_dim))
        connection.send(pack_message(Message("episode_end", {})))
        return np.concatenate(parts)[:horizon]


def _vla_eval_answer(connection: Connection, seq: int, kind: str = "action") -> dict[str, Any]:
    reply = unpack_message(connection.receive())
    if reply.type == "error":
        reason = last_line(reply.payload.get("error", reply.payload))
        raise ComponentError(f"{connection.url}: the server failed: {reason}")
    if reply.type != kind or reply.seq != seq:
        raise ComponentError(f"{connection.url}: expected {kind} {seq}, got {reply.type} {reply.seq}")
    return dict(reply.payload)
