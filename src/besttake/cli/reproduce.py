"""``reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from besttake.cli.options import Batch, Demos, EncoderUri, Json, Quiet, Trust, Workers, command, reporter, show


def reproduce(
    table: Annotated[str | None, typer.Argument(help="table1 … table7, relation or fit; none lists them.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="NAME=URI: which policy plays the paper's; repeatable.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=URI: run an env as another, and only those named.")
    ] = None,
    demos: Demos = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The run (default: runs/TABLE); it goes on.")] = None,
    encoder: EncoderUri = None,
    starts: Annotated[str | None, typer.Option(help="Starts per task, if not the paper's.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Takes per start, if not the paper's.")] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Score every so many steps, if not each.")] = None,
    trust_remote_code: Trust = False,
    workers: Workers = None,
    batch: Batch = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The paper's tables: run a protocol with policies of yours, and see the paper's numbers beside your own.

    Without a policy it shows the table and its protocol.

    Examples:
      besttake reproduce
      besttake reproduce table4
      besttake reproduce table1 --policy pi0=lerobot:org/pi0_libero --demos lerobot:org/libero -o runs/table1
      besttake reproduce table2 --policy pi0=lerobot:org/pi0_libero --demos lerobot:org/libero -o runs/table1
      besttake reproduce table1 --policy pi0=testbed:half --env spatial=testbed:pick --encoder pixels
    """
    from besttake.reporting.html import make_html
    from besttake.reporting.terminal.reproduce import render, render_list, render_protocol
    from besttake.verbs import reproduce as paper
    from besttake.verbs.diagnose import diagnose

    if table is None:
        known = [paper.protocol(name) for name in paper.protocols()]
        show(render_list(known), [{"name": one.name, "title": one.title} for one in known], as_json)
        return
    asked = paper.protocol(table)
    if not policy:
        show(render_protocol(asked), _data(asked), as_json)
        return
    policies, envs = _pairs("--policy", policy), _pairs("--env", env or [])
    changes = {
        "demos": demos, "encoder": encoder, "starts": starts, "seeds": seeds, "stride": stride, "workers": workers,
        "batch": batch, "trust_remote_code": trust_remote_code or None,
    }  # fmt: skip
    plan, left = paper.plan_for(asked, policies, envs, changes)
    where = out or Path("runs") / asked.name
    result = diagnose(plan, where, progress=reporter(quiet or as_json), command=command())
    make_html(where)
    found = paper.compare(asked, result, policies, envs)
    numbers = [
        {"row": one.row, "column": one.column, "paper": one.paper, "here": one.here.model_dump()} for one in found
    ]
    show(render(asked, found, left), {**_data(asked), "left_protocol": left, "numbers": numbers}, as_json)


def _pairs(flag: str, given: list[str]) -> dict[str, str]:
    from besttake.errors import PlanError

    pairs = {}
    for text in given:
        name, equals, uri = text.partition("=")
        if not (name and equals and uri):
            raise PlanError(f"{flag} {text}: write NAME=URI, the paper's name first, e.g. {flag} pi0=lerobot:org/name")
        pairs[name] = uri
    return pairs


def _data(asked: Any) -> dict[str, Any]:
    return {
        "table": asked.name, "title": asked.title, "plan": dict(asked.plan), "envs": dict(asked.envs),
        "columns": list(asked.columns), "paper": {row: list(numbers) for row, numbers in asked.paper.items()},
    }  # fmt: skip
