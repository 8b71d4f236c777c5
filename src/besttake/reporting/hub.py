"""Results for a model's page on the Hugging Face Hub: ``.eval_results/besttake.yaml``, and a text for its card.

Nothing is uploaded; `hf upload` does that.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from besttake.core.stats import Estimate
from besttake.errors import PlanError, need
from besttake.files import write_text
from besttake.registry import Uri
from besttake.reporting import result_tables, words
from besttake.reporting.numbers import count, estimate_percent
from besttake.result import Cell, Result
from besttake.sanitize import markdown


def write_hub(result: Result, directory: Path, policy: str = "", benchmark: str = "") -> list[Path]:
    """Write the results of one policy for its model repository, and return the files.

    ``benchmark`` is the data set on the hub whose tasks were played (default: that of the demonstrations).
    """
    cell, data_set = result.cell_of(policy), benchmark or _data_set(result)
    if not data_set:
        raise PlanError("`benchmark` is missing: the data set on the hub whose tasks these are, ORG/NAME")
    hub = need("huggingface_hub", "besttake export --hub", "lerobot")
    if not hasattr(hub, "EvalResultEntry"):
        raise PlanError("`hub`: the installed huggingface_hub is too old and has no EvalResultEntry")
    own = [each for each in result.cells if each.policy == cell.policy]
    singles = [(each, each.headroom.pass_1) for each in own if each.headroom is not None]
    entries = [
        hub.EvalResultEntry(
            data_set, each.group, round(100 * one.value, 2), date=result.created, notes=_notes(result, each, one)
        )
        for each, one in singles
        if one.value is not None
    ]
    text = yaml.safe_dump(hub.eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True, width=1000)
    parts = [
        "## At test time",
        markdown(words.headline(cell)),
        result_tables.cells(own).markdown(),
        markdown(_made(result)),
    ]
    return [
        write_text(directory / ".eval_results" / "besttake.yaml", text, parents=True),
        write_text(directory / "besttake.md", "\n\n".join(parts) + "\n", parents=True),
    ]


def _notes(result: Result, cell: Cell, single: Estimate) -> str:
    """The interval and the protocol, and what the recommended option gives."""
    parts = [
        f"success of single takes in %, with 95 % interval: {estimate_percent(single)}",
        f"{count(cell.starts, 'start')} x {count(cell.seeds, 'seed')} in {cell.env}",
    ]
    if cell.verdict is not None and cell.verdict.answer == "act":
        parts.append(f"{words.action(cell.verdict.recommended)}: {estimate_percent(cell.verdict.success)}")
    return " ".join("; ".join([*parts, _made(result)]).split())  # with plain spaces


def _made(result: Result) -> str:
    return f"BestTake {result.besttake}, run {result.run or result.digest[:12]}"


def _data_set(result: Result) -> str:
    """The repository of the demonstrations; empty where they are none of the hub's."""
    uri = Uri.parse(str(result.plan.get("demos") or ""))
    known = uri.scheme == "lerobot" and uri.rest.count("/") == 1 and not Path(uri.rest).expanduser().exists()
    return uri.rest if known else ""
