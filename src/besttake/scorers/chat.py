"""One question to a server that speaks the chat completions API of OpenAI, as vLLM, SGLang, llama.cpp and Ollama do.

Nothing leaves this machine unless the user allowed it (`uploads_allowed`); no redirect is followed, since it could lead
elsewhere. The key comes from the environment alone and stands in no message, log or file.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Self
from urllib.parse import urlsplit

from besttake.auth import is_loopback
from besttake.errors import ComponentError, one_line

KEY = "BESTTAKE_JUDGE_API_KEY"
_ALLOWED = "BESTTAKE_ALLOW_UPLOAD"
_MOST_BYTES = 1 << 20
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
_LONGEST_PAUSE = 30.0


@contextmanager
def uploads_allowed(*, allowed: bool = True) -> Iterator[None]:
    """Let scorers send frames to other machines, here and in processes that are started meanwhile.

    The environment carries the permission: every child inherits it, and no file that BestTake reads can give it.
    """
    before = os.environ.get(_ALLOWED)
    if allowed:
        os.environ[_ALLOWED] = "1"
    try:
        yield
    finally:
        if allowed and before is None:
            os.environ.pop(_ALLOWED, None)


@dataclass(frozen=True)
class Server:
    """Where to ask: ``timeout`` seconds for an answer, up to ``retries`` more attempts with growing pauses."""

    url: str
    timeout: float = 60.0
    retries: int = 4
    pause: float = 0.5

    @classmethod
    def at(cls, base: str, **limits: Any) -> Server:
        """The server whose API begins at ``base``, or at its ``/v1``; ComponentError unless it may be used."""
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ComponentError(f"judge:{base[:100]}: name the server by URL, as in judge:http://127.0.0.1:8000")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ComponentError(f"judge: {parts.hostname}: the URL may hold no password; put the key into ${KEY}")
        if not is_loopback(parts.hostname) and os.environ.get(_ALLOWED) != "1":
            raise ComponentError(
                f"judge:{base[:100]}: this would send frames of your takes to {parts.hostname}; `allow_upload` lets it"
            )
        return cls(f"{base.rstrip('/')}{'' if parts.path.strip('/') else '/v1'}/chat/completions", **limits)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The first choice of the answer to ``question``; ComponentError when there is none after all attempts."""
        for attempt in range(self.retries + 1):
            try:
                return self._choice(self._post(question))
            except _Refused as refused:
                reason, wait = refused.reason, refused.wait
                if refused.code not in _BUSY:
                    break
            except (OSError, HTTPException) as error:  # refused, reset, timed out, cut off
                reason, wait = self._hidden(one_line(error, 200)), None
            if attempt < self.retries:
                time.sleep(min(wait if wait is not None else self.pause * 2**attempt, _LONGEST_PAUSE))
        raise ComponentError(f"the judge at {self.url} does not answer ({reason}); what it answered is kept")

    def _post(self, question: Mapping[str, Any]) -> bytes:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url, json.dumps(question).encode(), headers)
        with _Deadline(self.timeout) as deadline:
            opener = _opener(urlsplit(self.url).hostname or "", deadline)
            try:
                with opener.open(request, timeout=self.timeout) as response:
                    return bytes(response.read(_MOST_BYTES + 1))
            except urllib.error.HTTPError as error:
                wait = _retry_after(error.headers.get("Retry-After"))
                raise _Refused(error.code, self._refusal(error), wait) from None

    def _choice(self, data: bytes) -> dict[str, Any]:
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError(f"more than {_MOST_BYTES} bytes")
            choice = json.loads(data)["choices"][0]
            if not isinstance(choice["message"], dict):
                raise TypeError("its message is no mapping")
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            reason = self._hidden(one_line(error, 100))
            raise ComponentError(f"{self.url} answers with something else than a chat completion ({reason})") from None
        return dict(choice)

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        with error:
            try:
                body = error.read(2000).decode("utf-8", "replace")
            except (OSError, HTTPException):
                body = ""
        return self._hidden(f"{error.code} {error.reason} {' '.join(body.split())[:200]}".strip())

    def _hidden(self, text: str) -> str:
        """``text`` without the key: servers repeat it when they refuse it."""
        key = os.environ.get(KEY)
        return text.replace(key, "[key]") if key else text


class _Refused(Exception):
    """The server answered with an error: its code, what it said, and how long it asks us to wait."""

    def __init__(self, code: int, reason: str, wait: float | None) -> None:
        super().__init__(reason)
        self.code, self.reason, self.wait = code, reason, wait


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None, so that urllib raises the redirect as an error."""


class _Deadline:
    """Cuts connections after ``seconds``, whatever they are doing, and leaves with a TimeoutError then.

    The timeout of a socket starts anew with every byte, so a server that sends one now and then would keep us for ever.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._sockets, self._over = seconds, list[socket.socket](), False
        self._lock, self._timer = threading.Lock(), threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._over:
            raise TimeoutError(f"timed out: no whole answer within {self._seconds:g} s") from None

    def watch(self, connection: socket.socket) -> None:
        """Cut this one, too."""
        with self._lock:
            self._sockets.append(connection)
            if self._over:
                _hang_up(connection)

    def _cut(self) -> None:
        with self._lock:
            self._over = True
            for connection in self._sockets:
                _hang_up(connection)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _opener(host: str, deadline: _Deadline) -> urllib.request.OpenerDirector:
    """Without a proxy for this machine's own servers: it would be another machine."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> HTTPResponse:
            return self.do_open(Plain, request)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> HTTPResponse:
            return self.do_open(Secure, request)

    proxies = [urllib.request.ProxyHandler({})] if is_loopback(host) else []
    return urllib.request.build_opener(_NoRedirect, PlainHandler, SecureHandler, *proxies)


def _retry_after(header: str | None) -> float | None:
    return float(header) if header and header.isdecimal() else None
