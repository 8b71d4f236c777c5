"""``judge:URL?model=NAME``: a vision-language model behind an OpenAI-compatible server says whether a take succeeded.

It is shown ``frames`` pictures of a window, evenly spaced from the first to the last, and the instruction. ``answer``:
``number`` asks how sure it is from 0 to 100; ``yes`` asks for Yes or No and reads the log-probabilities of the answer's
first token, P(yes) / (P(yes) + P(no)), which has no ties but needs a server that gives them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import math
import re
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from besttake.demos.view import View
from besttake.encoders.cache import frame_hash
from besttake.errors import ComponentError, one_line
from besttake.files import cache_dir, short_hash
from besttake.options import Reader
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.scorers.chat import Server
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
        """What its answer is kept by; which model and prompt it was asked with names the file."""
        whole = hashlib.blake2b(self.instruction.encode(), digest_size=16)
        for frame in self.frames:
            whole.update(frame_hash(frame))
        return whole.digest()


class Judge:
    """The probability of success that a model states, for each window; NaN where its answer cannot be read."""

    def __init__(
        self, server: Server, model: str, *, frames: int = 8, answer: Answer = "number", tokens: int = 16,
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
        """Ask about every window that has frames; what was asked before is not asked again."""
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
    """Answers on disk, shared by runs and processes; a damaged row counts as none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, keys: Mapping[bytes, object]) -> dict[bytes, float]:
        """Those of ``keys`` that were answered."""
        if not keys or not self.path.exists():
            return {}
        try:
            with closing(self._open()) as base:
                query = "SELECT hash, value FROM answers WHERE hash = ?"
                rows = [base.execute(query, (key,)).fetchone() for key in keys]
        except (OSError, sqlite3.Error) as error:
            raise self._damaged(error) from None
        values = {row[0]: _unpacked(row[0], row[1]) for row in rows if row}
        return {key: value for key, value in values.items() if value is not None}

    def write(self, key: bytes, value: float) -> None:
        """Keep an answer."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as base, base:
                base.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, _packed(key, value)))
        except (OSError, sqlite3.Error) as error:
            raise self._damaged(error) from None

    def _open(self) -> sqlite3.Connection:
        base = sqlite3.connect(self.path, timeout=60)
        base.execute("CREATE TABLE IF NOT EXISTS answers (hash BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        return base

    def _damaged(self, error: Exception) -> ComponentError:
        return ComponentError(f"kept answers {self.path}: {one_line(error, 200)}; delete the file to ask again")


def _packed(key: bytes, value: float) -> bytes:
    data = np.float64(value).tobytes()
    return data + zlib.crc32(key + data).to_bytes(4, "little")


def _unpacked(key: bytes, blob: Any) -> float | None:
    if not isinstance(blob, bytes) or len(blob) != 12:
        return None
    data, check = blob[:8], int.from_bytes(blob[8:], "little")
    return float(np.frombuffer(data, np.float64)[0]) if zlib.crc32(key + data) == check else None


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
        Server.at(rest, timeout=read.number("timeout", timeout, 0.001)), model,
        frames=read.whole("frames", frames, 1, 64), answer=read.choice("answer", answer, tuple(_TELL)),
        tokens=read.whole("tokens", tokens, 1, 8192), parallel=read.whole("parallel", parallel, 1, 64), name=name,
    )  # fmt: skip
