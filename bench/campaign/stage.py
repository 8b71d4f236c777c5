"""A stage of the campaign: one kind of attack, tried many times, each try from its own seed.

    @stage("parent-kills", "kill the parent at a random moment, then run it again", ci=4, full=200)
    def parent_kills(scratch: Path) -> Iterator[Attempt]:
        reference = ...                                 # made once
        def attempt(rng: random.Random, place: Path) -> str:
            ...                                         # one try, in an empty directory of its own
            check(same_bits, "the digest changed")      # what must hold
            return "mended"                             # what happened, in a word or two: counted in the table
        yield attempt
        ...                                             # cleaned up once

A try fails by raising `Broken` (or anything else); the runner notes it with the command that repeats it, and goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

Attempt = Callable[[random.Random, Path], str | tuple[str, int]]
"""A try: how it ended and, where that is not always the stage's ``each``, how often it attacked."""


class Broken(Exception):
    """What a try found broken, in one line."""


def check(holds: bool, otherwise: str) -> None:
    """Raise `Broken` unless it ``holds``."""
    if not holds:
        raise Broken(otherwise)


@dataclass(frozen=True)
class Stage:
    """``ci`` tries in `make fuzz`, ``full`` for docs/reliability.md; ``each``: attacks per try, where it has many."""

    name: str
    what: str
    ci: int
    full: int
    each: int
    prepare: Callable[[Path], AbstractContextManager[Attempt]]


STAGES: dict[str, Stage] = {}


def stage(
    name: str, what: str, *, ci: int, full: int, each: int = 1
) -> Callable[[Callable[[Path], Iterator[Attempt]]], Stage]:
    """Register a stage: a generator function that prepares, yields its attempt and cleans up."""

    def register(prepare: Callable[[Path], Iterator[Attempt]]) -> Stage:
        if name in STAGES:
            raise ValueError(f"two stages are named {name}")
        STAGES[name] = Stage(name, what, ci, full, each, contextmanager(prepare))
        return STAGES[name]

    return register


def rng_of(seed: int, name: str, number: int) -> random.Random:
    """The randomness of one try: the same whatever else is run."""
    return random.Random(f"{seed} {name} {number}")
