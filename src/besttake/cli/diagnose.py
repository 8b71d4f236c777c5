"""``demo``, ``diagnose``, ``probe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from besttake.cli.options import (
    Batch,
    Demos,
    EefDims,
    EncoderUri,
    Envs,
    GripperDim,
    Json,
    Out,
    Policies,
    Quiet,
    RunSeed,
    Strict,
    Tasks,
    Trust,
    Verbose,
    Workers,
    command,
    reporter,
    show,
)

DEMO_POLICIES = ["testbed:half", "testbed:alt", "testbed:strong"]


def demo(
    out: Out = Path("runs/demo"),
    starts: Annotated[str, typer.Option(help="Starts per task.")] = "20",
    workers: Workers = None,
    strict: Strict = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Diagnose three policies on the embedded testbed, and write a report to open.

    Examples:
      besttake demo
      besttake demo --starts 60 -o runs/long
    """
    flags = {
        "policy": DEMO_POLICIES,
        "env": ["testbed"],
        "starts": starts,
        "workers": workers,
        "stride": 8,
        "batch": 128,
    }
    _diagnose(None, flags, out, strict, as_json, quiet, verbose)


def diagnose(
    plan: Annotated[Path | None, typer.Argument(help="A plan in YAML; flags override its keys.")] = None,
    policy: Policies = None,
    env: Envs = None,
    task: Tasks = None,
    demos: Demos = None,
    starts: Annotated[str | None, typer.Option(help="Starts per task: a count, or FIRST:END (default 20).")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Takes per start (default 3).")] = None,
    best_of: Annotated[int | None, typer.Option(help="Takes that one is kept of (default: all seeds).")] = None,
    arms: Annotated[str | None, typer.Option(help="Of base,cooled,shuffled,retrieve,rerank.")] = None,
    window: Annotated[
        str | None, typer.Option(help="full (takes go on after success; default), common or episode (they end at it).")
    ] = None,
    scorer: Annotated[str | None, typer.Option(help="manifold (default) or coverage.")] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Score every so many steps (default 5).")] = None,
    encoder: EncoderUri = None,
    skip_still: Annotated[
        float | None,
        typer.Option(help="Frames that differ by less (mean grey levels) share an embedding; error reported."),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Retrieval strength (default 0.3, or as tuned).")] = None,
    rule: Annotated[str | None, typer.Option(help="Retrieval rule: next, current or frame.")] = None,
    worth: Annotated[float | None, typer.Option(help="Smallest effect worth acting on, in points (default 3).")] = None,
    gripper_dim: GripperDim = None,
    eef_dims: EefDims = None,
    trust_remote_code: Trust = False,
    workers: Workers = None,
    batch: Batch = None,
    on: Annotated[str | None, typer.Option(help="local (default) or ray.")] = None,
    seed: RunSeed = None,
    out: Out = Path("runs/diagnosis"),
    strict: Strict = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure what a frozen policy needs: reuse, retrieve, cool, several of these, or nothing.

    Examples:
      besttake diagnose --policy testbed:half --env testbed:pick -o runs/half
      besttake diagnose --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero
      besttake diagnose plan.yaml --starts 60

    A plan has a key for every flag:
      policy: [testbed:half, testbed:alt]
      env: testbed
      starts: 60
      retrieval: {rule: next, alpha: 0.3, gripper_gating: true}
    """
    flags = {
        "policy": policy, "env": env, "task": task, "demos": demos, "starts": starts, "seeds": seeds,
        "best_of": best_of, "arms": arms,
        "window": window, "scorer": scorer, "stride": stride, "encoder": encoder, "skip_still": skip_still,
        "alpha": alpha, "rule": rule,
        "worth": worth, "gripper_dim": gripper_dim, "eef_dims": eef_dims,
        "trust_remote_code": trust_remote_code or None, "workers": workers, "batch": batch, "on": on, "seed": seed,
    }  # fmt: skip
    _diagnose(plan, flags, out, strict, as_json, quiet, verbose)


def probe(
    policy: Policies = None,
    env: Envs = None,
    task: Tasks = None,
    demos: Demos = None,
    encoder: EncoderUri = None,
    states: Annotated[int, typer.Option(min=1, help="Library states to ask at.")] = 400,
    samples: Annotated[int, typer.Option(min=1, help="Samples per state (K).")] = 3,
    trust_remote_code: Trust = False,
    seed: RunSeed = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The demonstration-fit error alone: how close is the policy to the demonstrations, and they to each other?

    Examples:
      besttake probe --policy testbed:half --policy testbed:strong --env testbed
      besttake probe --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero --json
    """
    from besttake.config import load_plan
    from besttake.reporting.terminal.verdict import probe_table
    from besttake.verbs.probe import probe as run

    flags = {
        "policy": policy, "env": env, "task": task, "demos": demos, "encoder": encoder, "probe_states": states,
        "probe_samples": samples, "trust_remote_code": trust_remote_code or None, "seed": seed, "arms": "base",
    }  # fmt: skip
    found = run(load_plan(None, flags), progress=reporter(quiet or as_json))
    show(probe_table(found, Console().width), [cell.model_dump(mode="json") for cell in found], as_json)


def _diagnose(
    plan: Path | None, flags: dict[str, Any], out: Path, strict: bool, as_json: bool, quiet: bool, verbose: bool
) -> None:
    from besttake.config import load_plan
    from besttake.reporting.html import make_html
    from besttake.reporting.terminal.verdict import undecided, verdict_table
    from besttake.verbs.diagnose import diagnose as run

    told = reporter(quiet or as_json, verbose)
    result = run(load_plan(plan, flags), out, progress=told, command=command())
    page = make_html(out)
    console = Console(highlight=False)
    show(verdict_table(result, console.width), result.model_dump_json(indent=1), as_json)
    told.note(f"Report: {page}")
    if strict and undecided(result):
        raise typer.Exit(3)
