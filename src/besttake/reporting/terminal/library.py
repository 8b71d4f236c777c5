"""What `besttake library build`, `show` and `tune` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from besttake.core.offline import Check
from besttake.core.retrieve import RetrievalConfig
from besttake.reporting import checks
from besttake.reporting.numbers import estimate_percent, estimate_points
from besttake.reporting.terminal.probe import check_table
from besttake.reporting.terminal.tables import table

if TYPE_CHECKING:
    from besttake.demos.library import Library
    from besttake.verbs.replay import ReplayResult
    from besttake.verbs.rollouts import Tuned


def render(library: Library) -> RenderableType:
    """Where the library comes from and what is frozen into it, then every demonstration with its events."""
    summary = library.summary()
    source, encoder = summary["source"], summary["encoder"]
    tasks = ", ".join(f"{task} ({count})" for task, count in summary["tasks"].items())
    about = {
        "source": f"{source['name']}, fingerprint {source['fingerprint'][:16]}",
        "encoder": f"{encoder['name']}, camera {summary['camera']}, {_every(summary['stride'])}",
        "holds": f"{summary['demos']} demonstrations, {summary['frames']} frames, {summary['events']} events",
        "tasks": tasks,
        "retrieval": _settings(library.retrieval) if library.retrieval is not None else "not tuned (`library tune`)",
    }
    rows = [(d.id, d.task, d.length, ", ".join(map(str, d.events))) for d in library.demos]
    head = table(("", ""), [(Text(name, style="bold"), text) for name, text in about.items()])
    return Group(head, Text(), table(("demo", "task", "steps", "events at"), rows))


def _every(stride: int) -> str:
    return "every frame" if stride == 1 else f"one frame in {stride}"


def _settings(config: RetrievalConfig) -> str:
    """``rule frame, noise 0.1, prior 0.2``: all settings of retrieval by name."""
    return ", ".join(f"{name} {value}" for name, value in config.to_dict().items() if value is not None)


def render_checks(kept: Mapping[str, Check], width: int) -> RenderableType:
    """What retrieval does for each policy that was checked with the library."""
    parts: list[RenderableType] = []
    for name, check in kept.items():
        parts += ["", Text(f"{name}: {checks.sentence(check)}", style="bold"), *check_table(check, width)]
    return Group(*parts)


def render_built(directory: object, summary: Mapping[str, Any]) -> RenderableType:
    """How much a new library holds, what it was taken for, and what was left out."""
    text = Text(
        f"{directory}: {summary['demos']} demonstrations, {summary['frames']} frames, {summary['events']} events"
    )
    for note in summary["notes"]:
        text.append(f"\nnote: {note}")
    for bad in summary["left_out"]:
        text.append(f"\nleft out {bad['id']}: {bad['reason']}", style="yellow")
    return text


def render_tuned(tuned: Tuned) -> RenderableType:
    """What was rolled out, the highest success first, and the winner."""
    rows = []
    for trial in tuned.trials:
        style = "bold" if trial.config == tuned.config else ""
        cells = (estimate_percent(trial.success), estimate_points(trial.gain, ""), estimate_points(trial.content, ""))
        tied = "tied with the leader" if trial.tied else ""
        rows.append(tuple(Text(cell, style=style) for cell in (trial.name, *cells, str(trial.takes), tied)))
    winner = f"Chosen and kept in the library: {tuned.winner.name}, which succeeded most often."
    beyond = tuned.winner.content
    if beyond.low is None or beyond.low <= 0:
        winner += " It is not shown to gain more than cooling at the same noise."
    frozen = Text(f"Frozen: {_settings(tuned.config)}")
    columns = ("rolled out", "success on tuning starts", "over base", "beyond cooled", "takes", "")
    return Group(table(columns, rows), Text(winner, style="bold"), frozen)


def render_replay(result: ReplayResult) -> RenderableType:
    """How many demonstrations succeeded again, and what became of the others."""
    text = Text(f"{result.succeeded} of {len(result.replayed)} demonstrations replay to success in {result.env}")
    if problems := Counter(demo.problem for demo in result.demos if demo.problem):
        for problem, count in problems.most_common(5):
            text.append(f"\n{count} were not replayed: {problem}", style="yellow")
    for demo in [demo for demo in result.replayed if demo.success_step is None][:20]:
        text.append(f"\n{demo.id} does not succeed again within its {demo.steps} steps", style="yellow")
    return text
