"""The newest state of a run for any number of pages: looked at once for all, and never queued.

Each client waits for a state that it has not seen and gets the newest one, and of that what changed, so a slow client
skips states and costs no memory. Nothing is looked at while nobody listens, and looking takes at most a fifth of the
time.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from besttake.errors import BestTakeError, one_line
from besttake.live.content import Content

_log = logging.getLogger(__name__)
_EVERY = 1.0
_SHARE = 5
_ALIVE = 5.0
"""A client that hears nothing new hears that the server is there, every so many seconds."""


@dataclass(frozen=True)
class _Event:
    """The state with this number, or what comes after the ``last`` one."""

    number: int
    state: Mapping[str, Any] | None = None
    last: str = ""

    def messages(self, sent: dict[str, str]) -> bytes:
        """The event for a client that was ``sent`` these parts of the page: only those that changed."""
        data = b""
        if self.state is not None:
            changed = {name: text for name, text in self.state["parts"].items() if sent.get(name) != text}
            sent |= changed
            data = _message("state", {**self.state, "parts": changed})
        return data + (_message(self.last, {}) if self.last else b"")


class Feed:
    """Server-sent events of a run. ``controls``: pages with the token may give orders."""

    def __init__(self, content: Content, *, controls: bool) -> None:
        self._content, self._controls = content, controls
        self._news = threading.Condition()
        self._event = _Event(0)
        self._clients = self._owed = 0
        self._closed = False
        self._turn = threading.Lock()
        self._seen: object = None

    def go_on(self) -> None:
        """Look again and again, until the feed is closed."""
        pause = 0.0
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closed, timeout=pause)
                if not self._clients:
                    self._news.wait_for(lambda: self._closed or self._clients)
                if self._closed:
                    return
            began = time.monotonic()
            try:
                self.look()
            except Exception as error:  # a run that is being changed can be in any state: look again
                _log.warning("the live page could not be brought up to date (%s)", one_line(error))
                _log.debug("where that was", exc_info=True)
            pause = max(_EVERY, _SHARE * (time.monotonic() - began))

    def look(self) -> None:
        """Send what is new."""
        with self._turn:
            stamp = self._content.observer.stamp()
            if stamp == self._seen:
                return
            final = self._content.finished()
            if final:
                with suppress(BestTakeError, OSError):  # then the page itself will say so
                    self._content.page()  # made now, so that it is there when it is asked for
            ended = self._content.observer.phase == "ended"
            state = None if final else {**self._content.parts(), "controls": self._controls}
            self._seen = stamp
            with self._news:
                if final and not self._event.last:
                    self._owed = self._clients
                last = "finished" if final else "ended" if ended else ""
                self._event = _Event(self._event.number + 1, state, last)
                self._news.notify_all()

    def listen(self) -> Iterator[bytes]:
        """The events for one client: the state as it is, then each that it has time for."""
        with self._news:
            self._clients += 1
            self._news.notify_all()
        try:
            seen, sent = 0, dict[str, str]()
            while True:
                with self._news:
                    self._news.wait_for(lambda seen=seen: self._closed or self._event.number > seen, timeout=_ALIVE)  # type: ignore[misc]
                    event, closed = self._event, self._closed
                if event.number > seen:
                    seen = event.number
                    yield event.messages(sent)
                    if event.last:
                        return
                elif closed:
                    return
                else:
                    yield b":\n\n"
        finally:
            with self._news:
                self._clients -= 1
                self._news.notify_all()

    def heard(self) -> bool:
        """Whether anyone listens."""
        with self._news:
            return self._clients > 0

    def was_read(self) -> None:
        """A client has the final page."""
        with self._news:
            self._owed = max(0, self._owed - 1)
            self._news.notify_all()

    def wait_for_readers(self, patience: float) -> None:
        """Wait until every client that listened has the final page."""
        with self._news:
            self._news.wait_for(lambda: not self._owed and not self._clients, timeout=patience)

    def close(self) -> None:
        """Send no more."""
        with self._news:
            self._closed = True
            self._news.notify_all()


def _message(name: str, value: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
