"""`Connection`: one websocket to a model server, with a timeout, one reconnect, and one clear line when it fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from besttake.errors import ComponentError, need
from besttake.policies.remote_wire import MOST_BYTES

T = TypeVar("T")


class ConnectionLost(ComponentError):
    """The server cannot be reached, does not answer, or went away twice."""


class Connection:
    """A websocket that opens when it is first needed and reopens once when it breaks.

    ``greet(connection)`` runs after each opening and returns what the server says about itself, kept as ``greeting``.
    A token that is not given is read from $BESTTAKE_TOKEN, which keeps it out of plans and runs.
    """

    def __init__(self, url: str, greet: Callable[[Connection], Any], timeout: float, token: str | None = None) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise ComponentError(f"{url!r} is not a websocket address: write ws://host:port")
        try:
            urlsplit(url).port  # noqa: B018
        except ValueError as error:
            raise ComponentError(f"{url!r} is not a websocket address ({error}): write ws://host:port") from None
        self.url, self.timeout, self._greet = url, timeout, greet
        self._token = token or os.environ.get("BESTTAKE_TOKEN")
        self.greeting: Any = None
        self._socket: Any = None

    def call(self, exchange: Callable[[Connection], T]) -> T:
        """Run ``exchange`` (sends and receives) and return its result; start it over once if the socket breaks.

        A timeout is not retried: the server is there and slow, and asking again would only queue more work.
        """
        for attempt in (1, 2):
            try:
                self.open()
                return exchange(self)
            except TimeoutError:
                self.close()
                raise ConnectionLost(
                    f"{self.url}: no answer within {self.timeout:g} s; raise it with ?timeout="
                ) from None
            except OSError as error:
                self.close()
                if attempt == 2:
                    reason = error.strerror or str(error) or type(error).__name__
                    raise ConnectionLost(f"{self.url}: {reason}; is the server running?") from None
            except BaseException:
                # An answer that is still on its way must not be taken for the next one's.
                self.close()
                raise
        raise AssertionError("unreachable")

    def open(self) -> None:
        """Connect and greet, unless connected."""
        if self._socket is not None:
            return
        need("websockets", "talking to a model server", "serve")
        from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
        from websockets.sync.client import connect

        headers = {"Authorization": f"Bearer {self._token}"} if self._token else None
        # No pings: a server that compiles its model can be silent for longer than they allow.
        limits = {"open_timeout": self.timeout, "close_timeout": 1, "max_size": MOST_BYTES, "ping_interval": None}
        try:
            entered = connect(self.url, compression=None, additional_headers=headers, proxy=None, **limits)
            self._socket = entered.__enter__()
        except InvalidURI as error:
            raise ComponentError(f"{self.url!r} is not a websocket address: {error}") from None
        except InvalidStatus as error:
            status = error.response.status_code
            asks_for_token = status in (401, 403)
            hint = "give its token in $BESTTAKE_TOKEN or with ?token=" if asks_for_token else "is it a model server?"
            raise ConnectionLost(f"{self.url}: refused with HTTP {status}; {hint}") from None
        except InvalidHandshake as error:
            raise ConnectionLost(f"{self.url}: not a websocket server ({error})") from None
        self.greeting = self._greet(self)

    def send(self, frame: bytes) -> None:
        """Send one binary frame."""
        with _reports_closing():
            self._socket.send(frame)

    def receive(self) -> bytes | str:
        """The next frame; TimeoutError after ``timeout`` seconds."""
        with _reports_closing():
            frame: bytes | str = self._socket.recv(timeout=self.timeout)
            return frame

    def close(self) -> None:
        """Close the socket; the next call opens another."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()


@contextmanager
def _reports_closing() -> Iterator[None]:
    from websockets.exceptions import ConnectionClosed

    try:
        yield
    except ConnectionClosed as error:
        raise ConnectionError(f"the connection was closed ({error})") from None
