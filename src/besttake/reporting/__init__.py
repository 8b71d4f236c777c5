"""The report of a run: HTML, Markdown, JSON, and its figures for papers."""

from __future__ import annotations

from pathlib import Path

from besttake.reporting import figures
from besttake.reporting.html import make_html
from besttake.reporting.markdown import make_json, make_markdown
from besttake.result import Result

__all__ = ["make_html", "make_json", "make_markdown", "save_figures"]


def save_figures(run: str | Path, directory: str | Path) -> list[Path]:
    """Write every figure of a run as SVG and PNG into ``directory``."""
    return figures.save_figures(Result.load(Path(run) / "result.json"), Path(directory))
