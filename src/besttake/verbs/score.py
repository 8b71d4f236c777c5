"""Score the takes that a run already has, and compare its scorers, without playing a take (`besttake score`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from besttake import registry
from besttake.demos.library import Library
from besttake.encoders.cache import cached
from besttake.errors import RunError
from besttake.measure.looks import Unit, random_order
from besttake.measure.rescore import ScorerComparison, check_same_takes, compare_scorers
from besttake.progress import Reporter, as_reporter
from besttake.reporting.numbers import estimate_points
from besttake.reporting.table import Entry, Head, Table, Tabular, in_points, plain, right
from besttake.result import Result
from besttake.scorers.base import Scorer, ScorerSpec
from besttake.scorers.score_run import Context, make_scorers, score_takes
from besttake.takes.manifest import Manifest
from besttake.takes.scores import Scores
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.verbs.diagnose.setup import (
    check_not_trained_on,
    context_of,
    encoder_without_demos,
    length_note,
    scorer_notes,
    spec_of,
)


@dataclass(frozen=True)
class ScoreResult(Tabular):
    """All scorers of a run, compared on the same takes.

    Attributes:
        run: The run directory, where the scores are stored.
        policies: The comparison on the takes of each policy over all its tasks.
        cells: The same for each policy and task group.
        notes: Remarks about scorers.
        lost: Scorers that failed, and why.
    """

    run: str
    policies: tuple[ScorerComparison, ...]
    cells: tuple[ScorerComparison, ...]
    notes: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)

    def _table(self) -> Table:
        rows: list[Sequence[object]] = []
        for comparison in self.policies:
            for row in comparison.rows:
                marks = f"{' *' if row.own else ''}{' !' if row.leak else ''}"
                harm = Entry(estimate_points(row.harm, "").removeprefix("+"), value=row.harm.value)
                over = Entry(estimate_points(row.over_own, ""), value=row.over_own.value)
                numbers = in_points(row.gain), plain(row.capture), plain(row.auc), harm, over
                rows.append((comparison.policy, f"{row.scorer}{marks}", *numbers))
            rows.append((comparison.policy, "shortest (control)", in_points(comparison.shortest), *[""] * 4))
        head: Head = ["policy", "scorer", *right("gain over one take")]
        head += right("capture", "AUC", "harm", "minus the run's own", extra=True)
        return Table(f"Scorers on the takes of {self.run}", head, rows, self.notes)


def score(run: str | Path, scorer: str | Sequence[str] = (), *, progress: bool | Reporter = False) -> ScoreResult:
    """Add scores to the takes of a finished run where they are missing, and compare all scorers of the run.

    No take is played, and scores that the run already has are not computed again.

    Args:
        run: The run directory.
        scorer: URI of a scorer to add, or several: ``"smoothness"``, ``"python:my_scorer:make"``.
        progress: True shows a progress bar.

    Returns:
        Gain, capture, AUC and harm of each scorer, with intervals. A scorer that fails is listed in ``lost`` with the
        reason.

    Raises:
        RunError: The run is not finished, has no scores, or cannot be written.
        ComponentError: A scorer cannot be made.
        PlanError: A scorer was trained on starts of this run.

    Examples:
        >>> besttake.score("runs/mine", "smoothness").policies[0].rows[0].gain  # doctest: +SKIP
    """
    directory, reporter = Path(run), as_reporter(progress)
    with one_thread():
        scorers = tuple(make_scorers(dict.fromkeys((scorer,) if isinstance(scorer, str) else scorer)).values())
        specs = {new.spec.name: new.spec for new in scorers}
        result = Result.load(directory / "result.json")
        with Store.open(directory) as store:
            manifest, rows = store.manifest, {row.key: row for row in store.rows()}
        check_same_takes(directory, result, rows)
        check_not_trained_on(specs.values(), {(key.env, key.task, key.start) for key in rows})
        lost: dict[str, str] = {}
        if scorers:
            with Store.write(directory, manifest) as store:
                lost = _add_scores(store, scorers, {cell.scorer for cell in result.cells}, reporter).lost
        scores = Scores.open(directory)
    if (scores is None or not scores.scorers) and not lost:
        raise RunError(f"{directory} has no scores; add some with `scorer`, e.g. coverage")
    scores, places = scores or Scores({}), _start_places(manifest)
    policies, cells = (
        tuple(comparison for cell in part if (comparison := compare_scorers(cell, rows, scores, places)) is not None)
        for part in (result.policies, result.cells)
    )
    notes = [*_notes(specs, scores), *lost.values()]
    return ScoreResult(str(run), policies, cells, tuple(dict.fromkeys(notes)), lost)


def _notes(specs: Mapping[str, ScorerSpec], scores: Scores) -> list[str]:
    """What a user should know about the new scorers."""
    notes = [note for spec in specs.values() for note in scorer_notes(spec)]
    return [*notes, *(length_note(name) for name in sorted(scores.length & specs.keys()) if not specs[name].length)]


def _add_scores(store: Store, scorers: Sequence[Scorer], reported: set[str], reporter: Reporter) -> Scores:
    """Score all takes of a run by ``scorers``, with the library and the encoder of the run."""
    manifest = store.manifest
    library = None if manifest.library is None else Library.open(manifest.library)
    if library is not None:
        encoder = cached(library.encoder())
    else:
        uri = manifest.plan.get("encoder")
        encoder = encoder_without_demos(uri and registry.FromFile(uri, store.path / "run.json"))
    return score_takes(
        store, library, encoder, scorers,
        context=_context(store, library, [scorer.spec for scorer in scorers]), reported=reported, progress=reporter,
    )  # fmt: skip


def _context(store: Store, library: Library | None, specs: Sequence[ScorerSpec]) -> Context:
    """The instructions and cameras of the run's tasks. Its environments are opened only if these are needed."""
    tasks = {row.key.task for row in store.rows()}
    read = any("instruction" in spec.reads or spec.camera or "frames" in spec.reads for spec in specs)
    if not read and (library is None or all(library.view(task).matched != "all" for task in tasks)):
        return Context()
    uris = dict.fromkeys(row.key.env for row in store.rows())
    return context_of(spec_of(registry.FromFile(uri, store.path / "takes.sqlite")) for uri in uris)


def _start_places(manifest: Manifest) -> dict[Unit, int] | None:
    """The place of each start in the order of a run until decided; None for a fixed sample."""
    if manifest.plan.get("until") is None:
        return None
    tasks = [tuple(name.split(" ", 1)) for name in manifest.extent.tasks]
    units = [(env, task, start) for (env, task), start in product(tasks, manifest.extent.starts)]
    return {unit: i for i, unit in enumerate(random_order(units, manifest.plan["seed"]))}
