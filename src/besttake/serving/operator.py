"""The page of a session on a real robot: which start to set up, how it looked, and buttons for what came of it."""

from __future__ import annotations

import json
import logging
import threading
from base64 import b64encode
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from besttake.auth import is_loopback, shows_token
from besttake.demos.reading import jpeg
from besttake.errors import BestTakeError, ComponentError
from besttake.reporting.page import Page, Section, template
from besttake.serving.robot_session import RobotSession
from besttake.types import U8
from besttake.watch import RunPage, Visit

_MOST = 4096
"""Bytes of what the page sends."""
_SIDE = 480
_RESULTS = "/results/"
_ORDERS = {f"/{name}": name for name in ("ready", "judge", "correct", "end")}
_log = logging.getLogger(__name__)


class OperatorServer(ThreadingHTTPServer):
    """Serves the page of a session until it is closed: to browsers of this machine, or with a token to others."""

    daemon_threads, block_on_close = True, False

    def __init__(self, session: RobotSession, run: Path, address: tuple[str, int], token: str | None = None) -> None:
        host, port = address
        if not token and not is_loopback(host):
            raise ComponentError(f"`host` {host} opens the page to other machines: give a `token`")
        self.session, self.token, self.results = session, token, RunPage(run)
        parts = [Section("session", "", [template("session.html.j2")])]
        self.page = Page(str(run), str(run), "A session", parts, ["session.js"], asks=True).html().encode()
        self.judged = False
        """Whether there is a verdict: from then on the results may be seen."""
        try:
            super().__init__((host, port), _OperatorVisit)
        except OSError as error:
            raise ComponentError(f"cannot serve on {host}:{port}: {error.strerror or error}") from None
        self.url = f"http://{host}:{self.server_port}/" + (f"?token={token}" if token else "")
        threading.Thread(target=self.serve_forever, args=(0.1,), name="operator", daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""
        _log.debug("a client of the page went away", exc_info=True)

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _OperatorVisit(Visit):
    """One connection: the page, what it shows, and what the operator says."""

    server: OperatorServer

    def do_GET(self) -> None:
        """Answer with the page, with what it shows now, or with the results."""
        path, server = urlsplit(self.path).path, self.server
        seen = server.judged or server.session.revealed
        if not self._is_welcome():
            return
        if path == "/":
            self.answer(HTTPStatus.OK, server.page)
        elif path == "/now":
            shown = server.session.view() | {"results": seen}
            shown |= {"phase": "over"} if shown["phase"] == "busy" and server.judged else {}
            shown |= {name: _picture(shown[name]) for name in ("now", "first")}
            self.answer(HTTPStatus.OK, json.dumps(shown).encode(), Content_Type="application/json")
        elif path != _RESULTS:
            self.answer(HTTPStatus.NOT_FOUND, b"there is nothing of this name\n")
        elif not seen:
            self.answer(HTTPStatus.FORBIDDEN, b"results could tell which arm runs: they come with the verdict\n")
        else:
            self.answer(HTTPStatus.OK, server.results.current()[1].encode(errors="replace"))

    def do_POST(self) -> None:
        """Carry out what the operator says, and answer with one line."""
        if not self._is_welcome():
            return
        try:
            size = int(self.headers.get("Content-Length", ""))
            if size > _MOST or self.headers.get("Content-Type") != "application/json":
                raise ValueError
            said = json.loads(self.rfile.read(size))
            name = _ORDERS[urlsplit(self.path).path]
            line = getattr(self.server.session, name)(**{str(word): str(value) for word, value in said.items()})
        except BestTakeError as error:
            self.answer(HTTPStatus.CONFLICT, str(error).encode(), Content_Type="text/plain; charset=utf-8")
        except (ValueError, KeyError, TypeError, AttributeError):
            self.answer(HTTPStatus.BAD_REQUEST, b"this is not what the page sends\n")
        else:
            self.answer(HTTPStatus.OK, line.encode(), Content_Type="text/plain; charset=utf-8")

    def _is_welcome(self) -> bool:
        """Whether the browser may come in: with the token, or on this machine by a name of its own; and no other page's
        script sends it."""
        token, query = self.server.token, urlsplit(self.path).query
        known = shows_token(token, self.headers.get_all("Authorization") or [], query) if token else self.is_local()
        origin = self.headers.get("Origin")
        if known and (origin is None or urlsplit(origin).netloc == self.headers.get("Host")):
            return True
        self.answer(HTTPStatus.FORBIDDEN, b"open the page by the address that the terminal shows\n")
        return False


def _picture(frame: U8 | None) -> str:
    """A picture as an address that the page shows."""
    return "" if frame is None else f"data:image/jpeg;base64,{b64encode(jpeg(frame, _SIDE)).decode()}"
