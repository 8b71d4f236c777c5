"""Train the scorer ``classifier:FILE`` on the takes of a run: the bar that any scorer without training has to clear.

It is a logistic regression on embeddings (`besttake.core.logistic`), one per task, and takes seconds. Train it on
starts that are not evaluated on (``--starts tuning:40``): no scorer is judged on a start that it has learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from besttake.core import logistic
from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.encoders.cache import cached
from besttake.errors import RunError
from besttake.measure.scores import WINDOWS
from besttake.progress import Reporter
from besttake.scorers.classifier import Trained, features
from besttake.scorers.scoring import by_start, windowed
from besttake.takes.key import Row
from besttake.takes.store import Store

_FEWEST = 5
"""Successes and failures of a task that a model needs at least."""


@dataclass(frozen=True)
class TaskModel:
    """The classifier of one task: the number of takes it saw, how many succeeded, and its penalty (`logistic.fit`)."""

    task: str
    takes: int
    successes: int
    strength: float


@dataclass(frozen=True)
class TrainedScorer:
    """A trained classifier: the ``uri`` that names it as a scorer, and the tasks it was trained for."""

    uri: str
    tasks: tuple[TaskModel, ...]
    notes: tuple[str, ...] = ()


@dataclass
class _Examples:
    """The takes of one task: features (n, d), outcomes (n,), and which start each is of."""

    x: list[NDArray[np.float64]] = field(default_factory=list)
    y: list[bool] = field(default_factory=list)
    starts: list[tuple[str, int]] = field(default_factory=list)


def train_classifier(store: Store, out: Path, reporter: Reporter) -> TrainedScorer:
    """Train on the takes of the arm ``base`` of a run, and write the file ``out``.

    RunError where the run has no demonstrations, or no task has enough successes and failures.
    """
    rows = [row for row in store.rows() if row.status == "done" and row.key.arm == "base"]
    if store.manifest.library is None:
        raise RunError(f"{store.path} has no demonstrations, so its frames have no encoder; diagnose with `demos`")
    encoder = cached(Library.open(store.manifest.library).encoder())
    with reporter.stage("training", len(rows), "takes") as stage:
        examples = _read(store, rows, encoder, stage.advance)
    models, trained, notes = {}, [], []
    for task, own in examples.items():
        wins = sum(own.y)
        if min(wins, len(own.y) - wins) < _FEWEST:
            notes.append(f"{task}: {wins} of {len(own.y)} takes succeeded, too few of one kind to learn from")
            continue
        strength = logistic.choose(own.x, own.y, own.starts)
        models[task] = logistic.fit(own.x, own.y, strength)
        trained.append(TaskModel(task, len(own.y), wins, strength))
    if not models:
        raise RunError(f"{store.path}: no task has {_FEWEST} successes and as many failures; make more takes")
    starts = frozenset((row.key.env, row.key.task, row.key.start) for row in rows)
    Trained(models, encoder.spec.fingerprint, starts).save(out)
    return TrainedScorer(f"classifier:{out}", tuple(trained), tuple(notes))


def _read(store: Store, rows: Sequence[Row], encoder: Encoder, done: Callable[[int], None]) -> dict[str, _Examples]:
    """What there is to learn from, by task.

    Where a take ends at success, only the part that all takes of its start have hides how long it is.
    """
    examples: dict[str, _Examples] = {}
    for start in by_start(rows):
        takes = [store.load(row) for row in start]
        goes_on = all(take.success_step is None or take.steps > take.success_step for take in takes)
        own = examples.setdefault(takes[0].key.task, _Examples())
        for take, shown in zip(takes, windowed(takes), strict=True):
            window = shown.windows[WINDOWS.index("full" if goes_on else "common")]
            own.x.append(features(encoder.encode(take.frames()[window])))
            own.y.append(take.success)
            own.starts.append((take.key.env, take.key.start))
        done(len(takes))
    return examples
