"""The socket side of `besttake serve`: who may connect, how much they may send, and whether we are well."""

from __future__ import annotations

import hmac
import itertools
import json
import logging
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from besttake.errors import ComponentError, MissingExtra
from besttake.policies.base import Policy
from besttake.policies.remote_wire import MOST_BYTES
from besttake.serving.served import Served
from besttake.serving.sessions import SESSIONS

_HEALTH_PATHS = ("/health", "/healthz")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What clients may use: bytes of one message, connections at once, and the web pages (``Origin``) that may connect.

    Programs send no ``Origin``; browsers always do, whatever page asked them to. ``"*"`` lets all pages in.
    """

    max_bytes: int = MOST_BYTES
    max_sessions: int = 32
    origins: tuple[str, ...] = ()


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
    if not token and not _is_loopback(host):
        raise ComponentError(f"`host` {host} opens the policy to other machines: give a `token`, or serve on 127.0.0.1")
    return Server(Served(policy, seed, cameras or {}), protocol, (host, port), token, limits or Limits())


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
        self.host, port = address
        try:
            self._server = listen(
                self._talk, sock=_listening(self.host, port, limits.max_sessions), process_request=self._admit,
                compression=None, max_size=limits.max_bytes, server_header="besttake", logger=_log,
                ping_interval=None,  # a slow sample is not a dead peer
            )  # fmt: skip
        except OSError as error:
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
        for client in list(self._open):
            client.close()
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
        if self._token and not any(
            hmac.compare_digest(offered.encode(), self._token.encode())
            for offered in _offered_tokens(request.headers.get("Authorization", ""), address.query)
        ):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "besttake: a token is needed\n")
        return None

    def _talk(self, client: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        session = SESSIONS[self._protocol](self._served, next(self._connections))
        self._open.add(client)
        try:
            for reply in itertools.chain([session.greeting()], map(session.answer, client)):
                if reply is not None:
                    client.send(reply)
        except ConnectionClosed:
            return
        finally:
            self._open.discard(client)


class _Doorkeeper(socket.socket):
    """A listening socket that hangs up at once on what comes while ``most`` connections are open.

    The server has a thread for each connection, from before anyone is known to be a client.
    """

    most = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; it is closed for both sides where there are too many."""
        there, address = super().accept()
        self._there = [one for one in getattr(self, "_there", []) if one.fileno() >= 0]
        if len(self._there) >= self.most:
            with suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)
        self._there.append(there)
        return there, address


def _listening(host: str, port: int, most: int) -> socket.socket:
    """A socket that listens on ``host``, as `socket.create_server` makes it."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    door = _Doorkeeper(family, kind, protocol)
    door.most = most
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(most)
    except OSError:
        door.close()
        raise
    return door


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
