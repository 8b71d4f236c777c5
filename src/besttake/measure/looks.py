"""Keep track of earlier looks at a run: a later look with more starts needs a test that is valid over all looks."""

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
"""The numbers of starts and seeds of a cell when a result of the run was written."""


@dataclass(frozen=True)
class CellHistory:
    """The earlier looks at a cell, and the answers that were given then, which stay.

    ``answered``: the questions that had an answer. ``shown``: the options that were shown to gain. ``option``: the one
    that was recommended and shown to be within `worth` of every other; ``given``: when, and with which gain.
    """

    looks: tuple[Look, ...] = ()
    answered: Mapping[str, Finding] = field(default_factory=dict)
    shown: frozenset[str] = frozenset()
    option: str = ""
    given: Given | None = None


History = Mapping[str, CellHistory]
"""The history of each cell, by `cell_name`."""


def load_history(previous: Result | None, settings: Settings) -> dict[str, CellHistory]:
    """The history of each cell from the previous result of a run; empty for a new run.

    Answers stay only if the scorer, the number of takes to pick from and the effect worth acting on are the same. The
    looks count in any case.
    """
    if previous is None:
        return {}
    past = {}
    for cell in (*previous.cells, *previous.policies):
        if cell.verdict is None or cell.headroom is None:
            continue
        verdict = cell.verdict
        looks = tuple(zip(verdict.looks, verdict.look_seeds, strict=True))
        same = (previous.worth, cell.scorer, cell.headroom.n) == (settings.worth, settings.scorer, settings.n)
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
    """Add looks at samples that were extended before a result was written (``outgrown``) to ``history``.

    Someone who watches a run and extends it because it does not look decided has looked, too.
    """
    looks = {name: list(past.looks) for name, past in history.items()}
    groups = {f"{uri} {task.name}": (uri, task.group) for uri, env in envs.items() for task in env.tasks}
    fewer: dict[tuple[str, int], int] = {}
    for extent in sorted(outgrown, key=lambda extent: len(extent.starts)):
        cells = [groups[task] for task in extent.tasks if task in groups]
        tasks = Counter([*cells, *(("", "*") for _ in cells)])
        for policy, ((env, group), count) in product(extent.policies, tasks.items()):
            name, starts, seeds = cell_name(policy, env, group), count * len(extent.starts), len(extent.seeds)
            known, before = looks.setdefault(name, []), fewer.get((name, seeds), 0)
            fewer[name, seeds] = starts
            # A result of this sample counts only starts that have takes, which may be a few less.
            if not any(before < old_starts <= starts and old_seeds == seeds for old_starts, old_seeds in known):
                known.append((starts, seeds))
    return {name: replace(history.get(name, CellHistory()), looks=tuple(known)) for name, known in looks.items()}


def cell_name(policy: str, env: str, group: str) -> str:
    """The name of a cell in all looks. That of a policy's summary has no env, so it stays when envs are added."""
    return " ".join((policy, *([] if group == "*" else [env]), group))


def looks_at(units: Sequence[Unit], now: Look, past: CellHistory) -> RepeatedLooks:
    """The earlier looks at a cell with other numbers of starts or seeds than ``now``.

    Looks at more starts count, too: someone who may choose among samples finds a gain in one of them.
    """
    counted = {look for look in past.looks if look[0] > 0 and look != now}
    grown = len({seeds for _, seeds in counted if seeds != now[1]})
    return RepeatedLooks(
        in_order(units), tuple(sorted(starts for starts, _ in counted)), grown=grown, answered=past.answered
    )


def random_order(units: Sequence[Unit], seed: int) -> list[Unit]:
    """The starts shuffled across tasks, by the seed of the run; adding starts does not change the order of others."""

    def place(unit: Unit) -> bytes:
        return hashlib.sha256(" ".join(map(str, (seed, *unit))).encode()).digest()

    return sorted(dict.fromkeys(units), key=place)


def looks_until(units: Sequence[Unit], places: Mapping[Unit, int]) -> RepeatedLooks:
    """The continuous look at a run until decided, whose starts were played in the order of ``places``."""
    order = sorted(range(len(units)), key=lambda i: places[units[i]])
    return RepeatedLooks(np.array(order, dtype=np.int64), (), until=True)


def in_order(units: Sequence[Unit]) -> np.ndarray:
    """Positions of ``units`` sorted by start index, with the tasks of an index shuffled: new starts come last."""

    def place(i: int) -> tuple[int, bytes]:
        env, task, start = units[i]
        return start, hashlib.sha256(f"{env} {task} {start}".encode()).digest()

    return np.array(sorted(range(len(units)), key=place), dtype=np.int64)
