"""The live page of a run (`besttake runs watch`): a web server on loopback that only reads the run directory.

The page is made again when it is requested and the run has changed. While the run goes on, it reports the takes so far
(`besttake.reporting.live`); afterwards it is the report. The browser asks now and then whether the page has changed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from besttake.errors import BestTakeError, ComponentError, one_line
from besttake.measure.partial import ROUNDS, fixed_cells, partial_cell, read_round, settings_of
from besttake.reporting.html import report_page
from besttake.reporting.live import State, live_page
from besttake.reporting.page import Page, Section, prose
from besttake.reporting.takes import PageLimits, PageTakes, page_takes
from besttake.result import Result
from besttake.takes import heartbeat
from besttake.takes import take_table as table
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.scores import Scores, run_digest
from besttake.takes.store import digest_of

_log = logging.getLogger(__name__)
HOST = "127.0.0.1"
SLOW = 10.0
"""Seconds after which a client that reads nothing is dropped."""
_SILENT = 15.0
"""Seconds without a heartbeat after which a run counts as lost."""
_REASONS = 20
_FILMS = PageLimits(bytes=1_500_000, starts=12, newest=True)
HEADERS = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8",
}  # fmt: skip


class RunPage:
    """The page of a run directory, made again only when something has changed; it never writes there."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.name = directory, str(directory)
        self._one_at_a_time = threading.Lock()
        self._latest = "", ""
        self._beat: tuple[int, float] | None = None

    def current(self) -> tuple[str, str]:
        """The stamp of the page, and its text."""
        with self._one_at_a_time:
            stamp = self._stamp()
            if stamp != self._latest[0]:
                self._latest = stamp, self._page(stamp).html()
            return self._latest

    def stamp(self) -> str:
        """A text that changes whenever the page does."""
        with self._one_at_a_time:
            return self._stamp()

    def _stamp(self) -> str:
        names = (table.NAME, f"{table.NAME}-wal", "run.json", "result.json", ROUNDS)
        beat = heartbeat.read_heartbeat(self.directory)
        parts = (self._phase(), beat and beat.text, [_size_and_time(self.directory / name) for name in names])
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def _page(self, stamp: str) -> Page:
        try:
            rows = self._rows()
            if self._finished(rows):
                result = Result.load(self.directory / "result.json")
                takes = page_takes(self.directory, result.cells)
                return report_page(result, takes, stamp, self.directory)
            return self._unfinished(rows, stamp)
        except Exception as error:  # a run directory can hold anything
            _log.debug("the live page could not be made", exc_info=True)
            problem = Section("problem", "", [prose(one_line(error), "warning")])
            return Page(self.name, self.name, "This run cannot be shown", [problem], stamp=stamp)

    def _rows(self) -> Mapping[TakeKey, Row]:
        if not (self.directory / table.NAME).is_file():
            return {}
        with table.explained(self.directory):
            return table.snapshot(self.directory)[0]

    def _finished(self, rows: Mapping[TakeKey, Row]) -> bool:
        """Whether the run has a result with all its takes, and no process works on it."""
        if self._phase() in ("running", "gone") or not (self.directory / "result.json").is_file():
            return False
        if not (self.directory / table.NAME).is_file():
            return True  # outcomes alone, as from `besttake ingest`
        result = Result.load(self.directory / "result.json")
        done = [row for row in rows.values() if row.status == "done"]
        if result.cost.takes == len(done) and result.cost.errors == len(rows) - len(done):
            return True
        return result.digest == run_digest(digest_of(done), Scores.open(self.directory))

    def _unfinished(self, rows: Mapping[TakeKey, Row], stamp: str) -> Page:
        phase, nothing = self._phase(), PageTakes([], "No take is finished yet.")
        if not (self.directory / "run.json").is_file():
            return live_page(self.name, State(phase), nothing, stamp)
        manifest, beat = Manifest.read(self.directory), heartbeat.read_heartbeat(self.directory)
        until, settings = manifest.plan.get("until") is not None, settings_of(manifest)
        begun = [] if until else [data for data in fixed_cells(manifest, rows) if data.units]
        starts = len(manifest.extent.starts)
        cells = read_round(self.directory) if until else [partial_cell(data, settings, starts) for data in begun]
        failed = [row for row in rows.values() if row.status == "error"]
        state = State(
            phase, beat.text if beat else "", len(rows) - len(failed), len(failed),
            _planned(manifest, len(rows), beat), beat.left if beat else None, until, cells, _failures(failed),
        )  # fmt: skip
        takes = nothing
        with suppress(BestTakeError, OSError):  # files come and go while the run goes on
            takes = page_takes(self.directory, [each.cell for each in cells], _FILMS)
        return live_page(self.name, state, takes, stamp)

    def _phase(self) -> str:
        """The phase of the run: "gone", "stopped", "lost" (no heartbeat for a while) or "running"."""
        if not (self.directory / "run.json").is_file():
            return "gone"
        beat = heartbeat.read_heartbeat(self.directory)
        if beat is None:
            return "stopped"
        now = time.monotonic()
        if self._beat is None or self._beat[0] != beat.number:
            self._beat = beat.number, now
        return "lost" if now - self._beat[1] > _SILENT else "running"


def _planned(manifest: Manifest, made: int, beat: heartbeat.Beat | None) -> int:
    """The takes of a plan, or the most that a run until decided plays; 0 if unknown."""
    extent, budget = manifest.extent, manifest.plan.get("budget")
    if manifest.plan.get("until") is None:
        arms = sum(len([a for a in extent.arms if a not in manifest.skipped.get(p, ())]) for p in extent.policies)
        return arms * len(extent.tasks) * len(extent.starts) * len(extent.seeds)
    if isinstance(budget, int) and budget > 0:
        return max(budget, made)
    return made + max(0, beat.total - beat.done) if beat and beat.total else 0


def _failures(rows: list[Row]) -> list[tuple[str, int, str]]:
    first = dict[str, TakeKey]()
    for row in rows:
        first.setdefault(row.error or "", row.key)
    reasons = Counter(row.error or "" for row in rows).most_common(_REASONS)
    return [
        (reason, takes, f"{key.policy}, {key.task}, start {key.start}, take {key.seed} of {key.arm}")
        for reason, takes in reasons
        for key in [first[reason]]
    ]


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns
    except OSError:
        return None


class PageServer(ThreadingHTTPServer):
    """Serves pages to browsers, in threads, until it is closed."""

    daemon_threads, block_on_close = True, False

    def __init__(self, host: str, port: int, visit: type[Visit]) -> None:
        try:
            super().__init__((host, port), visit)
        except OSError as error:
            raise ComponentError(f"cannot serve on {host}:{port}: {error.strerror or error}") from None
        self.url = f"http://{host}:{self.server_port}/"
        threading.Thread(target=self.serve_forever, args=(0.1,), name="page", daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log that a client went away, which is not an error."""
        _log.debug("a client of the page went away", exc_info=True)

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class LiveServer(PageServer):
    """Serves a `RunPage` to browsers of this machine."""

    def __init__(self, page: RunPage, port: int = 0) -> None:
        self.page = page
        super().__init__(HOST, port, _LiveVisit)


class Visit(BaseHTTPRequestHandler):
    """One connection to a server of pages, with headers that isolate the page."""

    timeout = SLOW

    def answer(self, status: HTTPStatus, data: bytes, **headers: str) -> None:
        """Send an answer, unless the client has gone away."""
        with suppress(OSError):
            self.send_response(status)
            for name, value in {**HEADERS, **headers, "Content-Length": str(len(data))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

    def is_local(self) -> bool:
        """Whether the browser used a name of this machine; a name that others control could lead here as well."""
        return urlsplit(f"//{self.headers.get('Host', '')}").hostname in (HOST, "localhost", "::1")

    def version_string(self) -> str:
        """The name of the server."""
        return "besttake"

    def log_message(self, format: str, *args: Any) -> None:
        """Write to the log, not to the terminal."""
        _log.debug("%s %s", self.command, self.path.partition("?")[0])  # a query may hold a token


class _LiveVisit(Visit):
    """One connection to the live page."""

    server: LiveServer

    def do_HEAD(self) -> None:
        """Answer with the stamp of the page."""
        if self._is_welcome():
            self.answer(HTTPStatus.OK, b"", ETag=self.server.page.stamp())

    def do_GET(self) -> None:
        """Answer with the page."""
        if self._is_welcome():
            stamp, text = self.server.page.current()
            self.answer(HTTPStatus.OK, text.encode(errors="replace"), ETag=stamp)

    def _is_welcome(self) -> bool:
        if not self.is_local():
            self.answer(HTTPStatus.FORBIDDEN, b"open this page on the machine that serves it\n")
        elif self.path != "/":
            self.answer(HTTPStatus.NOT_FOUND, b"no such page\n")
        else:
            return True
        return False
