"""Escapes names from files for a terminal, Markdown, SVG or a CSV.

HTML is escaped by its own tools (the templates' autoescape).

>>> printable("pick\\x1b[2Jup")
'pick\\\\x1b[2Jup'
>>> markdown("[x](javascript:alert(1))")
'\\\\[x\\\\](javascript:alert(1))'
"""

from __future__ import annotations

import html
import re
from typing import Any

# Control codes (C0 and C1) except tab and newline, marks that change the direction of text, and what is no character (a
# lone surrogate is a byte of a name that is not UTF-8). Terminals, XML and UTF-8 files cannot have these.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
FORMULA = "=+-@\t\r\n"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MARKS = re.compile(r"([\\`*_|\[\]~$#!])")


def printable(text: str) -> str:
    """Escape ``text`` for a terminal or a file, so that no code moves the cursor, sets a title or hides text."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def markdown(text: str) -> str:
    """Escape ``text`` for one line of Markdown, also against HTML."""
    flat = _MARKS.sub(r"\\\1", " ".join(printable(text).split()))
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def xml(text: str) -> str:
    """Escape ``text`` for an SVG element or attribute."""
    return html.escape(printable(text))


def csv_cell(value: Any) -> Any:
    """Escape a cell of a CSV: an apostrophe keeps spreadsheets from running text as a formula.

    >>> csv_cell("+cmd|'/c calc'!A1"), csv_cell("\\n=1"), csv_cell("-0.5"), csv_cell("\\x1b[2J"), csv_cell(None)
    ("'+cmd|'/c calc'!A1", "'\\n=1", '-0.5', '\\\\x1b[2J', '')
    """
    if not isinstance(value, str):
        return "" if value is None else value
    text = printable(value)
    return f"'{text}" if text[:1] and text[0] in FORMULA and not _NUMBER.fullmatch(text) else text
