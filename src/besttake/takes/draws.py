"""Randomness is data: a take's noise is a pure function of who it is, never of when or where it ran."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_STREAMS = ("noise", "perception", "shuffle", "env", "extra")


@dataclass(frozen=True)
class Draw:
    """The address of one chunk's randomness. Arms share it, which is what pairs them.

    ``task`` is a name to draw by: in a diagnosis the scheme of the env and its task (``testbed/pick``), in the probe
    ``probe/pick``, and for a further candidate of the arm `rerank` the same with ``#1`` and so on behind it.

    >>> Draw(0, "pick", start=3, seed=1, chunk=0).normal((2,)).round(3)
    array([-1.808,  0.14 ], dtype=float32)
    """

    run_seed: int
    task: str
    start: int
    seed: int
    chunk: int = 0

    def generator(self, stream: str = "noise") -> np.random.Generator:
        """A Philox generator whose key is (run seed, task) and whose counter is (start, seed, chunk, stream)."""
        where = self.chunk * len(_STREAMS) + _STREAMS.index(stream)
        key = np.array([self.run_seed, _word(self.task)], dtype=np.uint64)
        counter = np.array([0, where, self.seed, self.start], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def normal(self, shape: tuple[int, ...], stream: str = "noise") -> NDArray[np.float32]:
        """Standard normal numbers, float32."""
        return self.generator(stream).standard_normal(shape, dtype=np.float32)

    def uniform(self, shape: tuple[int, ...], stream: str = "noise") -> NDArray[np.float32]:
        """Uniform numbers from -1 to 1, float32."""
        return 2 * self.generator(stream).random(shape, dtype=np.float32) - 1

    def integer(self, stream: str = "extra") -> int:
        """A non-negative 63-bit integer, to seed generators that are not ours."""
        return int(self.generator(stream).integers(0, 2**63 - 1))

    def at(self, chunk: int) -> Draw:
        """The draw of another chunk of the same take."""
        return replace(self, chunk=chunk)

    def candidate(self, index: int) -> Draw:
        """The draw of another candidate for the same chunk; candidate 0 is this draw itself."""
        return self if index == 0 else replace(self, task=f"{self.task}#{index}")


@lru_cache(maxsize=1024)
def _word(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
