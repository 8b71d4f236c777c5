"""A very small env and sampler for tests of the engine; some of its starts raise or kill their process."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from besttake.arms.base import TakeState
from besttake.types import F32, EnvSpec, Observation, Start, Step, TaskSpec


class ToyEnv:
    def __init__(self, poison: int = -1, bad: int = -1, slow: float = 0.0, once: str = "", size: int = 8) -> None:
        self.poison, self.bad, self.slow, self.once, self.size = poison, bad, slow, once, size
        self.x = np.zeros(2)
        self.start = Start("walk", 0)
        self.spec = EnvSpec(
            name="toy", tasks=(TaskSpec("walk", "walk", "go", 12),), starts=range(20), action_dim=2, state_dim=2,
            cameras=("eye",), score_camera="eye",
        )  # fmt: skip

    def reset(self, start: Start) -> None:
        self.start, self.x = start, np.random.default_rng(start.index).normal(size=2)

    def step(self, action: F32) -> Step:
        time.sleep(self.slow)
        if self.start.index == self.poison and (not self.once or not os.path.exists(self.once)):
            if self.once:
                open(self.once, "w").close()
            os.kill(os.getpid(), 9)
        if self.start.index == self.bad:
            raise RuntimeError("the arm\nfell off")
        self.x = self.x + action
        return Step(bool(self.x.sum() > 3), False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        shade = np.uint8(abs(self.x.sum() * 10) % 256)
        return Observation(
            {c: np.full((self.size, self.size, 3), shade, np.uint8) for c in cameras}, self.x.astype(np.float32)
        )

    def close(self) -> None:
        pass


def make(poison: str = "-1", bad: str = "-1", slow: str = "0", once: str = "", size: str = "8") -> ToyEnv:
    return ToyEnv(int(poison), int(bad), float(slow), once, int(size))


class Noise:
    """Actions straight from the draw."""

    def sample(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        return [r.draw.normal((3, 2)) for r in requests]


class Moody(Noise):
    """Gives actions that are no numbers for one start, and none for another."""

    def sample(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        return [self._block(r) for r in requests]

    def _block(self, request: TakeState) -> F32 | Exception:
        if request.draw.start == 1:
            return ValueError("cannot see")
        return request.draw.normal((3, 2)) * np.float32("nan" if request.draw.start == 4 else 1)


@dataclass(frozen=True)
class Factory:
    """A sampler that is made in the worker."""

    moody: bool = False
    missing: bool = False

    def sampler(self, env: EnvSpec) -> Noise:
        if self.missing:
            raise FileNotFoundError("no weights here")
        return Moody() if self.moody else Noise()


@dataclass(frozen=True)
class Recipe:
    """A policy for replicas: each call takes ``seconds`` for up to ``width`` takes."""

    seconds: float = 0.0
    width: int = 0
    missing: bool = False
    library: str | None = None

    def load(self) -> Sleeping:
        if self.missing:
            raise FileNotFoundError("no weights here")
        return Sleeping(self.seconds, self.width)

    def sampler(self, env: EnvSpec) -> Sleeping:
        return self.load()

    def sampler_of(self, loaded: Sleeping, env: EnvSpec) -> Sleeping:
        return loaded


class Sleeping(Noise):
    """Noise that takes its time; ``busy`` counts it."""

    def __init__(self, seconds: float, width: int = 0) -> None:
        self.seconds, self.width, self.busy = seconds, width, 0.0
        self._lock = threading.Lock()

    def sample(self, requests: Sequence[TakeState]) -> list[F32 | Exception]:
        with self._lock:
            began = time.perf_counter()
            time.sleep(self.seconds)
            self.busy += time.perf_counter() - began
        return super().sample(requests)


def halved(number: int) -> float:
    """Work for `WorkerPool.map`; kills its process at 13 and does not divide 7."""
    if number == 13:
        os.kill(os.getpid(), 9)
    if number == 7:
        raise ValueError("7 is odd")
    return number / 2


def cut_short(once: str) -> str | CutShort:
    """Work for `WorkerPool.map`: the first time, a result whose process dies while it is sent."""
    return "whole" if os.path.exists(once) else CutShort(once)


class CutShort:
    """Half of a message, and the end."""

    def __init__(self, once: str) -> None:
        self.once = once

    def __reduce__(self) -> Any:
        open(self.once, "w").close()
        for descriptor in range(3, 64):
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    os.write(descriptor, (1000).to_bytes(4, "big") + b"half a message")
        os.kill(os.getpid(), 9)
        return ()
