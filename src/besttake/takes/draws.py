"""The randomness of takes: a pure function of the names of run, task, start, seed and chunk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_STREAMS = ("noise", "perception", "shuffle", "env", "extra")


@dataclass(frozen=True)
class Draw:
    """The randomness of one chunk: the same draw always gives the same numbers.

    Its numbers depend on its five fields alone. Takes therefore do not depend on batch, worker or order, and all arms
    see the same noise. Each ``stream`` (noise, perception, shuffle, env or extra) is independent of the others.

    ``task`` names the task and its purpose: ``testbed/pick`` in a diagnosis, ``probe/pick`` in a probe,
    ``testbed/pick#1`` for a second candidate of the same chunk.

    Examples:
        >>> Draw(0, "pick", start=3, seed=1, chunk=0).normal((2,)).round(3)
        array([-1.808,  0.14 ], dtype=float32)
    """

    run_seed: int
    task: str
    start: int
    seed: int
    chunk: int = 0

    def generator(self, stream: str = "noise") -> np.random.Generator:
        """Return a new Philox generator, with key (run seed, task) and counter (start, seed, chunk, stream)."""
        where = self.chunk * len(_STREAMS) + _STREAMS.index(stream)
        key = np.array([self.run_seed, _word(self.task)], dtype=np.uint64)
        counter = np.array([0, where, self.seed, self.start], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def normal(self, shape: tuple[int, ...], stream: str = "noise") -> NDArray[np.float32]:
        """Return standard normal numbers, float32, of this shape. A second call returns the same numbers."""
        return self.generator(stream).standard_normal(shape, dtype=np.float32)

    def uniform(self, shape: tuple[int, ...], stream: str = "noise") -> NDArray[np.float32]:
        """Return uniform numbers from -1 to 1, float32, of this shape. A second call returns the same numbers."""
        return 2 * self.generator(stream).random(shape, dtype=np.float32) - 1

    def integer(self, stream: str = "extra") -> int:
        """Return an integer from 0 to 2**63 - 2, to seed another library's generator."""
        return int(self.generator(stream).integers(0, 2**63 - 1))

    def at(self, chunk: int) -> Draw:
        """Return the draw of another chunk of the same take."""
        return replace(self, chunk=chunk)

    def candidate(self, index: int) -> Draw:
        """Return the draw of another candidate for the same chunk; candidate 0 is this draw itself."""
        return self if index == 0 else replace(self, task=f"{self.task}#{index}")


@lru_cache(maxsize=1024)
def _word(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
