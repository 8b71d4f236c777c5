"""What slow scorers have given so far, start by start, so that a run that was killed asks only for the rest.

Each process appends to a file of its own in ``scoring/`` of the run directory, a line per start and scorer, with a
checksum; a line that is not whole is left out. When all scores are in ``scores.safetensors`` the directory goes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from besttake import files
from besttake.scorers.base import Score

_FOLDER = "scoring"


class Journal:
    """The journal of the run in ``run``."""

    def __init__(self, run: Path) -> None:
        self._folder = run / _FOLDER
        self._known: dict[tuple[str, str], list[Score]] | None = None

    def get(self, scorer: str, start: str) -> list[Score] | None:
        """The scores of the takes of a start, if they are there; ``start`` names all that they depend on."""
        if self._known is None:
            self._known = dict(entry for path in self._paths() for entry in _entries(path))
        return self._known.get((scorer, _short(start)))

    def put(self, scorer: str, start: str, scores: Sequence[Score]) -> None:
        """Keep the scores of the takes of a start, unless the disk is full: that is told when all are written."""
        entry = {"scorer": scorer, "start": _short(start), "scores": [_packed(score) for score in scores]}
        text = json.dumps(entry, sort_keys=True)
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            with (self._folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
                file.write(f"{_sum(text)} {text}\n")

    def clear(self) -> None:
        """Forget everything."""
        self._known = {}
        for path in self._paths():
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.jsonl"))


def _entries(path: Path) -> list[tuple[tuple[str, str], list[Score]]]:
    """What a journal holds; a line that is not what was written, or that we would not write, is left out."""
    entries = []
    with suppress(OSError, ValueError):
        for line in files.read_regular(path).decode("utf-8", "replace").splitlines():
            checksum, _, text = line.partition(" ")
            if checksum == _sum(text):
                with suppress(ValueError, LookupError, TypeError, AttributeError, OverflowError):
                    one = files.read_json(text)
                    name = (str(one["scorer"]), str(one["start"]))
                    entries.append((name, [_unpacked(score) for score in one["scores"]]))
    return entries


def _packed(score: Score) -> list[Any]:
    values = [float(value).hex() for value in score.values]
    trace = None if score.trace is None else base64.b64encode(np.asarray(score.trace, "<f4").tobytes()).decode()
    return [values, trace]


def _unpacked(packed: list[Any]) -> Score:
    values, trace = packed
    frames = None if trace is None else np.frombuffer(base64.b64decode(trace), "<f4").astype(np.float32)
    return Score(np.array([float.fromhex(value) for value in values]), frames)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
