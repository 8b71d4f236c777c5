"""``besttake ingest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.options import Json, Worth, command, pairs, show


def ingest(
    results: Annotated[list[Path], typer.Argument(help="Result files, or directories of them.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write result.json and a report here.")] = None,
    policy: Annotated[str, typer.Option(help="Name of the policy, if the files do not say.")] = "",
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", help="How a table names a column, e.g. success=done. Repeatable."),
    ] = None,
    worth: Worth = 3.0,
    as_json: Json = False,
) -> None:
    """Headroom without rollouts: outcomes that vla-eval, lerobot-eval or a table (CSV, Parquet) already have.

    Several files of the same starts are repeated seeds.

    Examples:
      besttake ingest results/ -o runs/ingested
      besttake ingest seed1.csv seed2.csv seed3.csv --column success=done --column start=episode
    """
    from besttake.reporting.terminal.ingest import render
    from besttake.verbs.ingest import ingest as read
    from besttake.verbs.report import report

    named = pairs("columns", columns or [], "NAME=COLUMN", "success=done")
    result = read(list(results), out, policy=policy, columns=named or None, worth=worth, command=command())
    show(render(result), result.result.model_dump_json(indent=1), as_json)
    if out is not None:
        page = report(out)
        if not as_json:
            show(f"Report: {page}", "", False)
