"""The web server of the live page: on loopback, for this machine's own pages only, in threads of its own.

A client never holds up the run: it is served by another process, gets the newest state or none (`Feed`), and is dropped
when it reads too slowly or when there are too many.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from besttake.auth import is_loopback, shows_token
from besttake.errors import ComponentError, one_line
from besttake.live.content import Content
from besttake.live.feed import Feed

_log = logging.getLogger(__name__)
_HOST = "127.0.0.1"
_CLIENTS = 32
_SLOW = 10.0
"""A client that takes nothing for so many seconds is dropped."""
_TAKE = re.compile(r"/takes/([0-9a-f]{20})")
_START = re.compile(r"/starts/([0-9A-Za-z_-]{1,64})")
_ALWAYS = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}  # fmt: skip

Order = Callable[[str], str]
"""Obeys "stop", "continue" or "end", and says what happens."""


@dataclass(frozen=True)
class Access:
    """Who may do what: with the ``token`` a page may give orders, which ``obey`` carries out; without, only read."""

    token: str | None = None
    obey: Order | None = field(default=None, repr=False)


class Doorkeeper(socket.socket):
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


def listening(host: str, port: int, most: int) -> socket.socket:
    """A socket that listens on ``host``, as `socket.create_server` makes it."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    door = Doorkeeper(family, kind, protocol)
    door.most = most
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(most)
    except OSError:
        door.close()
        raise
    return door


class LiveServer:
    """Serves the page of the run in ``directory``, known to its user as ``name``, until it is closed."""

    def __init__(self, directory: Path, port: int = 0, access: Access | None = None, name: str = "") -> None:
        self.content, self.access = Content(directory, name or str(directory)), access or Access()
        self.feed = Feed(self.content, controls=self.access.obey is not None)
        try:
            door = listening(_HOST, port, _CLIENTS)
        except OSError as error:
            raise ComponentError(f"cannot serve on {_HOST}:{port}: {error.strerror or error}") from None
        self._server = _Threads(door, self)
        self.port = int(door.getsockname()[1])
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.1,), name="live", daemon=True),
            threading.Thread(target=self.feed.go_on, name="live-feed", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{_HOST}:{self.port}/"

    def finish(self, patience: float = 10.0) -> None:
        """The run is over: give every page that is open what it becomes, within ``patience`` seconds, and close."""
        if self.feed.heard():
            self.feed.look()
            self.feed.wait_for_readers(patience)
        self.close()

    def close(self) -> None:
        """End at once."""
        self.feed.close()
        self._server.shutdown()
        self._server.server_close()
        self.content.close()
        for thread in self._threads:
            thread.join(timeout=5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Threads(ThreadingHTTPServer):
    """A thread for each connection, on a socket that counts them."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, door: socket.socket, live: LiveServer) -> None:
        super().__init__(door.getsockname()[:2], _Visit, bind_and_activate=False)
        self.socket.close()
        self.socket, self.live = door, live

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""
        _log.debug("a client of the live page went away", exc_info=True)


class _Visit(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    timeout = _SLOW
    server: _Threads

    @property
    def live(self) -> LiveServer:
        """The server of the page."""
        return self.server.live

    def do_GET(self) -> None:
        """The page, its events, or a film."""
        if not self._welcome():
            return
        path = urlsplit(self.path).path
        if path == "/":
            self._page()
        elif path == "/events":
            self._events()
        else:
            self._film(path)

    def do_POST(self) -> None:
        """An order, for those who show the token."""
        self.close_connection = True  # a body that came along is not read
        if not self._welcome():
            return
        access, name = self.live.access, urlsplit(self.path).path.strip("/")
        if access.obey is None or access.token is None:
            self._say(HTTPStatus.FORBIDDEN, "this page is read-only: its server takes no orders")
        elif not shows_token(access.token, self.headers.get_all("Authorization", [])):
            time.sleep(0.3)  # guessing is slow
            self._say(HTTPStatus.UNAUTHORIZED, "the token is wrong: open the address that the command printed")
        elif name not in ("stop", "continue", "end"):
            self._say(HTTPStatus.NOT_FOUND, "orders are stop, continue and end")
        else:
            self._say(HTTPStatus.OK, access.obey(name))

    def _welcome(self) -> bool:
        """Whether the request comes from a page of this server: another site's page names itself, or its own host."""
        hosts, origins = self.headers.get_all("Host") or [], self.headers.get_all("Origin") or []
        with suppress(ValueError):
            name = urlsplit(f"//{hosts[0]}").hostname if len(hosts) == 1 else None
            own = f"http://{hosts[0]}" if hosts else ""
            site = self.headers.get("Sec-Fetch-Site", "none")
            typed = site == "none" or self.headers.get("Sec-Fetch-Mode") == "navigate"
            if name and is_loopback(name) and all(o == own for o in origins) and (site == "same-origin" or typed):
                return True
        self.close_connection = True
        self._say(HTTPStatus.FORBIDDEN, "only pages of this server may ask")
        return False

    def _page(self) -> None:
        try:
            page, final = self.live.content.page()
        except Exception as error:  # a run that anyone may have written can hold anything: say so instead of hanging up
            self._say(HTTPStatus.INTERNAL_SERVER_ERROR, one_line(error))
            return
        self._answer(HTTPStatus.OK, page, "text/html")
        if final:
            self.live.feed.was_read()

    def _events(self) -> None:
        self.close_connection = True
        self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close"})
        with suppress(OSError):
            for event in self.live.feed.listen():
                self.wfile.write(event)
                self.wfile.flush()

    def _film(self, path: str) -> None:
        take, start = _TAKE.fullmatch(path), _START.fullmatch(path)
        text = None
        try:
            if take:
                text = self.live.content.take(take[1])
            elif start:
                text = self.live.content.start(start[1])
        except Exception as error:
            self._say(HTTPStatus.NOT_FOUND, one_line(error))
            return
        if text is None:
            self._say(HTTPStatus.NOT_FOUND, "there is nothing of this name")
        else:
            self._answer(HTTPStatus.OK, text, "application/json")

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, f"{text}\n", "text/plain")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        data = text.encode(errors="replace")
        with suppress(OSError):
            self._head(status, {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(data))})
            self.wfile.write(data)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**_ALWAYS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        """What the server calls itself."""
        return "besttake"

    def log_message(self, format: str, *args: Any) -> None:
        """Into the log, not onto the terminal."""
        _log.debug(format, *args)
