"""The live page of a run: a web server on loopback that only reads the run directory (`besttake runs watch`).

The page is made again when it is asked for and the run has changed. While the run goes on it is the report of what is
there so far (`besttake.reporting.live`), afterwards the report; in between the browser asks whether there is another.
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
"""A client that takes nothing for so many seconds is dropped."""
_SILENT = 15.0
"""After so many seconds without a beat a run is taken for dead."""
_REASONS = 20
_FILMS = PageLimits(bytes=1_500_000, starts=12, newest=True)
HEADERS = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8",
}  # fmt: skip


class RunPage:
    """The page of a run directory, made again only when something has changed. Nothing is written there."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.name = directory, str(directory)
        self._turn = threading.Lock()
        self._made = "", ""
        self._beat: tuple[int, float] | None = None

    def current(self) -> tuple[str, str]:
        """The stamp of the page, and its text."""
        with self._turn:
            stamp = self._stamp()
            if stamp != self._made[0]:
                self._made = stamp, self._page(stamp).html()
            return self._made

    def stamp(self) -> str:
        """Changes when there is something new to see."""
        with self._turn:
            return self._stamp()

    def _stamp(self) -> str:
        names = (table.NAME, f"{table.NAME}-wal", "run.json", "result.json", ROUNDS)
        beat = heartbeat.read_heartbeat(self.directory)
        files = [_state(self.directory / name) for name in names]
        parts = (self._phase(), beat and beat.text, files)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def _page(self, stamp: str) -> Page:
        try:
            rows = self._rows()
            if self._finished(rows):
                result = Result.load(self.directory / "result.json")
                takes = page_takes(self.directory, result.cells)
                return report_page(result, takes, stamp, self.directory)
            return self._unfinished(rows, stamp)
        except Exception as error:  # a run directory can hold anything: say so instead of hanging up
            _log.debug("the live page could not be made", exc_info=True)
            problem = Section("problem", "", [prose(one_line(error), "warning")])
            return Page(self.name, self.name, "This run cannot be shown", [problem], stamp=stamp)

    def _rows(self) -> Mapping[TakeKey, Row]:
        if not (self.directory / table.NAME).is_file():
            return {}
        with table.explained(self.directory):
            return table.snapshot(self.directory)[0]

    def _finished(self, rows: Mapping[TakeKey, Row]) -> bool:
        """Whether the run has a result of all its takes, and nobody is at work on it."""
        if self._phase() in ("running", "gone") or not (self.directory / "result.json").is_file():
            return False
        if not (self.directory / table.NAME).is_file():
            return True  # outcomes alone, such as `besttake ingest` keeps
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
        with suppress(BestTakeError, OSError):  # files of takes come and go while the run is at work
            takes = page_takes(self.directory, [one.cell for one in cells], _FILMS)
        return live_page(self.name, state, takes, stamp)

    def _phase(self) -> str:
        """What the run is doing, as far as its directory says."""
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
    """The takes of a plan, or the most that a run until decided makes; 0 where that is not known."""
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


def _state(path: Path) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
        return state.st_size, state.st_mtime_ns
    except OSError:
        return None


class LiveServer(ThreadingHTTPServer):
    """Serves a `RunPage` to browsers of this machine, in threads, until it is closed."""

    daemon_threads, block_on_close = True, False

    def __init__(self, page: RunPage, port: int = 0) -> None:
        self.page = page
        try:
            super().__init__((HOST, port), _LiveVisit)
        except OSError as error:
            raise ComponentError(f"cannot serve on {HOST}:{port}: {error.strerror or error}") from None
        self.url = f"http://{HOST}:{self.server_port}/"
        threading.Thread(target=self.serve_forever, args=(0.1,), name="live", daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""
        _log.debug("a client of the live page went away", exc_info=True)

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Visit(BaseHTTPRequestHandler):
    """One connection of a page's server: answers with the headers that keep a page to itself."""

    timeout = SLOW

    def answer(self, status: HTTPStatus, data: bytes, **headers: str) -> None:
        """Send an answer; a client that has gone is no news."""
        with suppress(OSError):
            self.send_response(status)
            for name, value in {**HEADERS, **headers, "Content-Length": str(len(data))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

    def is_local(self) -> bool:
        """Whether the browser came by a name of this machine: one that others control could lead here, too."""
        return urlsplit(f"//{self.headers.get('Host', '')}").hostname in (HOST, "localhost", "::1")

    def version_string(self) -> str:
        """What the server calls itself."""
        return "besttake"

    def log_message(self, format: str, *args: Any) -> None:
        """Into the log, not onto the terminal."""
        _log.debug("%s %s", self.command, self.path.partition("?")[0])  # a query may hold a token


class _LiveVisit(Visit):
    """One connection: the page, and whether there is another."""

    server: LiveServer

    def do_HEAD(self) -> None:
        """Answer with the stamp of the page alone."""
        if self._is_welcome():
            self.answer(HTTPStatus.OK, b"", ETag=self.server.page.stamp())

    def do_GET(self) -> None:
        """Answer with the page."""
        if self._is_welcome():
            stamp, text = self.server.page.current()
            self.answer(HTTPStatus.OK, text.encode(errors="replace"), ETag=stamp)

    def _is_welcome(self) -> bool:
        if not self.is_local():
            self.answer(HTTPStatus.FORBIDDEN, b"only this machine is answered\n")
        elif self.path != "/":
            self.answer(HTTPStatus.NOT_FOUND, b"there is nothing of this name\n")
        else:
            return True
        return False
