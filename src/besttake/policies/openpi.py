"""``openpi:ws://host:port``: a policy behind openpi's websocket policy server.

The server greets with a metadata frame, answers each observation with ``{"actions": (horizon, action_dim)}``, and
reports errors as text frames. Its wire carries no noise.
"""

from __future__ import annotations

from typing import Any, ClassVar

from besttake.errors import ComponentError
from besttake.policies.remote import Connection, RemotePolicy, RemoteSettings, Shape, settings
from besttake.policies.remote_wire import last_line, pack_openpi, unpack_openpi
from besttake.takes.draws import Draw
from besttake.types import F32, Observation


def make(rest: str, *, prompt: str = "prompt", **options: Any) -> OpenpiPolicy:
    """Build from ``ws://host:port``; the options are documented in docs/policies.md."""
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
        """The metadata frame."""
        frame = connection.receive()
        if isinstance(frame, str):
            raise ComponentError(f"{connection.url}: expected openpi's metadata frame, got text: {last_line(frame)}")
        return unpack_openpi(frame)

    def ask(self, connection: Connection, *, seen: Observation, draw: Draw, shape: Shape) -> F32:
        """One observation, one whole chunk."""
        request = {**self.pictures(seen), self.options.state_key: seen.state, self._prompt: seen.instruction}
        connection.send(pack_openpi(request))
        frame = connection.receive()
        if isinstance(frame, str):
            raise ComponentError(f"{self.uri}: the server failed: {last_line(frame)}")
        return self.chunk(unpack_openpi(frame), *shape)
