"""The socket side of `besttake serve`: who may connect, how much they may send, and whether we are well."""

from __future__ import annotations

import hmac
import itertools
import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from besttake.errors import ComponentError, MissingExtra
from besttake.policies.base import Policy
from besttake.serving.served import Served
from besttake.serving.sessions import SESSIONS

_HEALTH_PATHS = ("/health", "/healthz")


def serve(
    policy: Policy,
    protocol: str = "vla-eval",
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    *,
    seed: int = 0,
    max_bytes: int = 64 * 2**20,
    cameras: Mapping[str, str] | None = None,
) -> Server:
    """Serve ``policy`` in the background until the returned server is closed.

    ``port=0`` takes a free port. Hosts other than loopback need a ``token``, which clients send as
    ``Authorization: Bearer TOKEN`` (openpi's ``api_key`` works too) or as ``?token=TOKEN`` in the address.
    ``cameras`` maps the policy's cameras to the names that clients use.
    """
    if protocol not in SESSIONS:
        raise ComponentError(f"protocol {protocol!r} is unknown; known: {', '.join(SESSIONS)}")
    if not token and not _is_loopback(host):
        raise ComponentError(f"`host` {host} opens the policy to other machines: give a `token`, or serve on 127.0.0.1")
    return Server(Served(policy, seed, cameras or {}), protocol, host, port, token, max_bytes)


class Server:
    """A running server; a context manager that closes it."""

    def __init__(self, served: Served, protocol: str, host: str, port: int, token: str | None, max_bytes: int) -> None:
        try:
            from websockets.sync.server import serve as listen
        except ImportError:
            raise MissingExtra("websockets", "serve", "besttake serve") from None
        self._served, self._protocol, self._token = served, protocol, token
        self._connections = itertools.count()
        self._open: set[Any] = set()
        try:
            self._server = listen(
                self._talk, host, port, process_request=self._admit, compression=None, max_size=max_bytes,
                server_header="besttake", ping_interval=None,  # a slow sample is not a dead peer
            )  # fmt: skip
        except OSError as error:
            raise ComponentError(f"cannot serve on {host}:{port}: {error.strerror or error}") from None
        self.host = host
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
        for socket in list(self._open):
            socket.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self, connection: Any, request: Any) -> Any:
        address = urlsplit(request.path)
        if address.path in _HEALTH_PATHS:
            body = {"status": "ok", "protocol": self._protocol, "policy": self._served.spec.name}
            response = connection.respond(HTTPStatus.OK, json.dumps(body) + "\n")
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        if self._token and not any(
            hmac.compare_digest(offered.encode(), self._token.encode())
            for offered in _offered_tokens(request.headers.get("Authorization", ""), address.query)
        ):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "besttake: a token is needed\n")
        return None

    def _talk(self, socket: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        session = SESSIONS[self._protocol](self._served, next(self._connections))
        self._open.add(socket)
        try:
            for reply in itertools.chain([session.greeting()], map(session.answer, socket)):
                if reply is not None:
                    socket.send(reply)
        except ConnectionClosed:
            return
        finally:
            self._open.discard(socket)


def _offered_tokens(authorization: str, query: str) -> list[str]:
    scheme, _, value = authorization.partition(" ")
    headers = [value.strip()] if scheme.lower() in ("bearer", "api-key") else []
    return [*headers, *parse_qs(query).get("token", [])]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
