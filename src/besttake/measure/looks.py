"""How often a run was looked at before: a later look with more starts needs a test that holds over all looks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from besttake.core.sequential import Looks

if TYPE_CHECKING:
    from besttake.result import Result, Verdict
    from besttake.takes.manifest import Extent
    from besttake.types import EnvSpec

Unit = tuple[str, str, int]
"""A start of a cell: (env, task, start)."""

Look = tuple[int, int]
"""(starts, seeds) of a cell when a result of the run was written."""

History = Mapping[str, Sequence[Look]]
"""The looks at each cell, by `cell_name`."""


def history_of(previous: Result | None) -> dict[str, list[Look]]:
    """The looks that the previous result of a run remembers; empty for a new run."""
    if previous is None:
        return {}
    return {
        cell_name(cell.policy, cell.env, cell.group): _looks_of(cell.verdict, cell.headroom.starts, cell.seeds)
        for cell in (*previous.cells, *previous.policies)
        if cell.verdict is not None and cell.headroom is not None
    }


def with_outgrown(history: History, outgrown: Sequence[Extent], envs: Mapping[str, EnvSpec]) -> dict[str, list[Look]]:
    """``history`` with the looks at samples that were given more before a result of them was written.

    Who watches a run and gives it more starts because it does not look decided has looked, too.
    """
    looks = {name: list(own) for name, own in history.items()}
    groups = {f"{uri} {task.name}": (uri, task.group) for uri, env in envs.items() for task in env.tasks}
    fewer: dict[tuple[str, int], int] = {}
    for extent in sorted(outgrown, key=lambda one: len(one.starts)):
        places = [groups[task] for task in extent.tasks if task in groups]
        tasks = Counter([*places, *(("", "*") for _ in places)])
        for policy, ((env, group), count) in product(extent.policies, tasks.items()):
            name, starts, seeds = cell_name(policy, env, group), count * len(extent.starts), len(extent.seeds)
            own, before = looks.setdefault(name, []), fewer.get((name, seeds), 0)
            fewer[name, seeds] = starts
            # A result of this sample counts the starts that have takes, which may be a few less.
            if not any(before < seen <= starts and had == seeds for seen, had in own):
                own.append((starts, seeds))
    return looks


def _looks_of(verdict: Verdict, starts: int, seeds: int) -> list[Look]:
    """Results of before do not say how many seeds each look had."""
    counts = verdict.looks or [starts]
    return list(zip(counts, verdict.look_seeds or [seeds] * len(counts), strict=True))


def cell_name(policy: str, env: str, group: str) -> str:
    """What a cell is known by from one look to the next; a policy's summary stays the same when envs are added."""
    return " ".join((policy, *([] if group == "*" else [env]), group))


def looks_at(units: Sequence[Unit], now: Look, earlier: Sequence[Look]) -> Looks:
    """The looks of a cell that has as many starts and seeds as ``now`` says, and had others at ``earlier`` looks.

    A look at more starts counts for a later one at fewer, too: who may choose among samples finds a gain in one.
    """
    counted = {look for look in earlier if look[0] > 0 and look != now}
    grown = len({seeds for _, seeds in counted if seeds != now[1]})
    return Looks(in_order(units), tuple(sorted(starts for starts, _ in counted)), grown=grown)


def random_order(units: Sequence[Unit], seed: int) -> list[Unit]:
    """The starts of a run until decided, shuffled across tasks by the seed of the run; no other start moves them."""

    def place(unit: Unit) -> bytes:
        return hashlib.sha256(" ".join(map(str, (seed, *unit))).encode()).digest()

    return sorted(dict.fromkeys(units), key=place)


def looks_until(units: Sequence[Unit], places: Mapping[Unit, int]) -> Looks:
    """The one long look at a run until decided, where ``places`` says when each start came."""
    order = sorted(range(len(units)), key=lambda i: places[units[i]])
    return Looks(np.array(order, dtype=np.int64), (), until=True)


def in_order(units: Sequence[Unit]) -> np.ndarray:
    """Positions of the starts by index, the tasks of one index shuffled: more starts per task go to the end."""

    def place(i: int) -> tuple[int, bytes]:
        env, task, start = units[i]
        return start, hashlib.sha256(f"{env} {task} {start}".encode()).digest()

    return np.array(sorted(range(len(units)), key=place), dtype=np.int64)
