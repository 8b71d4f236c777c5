"""``classifier:FILE``: the chance of success by a logistic regression on embeddings.

``python -m model_scorers.classifier RUN FILE`` trains one on the takes of a run.

The file holds only data: weights as safetensors with a checksum, no code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from besttake import files
from besttake.arms import BASE
from besttake.core.arithmetic import product
from besttake.demos.library import Library, View
from besttake.encoders.base import Encoder, embeddings_of
from besttake.encoders.cache import cached
from besttake.errors import BestTakeError, ComponentError, RunError, one_line
from besttake.progress import Reporter
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.scorers.score_run import by_start, windowed
from besttake.takes.key import Row
from besttake.takes.scores import WINDOWS
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import F64

_LAST = 3
_PARTS = ("weights", "mean", "scale")
_FEWEST = 5
"""Least number of successes, and of failures, that a task needs to be trained."""
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
"""Penalties that are tried; each is per take, on standardised features."""


def features(embeddings: NDArray[Any]) -> F64:
    """What the classifier sees of the frames (F, d) of a window: their mean, and that of the last three (2 d,)."""
    frames = embeddings.astype(np.float64)
    return np.concatenate([frames.mean(axis=0), frames[-_LAST:].mean(axis=0)])


@dataclass(frozen=True)
class Trained:
    """A model per task, the encoder whose embeddings it reads, and the starts (env, task, start) it was trained on."""

    models: Mapping[str, Model]
    encoder: str
    trained_on: frozenset[tuple[str, str, int]]

    def save(self, path: Path) -> None:
        """Write the file that ``classifier:FILE`` names."""
        tasks = sorted(self.models)
        arrays = {f"{part} {i}": getattr(self.models[task], part) for i, task in enumerate(tasks) for part in _PARTS}
        head = {"tasks": tasks, "encoder": self.encoder, "trained_on": sorted(self.trained_on)}
        head["sha256"] = _checksum(head, arrays)
        files.write_bytes(path, bytes(save(arrays, {"head": json.dumps(head)})), parents=True)

    @classmethod
    def load(cls, path: Path) -> Trained:
        """Read a classifier file; ComponentError if it is missing or damaged."""
        wrong = f"classifier:{path}: "
        try:
            data = files.read_regular(path)
            head = json.loads(files.safetensors_metadata(data)["head"])
            arrays = load(data)
            if head.pop("sha256") != _checksum(head, arrays):
                raise ComponentError(
                    f"{wrong}the file is damaged; make it again with `python -m model_scorers.classifier`"
                )
            models = {
                str(task): Model(*(arrays[f"{part} {i}"].astype(np.float64) for part in _PARTS))
                for i, task in enumerate(head["tasks"])
            }
            trained_on = frozenset((str(env), str(task), int(start)) for env, task, start in head["trained_on"])
            return cls(models, str(head["encoder"]), trained_on)
        except OSError as error:
            raise ComponentError(f"{wrong}{error.strerror}; `python -m model_scorers.classifier` makes one") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            raise ComponentError(f"{wrong}this is no file of `python -m model_scorers.classifier`") from error

    @property
    def fingerprint(self) -> str:
        """What the scores depend on."""
        parts = [getattr(self.models[task], part).tobytes() for task in sorted(self.models) for part in _PARTS]
        return f"classifier 1 {hashlib.sha256(b''.join(parts)).hexdigest()[:16]}"


class Classifier:
    """The chance that a take succeeded, by the model of its task; NaN for a task that it was not trained on."""

    def __init__(self, trained: Trained, name: str = "classifier") -> None:
        self._trained = trained
        self.spec = ScorerSpec(
            name, reads=("embeddings",), fingerprint=trained.fingerprint, encoder=trained.encoder,
            trained_on=trained.trained_on, probability=True,
        )  # fmt: skip

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """``1 / (1 + exp(-w . z))``, z the standardised `features` of each window, and 1."""
        return [self._score(take) for take in takes]

    def _score(self, take: Footage) -> Score:
        assert take.embeddings is not None
        model = self._trained.models.get(take.task)
        shown = [take.embeddings[window] for window in take.windows]
        if model is None:
            return Score([float("nan")] * len(shown))
        return Score([float(model.chance(features(f)[None])[0]) if len(f) else float("nan") for f in shown])


def _checksum(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    whole = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        whole.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    return whole.hexdigest()


def make(rest: str, name: str = "classifier") -> Classifier:
    """The scorer ``classifier:FILE``, known by ``name``."""
    if not rest:
        raise ComponentError("classifier: name a file that python -m model_scorers.classifier made, classifier:FILE")
    return Classifier(Trained.load(Path(rest)), name)


@dataclass(frozen=True)
class TaskModel:
    """The classifier of one task: the number of takes it saw, how many succeeded, and its penalty (`fit`)."""

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
    rows = [row for row in store.rows() if row.status == "done" and row.key.arm == BASE]
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
        strength = choose_strength(own.x, own.y, own.starts)
        models[task] = fit(own.x, own.y, strength)
        trained.append(TaskModel(task, len(own.y), wins, strength))
    if not models:
        raise RunError(f"{store.path}: no task has {_FEWEST} successes and as many failures; make more takes")
    starts = frozenset((row.key.env, row.key.task, row.key.start) for row in rows)
    Trained(models, encoder.spec.fingerprint, starts).save(out)
    return TrainedScorer(f"classifier:{out}", tuple(trained), tuple(notes))


def _read(store: Store, rows: Sequence[Row], encoder: Encoder, done: Callable[[int], None]) -> dict[str, _Examples]:
    """Read the training examples of each task.

    If takes end at success, only the part that all takes of a start share is used, which hides their length.
    """
    examples: dict[str, _Examples] = {}
    for start in by_start(rows):
        takes = [store.load(row) for row in start]
        goes_on = all(take.success_step is None or take.steps > take.success_step for take in takes)
        own = examples.setdefault(takes[0].key.task, _Examples())
        for take, shown in zip(takes, windowed(takes), strict=True):
            window = shown.windows[WINDOWS.index("full" if goes_on else "common")]
            own.x.append(features(embeddings_of(encoder, take.frames()[window])))
            own.y.append(take.success)
            own.starts.append((take.key.env, take.key.start))
        done(len(takes))
    return examples


@dataclass(frozen=True)
class Model:
    """``weights`` (d + 1,), the intercept last, for features standardised by ``mean`` (d,) and ``scale`` (d,)."""

    weights: F64
    mean: F64
    scale: F64

    def chance(self, x: ArrayLike) -> F64:
        """The chance of success (n,) of features ``x`` (n, d)."""
        z = (np.asarray(x, dtype=np.float64) - self.mean) / self.scale
        chance: F64 = expit(_margins(z, self.weights))
        return chance


def fit(x: ArrayLike, y: ArrayLike, strength: float) -> Model:
    """Minimise ``mean_i log(1 + exp(-s_i (w . z_i + b))) + strength / 2 |w|^2``.

    s_i is 1 for a success, -1 for a failure; ``x`` (n, d) is standardised to z; the intercept b is not penalised.
    """
    features, sign = np.asarray(x, dtype=np.float64), np.where(np.asarray(y, dtype=np.float64) > 0.5, 1.0, -1.0)
    mean, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    z = (features - mean) / scale

    def loss(w: F64) -> tuple[float, F64]:
        margin = sign * _margins(z, w)
        pull = -sign * expit(-margin) / len(z)
        value = -log_expit(margin).mean() + strength / 2 * np.square(w[:-1]).sum()
        return float(value), np.append(product(pull, z) + strength * w[:-1], pull.sum())

    start = np.zeros(z.shape[1] + 1)
    found_at = minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-7, "ftol": 1e-14}
    )
    return Model(found_at.x, mean, scale)


def _margins(z: F64, weights: F64) -> F64:
    """``w . z_i + b`` (n,) of standardised features ``z`` (n, d)."""
    margins: F64 = product(z, weights[:-1, None])[:, 0] + weights[-1]
    return margins


def choose_strength(
    x: ArrayLike, y: ArrayLike, starts: Sequence[object], strengths: Sequence[float] = STRENGTHS, folds: int = 5
) -> float:
    """The penalty with the lowest log-loss on starts that were left out of the fit; of equal ones the strongest."""
    features, label = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    known = sorted(set(starts), key=repr)
    place = {start: i % folds for i, start in enumerate(known)}
    fold = np.array([place[start] for start in starts])
    losses = dict.fromkeys(sorted(strengths, reverse=True), 0.0)
    for held in range(folds):
        train, test = fold != held, fold == held
        if not test.any() or len(set(label[train])) < 2:
            continue
        for strength in losses:
            chance = np.clip(fit(features[train], label[train], strength).chance(features[test]), 1e-9, 1 - 1e-9)
            losses[strength] -= float(np.sum(np.log(np.where(label[test] > 0.5, chance, 1 - chance))))
    return min(losses, key=losses.__getitem__)


def main() -> None:
    """Train on the takes of a run, and say how to use what was learned."""
    parser = argparse.ArgumentParser(prog="python -m model_scorers.classifier", description=__doc__)
    parser.add_argument("run", type=Path, help="a run on tuning starts: a classifier is never judged on its own")
    parser.add_argument("file", type=Path, help="the file to write")
    asked = parser.parse_args()
    try:
        with one_thread(), Store.open(asked.run) as store:
            trained = train_classifier(store, asked.file, Reporter(True))
    except BestTakeError as error:
        sys.exit(f"{parser.prog}: {one_line(error)}")
    learned = ", ".join(f"{task.task} ({task.successes} of {task.takes} takes)" for task in trained.tasks)
    print("\n".join((*trained.notes, f"Trained on {learned}. Use it with --scorer {trained.uri}, on other starts.")))


if __name__ == "__main__":
    main()
