"""``classifier:FILE``: the chance of success by a logistic regression on embeddings (`besttake score --train`).

The file is data: weights as safetensors with a checksum, no code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from besttake import files
from besttake.core.logistic import Model
from besttake.demos.view import View
from besttake.errors import ComponentError
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.types import F64

_SCHEMA = 1
_LAST = 3
_PARTS = ("weights", "mean", "scale")


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
        head = {
            "schema": _SCHEMA, "tasks": tasks, "encoder": self.encoder, "trained_on": sorted(self.trained_on),
            "checks": {name: _checksum(array) for name, array in arrays.items()},
        }  # fmt: skip
        head["sha256"] = _sum(head)
        files.write_bytes(path, bytes(save(arrays, {"head": json.dumps(head)})), parents=True)

    @classmethod
    def load(cls, path: Path) -> Trained:
        """Read it; ComponentError when it is missing or not what was written."""
        wrong = f"classifier:{path}: "
        try:
            data = files.read_regular(path)
            head = json.loads(files.safetensors_metadata(data)["head"])
            arrays = load(data)
            checksum = head.pop("sha256")
            if checksum != _sum(head) or any(_checksum(arrays[n]) != given for n, given in head["checks"].items()):
                raise ComponentError(f"{wrong}the file is damaged; make it again with `besttake score --train`")
            if head["schema"] > _SCHEMA:
                raise ComponentError(f"{wrong}it is of a newer BestTake; upgrade besttake")
            models = {
                str(task): Model(*(arrays[f"{part} {i}"].astype(np.float64) for part in _PARTS))
                for i, task in enumerate(head["tasks"])
            }
            trained_on = frozenset((str(env), str(task), int(start)) for env, task, start in head["trained_on"])
            return cls(models, str(head["encoder"]), trained_on)
        except OSError as error:
            raise ComponentError(f"{wrong}{error.strerror}; `besttake score --train` makes one") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            raise ComponentError(f"{wrong}this is no file of `besttake score --train`") from error

    @property
    def fingerprint(self) -> str:
        """What its scores depend on."""
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


def _checksum(array: NDArray[Any]) -> str:
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes()).hexdigest()


def _sum(head: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def make(rest: str, name: str = "classifier") -> Classifier:
    """The scorer ``classifier:FILE``, known by ``name``."""
    if not rest:
        raise ComponentError("classifier: name a file that `besttake score --train` made, classifier:FILE")
    return Classifier(Trained.load(Path(rest)), name)
