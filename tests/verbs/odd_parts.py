"""Components that end in every way there is: the variable ODD names which one, and how (``env SystemExit``)."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import Any

from besttake import registry
from besttake.arms.base import ArmSpec, Sample
from besttake.scorers.base import Score, ScorerSpec

ENDS = {error.__name__: error for error in (SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit)}


class Odd:
    """Another component that goes wrong when it is called for the third time, as ODD says."""

    spec: Any

    def __init__(self, kind: str, inner: Any = None) -> None:
        self._kind, self._inner, self._calls = kind, inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def called(self) -> None:
        self._calls += 1
        kind, _, end = os.environ.get("ODD", " ").partition(" ")
        if kind != self._kind or self._calls < 3:
            return
        if end == "sleep":
            time.sleep(600)
        raise ENDS[end](3)


class OddEnv(Odd):
    def step(self, action: Any) -> Any:
        self.called()
        return self._inner.step(action)

    def close(self) -> None:
        if os.environ.get("ODD", "").startswith("close"):
            raise ENDS[os.environ["ODD"].split()[1]](3)


class OddPolicy(Odd):
    def sample(self, *arguments: Any) -> Any:
        self.called()
        return self._inner.sample(*arguments)


class OddEncoder(Odd):
    def encode(self, images: Any) -> Any:
        self.called()
        return self._inner.encode(images)


class OddScorer(Odd):
    spec = ScorerSpec("odd", reads=("actions",), fingerprint="1")

    def score(self, takes: Any, demos: Any) -> list[Score]:
        self._calls = 3
        self.called()
        return [Score([float(len(take.actions))] * len(take.windows)) for take in takes]


class OddArm(Odd):
    spec = ArmSpec("odd", fingerprint="1")

    def act(self, take: Any, tools: Any) -> Any:
        self.called()
        return (yield Sample(take.observation, take.draw))


def env() -> OddEnv:
    if os.environ.get("ODD", "").startswith("factory"):
        raise ENDS[os.environ["ODD"].split()[1]](3)
    return OddEnv("env", registry.env("testbed:pick"))


def policy(small: str = "true") -> OddPolicy:
    inner = registry.policy("testbed:half")
    made = OddPolicy("small" if small == "true" else "large", inner)
    made.spec = replace(inner.spec, small=small == "true", name="odd", fingerprint=small)
    return made


def encoder() -> OddEncoder:
    made = OddEncoder("encoder", registry.encoder("hog"))
    made.spec = replace(made._inner.spec, name="odd", fingerprint="odd 1", cheap=False)
    return made


def scorer() -> OddScorer:
    return OddScorer("scorer")


def arm() -> OddArm:
    return OddArm("arm")
