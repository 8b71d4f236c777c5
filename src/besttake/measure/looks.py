"""How often a run was looked at before: a later look with more starts needs a test that holds over all looks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from besttake.core.sequential import RepeatedLooks
from besttake.core.stats import Finding

if TYPE_CHECKING:
    from besttake.measure.arrays import Settings
    from besttake.result import Cell, Given, Result, Verdict
    from besttake.takes.manifest import Extent
    from besttake.types import EnvSpec

Unit = tuple[str, str, int]
"""A start of a cell: (env, task, start)."""

Look = tuple[int, int]
"""(starts, seeds) of a cell when a result of the run was written."""


@dataclass(frozen=True)
class CellHistory:
    """What was said of a cell at earlier looks: the looks, and what was shown then and so stays shown.

    ``answered``: the questions that had an answer. ``shown``: the options that were shown to gain. ``option``: the one
    that was recommended and shown to be within `worth` of every other; ``given``: when, and with which gain.
    """

    looks: tuple[Look, ...] = ()
    answered: Mapping[str, Finding] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()
    option: str = ""
    given: Given | None = None


History = Mapping[str, CellHistory]
"""What was said of each cell, by `cell_name`."""


def load_history(previous: Result | None, settings: Settings) -> dict[str, CellHistory]:
    """What the previous result of a run remembers; empty for a new run.

    Answers stay only where the same was asked: by the same scorer, with the same number of takes to pick from, and with
    the same effect worth acting on. The looks count in any case.
    """
    if previous is None:
        return {}
    past = {}
    for cell in (*previous.cells, *previous.policies):
        if cell.verdict is None or cell.headroom is None:
            continue
        verdict = cell.verdict
        looks = tuple(zip(verdict.looks, verdict.look_seeds, strict=True))
        asked = (previous.worth, cell.scorer, cell.headroom.n)
        same = asked == (settings.worth, settings.scorer, settings.n)
        past[cell_name(cell.policy, cell.env, cell.group)] = _past(verdict, cell, looks) if same else CellHistory(looks)
    return past


def _past(verdict: Verdict, cell: Cell, looks: tuple[Look, ...]) -> CellHistory:
    from besttake.result import Given

    settled = verdict.within and verdict.answer in ("act", "leave")
    given = verdict.given or Given(starts=cell.starts, gain=verdict.gain)
    return CellHistory(
        looks, {name: finding for name, finding in verdict.questions.items() if finding.answer != "open"},
        frozenset(option.name for option in verdict.options if option.shown),
        verdict.option if settled else "", given if settled else None,
    )  # fmt: skip


def with_outgrown(history: History, outgrown: Sequence[Extent], envs: Mapping[str, EnvSpec]) -> dict[str, CellHistory]:
    """``history`` with the looks at samples that were given more before a result of them was written.

    Who watches a run and gives it more starts because it does not look decided has looked, too.
    """
    looks = {name: list(own.looks) for name, own in history.items()}
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
    return {name: replace(history.get(name, CellHistory()), looks=tuple(own)) for name, own in looks.items()}


def cell_name(policy: str, env: str, group: str) -> str:
    """What a cell is known by from one look to the next; a policy's summary stays the same when envs are added."""
    return " ".join((policy, *([] if group == "*" else [env]), group))


def looks_at(units: Sequence[Unit], now: Look, past: CellHistory) -> RepeatedLooks:
    """The earlier times at which a cell was judged, with other numbers of starts or seeds than ``now``.

    A look at more starts counts for a later one at fewer, too: who may choose among samples finds a gain in one.
    """
    counted = {look for look in past.looks if look[0] > 0 and look != now}
    grown = len({seeds for _, seeds in counted if seeds != now[1]})
    return RepeatedLooks(
        in_order(units), tuple(sorted(starts for starts, _ in counted)), grown=grown, answered=past.answered
    )


def random_order(units: Sequence[Unit], seed: int) -> list[Unit]:
    """The starts of a run until decided, shuffled across tasks by the seed of the run; no other start moves them."""

    def place(unit: Unit) -> bytes:
        return hashlib.sha256(" ".join(map(str, (seed, *unit))).encode()).digest()

    return sorted(dict.fromkeys(units), key=place)


def looks_until(units: Sequence[Unit], places: Mapping[Unit, int]) -> RepeatedLooks:
    """The one long look at a run until decided, where ``places`` says when each start came."""
    order = sorted(range(len(units)), key=lambda i: places[units[i]])
    return RepeatedLooks(np.array(order, dtype=np.int64), (), until=True)


def in_order(units: Sequence[Unit]) -> np.ndarray:
    """Positions of the starts by index, the tasks of one index shuffled: more starts per task go to the end."""

    def place(i: int) -> tuple[int, bytes]:
        env, task, start = units[i]
        return start, hashlib.sha256(f"{env} {task} {start}".encode()).digest()

    return np.array(sorted(range(len(units)), key=place), dtype=np.int64)
