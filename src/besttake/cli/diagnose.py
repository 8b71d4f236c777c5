"""Commands that measure policies: ``diagnose``, ``demo`` (the same on the testbed) and ``probe``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from besttake.cli.flags import Flags, plan_flags
from besttake.cli.live import UNWATCHED, Live, LivePort, Watched
from besttake.cli.options import AllowFailed, Json, Out, Quiet, Strict, Verbose, command, reporter, show
from besttake.config import Plan, load_plan
from besttake.errors import RolloutError
from besttake.files import write_text
from besttake.progress import Reporter

if TYPE_CHECKING:
    from besttake.result import Result


@plan_flags()
def diagnose(
    given: Flags,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="Plan in YAML; flags override its keys.")] = None,
    out: Out = Path("runs/diagnosis"),
    strict: Strict = False,
    allow_failed: AllowFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    live: Live = False,
    live_port: LivePort = 0,
) -> None:
    """Measure what would help a frozen policy: more takes, retrieval, calmer sampling, several of these, or nothing.

    Plays takes, scores them, writes result.json and report.html, and prints a verdict for each policy. Running the same
    command again resumes an unfinished run, and answers at once if the run is finished.

    Examples:
      besttake diagnose --policy testbed:half --env testbed:pick -o runs/half
      besttake diagnose --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero
      besttake diagnose plan.yaml --starts 60
      besttake diagnose plan.yaml --live

    A plan file has a key for every flag:
      policy: [testbed:half, testbed:alt]
      env: testbed
      starts: 60
      retrieval: {rule: frame, prior: 0.2, rerank: 10}
    """
    run(
        load_plan(plan, given),
        out,
        Ending(strict, allow_failed),
        as_json=as_json,
        progress=reporter(quiet or as_json, verbose),
        watched=Watched(live, live_port),
    )


_SOURCES = ("*.py", "*.j2", "*.js", "*.css")
"""The files of this package that a report is made by."""
DEMO: dict[str, Any] = {
    "policy": ["testbed:half", "testbed:alt", "testbed:strong"], "env": ["testbed"], "stride": 8, "batch": 128,
    "check_states": 160,
}  # fmt: skip


@plan_flags("starts", "workers")
def demo(
    given: Flags,
    out: Out = Path("runs/demo"),
    strict: Strict = False,
    allow_failed: AllowFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    live: Live = False,
    live_port: LivePort = 0,
) -> None:
    """Diagnose three small policies on the embedded testbed and write a report. Needs no download and no GPU.

    Examples:
      besttake demo
      besttake demo --live
      besttake demo --starts 60 -o runs/long
    """
    run(
        Plan(**DEMO, **given),
        out,
        Ending(strict, allow_failed),
        as_json=as_json,
        progress=reporter(quiet or as_json, verbose),
        watched=Watched(live, live_port),
    )


@plan_flags(
    "policy", "env", "task", "demos", "encoder", "probe_states", "probe_samples", "check_states", "noise", "prior",
    "rule", "trust_remote_code", "seed",
    flags={"probe_states": "--states", "probe_samples": "--samples"},
)  # fmt: skip
def probe(
    given: Flags,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the retrieval check into this SVG file.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure how well a policy fits the demonstrations, and whether retrieval or cooling would help. Plays no takes.

    Samples the policy at demonstrated states and compares the samples with what the demonstrations did there.

    Examples:
      besttake probe --policy testbed:half --policy testbed:strong --env testbed
      besttake probe --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero --json
    """
    from besttake.reporting import terminal
    from besttake.verbs.probe import probe as measure

    result = measure(load_plan(None, {**given, "arms": "base"}), progress=reporter(quiet or as_json, verbose))
    show(terminal.probe(result), result.to_json(), as_json)
    drawn = result.plot() if figure is not None else None
    if figure is not None and drawn is not None:
        write_text(figure, drawn.svg())


@dataclass(frozen=True)
class Ending:
    """When a diagnosis ends with an error: undecided verdicts (``strict``), failed takes (unless ``allow_failed``)."""

    strict: bool = False
    allow_failed: bool = False


def run(
    plan: Plan, out: Path, ending: Ending, *, as_json: bool, progress: Reporter, watched: Watched = UNWATCHED
) -> None:
    """Diagnose, write the report, and print the verdicts; with a live page as long as that takes."""
    from besttake.reporting.terminal import diagnosis, undecided
    from besttake.verbs.diagnose.diagnosis import diagnose
    from besttake.verbs.report import report

    def work() -> tuple[Result, Path]:
        result = diagnose(plan, out, progress=progress, command=command())
        return result, _page(out) or report(out)

    result, page = watched.do(work, out)
    show(diagnosis(result), result.to_json(), as_json)
    progress.note(f"Report: {page}")
    check_failed(result, out, allowed=ending.allow_failed)
    if ending.strict and undecided(result):
        raise typer.Exit(3)


def check_failed(result: Result, out: Path, *, allowed: bool) -> None:
    """RolloutError where takes of a run failed, unless that is ``allowed``."""
    if result.cost.errors and not allowed:
        raise RolloutError(
            f"{result.cost.errors} takes failed{_most_failed_by(out)}; `besttake runs show {out}` says why. To try them"
            f" again: {command()} (to accept them, add `allow_failed`)"
        )


def _most_failed_by(out: Path) -> str:
    from besttake.takes.store import Store

    with Store.open(out) as store:
        reasons = Counter(row.error for row in store.rows() if row.status == "error" and row.error)
    for reason, count in reasons.most_common(1):
        return f", {count if len(reasons) > 1 else 'all'} of them by {reason[:200]}"
    return ""


def _page(out: Path) -> Path | None:
    """The report of a run if it was made of its result, as it is, by this version; None where it has to be made."""
    page, result, package = out / "report.html", out / "result.json", Path(__file__).parents[1]
    newest = max(file.stat().st_mtime_ns for pattern in _SOURCES for file in package.rglob(pattern))
    if page.is_file() and page.stat().st_mtime_ns > max(newest, result.stat().st_mtime_ns):
        return page
    return None
