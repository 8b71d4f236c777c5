"""Files of every format with some bytes changed: demonstrations, or one line that says what is wrong."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
import writers

from besttake.demos.base import UnreadableDemo
from besttake.demos.hdf5 import SUFFIXES
from besttake.demos.layout import DataHints, layout_of
from besttake.demos.resolve import source_of
from besttake.errors import BestTakeError

FIXTURES = Path(__file__).parent / "fixtures"
TRIES = int(os.environ.get("BESTTAKE_MUTATIONS", "12"))
EPISODES = [writers.episode(number, length=5, side=16) for number in range(2)]
FORMATS = {
    "lerobot v3": writers.hugging_face_libero,
    "lerobot v2.0": writers.openpi_libero,
    "lerobot v2.1": writers.ipec_libero,
    "rlds": lambda root, episodes: writers.rlds_libero(root, episodes, shards=1),
    "maniskill": lambda root, episodes: writers.maniskill(root / "trajectory.h5", episodes).parent,
    "droid": writers.droid,
    "zarr": lambda root, _: Path(shutil.copytree(FIXTURES / "replay.zarr", root)),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_changed_bytes_are_read_or_told_in_one_line(tmp_path, kind):
    root = FORMATS[kind](tmp_path / "data", EPISODES)
    # libhdf5 may crash on damaged files of its own (SECURITY.md).
    files = sorted(p for p in root.rglob("*") if p.is_file() and p.suffix not in SUFFIXES)
    rng = random.Random(kind)
    for _ in range(TRIES):
        path = rng.choice(files)
        whole = path.read_bytes()
        path.write_bytes(mutated(whole, rng))
        try:
            source = source_of(f"{kind.split()[0]}:{root}")
            layout_of(source, DataHints())
            for item in source:
                assert not isinstance(item, UnreadableDemo) or ("\n" not in item.reason and len(item.reason) < 400)
        except BestTakeError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 1000
        finally:
            path.write_bytes(whole)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, a piece cut out, or the end cut off."""
    changed = bytearray(data)
    way = rng.randrange(4)
    if way == 0 or not data:
        return bytes(changed[: rng.randrange(len(data) + 1)])
    if way == 1:
        first = rng.randrange(len(data))
        del changed[first : first + rng.randrange(1, 64)]
        return bytes(changed)
    for _ in range(rng.choice((1, 2, 8))):
        # The heads of files, where sizes and types stand, as often as all the rest.
        changed[rng.randrange(min(len(data), 2048) if way == 2 else len(data))] = rng.randrange(256)
    return bytes(changed)
