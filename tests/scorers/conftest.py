"""A library and a run of small made-up films."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.pixels import Pixels
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.types import U8, Demo

MANIFEST = Manifest(identity={"seed": 0})


def film(rng: np.random.Generator, length: int) -> U8:
    """A square that wanders over noise."""
    frames = rng.integers(0, 40, (length, 24, 24, 3), np.uint8)
    for frame, (x, y) in zip(frames, np.clip(8 + np.cumsum(rng.normal(size=(length, 2)), axis=0), 0, 18), strict=True):
        frame[int(y) : int(y) + 6, int(x) : int(x) + 6] = 220
    return frames


class Wanderings:
    """Demonstrations of two tasks, pictures only."""

    name, fingerprint, camera, fps = "wanderings", "0", "front", 10.0
    gripper_dim, gripper_open, eef_dims = None, 1, None

    def __iter__(self) -> Iterator[Demo]:
        rng = np.random.default_rng(0)
        for number in range(12):
            length = 10 + number % 5
            task = ("pick", "push")[number % 2]
            yield Demo(f"{number}", task, film(rng, length), np.arange(length), None, None)


@pytest.fixture(scope="session")
def wanderings() -> Wanderings:
    return Wanderings()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(Wanderings(), Pixels(), tmp_path_factory.mktemp("libraries") / "wanderings")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 starts x 3 seeds of either task, with takes of many lengths; half of them succeed on the way."""
    rng, moves = np.random.default_rng(1), np.random.default_rng(2)
    path = tmp_path_factory.mktemp("runs") / "run"
    with Store.write(path, MANIFEST) as store:
        for task in ("pick", "push"):
            for start in range(9):
                for seed in range(3):
                    frames = film(rng, int(rng.integers(3, 20)))
                    steps = 2 * len(frames) - 1
                    store.add(
                        Take(
                            key=TakeKey("p", "w", task, start, "base", seed),
                            success_step=int(rng.integers(1, steps)) if rng.random() < 0.5 else None,
                            actions=moves.normal(size=(steps, 1)).astype(np.float32),
                            states=np.zeros((steps + 1, 1), np.float32),
                            film=Film.pack(frames),
                            frame_steps=np.arange(0, steps, 2, dtype=np.int32),
                        )
                    )
    return path
