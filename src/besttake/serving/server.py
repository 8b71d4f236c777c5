"""The server of `besttake serve`: websockets' asyncio server in a thread, its admission of clients, its health page."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

from besttake.auth import is_loopback, shows_token
from besttake.errors import ComponentError, need
from besttake.policies.base import Policy
from besttake.serving.connections import CONNECTIONS
from besttake.serving.served import Batches, Limits, ServedPolicy

_HEALTH_PATHS = ("/health", "/healthz")
_OPEN_TIMEOUT, _CLOSE_TIMEOUT = 10.0, 1.0
"""Seconds that a client has for the opening and the closing handshake."""
_PING_INTERVAL = 60.0
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

    ``port=0`` chooses a free port. Hosts other than loopback need a ``token``, which clients send as
    ``Authorization: Bearer TOKEN`` (openpi's ``api_key`` also works) or as ``?token=TOKEN`` in the address.
    ``cameras`` maps the policy's cameras to the names that clients use.
    """
    if protocol not in CONNECTIONS:
        raise ComponentError(f"protocol {protocol!r} is unknown; known: {', '.join(CONNECTIONS)}")
    if not token and not is_loopback(host):
        raise ComponentError(f"`host` {host} opens the policy to other machines: give a `token`, or serve on 127.0.0.1")
    need("websockets", "besttake serve", "serve")
    limits = limits or Limits()
    return Server(ServedPolicy(policy, seed, cameras or {}, limits), protocol, (host, port), token, limits)


class Server:
    """A running server; a context manager that closes it."""

    def __init__(
        self, served: ServedPolicy, protocol: str, address: tuple[str, int], token: str | None, limits: Limits
    ) -> None:
        self._served, self._protocol, self._token, self._limits = served, protocol, token, limits
        self._numbers, self._open = itertools.count(), set[Any]()
        self.host, port = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="besttake-serve", daemon=True)
        self._thread.start()
        try:
            self._wait_for(self._start(port))
        except OSError as error:
            self._stop()
            raise ComponentError(f"cannot serve on {self.host}:{port}: {error.strerror or error}") from None
        self.port = int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The address for clients: ``ws://host:port``."""
        return f"ws://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def close(self) -> None:
        """Accept no more clients, end the open sessions, and wait for the thread."""
        self._wait_for(self._end())
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self, port: int) -> None:
        from websockets.asyncio.server import serve as listen

        limits = self._limits
        self._server = await listen(
            self._talk, self.host, port, process_request=self._admit,
            # Programs send no Origin; browsers always do, for every page.
            origins=None if "*" in limits.origins else [None, *limits.origins],
            compression=None, max_size=limits.max_bytes, max_queue=4, server_header="besttake", logger=_log,
            open_timeout=_OPEN_TIMEOUT, close_timeout=_CLOSE_TIMEOUT,
            # Pings detect clients that vanished. Without a timeout, clients that are busy simulating stay connected.
            ping_interval=_PING_INTERVAL, ping_timeout=None,
        )  # fmt: skip
        self._batches = Batches(self._served.sample, self._served.at_once)

    async def _end(self) -> None:
        await self._batches.close()
        self._server.close()
        await self._server.wait_closed()

    def _admit(self, connection: Any, request: Any) -> Any:
        """None to admit a client, else the response to it."""
        try:
            address = urlsplit(request.path)
        except ValueError:
            return connection.respond(HTTPStatus.BAD_REQUEST, "besttake: not a valid address\n")
        if address.path in _HEALTH_PATHS:
            body = {"status": "ok", "protocol": self._protocol, "policy": self._served.spec.name}
            response = connection.respond(HTTPStatus.OK, json.dumps(body) + "\n")
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        if self._token and not shows_token(self._token, request.headers.get_all("Authorization"), address.query):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "besttake: a token is needed\n")
        if len(self._open) >= self._limits.max_sessions:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "besttake: too many connections\n")
        return None

    async def _talk(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed
        from websockets.protocol import State

        client = self._batches.client(lambda: connection.state is State.OPEN)
        session = CONNECTIONS[self._protocol](self._served, next(self._numbers), client)
        self._open.add(connection)
        try:
            if (greeting := session.greeting()) is not None:
                await connection.send(greeting)
            async for frame in connection:
                if (reply := await session.answer(frame)) is not None:
                    await connection.send(reply)
        except ConnectionClosed:
            return
        finally:
            client.leave()
            self._served.leave(client)
            self._open.discard(connection)
