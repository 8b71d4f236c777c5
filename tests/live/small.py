"""A small run that goes on: one policy, one task, 30 starts of two takes of which one succeeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from besttake.takes.key import TakeKey
from besttake.takes.manifest import Extent, Manifest
from besttake.takes.store import _row_of
from besttake.takes.take import Film, Take
from besttake.takes.take_table import TakeTable

STARTS, SEEDS = 30, 2
MANIFEST = Manifest(
    plan={"worth": 3.0},
    extent=Extent(
        policies=["<b>p</b>"], tasks=["e pick"], starts=list(range(STARTS)), seeds=list(range(SEEDS)), arms=["base"]
    ),
)


def take(start: int, seed: int) -> Take:
    frames = np.full((4, 8, 8, 3), 20 * start % 255, np.uint8)
    key = TakeKey("<b>p</b>", "e", "pick", start, "base", seed)
    outcome = 2 if (start + seed) % 2 else None
    numbers = np.zeros((5, 2), np.float32), np.zeros((6, 2), np.float32)
    return Take(key, outcome, *numbers, Film.pack(frames), np.arange(4, dtype=np.int32))


def add(run: Path, one: Take) -> None:
    """What the writer of a run does, from beside it: a file, then its row."""
    data = one.to_bytes()
    (run / one.key.file).parent.mkdir(exist_ok=True)
    (run / one.key.file).write_bytes(data)
    table = TakeTable(run)
    table.add([_row_of(one, data)])
    table.close()
