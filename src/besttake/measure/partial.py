"""Measure the takes of an unfinished run, with bounds that hold however often you look.

Successful takes end sooner, so the takes that are there first are not a fair sample. Therefore starts count only once
all their takes are there, in an order that was fixed before the first take, up to the first start that is still played.

A fixed sample plays one task after the other, so each task is a cell here. A run until decided stores the cells of its
last round (`read_round`), on which its own decision was based.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from besttake import result as r
from besttake.arms import BASE
from besttake.core.stats import Finding
from besttake.measure.arrays import CellData, Settings, Stop, arm_takes
from besttake.measure.looks import Unit, looks_until, random_order
from besttake.measure.until import SHOWN, path_of
from besttake.measure.verdict import answer, questions_of
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest

ROUNDS = "rounds.json"
"""The file with the cells of the last round of a run until decided."""
SESSION = "session"
"""The entry in the identity of a session on a robot, with its hypotheses."""
_MOST_BYTES = 64 << 20
_MOST_SEEDS = 1000


@dataclass(frozen=True)
class PartialCell:
    """A cell so far: its path, its findings on the questions of `SHOWN`, and pass@1 of base.

    ``cell.starts`` is the number of starts that count, ``planned`` the final number, or None if it is not fixed.
    """

    cell: r.Cell
    findings: Mapping[str, Finding]
    pass_1: float | None
    planned: int | None


_ROUND = TypeAdapter(list[PartialCell])


def partial_cell(data: CellData, settings: Settings, planned: int | None) -> PartialCell:
    """Measure the starts of a cell so far, in the order of ``settings.places`` or, without it, of ``data.units``."""
    places = {unit: i for i, unit in enumerate(data.units)} if settings.places is None else settings.places
    settings, missing = replace(settings, places=places), r.Estimate(reason="not measured")
    tasks = Counter((env, task) for env, task, _ in data.units)
    cell = r.Cell(
        policy=data.policy, env=data.env, group=data.group, starts=len(data.units), seeds=settings.seeds,
        takes=sum(arm.takes for arm in data.arms.values()), errors=data.errors, missing=0, window=data.windows[0],
        scorer=data.scorer,
        tasks=[
            r.TaskLine(env=env, task=task, starts=n, takes=0, errors=0, pass_1=missing, pass_n=missing, gain=missing)
            for (env, task), n in tasks.items()
        ],
    )  # fmt: skip
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
    if BASE not in arms:
        return PartialCell(cell, {}, None, planned)
    questions = {question.name: question for question in questions_of(arms, settings.n)}
    findings = answer(
        [questions[name] for name in SHOWN if name in questions], settings.worth, looks_until(data.units, places)
    )
    findings = {name: finding for name, finding in findings.items() if finding.estimate.value is not None}
    means = data.start_means(BASE)
    pass_1 = float(np.nanmean(means)) if np.isfinite(means).any() else None
    cell = cell.model_copy(update={"path": path_of(data, settings, Stop("going on"))})
    return PartialCell(cell, findings, pass_1, planned)


def round_json(cells: Sequence[PartialCell]) -> bytes:
    """The JSON of the cells of a round, which `read_round` reads."""
    return _ROUND.dump_json(list(cells))


def read_round(directory: Path) -> list[PartialCell]:
    """The cells of the last round of a run until decided; empty if they cannot be read."""
    try:
        path = directory / ROUNDS
        return _ROUND.validate_json(path.read_bytes()) if path.stat().st_size <= _MOST_BYTES else []
    except (OSError, ValueError):
        return []


def settings_of(manifest: Manifest) -> Settings:
    """The settings of a run that are in its manifest."""
    plan = manifest.plan
    seeds = min(_MOST_SEEDS, max(manifest.extent.seeds, default=0) + 1)
    best_of, worth = plan.get("best_of"), plan.get("worth")
    return Settings(
        seeds=seeds,
        n=best_of if isinstance(best_of, int) and 1 <= best_of <= seeds else seeds,
        worth=worth / 100 if isinstance(worth, int | float) and 0 < worth < 100 else 0.03,
        arms=tuple(manifest.extent.arms),
    )


def fixed_cells(manifest: Manifest, rows: Mapping[TakeKey, Row]) -> list[CellData]:
    """The tasks of a fixed sample, each with its starts up to the first that is not complete, without scores."""
    extent, settings, cells = manifest.extent, settings_of(manifest), []
    for policy in extent.policies:
        arms = [arm for arm in extent.arms if arm not in manifest.skipped.get(policy, ())]
        for place in extent.tasks:
            env, _, task = place.partition(" ")
            units, errors = [], 0
            order: list[Unit] = [(env, task, start) for start in sorted(extent.starts)]
            if SESSION in manifest.identity:  # people play starts in the order that the session drew
                order = random_order(order, manifest.identity["seed"])
            for _, _, start in order:
                keys = [TakeKey(policy, env, task, start, arm, seed) for arm in arms for seed in extent.seeds]
                if not all(key in rows for key in keys):
                    break
                units.append((env, task, start))
                errors += sum(rows[key].status == "error" for key in keys)
            cells.append(
                CellData(
                    policy=policy, env=env, group=task, units=tuple(units), windows=("common",), scorer="",
                    errors=errors,
                    arms={arm: arm_takes(policy, units, arm, settings.seeds, (), rows, None) for arm in arms},
                    planned=len(units) * len(arms) * settings.seeds,
                )
            )  # fmt: skip
    return cells
