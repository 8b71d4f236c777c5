"""Write results for a model's page on the Hugging Face Hub: ``.eval_results/besttake.yaml`` and a text for its card.

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
    cells = [part for part in result.cells if part.policy == cell.policy]
    entries = [
        hub.EvalResultEntry(
            data_set, part.group, round(100 * single.value, 2), date=result.created, notes=_notes(result, part, single)
        )
        for part in cells
        if part.headroom is not None and (single := part.headroom.pass_1).value is not None
    ]
    text = yaml.safe_dump(hub.eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True, width=1000)
    parts = [
        "## At test time",
        markdown(words.headline(cell)),
        result_tables.cells(cells).markdown(),
        markdown(_origin(result)),
    ]
    return [
        write_text(directory / ".eval_results" / "besttake.yaml", text, parents=True),
        write_text(directory / "besttake.md", "\n\n".join(parts) + "\n", parents=True),
    ]


def _notes(result: Result, cell: Cell, single: Estimate) -> str:
    """Describe the interval, the protocol, and the success of the recommended option."""
    parts = [
        f"success of single takes in %, with 95 % interval: {estimate_percent(single)}",
        f"{count(cell.starts, 'start')} x {count(cell.seeds, 'seed')} in {cell.env}",
    ]
    if cell.verdict is not None and cell.verdict.answer == "act":
        parts.append(f"{words.action(cell.verdict.recommended)}: {estimate_percent(cell.verdict.success)}")
    return " ".join("; ".join([*parts, _origin(result)]).split())  # with plain spaces


def _origin(result: Result) -> str:
    return f"BestTake {result.besttake}, run {result.run or result.digest[:12]}"


def _data_set(result: Result) -> str:
    """Return the hub's data set of the demonstrations; empty if they are not from the hub."""
    uri = Uri.parse(str(result.plan.get("demos") or ""))
    known = uri.scheme == "lerobot" and uri.rest.count("/") == 1 and not Path(uri.rest).expanduser().exists()
    return uri.rest if known else ""
