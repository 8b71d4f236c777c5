"""``judge:URL?model=NAME``: a vision-language model behind an OpenAI-compatible server says whether a take succeeded.

It is shown ``frames`` pictures of a window, evenly spaced from the first to the last, and the instruction. ``answer``:
``number`` asks how sure it is from 0 to 100; ``yes`` asks for Yes or No and reads the log-probabilities of the answer's
first token, P(yes) / (P(yes) + P(no)), which has no ties but needs a server that gives them.

`ChatServer` speaks the chat completions API of OpenAI, as vLLM, SGLang, llama.cpp and Ollama do. Nothing leaves this
machine unless the environment variable ``BESTTAKE_ALLOW_UPLOAD`` is 1, which no file that BestTake reads can set.
Redirects are not followed, since they could lead elsewhere. The API key comes only from the environment and is never
written to a message, log or file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import logging
import math
import os
import re
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

from besttake.auth import is_loopback
from besttake.demos.library import View
from besttake.encoders.cache import frame_hash
from besttake.errors import ComponentError, one_line
from besttake.files import cache_dir, short_hash
from besttake.options import Reader
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.types import U8

Answer = Literal["number", "yes"]
_TELL: dict[Answer, str] = {
    "number": "How sure are you that the robot has completed the task by the last picture? Answer with one whole number"
    " from 0 (certainly not) to 100 (certainly), and nothing else.",
    "yes": "Has the robot completed the task by the last picture? Answer with one word, Yes or No.",
}
_PROMPT = (
    "The pictures show, in order of time, one attempt of a robot at a task, from its beginning to its end.\n"
    "Task: {instruction}\n{tell}"
)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_TOP = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Question:
    frames: tuple[U8, ...]
    instruction: str

    def key(self) -> bytes:
        """The key under which its answer is cached; model and prompt are part of the file name."""
        whole = hashlib.blake2b(self.instruction.encode(), digest_size=16)
        for frame in self.frames:
            whole.update(frame_hash(frame))
        return whole.digest()


class Judge:
    """The probability of success that a model states, for each window; NaN where its answer cannot be read."""

    def __init__(
        self, server: ChatServer, model: str, *, frames: int = 8, answer: Answer = "number", tokens: int = 16,
        parallel: int = 4, name: str | None = None,
    ) -> None:  # fmt: skip
        self._server, self._model, self._answer = server, model, answer
        self._frames, self._tokens, self._parallel = frames, tokens, parallel
        made_of = short_hash("judge 1", model, _PROMPT, _TELL[answer], f"{frames} {tokens} {answer}")
        tail = model.rstrip("/").rpartition("/")[2]
        self.spec = ScorerSpec(
            name or f"judge {tail}{' yes' if answer == 'yes' else ''}",
            reads=("frames", "instruction"), fingerprint=f"judge {made_of}", probability=True,
        )  # fmt: skip
        self._kept = _Answers(cache_dir() / "answers" / f"{made_of}.sqlite")

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """Ask about every window that has frames, unless the answer is cached."""
        asked = [[self._question(take, window) for window in take.windows] for take in takes]
        questions = {q.key(): q for windows in asked for q in windows if q is not None}
        answers = self._kept.read(questions)
        new = {key: question for key, question in questions.items() if key not in answers}
        with ThreadPoolExecutor(self._parallel) as pool:
            try:
                answers.update(zip(new, pool.map(self._ask, new.values()), strict=True))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        missing = sum(math.isnan(answers[key]) for key in new)
        if missing:
            _log.warning(
                "%s: %d of %d answers cannot be read, so they score nothing", self.spec.name, missing, len(new)
            )
        return [Score([math.nan if q is None else answers[q.key()] for q in windows]) for windows in asked]

    def _question(self, take: Footage, window: np.ndarray[Any, np.dtype[np.bool_]]) -> _Question | None:
        assert take.frames is not None
        rows = np.flatnonzero(window)
        if not len(rows):
            return None
        places = np.unique(np.linspace(0, len(rows) - 1, self._frames).round().astype(int))
        return _Question(tuple(take.frames[row] for row in rows[places]), take.instruction or "")

    def _ask(self, question: _Question) -> float:
        choice = self._server.ask(self.request(question.frames, question.instruction))
        value = stated(choice) if self._answer == "number" else likely(choice)
        self._kept.write(question.key(), value)
        return value

    def request(self, frames: Sequence[U8], instruction: str) -> dict[str, Any]:
        """The body of one request."""
        prompt = _PROMPT.format(instruction=instruction or "unknown", tell=_TELL[self._answer])
        pictures = [{"type": "image_url", "image_url": {"url": _data_url(frame)}} for frame in frames]
        logs = {"logprobs": True, "top_logprobs": _TOP} if self._answer == "yes" else {}
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": [*pictures, {"type": "text", "text": prompt}]}],
            "max_tokens": self._tokens, "temperature": 0, "stream": False, **logs,
        }  # fmt: skip


def stated(choice: Mapping[str, Any]) -> float:
    """The one number from 0 to 100 in an answer as 0..1; NaN where there is none, or more than one.

    >>> stated({"message": {"content": "85"}}), stated({"message": {"content": "about 85/100."}})
    (0.85, 0.85)
    >>> stated({"message": {"content": "I cannot see it"}}), stated({"message": {"content": "between 20 and 40"}})
    (nan, nan)
    """
    text = choice["message"].get("content")
    if not isinstance(text, str):
        return math.nan
    plain = re.sub(r"(?<=\d)\s*(?:/|out of)\s*100\b", "", _THOUGHT.sub("", text))
    numbers = [float(number) for number in _NUMBER.findall(plain)]
    return numbers[0] / 100 if len(numbers) == 1 and 0 <= numbers[0] <= 100 else math.nan


def likely(choice: Mapping[str, Any]) -> float:
    """P(yes) / (P(yes) + P(no)) of the answer's first word; NaN where it is neither."""
    logs = choice.get("logprobs")
    if not isinstance(logs, Mapping) or not logs.get("content"):
        raise ComponentError("the judge's server gives no log-probabilities; `answer=number` needs none")
    try:
        first = next((entry for entry in logs["content"] if str(entry["token"]).strip()), None)
        odds = {"yes": 0.0, "no": 0.0}
        for entry in first["top_logprobs"] if first else ():
            word = str(entry["token"]).strip().lower()
            if word in odds:
                odds[word] += math.exp(min(float(entry["logprob"]), 0.0))
    except (KeyError, TypeError, ValueError):
        return math.nan
    total = odds["yes"] + odds["no"]
    return odds["yes"] / total if total > 0 else math.nan


class _Answers:
    """A cache of answers on disk, shared by runs and processes. SQLite keeps NaN as NULL."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, keys: Iterable[bytes]) -> dict[bytes, float]:
        """The cached answers to ``keys``."""
        with self._open() as base:
            rows = [base.execute("SELECT hash, value FROM answers WHERE hash = ?", (key,)).fetchone() for key in keys]
        return {row[0]: math.nan if row[1] is None else float(row[1]) for row in rows if row}

    def write(self, key: bytes, value: float) -> None:
        """Store an answer."""
        with self._open() as base:
            base.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, value))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as base, base:
                base.execute("CREATE TABLE IF NOT EXISTS answers (hash BLOB PRIMARY KEY, value REAL) WITHOUT ROWID")
                yield base
        except (OSError, sqlite3.Error) as error:
            raise ComponentError(
                f"kept answers {self.path}: {one_line(error, 200)}; delete the file to ask again"
            ) from None


def _data_url(frame: U8) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def make(
    rest: str, *, model: str = "", frames: str | int = 8, answer: str = "number", tokens: str | int = 16,
    parallel: str | int = 4, timeout: str | float = 60, name: str | None = None,
) -> Judge:  # fmt: skip
    """The judge behind the server at the URL ``rest``."""
    read = Reader(f"judge:{rest}"[:200])
    if not model:
        raise ComponentError(f"{read.uri}: which model? Add ?model=NAME, one that the server has")
    return Judge(
        ChatServer.at(rest, timeout=read.number("timeout", timeout, 0.001)), model,
        frames=read.whole("frames", frames, 1, 64), answer=read.choice("answer", answer, tuple(_TELL)),
        tokens=read.whole("tokens", tokens, 1, 8192), parallel=read.whole("parallel", parallel, 1, 64), name=name,
    )  # fmt: skip


KEY = "BESTTAKE_JUDGE_API_KEY"
_ALLOWED = "BESTTAKE_ALLOW_UPLOAD"
_MOST_BYTES = 1 << 20
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class ChatServer:
    """A chat server: ``timeout`` in seconds for an answer, up to ``retries`` more attempts with growing pauses."""

    url: str
    timeout: float = 60.0
    retries: int = 4
    pause: float = 0.5

    @classmethod
    def at(cls, base: str, **limits: Any) -> ChatServer:
        """The server whose API begins at ``base``, or at its ``/v1``; ComponentError unless it may be used."""
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ComponentError(f"judge:{base[:100]}: name the server by URL, as in judge:http://127.0.0.1:8000")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ComponentError(f"judge: {parts.hostname}: the URL may hold no password; put the key into ${KEY}")
        if not is_loopback(parts.hostname) and os.environ.get(_ALLOWED) != "1":
            raise ComponentError(
                f"judge:{base[:100]}: this would send frames of your takes to {parts.hostname}; set {_ALLOWED}=1"
                " to allow it"
            )
        return cls(f"{base.rstrip('/')}{'' if parts.path.strip('/') else '/v1'}/chat/completions", **limits)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The first choice of the answer to ``question``; ComponentError when there is none after all attempts."""
        for attempt in range(self.retries + 1):
            wait = self.pause * 2**attempt
            try:
                return self._choice(self._post(question))
            except urllib.error.HTTPError as error:
                reason, asked = _refusal(error), error.headers.get("Retry-After", "")
                wait = float(asked) if asked.isdecimal() else wait
                if error.code not in _BUSY:
                    break
            except (OSError, HTTPException) as error:  # refused, reset, timed out, cut off
                reason = one_line(error, 200)
            if attempt < self.retries:
                time.sleep(min(wait, _LONGEST_PAUSE))
        raise ComponentError(f"the judge at {self.url} does not answer ({_hidden(reason)}); what it answered is kept")

    def _post(self, question: Mapping[str, Any]) -> bytes:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url, json.dumps(question).encode(), headers)
        with _opener(urlsplit(self.url).hostname or "").open(request, timeout=self.timeout) as response:
            return bytes(response.read(_MOST_BYTES + 1))

    def _choice(self, data: bytes) -> dict[str, Any]:
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError(f"more than {_MOST_BYTES} bytes")
            choice = json.loads(data)["choices"][0]
            if not isinstance(choice["message"], dict):
                raise TypeError("its message is no mapping")
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            reason = _hidden(one_line(error, 100))
            raise ComponentError(f"{self.url} answers with something else than a chat completion ({reason})") from None
        return dict(choice)


def _refusal(error: urllib.error.HTTPError) -> str:
    """What a server says when it refuses."""
    with error:
        try:
            body = error.read(2000).decode("utf-8", "replace")
        except (OSError, HTTPException):
            body = ""
    return f"{error.code} {error.reason} {' '.join(body.split())[:200]}".strip()


def _hidden(text: str) -> str:
    """``text`` without the key: servers repeat it when they refuse it."""
    key = os.environ.get(KEY)
    return text.replace(key, "[key]") if key else text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None, so that urllib raises the redirect as an error."""


def _opener(host: str) -> urllib.request.OpenerDirector:
    """An opener that uses no proxy for servers on this machine, since a proxy would be another machine."""
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(host) else []
    return urllib.request.build_opener(_NoRedirect, *proxies)
