"""The socket side of `besttake serve`: who may connect, how much they may send, and whether we are well."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

from besttake.door import is_loopback, listening, shows_token
from besttake.errors import ComponentError, MissingExtra
from besttake.policies.base import Policy
from besttake.serving.batches import Batches
from besttake.serving.limits import Limits
from besttake.serving.served import Served
from besttake.serving.sessions import SESSIONS

_HEALTH_PATHS = ("/health", "/healthz")
_CLOSING = 1.0
"""Seconds that a client has to say good-bye."""
_log = logging.getLogger(__name__)


def serve(
    policy: Policy,
    protocol: str = "vla-eval",
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    cameras: Mapping[str, str] | None = None,
) -> Server:
    """Serve ``policy`` in the background until the returned server is closed.

    ``port=0`` takes a free port. Hosts other than loopback need a ``token``, which clients send as
    ``Authorization: Bearer TOKEN`` (openpi's ``api_key`` works too) or as ``?token=TOKEN`` in the address.
    ``cameras`` maps the policy's cameras to the names that clients use.
    """
    if protocol not in SESSIONS:
        raise ComponentError(f"protocol {protocol!r} is unknown; known: {', '.join(SESSIONS)}")
    if not token and not is_loopback(host):
        raise ComponentError(f"`host` {host} opens the policy to other machines: give a `token`, or serve on 127.0.0.1")
    limits = limits or Limits()
    return Server(Served(policy, seed, cameras or {}, limits), protocol, (host, port), token, limits)


class Server:
    """A running server; a context manager that closes it."""

    def __init__(
        self, served: Served, protocol: str, address: tuple[str, int], token: str | None, limits: Limits
    ) -> None:
        try:
            from websockets.sync.server import serve as listen
        except ImportError:
            raise MissingExtra("websockets", "serve", "besttake serve") from None
        self._served, self._protocol, self._token, self._limits = served, protocol, token, limits
        self._connections = itertools.count()
        self._open: set[Any] = set()
        self._batches = Batches(served, served.at_once)
        self.host, port = address
        try:
            self._server = listen(
                self._talk, sock=_watched(listening(self.host, port, limits.max_sessions)),
                process_request=self._admit,
                compression=None, max_size=limits.max_bytes, max_queue=4, server_header="besttake", logger=_log,
                close_timeout=_CLOSING,
                ping_interval=None,  # a slow sample is not a dead peer
            )  # fmt: skip
        except OSError as error:
            self._batches.close()
            raise ComponentError(f"cannot serve on {self.host}:{port}: {error.strerror or error}") from None
        self.port = int(self._server.socket.getsockname()[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="besttake-serve", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where clients connect: ``ws://host:port``."""
        return f"ws://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def wait(self) -> None:
        """Block until the server is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop accepting, end the open sessions, and wait for the thread."""
        self._server.shutdown()
        self._batches.close()
        closing = [threading.Thread(target=client.close, daemon=True) for client in list(self._open)]
        for each in closing:
            each.start()
        end = time.monotonic() + _CLOSING + 1  # for all: those who never read would cost as much each
        for each in closing:
            each.join(max(0.0, end - time.monotonic()))
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self, connection: Any, request: Any) -> Any:
        try:
            address = urlsplit(request.path)
        except ValueError:
            return connection.respond(HTTPStatus.BAD_REQUEST, "besttake: not an address\n")
        origins = request.headers.get_all("Origin")
        if any(origin not in self._limits.origins for origin in origins) and "*" not in self._limits.origins:
            text = f"besttake: a web page ({origins[0][:200]}) may connect only where allow-origin names it\n"
            return connection.respond(HTTPStatus.FORBIDDEN, text)
        if address.path in _HEALTH_PATHS:
            body = {"status": "ok", "protocol": self._protocol, "policy": self._served.spec.name}
            response = connection.respond(HTTPStatus.OK, json.dumps(body) + "\n")
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        if self._token and not shows_token(self._token, request.headers.get("Authorization", ""), address.query):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "besttake: a token is needed\n")
        return None

    def _talk(self, client: Any) -> None:
        from websockets.exceptions import ConnectionClosed
        from websockets.protocol import State

        seat = self._batches.seat(lambda: client.state is State.OPEN)
        session = SESSIONS[self._protocol](self._served, next(self._connections), seat)
        self._open.add(client)
        try:
            for reply in itertools.chain([session.greeting()], map(session.answer, client)):
                if reply is not None:
                    client.send(reply)
        except ConnectionClosed:
            return
        finally:
            seat.leave()
            self._open.discard(client)


def _watched(door: socket.socket) -> socket.socket:
    """Let the system notice clients that vanished without a word; connections inherit this from ``door``."""
    door.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            door.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return door
