"""``openpi:ws://host:port``: a policy behind openpi's websocket policy server.

The server greets with a metadata frame, answers each observation with ``{"actions": (horizon, action_dim)}``, and
reports errors as text frames. Its wire carries no noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from besttake.errors import ComponentError
from besttake.policies.remote import RemotePolicy, RemoteSettings, ServedPolicy, last_line, settings
from besttake.policies.remote_connection import Connection
from besttake.policies.remote_wire import pack_openpi, unpack_openpi
from besttake.takes.draws import Draw
from besttake.types import F32, Observation

LIBERO_IMAGES = {"observation/image": "agentview", "observation/wrist_image": "wrist"}


def make(
    rest: str,
    *,
    state: str = "observation/state",
    prompt: str = "prompt",
    timeout: str | float = 120,
    **options: Any,
) -> OpenpiPolicy:
    """Build from ``ws://host:port``; the options are documented in docs/policies.md."""
    return OpenpiPolicy(rest, settings(f"openpi:{rest}", state, timeout, options), prompt)


class OpenpiPolicy(RemotePolicy):
    """A policy behind openpi's server; the instruction goes under the key ``prompt``."""

    def __init__(self, url: str, options: RemoteSettings, prompt: str = "prompt") -> None:
        self._prompt = prompt
        super().__init__(f"openpi:{url}", url, options)

    def greet(self, connection: Connection) -> dict[str, Any]:
        """The metadata frame."""
        frame = connection.receive()
        if isinstance(frame, str):
            raise ComponentError(f"{connection.url}: expected openpi's metadata frame, got text: {last_line(frame)}")
        return unpack_openpi(frame)

    def ask(
        self, connection: Connection, *, seen: Observation, draw: Draw, shape: tuple[int | None, int | None]
    ) -> F32:
        """One observation, one whole chunk."""
        request = {**self.pictures(seen), self.options.state_key: seen.state, self._prompt: seen.instruction}
        connection.send(pack_openpi(request))
        frame = connection.receive()
        if isinstance(frame, str):
            raise ComponentError(f"{self.uri}: the server failed: {last_line(frame)}")
        return self.chunk(unpack_openpi(frame), *shape)

    def default_images(self, served: ServedPolicy | None) -> Mapping[str, str]:
        """The keys of openpi's LIBERO policies, or the cameras that a `besttake serve` names."""
        return LIBERO_IMAGES if served is None else {f"observation/{camera}": camera for camera in served.cameras}

    def horizon_of(self, served: ServedPolicy) -> int:
        """The whole chunk."""
        return served.horizon
