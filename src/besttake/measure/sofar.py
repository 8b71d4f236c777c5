"""What the takes of an unfinished run say so far, with bounds that hold whenever one looks.

Takes that end sooner are there sooner, and those are the successes. So only starts whose takes are all there count, in
an order that was fixed before the first take, and only up to the first start that is still being played.

A fixed sample plays task after task, so each task stands for itself here. A run until decided keeps the cells of its
last round (`kept_cells`), which are exactly what its own decision saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake import result as r
from besttake.core.estimate import YesNo
from besttake.files import read_sealed_json, sealed_json
from besttake.measure.cells import ArmTakes, CellData, Settings, Stop, arm_takes
from besttake.measure.path import SHOWN, path_of
from besttake.measure.until import Watch
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest

ROUNDS = "rounds.json"
"""The file of a run until decided that holds the cells of its last round."""
_MOST = 64 << 20
_MOST_SEEDS = 1000


@dataclass(frozen=True)
class SoFar:
    """A cell so far: its path, the answer to each question of `SHOWN` that it has, and mean success of a take of base.

    ``cell.starts`` is how many starts count, ``planned`` how many there will be (None: as many as it needs).
    """

    cell: r.Cell
    answers: Mapping[str, YesNo]
    pass_1: float | None
    planned: int | None


def so_far(data: CellData, settings: Settings, planned: int | None) -> SoFar:
    """What a cell says whose units stand in the order in which they were played."""
    takes = sum(arm.takes for arm in data.arms.values())
    cell = r.Cell(
        policy=data.policy, env=data.env, group=data.group, starts=len(data.units), seeds=settings.seeds, takes=takes,
        errors=data.errors, missing=0, window=data.windows[0], scorer=data.scorer,
    )  # fmt: skip
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items() if arm.takes}
    if "base" not in arms:
        return SoFar(cell, {}, None, planned)
    order = np.arange(len(data.units), dtype=np.int64)
    own = replace(settings, places={unit: i for i, unit in enumerate(data.units)})
    path = path_of(data, own, Stop("going on"))
    watch = Watch.of(arms, order, settings.n, settings.worth)
    answers = {name: watch.tracks[name].answer(len(order)) for name in SHOWN if name in path.points}
    means = data.start_means("base")
    pass_1 = float(np.nanmean(means)) if np.isfinite(means).any() else None
    return SoFar(cell.model_copy(update={"path": path}), answers, pass_1, planned)


def settings_of(manifest: Manifest) -> Settings:
    """How a run is measured, as far as its manifest says."""
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
    """The tasks of a fixed sample, each with its starts up to the first that is not complete. Nothing is scored yet."""
    extent, settings, cells = manifest.extent, settings_of(manifest), []
    for policy in extent.policies:
        arms = [arm for arm in extent.arms if arm not in manifest.skipped.get(policy, ())]
        for place in extent.tasks:
            env, _, task = place.partition(" ")
            units, errors = [], 0
            for start in sorted(extent.starts):
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


def keep_cells(cells: Sequence[CellData], settings: Settings) -> bytes:
    """What `kept_cells` reads: the cells of a round of a run until decided, their units in the order of the run."""
    own = [_kept(cell, settings) for cell in cells]
    return sealed_json({"seeds": settings.seeds, "n": settings.n, "worth": settings.worth, "cells": own})


def kept_cells(directory: Path) -> tuple[Settings, list[CellData]] | None:
    """The cells of the last round of a run until decided, and how they are measured; None where none are whole."""
    try:
        values = read_sealed_json(directory / ROUNDS, _MOST)
        settings = Settings(int(values["seeds"]), int(values["n"]), float(values["worth"]))
        if not 1 <= settings.n <= settings.seeds:
            raise ValueError("more takes than there are")
        return settings, [_read(cell) for cell in values["cells"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _kept(data: CellData, settings: Settings) -> dict[str, Any]:
    places = settings.places or {}
    order = sorted(range(len(data.units)), key=lambda i: places[data.units[i]])
    return {
        "policy": data.policy, "env": data.env, "group": data.group, "scorer": data.scorer, "windows": data.windows,
        "planned": data.planned, "errors": data.errors, "units": [data.units[i] for i in order],
        "arms": {
            name: [_plain(arm.outcomes, order), _plain(arm.score(data.score_name), order)]
            for name, arm in data.arms.items()
        },
    }  # fmt: skip


def _plain(values: NDArray[np.float64] | None, order: list[int]) -> list[list[float | None]] | None:
    if values is None:
        return None
    return [[float(value) if np.isfinite(value) else None for value in line] for line in values[order]]


def _read(values: Mapping[str, Any]) -> CellData:
    data = CellData(
        policy=str(values["policy"]), env=str(values["env"]), group=str(values["group"]), arms={},
        units=tuple((str(env), str(task), int(start)) for env, task, start in values["units"]),
        windows=tuple(map(str, values["windows"])), scorer=str(values["scorer"]), planned=int(values["planned"]),
        errors=int(values["errors"]),
    )  # fmt: skip
    if not data.windows:
        raise ValueError("a cell without a window")
    arms = {}
    for name, (outcomes, scores) in values["arms"].items():
        own = np.array(outcomes, dtype=np.float64).reshape(len(data.units), -1)
        table = {} if scores is None else {data.score_name: np.array(scores, dtype=np.float64).reshape(own.shape)}
        arms[str(name)] = ArmTakes(own, np.zeros_like(own), table)
    return replace(data, arms=arms)
