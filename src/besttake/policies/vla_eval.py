"""``vla-eval:ws://host:port``: a policy behind a vla-eval model server.

The server may hold a chunk back and hand it out one action per observation. Rows must not depend on history, so
each sample starts an episode of its own (which empties that buffer) and asks ``horizon`` times with the same
observation: a server that buffers then gives the rest of its chunk without another inference, and one that answers
with whole chunks is asked once.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from besttake.errors import ComponentError
from besttake.policies.remote import Connection, RemotePolicy, Shape, settings
from besttake.policies.remote_wire import VLA_EVAL_VERSION, Message, last_line, pack_message, unpack_message
from besttake.takes.draws import Draw
from besttake.types import F32, Observation


def make(rest: str, **options: Any) -> VlaEvalPolicy:
    """Build from ``ws://host:port``; the options are documented in docs/policies.md."""
    return VlaEvalPolicy(rest, settings(f"vla-eval:{rest}", options, state="states", timeout=60))


class VlaEvalPolicy(RemotePolicy):
    """A policy behind a vla-eval model server; a draw only names the episode to it."""

    scheme = "vla-eval"
    default_images: ClassVar = {"agentview": "agentview"}

    def greet(self, connection: Connection) -> dict[str, Any]:
        """The server's hello."""
        hello = {"harness_version": "besttake", "protocol_version": VLA_EVAL_VERSION}
        connection.send(pack_message(Message("hello", hello)))
        reply = _answer(connection, 0, kind="hello")
        version = reply.get("protocol_version")
        if version != VLA_EVAL_VERSION:
            raise ComponentError(
                f"{connection.url}: speaks vla-eval protocol {version}, this is {VLA_EVAL_VERSION}; update one"
            )
        return reply

    def ask(self, connection: Connection, *, seen: Observation, draw: Draw, shape: Shape) -> F32:
        """An episode: as many observations as it takes to get the actions of a chunk."""
        horizon, action_dim = shape
        payload = {"images": self.pictures(seen), "task_description": seen.instruction}
        payload[self.options.state_key] = seen.state
        task = {"name": seen.instruction or draw.task, "episode_idx": draw.start}
        connection.send(pack_message(Message("episode_start", {"task": task})))
        parts: list[F32] = []
        while not parts or sum(map(len, parts)) < (horizon or 1):
            connection.send(pack_message(Message("observation", payload, len(parts) + 1)))
            parts.append(self.chunk(_answer(connection, len(parts) + 1), None, action_dim))
        connection.send(pack_message(Message("episode_end", {})))
        return np.concatenate(parts)[:horizon]


def _answer(connection: Connection, seq: int, kind: str = "action") -> dict[str, Any]:
    reply = unpack_message(connection.receive())
    if reply.type == "error":
        reason = last_line(reply.payload.get("error", reply.payload))
        raise ComponentError(f"{connection.url}: the server failed: {reason}")
    if reply.type != kind or reply.seq != seq:
        raise ComponentError(f"{connection.url}: expected {kind} {seq}, got {reply.type} {reply.seq}")
    return dict(reply.payload)
