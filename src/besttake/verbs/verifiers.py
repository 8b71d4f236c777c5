"""All scorers that runs keep, side by side: what each finds of the headroom, and what controls say about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from besttake.errors import PlanError, RunError
from besttake.files import as_paths, version, write_text
from besttake.measure.again import base_of, units_of
from besttake.measure.cells import CellData, merge_cells
from besttake.measure.scores import ScoreName, Scores
from besttake.measure.verifiers import Verified, outside, verified
from besttake.reporting.table import Table, Tabular
from besttake.result import Result
from besttake.scorers.scoring import costs_of
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store

_BAR = "classifier"


@dataclass(frozen=True)
class VerifierResult(Tabular):
    """Scorers compared on the same takes.

    Attributes:
        runs: The run directories.
        scorers: Names of the scorers.
        pooled: The comparison over all cells together.
        cells: The comparison in each cell.
        bar: The scorer to beat, usually a classifier trained on other starts; empty if there is none.
        seconds: Seconds per take of each scorer.
        length: Scorers that depend on the length of a take.
        notes: Remarks, such as scorers that not all runs have.
        besttake: Version of BestTake.
    """

    runs: tuple[str, ...]
    scorers: tuple[str, ...]
    pooled: Verified
    cells: tuple[Verified, ...]
    bar: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    length: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    besttake: str = field(default_factory=version)

    def to_json(self) -> str:
        """Return the comparison as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def save(self, out: str | Path, format: str = "") -> Path:
        """Write the comparison as html, md, csv, tex or json (default: by the suffix of ``out``, else html)."""
        from besttake.reporting import verifier_tables as tables
        from besttake.reporting import verifiers as pages

        kind = format or Path(out).suffix.removeprefix(".") or "html"
        texts = {
            "html": pages.html, "md": pages.markdown, "csv": tables.csv, "tex": tables.latex,
            "json": VerifierResult.to_json,
        }  # fmt: skip
        if kind not in texts:
            raise PlanError(f"`format` {kind!r}: choose {', '.join(texts)}")
        return write_text(Path(out), texts[kind](self), parents=True)

    def _table(self) -> Table:
        columns = ("scorer", "window", "gain", "gain_low", "gain_high", "capture", "auc", "over_shortest", "harm")
        rows = [
            (
                v.scorer, v.window, v.gain.value, v.gain.low, v.gain.high, v.capture.value, v.auc.value,
                v.over_shortest.value, v.harm.value,
            )
            for v in (*self.pooled.verifiers, *self.pooled.controls)
        ]  # fmt: skip
        return Table(f"Scorers on the takes of {', '.join(self.runs)}", columns, rows, self.notes)


def verifiers(
    runs: str | Path | Sequence[str | Path], *, bar: str | None = None, out: str | Path | None = None
) -> VerifierResult:
    """Compare all scorers whose scores are stored in the runs. No score is computed; `besttake.score` adds scores.

    Args:
        runs: One run directory or a list of them. Several runs are compared on the scorers that all of them have.
        bar: Name of the scorer to beat (default: the first whose name begins with "classifier", if there is one).
        out: Also write the comparison to this file; the suffix .html, .md, .csv, .tex or .json chooses the format.

    Returns:
        Gain, capture, AUC and controls of every scorer, over all cells (``pooled``) and in each (``cells``).

    Raises:
        RunError: A run is not finished or has no scores, or the runs have no scorer in common.
        PlanError: No runs are given, ``bar`` is not among the scorers, or the suffix of ``out`` is unknown.
    """
    opened = [_Opened.of(Path(run)) for run in as_paths(runs)]
    if not opened:
        raise PlanError("name at least one run")
    scorers = [s for s in opened[0].scores.scorers if all(s in run.scores.scorers for run in opened)]
    if not scorers:
        raise RunError("these runs have no scorer in common; add one to all of them with besttake score")
    bar = next((s for s in scorers if s.startswith(_BAR)), "") if bar is None else bar
    if bar and bar not in scorers:
        raise PlanError(f"`bar` {bar!r}: not among the scorers of these runs ({', '.join(scorers)})")
    probability = frozenset.intersection(*(run.scores.probability for run in opened))
    data = [(cell, n) for run in opened for cell, n in run.cells(scorers)]
    if not data:
        raise RunError("no cell of these runs has scored takes to compare scorers on; besttake score adds scores")
    n = min(n for _, n in data)
    parts, one = [cell for cell, _ in data], len(data) == 1
    no_chances = {s: count for s in sorted(probability) if (count := sum(outside(cell, s) for cell in parts))}
    probability -= {*no_chances}
    cells = tuple(
        verified(cell, m, bar=bar, probability=probability, pairs=one, parts=parts if one else ()) for cell, m in data
    )
    whole = parts[0] if one else merge_cells("*", parts)
    pooled = cells[0] if one else verified(whole, n, bar=bar, probability=probability, parts=parts)
    costs = [costs_of(run.path) for run in opened]
    result = VerifierResult(
        tuple(str(run.path) for run in opened), tuple(scorers), pooled, cells, bar,
        {s: max(c[s] for c in costs if s in c) for s in scorers if any(s in c for c in costs)},
        tuple(s for s in scorers if whole.leaks(ScoreName(s, "episode"))),
        (*_apart(opened, scorers), *_misnamed(no_chances)),
    )  # fmt: skip
    if out is not None:
        result.save(out)
    return result


def _apart(runs: Sequence[_Opened], scorers: Sequence[str]) -> Iterator[str]:
    """What is not the same in all runs."""
    for scorer in sorted({s for run in runs for s in run.scores.scorers} - {*scorers}):
        yield f"not all runs have scores by {scorer}, so it is left out"
    for scorer in scorers:
        if len({run.scores.scorers[scorer] for run in runs}) > 1:
            yield f"{scorer} is not the same in all runs: its settings, what it learned from or its instructions differ"


def _misnamed(scorers: Mapping[str, int]) -> Iterator[str]:
    """Scorers whose scores are no probabilities, and how many are not."""
    for scorer, count in scorers.items():
        yield (
            f"{scorer} says that its scores are probabilities, but {count} of them are not from 0 to 1, so their"
            " calibration is not shown"
        )


@dataclass(frozen=True)
class _Opened:
    """A run as far as it is needed here."""

    path: Path
    result: Result
    rows: dict[TakeKey, Row]
    scores: Scores

    @classmethod
    def of(cls, path: Path) -> _Opened:
        """RunError where a run is not finished or has no scores."""
        result, scores = Result.load(path / "result.json"), Scores.open(path)
        if scores is None or not scores.scorers:
            raise RunError(f"{path} has no scores; add some with besttake score {path} --scorer coverage")
        with Store.open(path) as store:
            return cls(path, result, {row.key: row for row in store.rows()}, scores)

    def cells(self, scorers: Sequence[str]) -> list[tuple[CellData, int]]:
        """The takes of the base arm in every cell of the run, and how many a choice is made from."""
        return [
            (base_of(cell, units_of(cell, self.rows), self.rows, self.scores, scorers), cell.headroom.n)
            for cell in self.result.cells
            if cell.headroom is not None
        ]
