"""The page of a session on a real robot: which start to set up, how it looked the first time, and outcome buttons."""

from __future__ import annotations

import json
from base64 import b64encode
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from besttake.auth import is_loopback, shows_token
from besttake.demos.reading import jpeg
from besttake.errors import BestTakeError, ComponentError
from besttake.reporting.page import Page, Section, template
from besttake.serving.robot_session import RobotSession
from besttake.types import U8
from besttake.watch import PageServer, RunPage, Visit

_MOST_BYTES = 4096
"""Bytes of a request of the page."""
_PICTURE_SIDE = 480
_RESULTS = "/results/"
_ORDERS = {f"/{name}": name for name in ("ready", "judge", "correct", "end")}


class OperatorServer(PageServer):
    """Serves the page of a session until it is closed: to browsers of this machine, or with a token to others.

    ``judged``: there is a verdict, so that the results may be shown.
    """

    def __init__(self, session: RobotSession, run: Path, address: tuple[str, int], token: str | None = None) -> None:
        host, port = address
        if not token and not is_loopback(host):
            raise ComponentError(f"`host` {host} opens the page to other machines: give a `token`")
        self.session, self.token, self.results, self.judged = session, token, RunPage(run), False
        parts = [Section("session", "", [template("session.html.j2")])]
        self.page = Page(str(run), str(run), "A session", parts, ["session.js"], asks=True).html().encode()
        super().__init__(host, port, _OperatorVisit)
        self.url += f"?token={token}" if token else ""


class _OperatorVisit(Visit):
    """One connection: it gets the page and its content, and sends the operator's orders."""

    server: OperatorServer

    def do_GET(self) -> None:
        """Answer with the page, its current content, or the results."""
        path, server = urlsplit(self.path).path, self.server
        may_see_results = server.judged or server.session.revealed
        if not self._is_welcome():
            return
        if path == "/":
            self.answer(HTTPStatus.OK, server.page)
        elif path == "/now":
            shown = server.session.view() | {"results": may_see_results}
            shown |= {"phase": "over"} if shown["phase"] == "busy" and server.judged else {}
            shown |= {name: _picture(shown[name]) for name in ("now", "first")}
            self.answer(HTTPStatus.OK, json.dumps(shown).encode(), Content_Type="application/json")
        elif path != _RESULTS:
            self.answer(HTTPStatus.NOT_FOUND, b"no such page\n")
        elif not may_see_results:
            self.answer(HTTPStatus.FORBIDDEN, b"results could tell which arm runs: they are shown with the verdict\n")
        else:
            self.answer(HTTPStatus.OK, server.results.current()[1].encode(errors="replace"))

    def do_POST(self) -> None:
        """Carry out the operator's order, and answer with one line."""
        if not self._is_welcome():
            return
        try:
            size = int(self.headers.get("Content-Length", ""))
            if not 0 <= size <= _MOST_BYTES or self.headers.get("Content-Type") != "application/json":
                raise ValueError
            arguments = json.loads(self.rfile.read(size))
            order = getattr(self.server.session, _ORDERS[urlsplit(self.path).path])
            line = order(**{str(name): str(value) for name, value in arguments.items()})
        except BestTakeError as error:
            self.answer(HTTPStatus.CONFLICT, str(error).encode(), Content_Type="text/plain; charset=utf-8")
        except (ValueError, KeyError, TypeError, AttributeError):
            self.answer(HTTPStatus.BAD_REQUEST, b"this is not an order of the page\n")
        else:
            self.answer(HTTPStatus.OK, line.encode(), Content_Type="text/plain; charset=utf-8")

    def _is_welcome(self) -> bool:
        """Whether the browser shows the token or, without one, uses a name of this machine, and no other page sends it.

        If not, this answers the request.
        """
        token, query = self.server.token, urlsplit(self.path).query
        known = shows_token(token, self.headers.get_all("Authorization") or [], query) if token else self.is_local()
        origin = self.headers.get("Origin")
        if known and (origin is None or urlsplit(origin).netloc == self.headers.get("Host")):
            return True
        self.answer(HTTPStatus.FORBIDDEN, b"open the page by the address that the terminal shows\n")
        return False


def _picture(frame: U8 | None) -> str:
    """A picture as a data URL."""
    return "" if frame is None else f"data:image/jpeg;base64,{b64encode(jpeg(frame, _PICTURE_SIDE)).decode()}"
