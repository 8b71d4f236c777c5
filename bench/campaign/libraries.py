"""Damage to every file of a library: each is without effect, or named in one line; none changes what is read."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.campaign.havoc import damaged
from bench.campaign.stage import Attempt, check, stage
from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.pixels import Pixels
from besttake.errors import BestTakeError
from besttake.testbed.demos import TestbedDemos


@stage("library-mutations", "damage each file of a library once, then use it", ci=40, full=2000, each=9)
def library_mutations(scratch: Path) -> Iterator[Attempt]:
    made = build(TestbedDemos(("pick",), 2, 16, "std"), Pixels(), scratch / "library")
    expected, names = _used(made.path), sorted(path.name for path in made.path.iterdir())
    check(len(names) == 9, f"a library has the files {names}")

    def attempt(rng: random.Random, place: Path) -> str:
        named = 0
        copy = Path(shutil.copytree(made.path, place / "library"))
        for name in names:
            good = (copy / name).read_bytes()
            bad, what = damaged(rng, good)
            (copy / name).write_bytes(bad)
            try:
                check(_used(copy) == expected, f"{what} of {name} changed what is read without a word")
            except BestTakeError as error:
                text = str(error)
                check(name in text and "\n" not in text, f"{what} of {name} is told as {text[:200]!r}")
                named += 1
            (copy / name).write_bytes(good)
        return f"{named} of {len(names)} named, the others without effect"

    yield attempt


def _used(path: Path) -> str:
    """A hash of everything that a diagnosis, its report and a server read from a library."""
    library = Library.open(path)
    digest = hashlib.sha256(repr(sorted(library.summary().items())).encode())
    frames = np.random.default_rng(0).integers(0, 256, (2, 48, 48, 3), np.uint8)
    digest.update(library.encoder().encode(frames).tobytes())
    view = library.view("pick", "")
    arrays = [view.embeddings, view.frame_demo, view.frame_step, library.states, library.actions]
    for array in arrays:
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    for frame in (0, len(view.frames) - 1):
        digest.update(library.frame_image(frame).tobytes())
    digest.update(repr(library.head).encode())
    return digest.hexdigest()
