"""The figures of a run as SVG, and as PDF for papers."""

from __future__ import annotations

import io
from pathlib import Path

from besttake.errors import need
from besttake.files import write_bytes, write_text
from besttake.reporting.figures import every
from besttake.result import Result


def write_figures(result: Result, directory: Path, *, pdf: bool) -> list[Path]:
    """Every figure as SVG, with ``pdf`` also as PDF."""
    if pdf:
        need_pdf()
    made = []
    for name, figure in every(result):
        made.append(write_text(directory / f"{name}.svg", figure.svg(), parents=True))
        if pdf:
            made.append(write_bytes(directory / f"{name}.pdf", _pdf(figure.svg()), parents=True))
    return made


def need_pdf() -> None:
    """Raise `MissingExtra` where figures cannot be written as PDF, before anything is written."""
    for library in ("svglib.svglib", "reportlab.graphics"):
        need(library, "a figure as PDF", "pdf")


def _pdf(svg: str) -> bytes:
    from reportlab.graphics import renderPDF
    from svglib.svglib import svg2rlg

    drawing = svg2rlg(io.BytesIO(svg.encode()))
    return bytes(renderPDF.drawToString(drawing))
