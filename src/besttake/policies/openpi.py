"""``openpi:ws://host:port``: a policy behind openpi's websocket policy server.

The server greets with a metadata frame, answers each observation with ``{"actions": (horizon, action_dim)}``, and
reports errors as text frames. Its wire carries no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from besttake.policies.wire import pack_openpi, unpack_openpi
from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Warm

LIBERO_IMAGES = {"observation/image": "agentview", "observation/wrist_image": "wrist"}


def make(
    rest: str,
    *,
    map: str | None = None,
    state: str = "observation/state",
    prompt: str = "prompt",
    state_dim: str | int = 8,
    horizon: str | int | None = None,
    replan: str | int | None = None,
    timeout: str | float = 120,
    token: str | None = None,
) -> OpenpiPolicy:
    """Build from ``ws://host:port``; the options are documented in docs/policies.md."""
    return OpenpiPolicy(
        rest,
        images=None if map is None else parse_map(map, "map"),
        state_key=state,
        prompt_key=prompt,
        state_dim=int(parse_number(state_dim, "state_dim", 0)),
        horizon=None if horizon is None else int(parse_number(horizon, "horizon")),
        replan=None if replan is None else int(parse_number(replan, "replan")),
        timeout=parse_number(timeout, "timeout", 0.001),
        token=token,
    )


class OpenpiPolicy:
    """A policy behind openpi's server; ``images`` maps the server's observation keys to the env's cameras."""

    def __init__(
        self,
        url: str,
        *,
        images: dict[str, str] | None = None,
        state_key: str = "observation/state",
        prompt_key: str = "prompt",
        state_dim: int = 8,
        horizon: int | None = None,
        replan: int | None = None,
        timeout: float = 120.0,
        token: str | None = None,
    ) -> None:
        self._url = f"openpi:{url}"
        self._keys = (state_key, prompt_key)
        self._link = Link(url, _metadata, timeout, token)
        told = self._link.call(lambda link: told_by(link.greeting))
        known = {f"observation/{camera}": camera for camera in told.cameras} if told.known else LIBERO_IMAGES
        self._images = known if images is None else images
        cameras = tuple(self._images.values())
        if told.known:
            shape = (horizon or told.horizon, told.action_dim)
            self._spec = remote_spec(self._url, shape, replan or min(told.replan, shape[0]), cameras)
            return
        # The metadata frame does not give the shape of a chunk; one blank request does, and warms the server up.
        probe = self._link.call(partial(self._ask, observation=blank(cameras, state_dim), shape=(None, None)))
        self._spec = remote_spec(self._url, (horizon or len(probe), probe.shape[1]), replan, cameras)

    @property
    def spec(self) -> PolicySpec:
        """Unseeded, without warm start: the wire carries no noise."""
        return self._spec

    @property
    def server(self) -> dict[str, Any]:
        """The server's metadata frame."""
        return dict(self._link.greeting or {})

    def sample(
        self,
        observations: Sequence[Observation],
        draws: Sequence[Draw],
        warm: Sequence[Warm | None] | None = None,
    ) -> F32:
        """One chunk per row, asked one after another; ``draws`` cannot reach the server."""
        refuse_warm(self._spec, warm)
        shape = (self._spec.horizon, self._spec.action_dim)
        out = np.empty((len(observations), *shape), np.float32)
        for row, seen in enumerate(observations):
            out[row] = self._link.call(partial(self._ask, observation=seen, shape=shape))
        return out

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _ask(self, link: Link, *, observation: Observation, shape: tuple[int | None, int | None]) -> F32:
        state_key, prompt_key = self._keys
        request: dict[str, Any] = {key: picture(observation, camera, self._url) for key, camera in self._images.items()}
        link.send(pack_openpi({**request, state_key: observation.state, prompt_key: observation.instruction}))
        frame = link.receive()
        if isinstance(frame, str):
            raise ComponentError(f"{self._url}: the server failed: {last_line(frame)}")
        answer = unpack_openpi(frame)
        if "actions" not in answer:
            raise ComponentError(f"{self._url}: answered without actions; it has: {', '.join(map(str, answer))}")
        return chunk_of(answer["actions"], self._url, *shape)


def _metadata(link: Link) -> dict[str, Any]:
    frame = link.receive()
    if isinstance(frame, str):
        raise ComponentError(f"{link.url}: expected openpi's metadata frame, got text: {last_line(frame)}")
    return unpack_openpi(frame)
