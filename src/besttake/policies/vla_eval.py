"""``vla-eval:ws://host:port``: a policy behind a vla-eval model server.

The server may hold a chunk back and hand it out one action per observation. Rows must not depend on history, so
each sample starts an episode of its own (which empties that buffer) and asks ``horizon`` times with the same
observation: a server that buffers then gives the rest of its chunk without another inference, and one that answers
with whole chunks is asked once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from besttake.errors import ComponentError
from besttake.policies.link import Link
from besttake.policies.remote import (
    blank,
    chunk_of,
    last_line,
    parse_map,
    parse_number,
    picture,
    refuse_warm,
    remote_spec,
    told_by,
)
from besttake.policies.wire import VLA_EVAL_VERSION, Message, pack_message, unpack_message
from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Warm


def make(
    rest: str,
    *,
    map: str | None = None,
    state: str = "states",
    state_dim: str | int = 8,
    horizon: str | int | None = None,
    replan: str | int | None = None,
    timeout: str | float = 60,
    connections: str | int = 1,
    token: str | None = None,
) -> VlaEvalPolicy:
    """Build from ``ws://host:port``; the options are documented in docs/policies.md."""
    return VlaEvalPolicy(
        rest,
        images=None if map is None else parse_map(map, "map"),
        state_key=state,
        state_dim=int(parse_number(state_dim, "state_dim", 0)),
        horizon=None if horizon is None else int(parse_number(horizon, "horizon")),
        replan=None if replan is None else int(parse_number(replan, "replan")),
        timeout=parse_number(timeout, "timeout", 0.001),
        connections=int(parse_number(connections, "connections")),
        token=token,
    )


class VlaEvalPolicy:
    """A policy behind a vla-eval model server; ``images`` maps the server's camera keys to the env's cameras."""

    def __init__(
        self,
        url: str,
        *,
        images: dict[str, str] | None = None,
        state_key: str = "states",
        state_dim: int = 8,
        horizon: int | None = None,
        replan: int | None = None,
        timeout: float = 60.0,
        connections: int = 1,
        token: str | None = None,
    ) -> None:
        self._url = f"vla-eval:{url}"
        self._state_key = state_key
        self._links = [Link(url, _hello, timeout, token) for _ in range(connections)]
        told = self._links[0].call(lambda link: told_by(link.greeting))
        known = told.images if told.known else {"agentview": "agentview"}
        self._images = known if images is None else images
        cameras = tuple(self._images.values())
        if told.known:
            shape = (horizon or told.horizon, told.action_dim)
            self._spec = remote_spec(self._url, shape, replan or min(told.replan, shape[0]), cameras)
            return
        ask = partial(
            self._ask, observation=blank(cameras, state_dim), draw=Draw(0, "probe", 0, 0), count=None, dim=None
        )
        probe = self._links[0].call(ask)
        self._spec = remote_spec(self._url, (horizon or len(probe), probe.shape[1]), replan, cameras)

    @property
    def spec(self) -> PolicySpec:
        """Unseeded, without warm start: the wire carries no noise."""
        return self._spec

    @property
    def server(self) -> dict[str, Any]:
        """What the server says of itself in its hello."""
        return dict(self._links[0].greeting or {})

    def sample(
        self,
        observations: Sequence[Observation],
        draws: Sequence[Draw],
        warm: Sequence[Warm | None] | None = None,
    ) -> F32:
        """One chunk per row; ``draws`` only name the episode to the server."""
        refuse_warm(self._spec, warm)
        rows = list(zip(observations, draws, strict=True))
        shares = [range(n, len(rows), len(self._links)) for n in range(len(self._links))]
        out = np.empty((len(rows), self._spec.horizon, self._spec.action_dim), np.float32)

        def serve_share(link: Link, share: range) -> None:
            for row in share:
                seen, draw = rows[row]
                ask = partial(
                    self._ask, observation=seen, draw=draw, count=self._spec.horizon, dim=self._spec.action_dim
                )
                out[row] = link.call(ask)

        if len(self._links) == 1:
            serve_share(self._links[0], shares[0])
        else:
            with ThreadPoolExecutor(len(self._links)) as pool:
                list(pool.map(serve_share, self._links, shares))
        return out

    def close(self) -> None:
        """Close the connections."""
        for link in self._links:
            link.close()

    def _ask(self, link: Link, *, observation: Observation, draw: Draw, count: int | None, dim: int | None) -> F32:
        """``count`` actions, or as many as one answer holds."""
        payload = {
            "images": {key: picture(observation, camera, self._url) for key, camera in self._images.items()},
            "task_description": observation.instruction,
            self._state_key: observation.state,
        }
        task = {"name": observation.instruction or draw.task, "episode_idx": draw.start}
        link.send(pack_message(Message("episode_start", {"task": task})))
        parts: list[F32] = []
        while not parts or sum(map(len, parts)) < (count or 1):
            link.send(pack_message(Message("observation", payload, len(parts) + 1)))
            answer = _answer(link, len(parts) + 1)
            if "actions" not in answer:
                raise ComponentError(f"{self._url}: answered without actions; it has: {', '.join(map(str, answer))}")
            parts.append(chunk_of(answer["actions"], self._url, None, dim))
        link.send(pack_message(Message("episode_end", {})))
        return np.concatenate(parts)[:count]


def _hello(link: Link) -> dict[str, Any]:
    link.send(pack_message(Message("hello", {"harness_version": "besttake", "protocol_version": VLA_EVAL_VERSION})))
    reply = _answer(link, 0, kind="hello")
    version = reply.get("protocol_version")
    if version != VLA_EVAL_VERSION:
        raise ComponentError(f"{link.url}: speaks vla-eval protocol {version}, this is {VLA_EVAL_VERSION}; update one")
    return reply


def _answer(link: Link, seq: int, kind: str = "action") -> dict[str, Any]:
    reply = unpack_message(link.receive())
    if reply.type == "error":
        raise ComponentError(f"{link.url}: the server failed: {last_line(reply.payload.get('error', reply.payload))}")
    if reply.type != kind or reply.seq != seq:
        raise ComponentError(f"{link.url}: expected {kind} {seq}, got {reply.type} {reply.seq}")
    return dict(reply.payload)
