"""Write the report of a run as an HTML page, Markdown or JSON (`besttake report`)."""

from __future__ import annotations

from pathlib import Path

from besttake.errors import PlanError


def report(run: str | Path, out: str | Path | None = None, *, format: str = "html") -> Path:
    """Write the report of a finished run and return the path of the file.

    Args:
        run: The run directory.
        out: The file to write (default: ``report.html`` or ``report.md`` in the run). Without it, the format
            ``"json"`` checks ``result.json`` and returns its path.
        format: ``"html"``, ``"md"`` or ``"json"``.

    Raises:
        PlanError: ``format`` is unknown.
        RunError: The run has no readable ``result.json``.
    """
    from besttake.reporting.html import make_html
    from besttake.reporting.markdown import make_json, make_markdown

    makers = {"html": make_html, "md": make_markdown, "json": make_json}
    if format not in makers:
        raise PlanError(f"`format` {format!r}: choose html, md or json")
    return makers[format](run, out)
