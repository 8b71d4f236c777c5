"""What the policies behind a server share: connections, options as text, observations as dicts, answers checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.policies.link import Link
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Array, Observation, PolicySpec, Warm

REMOTE_NOTES = (
    "a server: its wire carries no noise, so seeds are out of our hands and two runs differ",
    "no warm start and no cooling: the arms cooled, shuffled and retrieve cannot be measured through it",
)


@dataclass(frozen=True)
class Settings:
    """How a server is talked to; docs/policies.md has the meaning of each. ``images``: wire key -> env camera."""

    state_key: str
    timeout: float
    images: Mapping[str, str] | None = None
    state_dim: int = 8
    horizon: int | None = None
    replan: int | None = None
    connections: int = 1
    token: str | None = None


def settings(uri: str, state: str, timeout: str | float, options: Mapping[str, Any]) -> Settings:
    """The options of ``uri``, checked: the protocol's own defaults, and the ``options`` that all protocols share."""
    read = Reader(uri)
    read.only(options, ("map", "state_dim", "horizon", "replan", "connections", "token"))
    return Settings(
        state_key=state,
        timeout=read.number("timeout", timeout, least=0.001),
        images=read.mapping("map", options["map"]) if "map" in options else None,
        state_dim=read.whole("state_dim", options.get("state_dim", 8), least=0),
        horizon=read.optional_whole("horizon", options.get("horizon")),
        replan=read.optional_whole("replan", options.get("replan")),
        connections=read.whole("connections", options.get("connections", 1)),
        token=options.get("token"),
    )


@dataclass(frozen=True)
class Told:
    """What a `besttake serve` says of its policy in its greeting. Other servers say nothing."""

    horizon: int
    action_dim: int
    replan: int
    cameras: tuple[str, ...]


class ServerPolicy(ABC):
    """A policy behind a websocket. A protocol says how to greet, how to ask, and which pictures a server wants."""

    def __init__(self, uri: str, url: str, options: Settings) -> None:
        self.uri, self.options = uri, options
        self._links = [Link(url, self.greet, options.timeout, options.token) for _ in range(options.connections)]
        told = self._links[0].call(lambda link: told_by(link.greeting))
        self.images: Mapping[str, str] = self.images_of(told) if options.images is None else options.images
        cameras = tuple(self.images.values())
        if told is not None:
            shape = (options.horizon or self.horizon_of(told), told.action_dim)
            replan = options.replan or min(told.replan, shape[0])
        else:
            # No greeting gives the shape of a chunk; one blank request does, and warms the server up.
            seen, draw = blank(cameras, options.state_dim), Draw(0, "probe", 0, 0)
            probe = self._links[0].call(partial(self.ask, seen=seen, draw=draw, shape=(None, None)))
            shape, replan = (options.horizon or len(probe), probe.shape[1]), options.replan or 0
        self._spec = remote_spec(uri, shape, replan, cameras)

    @abstractmethod
    def greet(self, link: Link) -> dict[str, Any]:
        """What the server says of itself when a connection opens."""

    @abstractmethod
    def ask(self, link: Link, *, seen: Observation, draw: Draw, shape: tuple[int | None, int | None]) -> F32:
        """One chunk of ``shape`` (horizon, action_dim), checked; None accepts what comes."""

    @abstractmethod
    def images_of(self, told: Told | None) -> Mapping[str, str]:
        """Wire key -> env camera, where the user does not say."""

    @abstractmethod
    def horizon_of(self, told: Told) -> int:
        """How many actions of a chunk a `besttake serve` gives for one observation."""

    @property
    def spec(self) -> PolicySpec:
        """Unseeded, without warm start: the wire carries no noise."""
        return self._spec

    @property
    def server(self) -> dict[str, Any]:
        """What the server said of itself."""
        return dict(self._links[0].greeting or {})

    def sample(
        self,
        observations: Sequence[Observation],
        draws: Sequence[Draw],
        warm: Sequence[Warm | None] | None = None,
    ) -> F32:
        """One chunk per row; the draws cannot reach the server's noise."""
        refuse_warm(self._spec, warm)
        rows = list(zip(observations, draws, strict=True))
        shape = (self._spec.horizon, self._spec.action_dim)
        out = np.empty((len(rows), *shape), np.float32)

        def fill(first: int, link: Link) -> None:
            for row in range(first, len(rows), len(self._links)):
                seen, draw = rows[row]
                out[row] = link.call(partial(self.ask, seen=seen, draw=draw, shape=shape))

        if len(self._links) == 1:
            fill(0, self._links[0])
        else:
            with ThreadPoolExecutor(len(self._links)) as pool:
                list(pool.map(fill, range(len(self._links)), self._links))
        return out

    def close(self) -> None:
        """Close the connections."""
        for link in self._links:
            link.close()

    def pictures(self, seen: Observation) -> dict[str, U8]:
        """The images that the server wants, under its own keys."""
        return {key: picture(seen, camera, self.uri) for key, camera in self.images.items()}

    def actions_in(self, answer: Mapping[Any, Any]) -> Any:
        """The actions of an answer, or an error that lists what it has instead."""
        if "actions" not in answer:
            raise ComponentError(f"{self.uri}: answered without actions; it has: {', '.join(map(str, answer))}")
        return answer["actions"]


def told_by(greeting: Any) -> Told | None:
    """Read the ``besttake`` entry of a greeting, if there is one."""
    entry = greeting.get("besttake") if isinstance(greeting, dict) else None
    if not isinstance(entry, dict):
        return None
    try:
        return Told(int(entry["horizon"]), int(entry["action_dim"]), int(entry["replan"]), tuple(entry["cameras"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ComponentError(f"the server's description of its policy is damaged: {error}") from None


def picture(observation: Observation, camera: str, who: str) -> U8:
    """The image of ``camera``, or an error that lists what is there."""
    try:
        return observation.images[camera]
    except KeyError:
        have = ", ".join(observation.images) or "none"
        raise ComponentError(f"{who} needs camera {camera!r}; the env gave: {have}; see its map option") from None


def blank(cameras: Sequence[str], state_dim: int, size: int = 224) -> Observation:
    """An all-zero observation, to learn the shape of a server's answer."""
    black = np.zeros((size, size, 3), np.uint8)
    return Observation(dict.fromkeys(cameras, black), np.zeros(state_dim, np.float32), "do nothing")


def refuse_warm(spec: PolicySpec, warm: Sequence[Warm | None] | None) -> None:
    """Servers carry no noise, so every warm row is an error rather than a silent base sample."""
    if warm is not None and any(row is not None for row in warm):
        raise ComponentError(f"{spec.name}: a server cannot be warm-started or cooled; use the arm base")


def chunk_of(actions: Any, who: str, horizon: int | None, action_dim: int | None) -> F32:
    """A server's ``actions`` as float32 (horizon, action_dim), checked; None accepts what comes."""
    array: Array = np.asarray(actions)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise ComponentError(f"{who}: answered actions of {array.dtype} {array.shape}; expected (horizon, action_dim)")
    chunk = np.atleast_2d(array).astype(np.float32)
    if action_dim is not None and chunk.shape[1] != action_dim:
        raise ComponentError(f"{who}: answered {chunk.shape[1]} action dimensions where {action_dim} were agreed")
    if horizon is not None and len(chunk) < horizon:
        raise ComponentError(f"{who}: answered {len(chunk)} actions where {horizon} were agreed; lower ?horizon=")
    if not np.isfinite(chunk).all():
        raise ComponentError(f"{who}: answered actions that are not finite (NaN or Inf)")
    return chunk if horizon is None else chunk[:horizon]


def remote_spec(name: str, chunk: tuple[int, int], replan: int, cameras: Sequence[str]) -> PolicySpec:
    """The spec of a policy behind a server, for chunks of shape ``(horizon, action_dim)``; ``replan=0``: all of it."""
    horizon, action_dim = chunk
    steps = replan or horizon
    if steps > horizon:
        raise ComponentError(f"{name}: replan={steps} is more than the {horizon} actions of a chunk")
    return PolicySpec(
        name=name,
        kind="flow",
        horizon=horizon,
        action_dim=action_dim,
        replan=steps,
        cameras=tuple(cameras),
        seeded=False,
        fingerprint=f"{name}/h{horizon}/a{action_dim}/r{steps}",
        notes=REMOTE_NOTES,
    )


def last_line(report: Any) -> str:
    """The line of a traceback or error report that says what happened."""
    lines = [line.strip() for line in str(report).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
