"""Train a success classifier on the takes of a run: the bar that any verifier without training has to clear.

It is a logistic regression on embeddings (`besttake.core.logistic`), one per task, and takes seconds. Train it on
starts that are not evaluated on (``--starts tuning:40``): no scorer is judged on a start that it has learned from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from besttake.core import logistic
from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.encoders.cache import cached
from besttake.errors import RunError
from besttake.measure.scores import WINDOWS
from besttake.progress import Reporter, as_reporter
from besttake.reporting.table import Table, Tabular
from besttake.scorers.classifier import Trained, features
from besttake.scorers.portion import windowed
from besttake.takes.key import Row
from besttake.takes.store import Store
from besttake.threads import one_thread

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
class TrainedScorer(Tabular):
    """A trained classifier: its file, the ``uri`` that names it as a scorer, and the tasks it was trained for."""

    path: str
    uri: str
    tasks: tuple[TaskModel, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the tasks and the URI as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def _table(self) -> Table:
        rows = [(t.task, t.takes, t.successes, t.strength) for t in self.tasks]
        return Table(f"Use it as {self.uri}", ("task", "takes", "successes", "penalty"), rows, self.notes)


@dataclass
class _Examples:
    """The takes of one task: features (n, d), outcomes (n,), and which start each is of."""

    x: list[NDArray[np.float64]] = field(default_factory=list)
    y: list[bool] = field(default_factory=list)
    starts: list[tuple[str, int]] = field(default_factory=list)


def train_scorer(run: str | Path, out: str | Path, *, progress: bool | Reporter = False) -> TrainedScorer:
    """Train a success classifier on the takes of a run, and write it to a file that can be used as a scorer.

    It is a logistic regression on embedded frames, one per task, and takes seconds to train. Use a run on tuning starts
    (``Plan(starts="tuning:40", …)``): a scorer is never judged on starts that it was trained on.

    Args:
        run: The run directory. Takes of the arm ``base`` are used.
        out: The file to write.
        progress: True shows a progress bar.

    Returns:
        What was trained. ``uri`` (``classifier:OUT``) names the classifier as a scorer.

    Raises:
        RunError: The run has no demonstrations, or no task has enough successes and failures.
    """
    directory, path = Path(run), Path(out)
    with one_thread(), Store.open(directory) as store:
        rows = [row for row in store.rows() if row.status == "done" and row.key.arm == "base"]
        if store.manifest.library is None:
            raise RunError(f"{directory} has no demonstrations, so its frames have no encoder; diagnose with `demos`")
        encoder = cached(Library.open(store.manifest.library).encoder())
        with as_reporter(progress).stage("reading", len(rows), "takes") as stage:
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
        raise RunError(f"{directory}: no task has {_FEWEST} successes and as many failures; make more takes")
    starts = frozenset((row.key.env, row.key.task, row.key.start) for row in rows)
    Trained(models, encoder.spec.fingerprint, starts).save(path)
    return TrainedScorer(str(path), f"classifier:{path}", tuple(trained), tuple(notes))


def _read(store: Store, rows: Sequence[Row], encoder: Encoder, done: Callable[[int], None]) -> dict[str, _Examples]:
    """What there is to learn from, by task.

    Where a take ends at success, only the part that all takes of its start have hides how long it is.
    """
    examples: dict[str, _Examples] = {}
    for start in _starts(rows):
        takes = [store.load(row) for row in start]
        goes_on = all(take.success_step is None or take.steps > take.success_step for take in takes)
        own = examples.setdefault(start[0].key.task, _Examples())
        for take, shown in zip(takes, windowed(takes), strict=True):
            window = shown.windows[WINDOWS.index("full" if goes_on else "common")]
            own.x.append(features(encoder.encode(take.frames()[window])))
            own.y.append(take.success)
            own.starts.append((take.key.env, take.key.start))
        done(len(takes))
    return examples


def _starts(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each policy and start."""
    return [list(group) for _, group in groupby(rows, key=lambda row: astuple(row.key)[:5])]
