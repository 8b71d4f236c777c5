"""Judge scorers on the takes that a run already has: no new take is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from besttake import registry
from besttake.core import headroom, ranking, select, stats
from besttake.core.estimate import Estimate
from besttake.demos.library import Library
from besttake.encoders.cache import cached
from besttake.encoders.skip import SkippingEncoder
from besttake.measure.again import base_of, chosen_from, units_of
from besttake.measure.questions import question
from besttake.measure.scores import ScoreName, Scores
from besttake.progress import Reporter, as_reporter
from besttake.reporting.table import Table, Tabular
from besttake.result import Cell, Result
from besttake.scorers.base import ScorerSpec
from besttake.scorers.chat import uploads_allowed
from besttake.scorers.portion import Context, make_scorers
from besttake.scorers.scoring import costs_of, score_run
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import Workers
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.verbs.setup import (
    check_not_trained_on,
    context_of,
    encoder_without_demos,
    length_note,
    scorer_notes,
    spec_of,
)

_MANY = 300
"""So many takes are worth the start of worker processes."""


@dataclass(frozen=True)
class CellScore:
    """How well one scorer picks takes in one cell, on the window that the cell's verdict uses.

    Attributes:
        scorer: Name of the scorer.
        policy: URI of the policy.
        env: URI of the environment.
        group: Task group.
        window: Part of a take that was scored: ``full``, ``common`` or ``episode``.
        n: Number of takes from which one is picked.
        success: Success rate of the picked take.
        gain: Its gain over a single take, as a fraction.
        capture: Gain divided by headroom.
        auc: How often a success scores above a failure of the same start.
    """

    scorer: str
    policy: str
    env: str
    group: str
    window: str
    n: int
    success: Estimate
    gain: Estimate
    capture: Estimate
    auc: Estimate


@dataclass(frozen=True)
class ScoreResult(Tabular):
    """How well each scorer picks takes, in every cell of a run.

    Attributes:
        run: The run directory, where the scores are stored.
        scorers: Names of the scorers.
        cells: The numbers, per scorer and cell.
        notes: Remarks about scorers.
        lost: Scorers that failed, and why.
        length: Scorers that depend on the length of a take, which gives the outcome away if episodes stop at success.
        seconds: Seconds per take that each scorer took when its scores were computed.
    """

    run: str
    scorers: tuple[str, ...]
    cells: tuple[CellScore, ...]
    notes: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    length: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def _table(self) -> Table:
        columns = ("scorer", "policy", "tasks", "success", "gain", "gain_low", "gain_high", "capture", "auc")
        rows = [
            (
                c.scorer, c.policy, c.group, c.success.value, c.gain.value, c.gain.low, c.gain.high, c.capture.value,
                c.auc.value,
            )
            for c in self.cells
        ]  # fmt: skip
        return Table(f"{', '.join(self.scorers)} on the takes of {self.run}", columns, rows, self.notes)


_ELSEWHERE = "scores are kept in the run: copy it to a place where you can write, and score the copy"


def score(
    run: str | Path,
    scorer: str | Sequence[str],
    *,
    allow_upload: bool = False,
    workers: int = 2,
    progress: bool | Reporter = False,
) -> ScoreResult:
    """Score the takes of a finished run, store the scores in it, and measure how well each scorer picks.

    No take is played, and scores that the run already has are not computed again.

    Args:
        run: The run directory.
        scorer: URI of a scorer, or several: ``"progress"``, ``"python:my_scorer:make"``.
        allow_upload: Allow scorers to send frames to other machines.
        workers: Number of processes that share the work if the encoder is cheap.
        progress: True shows a progress bar.

    Returns:
        Success, gain, capture and AUC of each scorer in each cell, with intervals. A scorer that fails is listed in
        ``lost`` with the reason.

    Raises:
        RunError: The run is not finished, or its directory cannot be written.
        ComponentError: A scorer cannot be made.
        PlanError: A scorer was trained on starts of this run.

    Examples:
        >>> besttake.score("runs/mine", ["progress", "dtw"]).cells[0].gain  # doctest: +SKIP
    """
    uris = tuple(dict.fromkeys((scorer,) if isinstance(scorer, str) else scorer))
    with uploads_allowed(allowed=allow_upload), Workers(workers) as helpers:
        return _score(run, uris, as_reporter(progress), helpers)


def _score(run: str | Path, named: Sequence[str], reporter: Reporter, helpers: Workers) -> ScoreResult:
    uris = tuple(dict.fromkeys(named))
    specs = {scorer.spec.name: scorer.spec for scorer in make_scorers(uris).values()}
    directory = Path(run)
    result = Result.load(directory / "result.json")
    with Store.open(directory) as store:
        manifest = store.manifest
    with one_thread(), Store.write(directory, manifest, _ELSEWHERE) as store:
        rows = {row.key: row for row in store.rows()}
        check_not_trained_on(specs.values(), {(key.env, key.task, key.start) for key in rows})
        done = sum(row.status == "done" for row in rows.values())
        with reporter.stage("scoring", done, "takes") as stage:
            reported = {cell.scorer for cell in result.cells}
            scores = _scores(store, uris, tuple(specs.values()), reported, stage.advance, helpers)
        names = [name for name in specs if name not in scores.lost]
        cells = [_judge(cell, name, rows, scores) for name in names for cell in result.cells]
        costs = costs_of(directory)
    notes = [note for spec in specs.values() for note in scorer_notes(spec)]
    notes += [length_note(name) for name in sorted(scores.length) if not specs[name].length]
    return ScoreResult(
        str(run), tuple(dict.fromkeys([*specs, *names])), tuple(cell for cell in cells if cell is not None),
        tuple(dict.fromkeys([*notes, *scores.lost.values()])), scores.lost, tuple(sorted(scores.length)),
        {name: costs[name] for name in names if name in costs},
    )  # fmt: skip


def _scores(
    store: Store,
    uris: Sequence[str],
    specs: Sequence[ScorerSpec],
    reported: Collection[str],
    on_takes: Callable[[int], None],
    helpers: Workers,
) -> Scores:
    """The scores of all takes by the scorers ``uris``, made with the library and encoder of the run."""
    manifest = store.manifest
    library = None if manifest.library is None else Library.open(manifest.library)
    still = manifest.plan.get("skip_still", 0)
    if library is not None:
        encoder = cached(library.encoder())
    else:
        named = manifest.plan.get("encoder")
        encoder = encoder_without_demos(named and registry.FromFile(named, store.path / "run.json"))
    return score_run(
        store, library, SkippingEncoder(encoder, still) if still else encoder, uris, on_takes=on_takes,
        context=_context(store, library, specs), reported=reported,
        pool=helpers.pool if encoder.spec.cheap and not still and len(store.rows()) >= _MANY else None,
    )  # fmt: skip


def _context(store: Store, library: Library | None, specs: Sequence[ScorerSpec]) -> Context:
    """Words and cameras of the run's tasks. Its environments are opened only where they are needed."""
    tasks = {row.key.task for row in store.rows()}
    asked = any("instruction" in spec.reads or spec.camera or "frames" in spec.reads for spec in specs)
    if not asked and (library is None or all(library.view(task).matched != "all" for task in tasks)):
        return Context()
    uris = dict.fromkeys(row.key.env for row in store.rows())
    return context_of(spec_of(registry.FromFile(uri, store.path / "takes.sqlite")) for uri in uris)


def _judge(cell: Cell, scorer: str, rows: Mapping[TakeKey, Row], scores: Scores) -> CellScore | None:
    """The same estimates as a diagnosis with this scorer has; None where the cell has no scored take."""
    data, n = base_of(cell, units_of(cell, rows), rows, scores, [scorer]), chosen_from(cell)
    own, outcomes = data.arms["base"].score(ScoreName(scorer, cell.window)), data.arms["base"].outcomes
    if own is None:
        return None
    chosen = select.select(outcomes, own, n)
    return CellScore(
        scorer, cell.policy, cell.env, cell.group, cell.window, n,
        stats.mean_interval(chosen.successes, stats.unit_scale()),
        question("", "choice", chosen.gains, n, headroom.tally(outcomes)[0]).estimate(),
        stats.capture_interval(chosen.gains, headroom.start_headroom(outcomes, n)),
        ranking.within_auc(outcomes, own),
    )  # fmt: skip
