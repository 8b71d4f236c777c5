"""``besttake reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.diagnose import check_failed
from besttake.cli.flags import Flags, plan_flags
from besttake.cli.options import AllowFailed, Json, Quiet, Verbose, command, pairs, reporter, show

Choose = Annotated[
    bool,
    typer.Option(
        "--choose",
        help="Choose the variant of retrieval and its strength once, on held-out demonstrations, for all policies.",
    ),
]
Controls = Annotated[
    bool, typer.Option("--controls", help="Also run cooled and shuffled, the controls that the paper lacks.")
]


@plan_flags(
    "demos", "task", "encoder", "starts", "seeds", "arms", "check_states", "stride", "probe_states",
    "gripper_dim", "eef_dims", "trust_remote_code", "workers", "batch", "on", "seed",
    helps={
        "starts": "Starts per task: a count, or a range FIRST:END (default: as in the paper).",
        "seeds": "Takes per start (default: as in the paper).",
        "arms": "Ways of running the policy (default: those of the paper).",
        "check_states": "Number of demonstrated states on which --choose chooses (default: 160).",
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
    choose: Choose = False,
    controls: Controls = False,
    allow_failed: AllowFailed = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a protocol of the paper with your policies, and print the paper's numbers beside yours.

    Without --policy it shows the paper's table and protocol. All policies run one frozen retrieval, the paper's (the
    rule next, alpha 0.3) or what --choose chose. Whatever differs from the paper is listed, here and in the report.

    Examples:
      besttake reproduce
      besttake reproduce table4
      besttake reproduce table1 --policy pi0=lerobot:org/pi0_libero --demos lerobot:org/libero -o runs/table1
      besttake reproduce table1 --policy pi0=lerobot:org/pi0_libero --demos lerobot:org/libero --choose --controls
      besttake reproduce table1 --policy pi0=testbed:half --env spatial=testbed:pick --encoder pixels
    """
    from besttake.reporting import terminal
    from besttake.verbs import reproduce as paper
    from besttake.verbs.report import report

    if table is None:
        known = [paper.protocol(name) for name in paper.protocols()]
        show(terminal.protocol_list(known), [{"name": one.name, "title": one.title} for one in known], as_json)
        return
    protocol = paper.protocol(table)
    if not policy:
        show(terminal.protocol(protocol), protocol.to_dict(), as_json)
        return
    form, example = "NAME=URI, the paper's name first", "pi0=lerobot:org/name"
    policies, envs = pairs("policy", policy, form, example), pairs("env", env or [], form, "spatial=libero:spatial")
    where, changes = out or Path("runs") / protocol.name, paper.with_controls(protocol, given) if controls else given
    result = paper.reproduce(
        protocol.name, policies, envs=envs, changes=changes, out=where, choose=choose,
        progress=reporter(quiet or as_json, verbose), command=command(),
    )  # fmt: skip
    report(where)
    show(terminal.reproduction(result), result.to_json(), as_json)
    check_failed(result.result, where, allowed=allow_failed)
