"""The heartbeat of a run: a file that tells watchers in other processes what the run is doing.

``heartbeat.json`` is written every second while a run goes on, and removed when it ends in order. Its number grows with
each beat, so that watcher and writer need no common clock. It is not part of any digest.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from besttake.files import read_json

FILE = "heartbeat.json"
_EVERY = 1.0
_MOST = 4096


@dataclass(frozen=True)
class Beat:
    """What a run is doing: its stage (``text``), takes ``done`` of ``total`` in this session, and seconds ``left``."""

    text: str = ""
    done: int = 0
    total: int = 0
    left: float | None = None
    number: int = 0


class Heartbeat:
    """Writes the beats that ``news`` returns into a run directory until it is closed; ignores errors of the disk."""

    def __init__(self, directory: Path, news: Callable[[], Beat]) -> None:
        self._path, self._news, self._number = directory / FILE, news, 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _work(self) -> None:
        while not self._closed.wait(_EVERY):
            self._beat()

    def _beat(self) -> None:
        self._number += 1
        try:
            news = asdict(self._news())
        except Exception:  # counts that change while they are read cost one beat, not the run
            news = {}
        temporary = self._path.with_name(f"{FILE}.tmp")
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # "x" never writes through a link of this name
            with temporary.open("x") as file:
                json.dump({**news, "number": self._number}, file)
            os.replace(temporary, self._path)


def read_heartbeat(directory: Path) -> Beat | None:
    """The last beat of a run; None if there is none that can be read."""
    try:
        values = read_json(directory / FILE, _MOST)
        left = values.get("left")
        left = None if left is None or not math.isfinite(float(left)) else float(left)
        return Beat(
            str(values.get("text", ""))[:500], int(values.get("done", 0)), int(values.get("total", 0)),
            left, int(values["number"]),
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
