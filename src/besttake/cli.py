"""The command line: parse, call, print. No logic lives here."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from besttake.errors import BestTakeError

_HELP = """What does a frozen robot policy need at test time?

More takes and a good pick (reuse), a demonstration prior (retrieve), calmer sampling (cool), or nothing:
BestTake measures it, with intervals, controls and the cost of each.

    besttake demo                     the whole diagnosis on the embedded testbed, no robot or GPU needed
    besttake diagnose --help          on your own policy and benchmark
"""
_EXIT = "Exit codes: 0 done, 1 could not go on (disk full), 2 bad input, 3 undecided with --strict, 130 interrupted."

app = typer.Typer(
    help=_HELP, epilog=_EXIT, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
runs = typer.Typer(help="Look into run directories.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(runs, name="runs")

Out = Annotated[Path, typer.Option("-o", "--out", help="The run directory; an unfinished run in it goes on.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no notes.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more, e.g. why a take failed.")]
Policies = Annotated[list[str] | None, typer.Option("--policy", help="Policy URI; repeatable.")]
Envs = Annotated[list[str] | None, typer.Option("--env", help="Environment URI; repeatable.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only this task; repeatable.")]
Demos = Annotated[str | None, typer.Option("--demos", help="Library directory, or demonstrations (lerobot:…, hdf5:…).")]
EncoderUri = Annotated[str | None, typer.Option("--encoder", help="Encoder of frames, e.g. dinov2+siglip.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Simulator processes (default 2).")]
Batch = Annotated[int | None, typer.Option(min=1, help="Takes under way at once (default 16).")]
RunSeed = Annotated[int | None, typer.Option("--seed", min=0, help="The run seed (default 0).")]


def main() -> NoReturn:
    """Entry point: every error that a user can mend is one line."""
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except typer.Abort:
        code = _say("interrupted", 130)
    except KeyboardInterrupt:
        code = _say("interrupted; finished takes are kept, run the same command to go on", 130)
    except BestTakeError as error:
        code = _say(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _say(error.format_message(), 2)
    sys.exit(code if isinstance(code, int) else 0)


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    starts: Annotated[str, typer.Option(help="Starts per task.")] = "20",
    workers: Workers = None,
    strict: Annotated[bool, typer.Option(help="Exit with 3 when a verdict is undecided.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Diagnose three policies on the embedded testbed, and write a report to open.

    Examples:
      besttake demo
      besttake demo --starts 60 -o runs/long
    """
    _diagnose(None, {"policy": ["testbed:half", "testbed:alt", "testbed:strong"], "env": ["testbed"], "starts": starts,
                     "workers": workers}, out, strict, as_json, quiet, verbose)  # fmt: skip


@app.command()
def diagnose(
    plan: Annotated[Path | None, typer.Argument(help="A plan in YAML; flags override its keys.")] = None,
    policy: Policies = None,
    env: Envs = None,
    task: Tasks = None,
    demos: Demos = None,
    starts: Annotated[str | None, typer.Option(help="Starts per task: a count, or FIRST:END.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Takes per start (default 3).")] = None,
    arms: Annotated[str | None, typer.Option(help="Of base,cooled,shuffled,retrieve,rerank.")] = None,
    window: Annotated[str | None, typer.Option(help="full (default), episode or common.")] = None,
    scorer: Annotated[str | None, typer.Option(help="manifold (default) or coverage.")] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Score every so many steps (default 5).")] = None,
    encoder: EncoderUri = None,
    alpha: Annotated[float | None, typer.Option(help="Retrieval strength (default 0.3, or as tuned).")] = None,
    rule: Annotated[str | None, typer.Option(help="Retrieval rule: next, current or frame.")] = None,
    worth: Annotated[float | None, typer.Option(help="Smallest effect worth acting on, in points (default 3).")] = None,
    gripper_dim: Annotated[
        int | None, typer.Option(help="Which action number is the gripper, where data do not say.")
    ] = None,
    eef_dims: Annotated[str | None, typer.Option(help="Which state numbers are the end effector, e.g. 0,1,2.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with a checkpoint.")
    ] = False,
    workers: Workers = None,
    batch: Batch = None,
    on: Annotated[str | None, typer.Option(help="local (default) or ray.")] = None,
    seed: RunSeed = None,
    out: Out = Path("runs/diagnosis"),
    strict: Annotated[bool, typer.Option(help="Exit with 3 when a verdict is undecided.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure what a frozen policy needs: reuse, retrieve, cool, several of these, or nothing.

    Examples:
      besttake diagnose --policy testbed:half --env testbed:pick -o runs/half
      besttake diagnose --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero --seeds 3
      besttake diagnose plan.yaml --starts 60
    """
    retrieval = {name: value for name, value in (("alpha", alpha), ("rule", rule)) if value is not None}
    flags = {
        "policy": policy, "env": env, "task": task, "demos": demos, "starts": starts, "seeds": seeds, "arms": arms,
        "window": window, "scorer": scorer, "stride": stride, "encoder": encoder, "retrieval": retrieval or None,
        "worth": worth, "gripper_dim": gripper_dim, "eef_dims": eef_dims,
        "trust_remote_code": trust_remote_code or None, "workers": workers, "batch": batch, "on": on, "seed": seed,
    }  # fmt: skip
    _diagnose(plan, flags, out, strict, as_json, quiet, verbose)


@runs.command("show")
def runs_show(directory: Path, as_json: Json = False) -> None:
    """What is done, what is missing, what failed and why, and the digest over all takes.

    Example:
      besttake runs show runs/demo --json
    """
    from besttake.takes.summary import summarise, table

    summary = summarise(directory)
    if as_json:
        print(json.dumps(summary.to_dict(), indent=1))
    else:
        Console(highlight=False).print(table(summary))


def _diagnose(
    plan: Path | None, flags: dict[str, Any], out: Path, strict: bool, as_json: bool, quiet: bool, verbose: bool
) -> None:
    from besttake.config import load_plan
    from besttake.diagnosis import diagnose as run
    from besttake.report.html import make_html
    from besttake.report.terminal import undecided, verdict_table

    result = run(load_plan(plan, flags), out, _reporter(quiet or as_json, verbose), _command())
    page = make_html(out)
    if as_json:
        print(result.model_dump_json(indent=1))
    else:
        console = Console(highlight=False)
        console.print(verdict_table(result))
        console.print(f"Report: {page}")
    if strict and undecided(result):
        raise typer.Exit(3)


def _reporter(quiet: bool, verbose: bool) -> Any:
    from besttake.progress import Reporter

    return Reporter(0 if quiet else 2 if verbose else 1)


def _command() -> str:
    return shlex.join(["besttake", *sys.argv[1:]])


def _say(text: str, code: int) -> int:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"besttake: {text}", style="red", markup=False)
    return code
