"""What changed from one run to the next, such as from a checkpoint to its successor (`besttake compare A B`).

Starts that both runs have, in an env that is the same in both, are compared one by one, so it does not matter which
starts are hard. Where the runs share none, the two success rates are compared as independent ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from besttake.core.estimate import Estimate
from besttake.core.headroom import F64, start_pass_at_k
from besttake.core.stats import difference_scale, mean_interval, unit_scale
from besttake.errors import RunError
from besttake.measure.again import OTHER_TAKES, other_takes, units_of
from besttake.measure.cells import arm_takes
from besttake.measure.looks import Unit
from besttake.result import Cell, Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store


@dataclass(frozen=True)
class Change:
    """One number of a cell in both runs, and its change; ``number`` is ``pass@1`` or ``pass@N`` of an arm.

    ``paired``: ``before``, ``after`` and ``change`` are over the ``starts`` that both runs have. Else each is over its
    own starts, and ``starts`` counts those of the smaller run.
    """

    policies: tuple[str, str]
    group: str
    arm: str
    number: str
    before: Estimate
    after: Estimate
    change: Estimate
    starts: int
    paired: bool

    @property
    def shown(self) -> str:
        """``better`` or ``worse`` where the 95 % interval leaves out no change, else nothing."""
        low, high = self.change.low, self.change.high
        return "" if low is None or high is None else "better" if low > 0 else "worse" if high < 0 else ""


@dataclass(frozen=True)
class _Side:
    """One run: its result, its takes, and what its envs are known by: the fingerprint, and that of the user's code."""

    result: Result
    rows: Mapping[TakeKey, Row]
    envs: Mapping[str, tuple[object, object]]

    @classmethod
    def open(cls, run: Path) -> _Side:
        with Store.open(run) as store:
            rows, identity = {row.key: row for row in store.rows()}, store.manifest.identity
        made = {name.removeprefix("env "): value for name, value in identity.items() if name.startswith("env ")}
        if not all(isinstance(value, list) and value for value in made.values()):
            raise RunError(f"{run}/run.json does not say what its envs were; run the same diagnosis again")
        envs = {uri: (value[0], identity.get(f"code of {uri}")) for uri, value in made.items()}
        result = Result.load(run / "result.json")
        for cell in result.cells:
            if other_takes(cell, rows):
                raise RunError(f"{run}: {cell.policy}, {cell.group}: {OTHER_TAKES}")
        return cls(result, rows, envs)

    def outcomes(self, cell: Cell, arm: str, units: Sequence[Unit]) -> F64:
        """Success (S, N) of an arm's takes; NaN where there is none."""
        return arm_takes(cell.policy, units, arm, cell.seeds, (), self.rows, None).outcomes


def changes(before: Path, after: Path) -> tuple[list[Change], list[str]]:
    """What changed in every cell that both runs have, and a line for each that only one of them has."""
    old, new = _Side.open(before), _Side.open(after)
    pairs, notes = _pairs(old.result, new.result)
    return [change for a, b in pairs for change in _of_cell(old, a, new, b)], notes


def _pairs(old: Result, new: Result) -> tuple[list[tuple[Cell, Cell]], list[str]]:
    """Cells of the same policy, env and tasks; a run of one policy is compared with one of another.

    Tasks whose env is named otherwise in the other run are compared where no other cell has them, and a note says so.
    """
    single = len(old.policies) == len(new.policies) == 1

    def name(cell: Cell) -> tuple[str, str]:
        return ("" if single else cell.policy, cell.group)

    known = {(*name(cell), cell.env): cell for cell in new.cells}
    pairs = [(cell, known.pop((*name(cell), cell.env))) for cell in old.cells if (*name(cell), cell.env) in known]
    alone = [cell for cell in old.cells if not any(cell is one for one, _ in pairs)]
    notes = []
    for cell in [c for c in alone if sum(name(c) == name(one) for one in alone) == 1]:
        others = [key for key in known if key[:2] == name(cell)]
        if len(others) == 1:
            pairs.append((cell, known.pop(others[0])))
            alone.remove(cell)
            notes.append(f"{cell.group} is in {cell.env} in the first run and in {others[0][2]} in the second")
    notes += [f"only the first run has {cell.policy} on {cell.group} in {cell.env}" for cell in alone]
    return pairs, notes + [f"only the second run has {c.policy} on {c.group} in {c.env}" for c in known.values()]


def _of_cell(old: _Side, a: Cell, new: _Side, b: Cell) -> Iterator[Change]:
    mine, theirs = units_of(a, old.rows), units_of(b, new.rows)
    same = {env for env in old.envs if env in new.envs and _alike(old.envs[env], new.envs[env])}
    both = {*mine} & {*theirs}
    shared = [unit for unit in mine if unit in both and unit[0] in same]
    arms = [arm for arm in (a.arms.arms if a.arms else ("base",)) if b.arms is None or arm in b.arms.arms]
    n = min(a.headroom.n if a.headroom else 1, b.headroom.n if b.headroom else 1)
    for arm in arms:
        for k, number in [(1, "pass@1")] + ([(n, f"pass@{n}")] if n > 1 and arm == "base" else []):
            first = start_pass_at_k(old.outcomes(a, arm, shared or mine), k)
            second = start_pass_at_k(new.outcomes(b, arm, shared or theirs), k)
            if shared:
                known = ~(np.isnan(first) | np.isnan(second))
                first, second = first[known], second[known]
            before, after = mean_interval(first, unit_scale()), mean_interval(second, unit_scale())
            scale = difference_scale(min(a.seeds, b.seeds))
            change = mean_interval(second - first, scale) if shared else independent(before, after)
            starts = min(before.n, after.n)
            yield Change((a.policy, b.policy), a.group, arm, number, before, after, change, starts, bool(shared))


def _alike(one: tuple[object, object], other: tuple[object, object]) -> bool:
    """Whether nothing that both runs know of an env differs; runs of older versions do not know its code."""
    return all(None in both or both[0] == both[1] for both in zip(one, other, strict=True))


def independent(before: Estimate, after: Estimate) -> Estimate:
    """The difference of two independent rates: its interval is made of theirs (MOVER, Newcombe 1998)."""
    ends = before.value, before.low, before.high, after.value, after.low, after.high
    if any(end is None for end in ends):
        return Estimate(reason="one of the runs has no such takes")
    a, a_low, a_high, b, b_low, b_high = (float(end or 0.0) for end in ends)
    low = b - a - float(np.hypot(b - b_low, a_high - a))
    high = b - a + float(np.hypot(b_high - b, a - a_low))
    return Estimate(b - a, max(-1.0, low), min(1.0, high), n=min(before.n, after.n))
