"""Accept a take or ask for another, by the score and the threshold from a run, while a robot or simulator plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from besttake import registry
from besttake.core.score import window_until
from besttake.demos.library import Library
from besttake.encoders.base import Encoder
from besttake.encoders.cache import cached
from besttake.errors import ComponentError, PlanError, RunError
from besttake.measure.promise import Promise, promise_of
from besttake.recordings.footage import FPS, Clock, films_of
from besttake.result import Result
from besttake.scorers.apply import apply_scorers, embed, needs_demos
from besttake.scorers.base import Footage, Scorer
from besttake.scorers.score_run import make_scorers
from besttake.takes.manifest import Manifest
from besttake.takes.scores import Scores
from besttake.threads import one_thread
from besttake.types import U8, Array


@dataclass(frozen=True)
class Judgement:
    """A gate's judgement of a take.

    Attributes:
        accept: Whether to stop; else play another take from the same start.
        best: The take of this start to keep so far; 0 is the first that was judged.
        score: The score of this take; None if the scorer gave it no number.
        threshold: The score from which a take is accepted at once; None if all takes are played first.
        takes_left: How many takes of this start may still be played.
    """

    accept: bool
    best: int
    score: float | None
    threshold: float | None
    takes_left: int


@dataclass
class Gate:
    """Accepts each take of a start or asks for another, by the score and threshold of the option that a run recommends.

    Examples:
        >>> gate = besttake.Gate.open("runs/half")                        # doctest: +SKIP
        >>> while not (judged := gate.judge(play_a_take())).accept:       # doctest: +SKIP
        ...     set_up_the_same_start_again()
    """

    promise: Promise
    stride: int
    camera: str
    _scorer: Scorer
    _library: Library | None
    _encoder: Encoder
    _takes: list[Footage] = field(default_factory=list)

    @classmethod
    def open(cls, run: str | Path, policy: str = "", option: str = "") -> Gate:
        """The gate of a run's recommended option, or of another ``option`` that keeps the best of several takes.

        Raises:
            PlanError: The option keeps every take, or its scorer reads more than pictures.
            RunError: The demonstrations, the encoder or the scorer differ from those of the run.
        """
        directory = Path(run)
        result, manifest = Result.load(directory), Manifest.read(directory)
        promise = promise_of(result.cell_of(policy), option)
        if promise.n < 2:
            raise PlanError(f"{directory} recommends {promise.option}: every take is kept, so there is no gate")
        scorers = result.plan.get("scorer")
        uris = [uri for uri in (scorers if isinstance(scorers, list) else [scorers]) if isinstance(uri, str)]
        file = directory / "result.json"
        for uri in uris:
            registry.check_harmless("scorers", registry.FromFile(uri, file))
        scorer = next(each for each in make_scorers(uris).values() if each.spec.name == promise.scorer)
        if missing := sorted({"actions", "states"} & set(scorer.spec.reads)):
            raise PlanError(f"the scorer {promise.scorer} reads {' and '.join(missing)}, and a gate sees pictures only")
        library = None if manifest.library is None else Library.open(manifest.library)
        known, scores = result.library or {}, Scores.open(directory)
        if library is not None and known.get("fingerprint") not in (None, library.fingerprint):
            raise RunError(f"{library.path} holds other demonstrations than {directory} was scored with")
        if scores is None or scores.scorers.get(promise.scorer) != scorer.spec.fingerprint:
            raise RunError(f"{directory} was scored by another version of {promise.scorer}; diagnose again")
        stride = int(manifest.plan["stride"])
        if library is None:
            encoder = registry.encoder(registry.FromFile(result.plan.get("encoder") or "hog", file))
            return cls(promise, stride, "", scorer, None, cached(encoder))
        return cls(promise, stride, library.head.camera, scorer, library, cached(library.encoder()))

    def judge(self, frames: Sequence[U8], task: str = "") -> Judgement:
        """Judge the next take of a start: accept it, or ask for another.

        Args:
            frames: One picture (H, W, 3) of the score camera per action, uint8, the first before the first action.
            task: Name of the task, or its instruction (default: compare with all demonstrations).
        """
        return self.judge_frames({step: frames[step] for step in range(0, len(frames), self.stride)}, task)

    def judge_frames(self, frames: Mapping[int, U8], task: str = "") -> Judgement:
        """`judge` a take by some of its pictures, given by their steps."""
        film: Array = np.stack([np.asarray(frame) for frame in frames.values()]) if frames else np.empty(0)
        if film.ndim != 4 or film.shape[-1] != 3 or film.dtype != np.uint8:
            raise ComponentError("a gate judges pictures of one size, uint8 (H, W, 3), at least one of them")
        with one_thread():
            (embeddings,) = embed(self._encoder, [film])
            steps = np.array([*frames], np.int32)
            self._takes.append(Footage(steps, (), (), frames=film, embeddings=embeddings, instruction=task))
            scores = np.array(self._scores(task))
        best = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
        score = None if np.isnan(scores[-1]) else float(scores[-1])
        left = self.promise.n - len(scores)
        accept = left <= 0 or self.promise.accepts(score)
        if accept:
            self._takes.clear()
        return Judgement(accept, best, score, self.promise.threshold, max(left, 0))

    def judge_recording(self, take: str | Path, task: str = "", fps: float = FPS) -> Judgement:
        """Judge a recorded take: a video, a folder of pictures of ``fps`` a second, or an episode (``data_set#3``)."""
        film = films_of(str(take), fps)[0]
        if film.frames is None:
            raise PlanError(f"{take}: {film.problem}")
        rate = self._library.head.fps if self._library is not None else None
        return self.judge(list(film.frames[Clock("episode", rate or FPS).rows(film.times)]), task)

    def for_another(self) -> Gate:
        """The same gate for another client, with separate takes."""
        return replace(self, _takes=[])

    def begin(self) -> None:
        """Begin another start: forget the takes of the current one."""
        self._takes.clear()

    def _scores(self, task: str) -> list[float]:
        """The score of each take of this start, on the run's window."""
        ends = [int(take.steps[-1]) for take in self._takes]
        until = ends if self.promise.window == "full" else [min(ends)] * len(ends)
        takes = [
            Footage(
                take.steps, (window_until(take.steps, end),), (end,), frames=take.frames, embeddings=take.embeddings,
                instruction=task, task=task,
            )
            for take, end in zip(self._takes, until, strict=True)
        ]  # fmt: skip
        view = self._library.view(task, task) if self._library is not None and needs_demos(self._scorer) else None
        (scored,) = apply_scorers([self._scorer], [takes], view)
        return [float(take.scores[self._scorer.spec.name].values[0]) for take in scored]
