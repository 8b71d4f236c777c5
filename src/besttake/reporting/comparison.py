"""The page of several runs together (`besttake compare -o`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from besttake.reporting import figures, words
from besttake.reporting.page import Page, save, svg

if TYPE_CHECKING:
    from pathlib import Path

    from besttake.verbs.compare import CompareResult


def make_html(compared: CompareResult, out: str | Path) -> Path:
    """Write the page of a comparison."""
    result = compared.result
    text = Page(result.model_dump(mode="json")).render(
        "compare.html.j2",
        result=result,
        runs=compared.runs,
        policies=list(dict.fromkeys(cell.policy for cell in result.policies)),
        relation=svg(figures.relation(result)),
        relation_words=words.relation(result.relation),
        resampled=words.r_interval(result.relation)[1],
    )
    return save(text, out)
