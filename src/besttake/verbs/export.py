"""A run to take along: tables, films, figures, a LeRobot data set (`besttake export`)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from besttake import registry
from besttake.errors import BestTakeError, PlanError, one_line
from besttake.measure.rescore import check_same_takes
from besttake.progress import Reporter, as_reporter
from besttake.reporting import result_tables, writers
from besttake.reporting.dataset import Scene, write_dataset
from besttake.reporting.hub import write_hub
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store
from besttake.verbs.diagnose.setup import spec_of
from besttake.verbs.runs import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """What to export from a run, and which takes.

    Attributes:
        csv: Write the tables ``takes.csv`` and ``cells.csv``.
        figures: Directory for every figure of the report, as SVG.
        films: Directory for an MP4 of each take. A film shows the scored frames, one every ``stride`` steps, at the
            speed of the robot.
        lerobot: Directory for the takes as a LeRobotDataset v3.0.
        hub: Directory for ``.eval_results/besttake.yaml`` and a text for the model card of one policy.
        benchmark: Data set on the hub whose tasks were played, for ``hub`` (default: that of the demonstrations).
        policies: Export only takes of these policies. Empty means all, here and in the next two.
        tasks: Export only takes of these tasks.
        arms: Export only takes of these arms.
        outcome: ``"success"`` or ``"failure"`` (default: both).
        keys: Export only these takes (default: all).
        most: Export at most this many takes.
        fps: Actions per second of the robot (default: the rate of the run's environment).

    Raises:
        PlanError: Nothing is to be exported, or an attribute is out of range.

    Examples:
        >>> Wanted(films=Path("films"), outcome="failure", most=20).arms
        ()
    """

    csv: bool = False
    figures: Path | None = None
    films: Path | None = None
    lerobot: Path | None = None
    hub: Path | None = None
    benchmark: str = ""
    policies: Sequence[str] = ()
    tasks: Sequence[str] = ()
    arms: Sequence[str] = ()
    outcome: str = ""
    keys: Collection[TakeKey] = ()
    most: int | None = None
    fps: int | None = None

    def __post_init__(self) -> None:
        if not any((self.csv, self.figures, self.films, self.lerobot, self.hub)):
            raise PlanError("say what to export: `csv`, `figures`, `films`, `lerobot` or `hub`")
        if self.outcome not in ("", "success", "failure"):
            raise PlanError(f"`outcome` {self.outcome}: choose success or failure")

    def picks(self, row: Row) -> bool:
        """Return whether a take is to be exported."""
        key = row.key
        chosen = ((key.policy, self.policies), (key.task, self.tasks), (key.arm, self.arms))
        return (
            row.status == "done"
            and (not self.keys or key in self.keys)
            and all(not names or name in names for name, names in chosen)
            and self.outcome in ("", "success" if row.success else "failure")
        )


def export(
    run: str | Path, wanted: Wanted, out: str | Path | None = None, *, progress: bool | Reporter = False
) -> list[Path]:
    """Write parts of a run in formats that other tools read, and return the files and directories that were written.

    Args:
        run: The run directory.
        wanted: What to export, and which takes.
        out: Directory for tables (default: ``export`` in the run). Every file appears complete or not at all.
        progress: True shows a progress bar.

    Raises:
        PlanError: No finished take matches, or the rate of the robot is not known and has to be given as ``fps``.
        RunError: The run is damaged or not finished.

    Examples:
        >>> besttake.export("runs/demo", Wanted(csv=True), "tables")  # doctest: +SKIP
    """
    opened, reporter = Run.open(run), as_reporter(progress)
    folder = Path(out) if out is not None else opened.path / "export"
    made = _tables(opened, folder) if wanted.csv else []
    if wanted.figures is not None:
        made += writers.write_figures(opened.result, wanted.figures)
    if wanted.hub is not None:
        made += write_hub(opened.result, wanted.hub, next(iter(wanted.policies), ""), wanted.benchmark)
    if wanted.films is None and wanted.lerobot is None:
        return made
    with Store.open(opened.path) as store:
        rows = [row for row in store.rows() if wanted.picks(row)][: wanted.most]
        if not rows:
            raise PlanError(f"no finished take of {opened.path} is of that kind; `besttake runs show` lists them")
        scene = _scene(store, rows, wanted)
        if wanted.films is not None:
            with reporter.stage("films", len(rows), "takes") as stage:
                for row in rows:
                    writers.write_film(store.load(row), wanted.films, scene.fps / store.manifest.plan["stride"])
                    stage.advance()
            made.append(wanted.films)
        if wanted.lerobot is not None:
            with reporter.stage("data set", len(rows), "takes") as stage:
                made.append(write_dataset(map(store.load, rows), wanted.lerobot, scene, stage.advance))
    return made


def _scene(store: Store, rows: Sequence[Row], wanted: Wanted) -> Scene:
    """How fast the robot acted and what it was told, as the envs of the takes say."""
    rates: dict[str, float] = {}
    instructions: dict[tuple[str, str], str] = {}
    for uri in dict.fromkeys(row.key.env for row in rows):
        try:
            spec = spec_of(registry.FromFile(uri, store.path / "takes.sqlite"))
        except BestTakeError as error:
            if wanted.fps is None:
                raise PlanError(
                    f"{uri} cannot be asked how many actions a second its robot makes; say it with `fps`"
                    f" ({one_line(error)})"
                ) from error
            _log.warning("%s cannot be asked for its instructions: tasks go by their names (%s)", uri, error)
            continue
        rates[uri] = spec.fps
        instructions |= {(uri, task.name): task.instruction for task in spec.tasks}
    if wanted.fps is not None:
        return Scene(wanted.fps, instructions)
    if len(set(rates.values())) > 1:
        each = ", ".join(f"{uri} {rate:g}" for uri, rate in rates.items())
        raise PlanError(f"these envs act at different rates ({each}); export one at a time, or say `fps`")
    return Scene(max(1, round(next(iter(rates.values())))), instructions)


def _tables(run: Run, folder: Path) -> list[Path]:
    named = {"cells": result_tables.numbers(run.result)}
    if (run.path / "takes.sqlite").is_file():
        with Store.open(run.path) as store:
            rows = store.rows()
        check_same_takes(run.path, run.result, {row.key: row for row in rows})
        named["takes"] = writers.takes_table(rows, run.scores)
    return [writers.write_csv(table, folder / f"{name}.csv") for name, table in named.items()]
