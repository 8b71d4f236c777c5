"""Export parts of a run: tables, films, figures, a LeRobot data set (`besttake export`)."""

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
class ExportOptions:
    """What to export from a run, and which takes.

    Attributes:
        csv: Write the tables ``takes.csv`` and ``cells.csv``.
        figures: Directory for every figure of the report, as SVG.
        films: Directory for an MP4 of each take. A film shows the scored frames, one every ``stride`` steps, at the
            speed of the robot.
        lerobot: Directory for the takes as a LeRobotDataset v3.0.
        hub: Directory for ``.eval_results/besttake.yaml`` and a text for the model card of one policy.
        benchmark: Data set on the hub whose tasks were played, for ``hub`` (default: that of the demonstrations).
        policies: Export only takes of these policies; empty for all. The same holds for ``tasks`` and ``arms``.
        tasks: Export only takes of these tasks.
        arms: Export only takes of these arms.
        outcome: ``"success"`` or ``"failure"`` (default: both).
        keys: Export only these takes (default: all).
        most: Export at most this many takes.
        fps: Actions per second of the robot (default: the rate of the run's environment).

    Raises:
        PlanError: Nothing is to be exported, or ``outcome`` is unknown.

    Examples:
        >>> ExportOptions(films=Path("films"), outcome="failure", most=20).arms
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
        """Return whether a take is to be exported; takes that failed in an error never are."""
        key = row.key
        chosen = ((key.policy, self.policies), (key.task, self.tasks), (key.arm, self.arms))
        return (
            row.status == "done"
            and (not self.keys or key in self.keys)
            and all(not names or name in names for name, names in chosen)
            and self.outcome in ("", "success" if row.success else "failure")
        )


def export(
    run: str | Path, options: ExportOptions, out: str | Path | None = None, *, progress: bool | Reporter = False
) -> list[Path]:
    """Write parts of a run in formats that other tools read, and return the paths of what was written.

    Args:
        run: The run directory.
        options: What to export, and which takes.
        out: Directory for tables (default: ``export`` in the run). Every file appears complete or not at all.
        progress: True shows a progress bar.

    Raises:
        PlanError: No finished take matches, or the robot's rate of actions is not known: give ``fps``.
        RunError: The run is damaged or not finished.

    Examples:
        >>> besttake.export("runs/demo", ExportOptions(csv=True), "tables")  # doctest: +SKIP
    """
    opened, reporter = Run.open(run), as_reporter(progress)
    folder = Path(out) if out is not None else opened.path / "export"
    paths = _tables(opened, folder) if options.csv else []
    if options.figures is not None:
        paths += writers.write_figures(opened.result, options.figures)
    if options.hub is not None:
        paths += write_hub(opened.result, options.hub, next(iter(options.policies), ""), options.benchmark)
    if options.films is None and options.lerobot is None:
        return paths
    with Store.open(opened.path) as store:
        rows = [row for row in store.rows() if options.picks(row)][: options.most]
        if not rows:
            raise PlanError(f"{opened.path} has no finished take that matches; `besttake runs show` lists its takes")
        scene = _scene(store, rows, options)
        if options.films is not None:
            with reporter.stage("films", len(rows), "takes") as stage:
                for row in rows:
                    writers.write_film(store.load(row), options.films, scene.fps / store.manifest.plan["stride"])
                    stage.advance()
            paths.append(options.films)
        if options.lerobot is not None:
            with reporter.stage("data set", len(rows), "takes") as stage:
                paths.append(write_dataset(map(store.load, rows), options.lerobot, scene, stage.advance))
    return paths


def _scene(store: Store, rows: Sequence[Row], options: ExportOptions) -> Scene:
    """The robot's rate of actions and the instructions of its tasks, from the envs of the takes or ``fps``."""
    rates: dict[str, float] = {}
    instructions: dict[tuple[str, str], str] = {}
    for uri in dict.fromkeys(row.key.env for row in rows):
        try:
            spec = spec_of(registry.FromFile(uri, store.path / "takes.sqlite"))
        except BestTakeError as error:
            if options.fps is None:
                raise PlanError(
                    f"{uri} cannot be opened to see how many actions a second its robot makes; give `fps`"
                    f" ({one_line(error)})"
                ) from error
            _log.warning("%s cannot be opened for its instructions: tasks go by their names (%s)", uri, error)
            continue
        rates[uri] = spec.fps
        instructions |= {(uri, task.name): task.instruction for task in spec.tasks}
    if options.fps is not None:
        return Scene(options.fps, instructions)
    if len(set(rates.values())) > 1:
        listed = ", ".join(f"{uri} {rate:g}" for uri, rate in rates.items())
        raise PlanError(f"these envs act at different rates ({listed}); export one at a time, or give `fps`")
    return Scene(max(1, round(next(iter(rates.values())))), instructions)


def _tables(run: Run, folder: Path) -> list[Path]:
    tables = {"cells": result_tables.numbers(run.result)}
    if (run.path / "takes.sqlite").is_file():
        with Store.open(run.path) as store:
            rows = store.rows()
        check_same_takes(run.path, run.result, {row.key: row for row in rows})
        tables["takes"] = writers.takes_table(rows, run.scores)
    return [writers.write_csv(table, folder / f"{name}.csv") for name, table in tables.items()]
