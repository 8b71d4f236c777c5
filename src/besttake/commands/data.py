"""``ingest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from besttake.commands.options import Json, command, show


def ingest(
    results: Annotated[list[Path], typer.Argument(help="Result files, or directories of them.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write result.json and a report here.")] = None,
    policy: Annotated[str, typer.Option(help="Name of the policy where the files do not say.")] = "",
    column: Annotated[
        list[str] | None, typer.Option(help="Of a table: success=done, start=episode, …; repeatable.")
    ] = None,
    worth: Annotated[float, typer.Option(help="Smallest effect worth acting on, in points.")] = 3.0,
    as_json: Json = False,
) -> None:
    """Headroom without rollouts: outcomes that vla-eval, lerobot-eval or a table (CSV, Parquet) already have.

    Several files of the same starts are repeated seeds.

    Examples:
      besttake ingest results/ -o runs/ingested
      besttake ingest seed1.csv seed2.csv seed3.csv --column success=done --column start=episode
    """
    from besttake import ingest as reader
    from besttake.errors import PlanError
    from besttake.report import make_html

    named = dict(pair.split("=", 1) for pair in column or () if "=" in pair)
    if len(named) != len(column or ()):
        raise PlanError("--column takes NAME=COLUMN, e.g. --column success=done")
    found = reader.ingest(list(results), out, policy=policy, columns=named or None, worth=worth, command=command())
    show(reader.render_text(found), found.result.model_dump_json(indent=1), as_json)
    if out is not None:
        page = make_html(out)
        if not as_json:
            show(f"Report: {page}", "", False)
