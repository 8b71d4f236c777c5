"""Commands that play or ask policies: ``diagnose``, ``demo``, ``probe``, ``plan``, ``reproduce`` and ``act``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from besttake.arms import BASE
from besttake.cli.console import command_line, reporter, show
from besttake.cli.flags import (
    AllowFailed,
    Flags,
    Json,
    Out,
    Quiet,
    RunDirectory,
    Strict,
    Verbose,
    Worth,
    pairs,
    plan_flags,
)
from besttake.config import Plan, load_plan
from besttake.errors import RolloutError

if TYPE_CHECKING:
    from besttake.progress import Reporter

Track = Annotated[
    str | None,
    typer.Option(metavar="trackio|wandb", help="Log takes and verdicts to this tracker; uploads nothing."),
]

DEMO: dict[str, Any] = {
    "policy": ["testbed:half", "testbed:alt", "testbed:strong"], "env": ["testbed"], "stride": 8, "batch": 128,
    "check_states": 160,
}  # fmt: skip


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
    track: Track = None,
) -> None:
    """Measure what would help a frozen policy: more takes, retrieval, calmer sampling, several of these, or nothing.

    Plays takes, scores them, writes result.json and report.html, and prints a verdict for each policy. Running the same
    command again resumes an unfinished run, and answers at once if the run is finished.

    Examples:
      besttake diagnose --policy testbed:half --env testbed:pick -o runs/half
      besttake diagnose --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero
      besttake diagnose plan.yaml --starts 60

    A plan file has a key for every flag:
      policy: [testbed:half, testbed:alt]
      env: testbed
      starts: 60
      retrieval: {rule: frame, prior: 0.2, rerank: 10}
    """
    chosen = load_plan(plan, given)
    shown = reporter(quiet or as_json, verbose)
    if track is not None:
        from besttake.reporting.tracking import TrackingReporter

        shown = TrackingReporter(shown.shown, track, chosen, out)
    run(chosen, out, shown, strict=strict, allow_failed=allow_failed, as_json=as_json, verbose=verbose)


@plan_flags("starts", "workers")
def demo(
    given: Flags,
    out: Out = Path("runs/demo"),
    strict: Strict = False,
    allow_failed: AllowFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Diagnose three small policies on the embedded testbed and write a report. Needs no download and no GPU.

    Examples:
      besttake demo
      besttake demo --starts 60 -o runs/long
    """
    chosen, shown = Plan(**DEMO, **given), reporter(quiet or as_json, verbose)
    run(chosen, out, shown, strict=strict, allow_failed=allow_failed, as_json=as_json, verbose=verbose)


@plan_flags(
    "policy", "env", "task", "demos", "encoder", "probe_states", "probe_samples", "check_states", "noise", "prior",
    "rule", "trust_remote_code", "seed",
)  # fmt: skip
def probe(given: Flags, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Measure how well a policy fits the demonstrations, and whether retrieval or cooling would help. Plays no takes.

    Samples the policy at demonstrated states and compares the samples with what the demonstrations did there.

    Examples:
      besttake probe --policy testbed:half --policy testbed:strong --env testbed
      besttake probe --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero --json
    """
    from besttake.reporting import terminal
    from besttake.verbs.probe import probe as measure

    result = measure(load_plan(None, {**given, "arms": BASE}), progress=reporter(quiet or as_json, verbose))
    show(terminal.probe(result, verbose=verbose), result.to_json(), as_json)


def plan(
    pass1: Annotated[
        float | None, typer.Option(metavar="RATE", help="Success rate of a single take, e.g. 0.64.")
    ] = None,
    pilot: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start from the results of this run instead.")
    ] = None,
    worth: Worth = 3.0,
    seeds: Annotated[int | None, typer.Option(help="Takes per start (default: the pilot's, else 3).")] = None,
    best_of: Annotated[
        int | None, typer.Option(help="Pick the best of this many takes (default: the pilot's, else 3 or all seeds).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute how many starts and seeds a diagnosis needs, before running anything.

    Give either the success rate of a single take or a pilot run.

    Examples:
      besttake plan --pass1 0.64 --worth 3
      besttake plan --pilot runs/demo --seeds 5
    """
    from besttake.reporting import terminal
    from besttake.verbs.plan import plan as make_plans

    plans = make_plans(pass1=pass1, pilot=pilot, worth=worth, seeds=seeds, best_of=best_of)
    show(terminal.plans(plans), plans.to_json(), as_json)


@plan_flags(
    "demos", "task", "encoder", "starts", "seeds", "arms", "stride", "probe_states",
    "gripper_dim", "eef_dims", "trust_remote_code", "workers", "batch", "on", "seed",
    helps={
        "starts": "Starts per task: a count, or a range FIRST:END (default: as in the paper).",
        "seeds": "Takes per start (default: as in the paper).",
        "arms": "Ways of running the policy (default: those of the paper).",
        "encoder": "Encoder that embeds frames (default: as in the paper).",
        "stride": "Score one frame every N steps (default: as in the paper).",
        "probe_states": "States for the demonstration-fit error (default: as in the paper).",
    },
)  # fmt: skip
def reproduce(
    given: Flags,
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="table1 to table7, relation or fit; leave it out to list them."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URI", help="Use this policy in place of the paper's NAME. Repeatable."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URI", help="Use this environment in place of the paper's NAME, and no others. Repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Run directory (default: runs/TABLE).")
    ] = None,
    allow_failed: AllowFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a protocol of the paper with your policies, and compare the paper's numbers with yours.

    Without --policy it shows the paper's table and protocol. All policies run the paper's frozen retrieval (the rule
    next, alpha 0.3). Whatever differs from the paper is listed, here and in the report.

    Examples:
      besttake reproduce
      besttake reproduce table4
      besttake reproduce table1 --policy pi0=lerobot:org/pi0_libero --demos lerobot:org/libero -o runs/table1
      besttake reproduce table1 --policy pi0=testbed:half --env spatial=testbed:pick --encoder pixels
    """
    from besttake.reporting import terminal
    from besttake.verbs import reproduce as paper
    from besttake.verbs.report import report

    if table is None:
        protocols = [paper.protocol(name) for name in paper.protocols()]
        data = [{"name": each.name, "title": each.title} for each in protocols]
        show(terminal.protocol_list(protocols), data, as_json)
        return
    protocol = paper.protocol(table)
    if not policy:
        show(terminal.protocol(protocol), protocol.to_dict(), as_json)
        return
    form, example = "NAME=URI, the paper's name first", "pi0=lerobot:org/name"
    policies, envs = pairs("policy", policy, form, example), pairs("env", env or [], form, "spatial=libero:spatial")
    where = out or Path("runs") / protocol.name
    result = paper.reproduce(
        protocol.name, policies, envs=envs, changes=given, out=where,
        progress=reporter(quiet or as_json, verbose), command=command_line(),
    )  # fmt: skip
    report(where)
    show(terminal.reproduction(result), result.to_json(), as_json)
    refuse_failed_takes(result.result.cost.errors, where, allowed=allow_failed)


def act(
    directory: RunDirectory,
    policy: Annotated[str, typer.Option(metavar="NAME", help="Policy, where the run has several.")] = "",
    option: Annotated[
        str, typer.Option(metavar="OPTION", help='Another option than the recommended one, e.g. "cooled, best of 3".')
    ] = "",
    starts: Annotated[
        str | None, typer.Option(metavar="FIRST:END", help="Starts of each task (default: the next 20 unseen ones).")
    ] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Allow starts that the run has seen.")] = False,
    lerobot: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the kept takes as a LeRobotDataset v3.")
    ] = None,
    films: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the kept takes as MP4 films.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a table of the kept takes.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Directory for the takes (default: act/ in the run)."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Play what a run recommends on new starts, and check whether its promise holds.

    From each start, takes are played until the score accepts one, at most as many as the option has. The best is kept.

    Examples:
      besttake act runs/demo --policy half
      besttake act runs/half --starts 20:60 --lerobot datasets/kept
      besttake act runs/half --option "cooled, best of 3" --json
    """
    from besttake.reporting.terminal import Sentence, promise_check
    from besttake.verbs import act as verb

    result = verb.act(
        directory, out, policy=policy, option=option, starts=starts, seen=seen, progress=reporter(quiet),
        command=command_line(),
    )  # fmt: skip
    written = verb.write_kept(result, lerobot=lerobot, films=films, csv=csv)
    show([*promise_check(result), *map(Sentence, map(str, written))], result.to_json(), as_json)
    refuse_failed_takes(result.failed, Path(result.out))


def run(
    plan: Plan, out: Path, shown: Reporter, *, strict: bool, allow_failed: bool, as_json: bool, verbose: bool
) -> None:
    """Diagnose, write the report, and print the verdicts."""
    from besttake.reporting.terminal import diagnosis
    from besttake.verbs.diagnose.diagnosis import diagnose
    from besttake.verbs.report import report

    result = diagnose(plan, out, progress=shown, command=command_line())
    report(out)
    show(diagnosis(result, out, verbose=verbose), result.to_json(), as_json)
    refuse_failed_takes(result.cost.errors, out, allowed=allow_failed)
    if strict and result.undecided:
        raise typer.Exit(3)


def refuse_failed_takes(failed: int, out: Path, *, allowed: bool | None = None) -> None:
    """Raise RolloutError if takes of a run ``failed``, unless that is ``allowed`` (None: there is no such flag)."""
    from besttake.takes.store import Store

    if failed and not allowed:
        with Store.open(out) as store:
            reasons = Counter(row.error or "" for row in store.rows() if row.status == "error")
        ((most, _),) = reasons.most_common(1)
        accept = "" if allowed is None else " (to accept them, add `allow_failed`)"
        raise RolloutError(
            f"{failed} takes failed, most by {most[:200]}; `besttake runs show {out}` says why. To try them again:"
            f" {command_line()}{accept}"
        )
