"""Names that came from files, made harmless for where they go: a terminal, Markdown.

HTML is escaped by its own tools (the templates' autoescape and `html.escape`), cells of a CSV by
`besttake.recordings.tabular.escaped`.

>>> printable("pick\\x1b[2Jup")
'pick\\\\x1b[2Jup'
>>> markdown("[x](javascript:alert(1))")
'\\\\[x\\\\](javascript:alert(1))'
"""

from __future__ import annotations

import re

# C0 and C1 control codes but tab and newline, and letters that turn the direction of what follows.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKS = re.compile(r"([\\`*_|\[\]~$#!])")


def printable(text: str) -> str:
    """``text`` for a terminal: codes that would move the cursor, set a title or hide text are written out."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def markdown(text: str) -> str:
    """``text`` on one line of Markdown, with what Markdown or HTML would act on made harmless."""
    flat = _MARKS.sub(r"\\\1", " ".join(printable(text).split()))
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
