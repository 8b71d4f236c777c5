"""What clients of `besttake serve` may use."""

from __future__ import annotations

from dataclasses import dataclass

from besttake.policies.remote_wire import MOST_BYTES


@dataclass(frozen=True)
class Limits:
    """What clients may use: bytes of one message, connections at once, and the web pages (``Origin``) that may connect.

    Programs send no ``Origin``; browsers always do, whatever page asked them to. ``"*"`` lets all pages in.
    ``batch``: requests that are sampled in one call; 1: one by one, None: as many as the policy takes at once.
    """

    max_bytes: int = MOST_BYTES
    max_sessions: int = 32
    origins: tuple[str, ...] = ()
    batch: int | None = None
