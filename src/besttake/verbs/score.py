"""Judge a scorer on the takes that a run already has: no new take is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from besttake import registry
from besttake.core.estimate import Estimate
from besttake.demos.library import Library
from besttake.encoders.cache import cached
from besttake.encoders.skip import SkippingEncoder
from besttake.errors import RunError
from besttake.measure.cell import cell as measured
from besttake.measure.cells import CellData, Settings, arm_takes
from besttake.measure.scores import ScoreName, Scores
from besttake.progress import Reporter, as_reporter
from besttake.reporting.notebook import Table, Tabular
from besttake.result import Cell, Result
from besttake.scorers.base import ScorerSpec
from besttake.scorers.scoring import score_run
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.verbs.setup import scorer_notes, spec_of


@dataclass(frozen=True)
class CellScore:
    """How well a scorer picks in one cell, on the window that its verdict reads.

    ``success`` of the take that it keeps, its ``gain`` over a single take, ``capture`` (gain / headroom), and ``auc``:
    how often it ranks a success above a failure of the same start.
    """

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
    """A scorer, judged in every cell of a run. Its scores are kept with the run's others."""

    run: str
    scorer: str
    cells: tuple[CellScore, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self), indent=1)

    def _table(self) -> Table:
        columns = ("policy", "tasks", "success", "gain", "gain_low", "gain_high", "capture", "auc")
        rows = [
            (c.policy, c.group, c.success.value, c.gain.value, c.gain.low, c.gain.high, c.capture.value, c.auc.value)
            for c in self.cells
        ]
        return Table(f"{self.scorer} on the takes of {self.run}", columns, rows, self.notes)


def score(run: str | Path, scorer: str, *, progress: bool | Reporter = False) -> ScoreResult:
    """Score all takes of ``run`` by ``scorer`` (a URI), keep the scores with its others, and say how well it picks."""
    directory, reporter, spec = Path(run), as_reporter(progress), registry.scorer(scorer).spec
    result = Result.load(directory / "result.json")
    with Store.open(directory) as store:
        manifest = store.manifest
    with one_thread(), Store.write(directory, manifest) as store:
        rows = {row.key: row for row in store.rows()}
        done = sum(row.status == "done" for row in rows.values())
        with reporter.stage("scoring", done, "takes") as stage:
            scores = _scores(store, scorer, spec, {cell.scorer for cell in result.cells}, stage.advance)
        cells = [_judge(cell, spec.name, rows, scores, result.worth) for cell in result.cells]
    judged = tuple(cell for cell in cells if cell is not None)
    return ScoreResult(str(run), spec.name, judged, tuple(scorer_notes(spec)))


def _scores(
    store: Store, scorer: str, spec: ScorerSpec, reported: Collection[str], on_takes: Callable[[int], None]
) -> Scores:
    """The scores of all takes by ``scorer``, made with the library and encoder of the run."""
    manifest = store.manifest
    if manifest.library is None:
        raise RunError(f"{store.path} has no demonstrations, so its takes cannot be scored; diagnose with `demos`")
    library = Library.open(manifest.library)
    encoder, still = cached(library.encoder()), manifest.plan.get("skip_still", 0)
    return score_run(
        store, library, SkippingEncoder(encoder, still) if still else encoder, [scorer], on_takes=on_takes,
        instructions=_instructions(store, library, spec), reported=reported,
    )  # fmt: skip


def _instructions(store: Store, library: Library, spec: ScorerSpec) -> Mapping[str, str]:
    """The instructions of the run's tasks. Its environments are opened only where they are needed."""
    tasks = {row.key.task for row in store.rows()}
    if "instruction" not in spec.reads and all(library.view(task).matched != "all" for task in tasks):
        return {}
    uris = dict.fromkeys(row.key.env for row in store.rows())
    envs = [spec_of(registry.FromFile(uri, store.path / "takes.sqlite")) for uri in uris]
    return {task.name: task.instruction for env in envs for task in env.tasks}


def _judge(cell: Cell, scorer: str, rows: Mapping[TakeKey, Row], scores: Scores, worth: float) -> CellScore | None:
    """The same estimates as a diagnosis with this scorer has; None where the cell has no scored take."""
    tasks = {(line.env, line.task) for line in cell.tasks}
    units = sorted({(k.env, k.task, k.start) for k in rows if k.policy == cell.policy and (k.env, k.task) in tasks})
    windows = ("full", "common", "episode") if cell.window == "full" else ("common", "episode")
    n = cell.headroom.n if cell.headroom is not None else cell.seeds
    names = [ScoreName(scorer, window) for window in windows]
    takes = arm_takes(cell.policy, units, "base", cell.seeds, names, rows, scores)
    data = CellData(
        cell.policy, cell.env, cell.group, tuple(units), {"base": takes}, windows, scorer, planned=takes.takes, errors=0
    )
    own = measured(data, Settings(seeds=cell.seeds, n=n, worth=worth, scorer=scorer))
    if own.selectors is None or own.ranking is None:
        return None
    selector = own.selectors.scored[scorer][cell.window]
    return CellScore(
        cell.policy, cell.env, cell.group, cell.window, n, selector.success, selector.gain, selector.capture,
        own.ranking.within[scorer][cell.window],
    )  # fmt: skip
