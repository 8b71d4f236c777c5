"""Every sentence about a verdict, made from the numbers and codes of a result; numbers first, in plain words.

The terminal, Markdown, HTML, notebooks and ``result.json`` (``headline``) all take theirs from here.
"""

from besttake.reporting.words.study import about_interval, across, advice, changed, overview, relation
from besttake.reporting.words.verdict import (
    QUESTIONS,
    Line,
    Open,
    Tone,
    action,
    answers,
    further,
    headline,
    leak,
    marks,
    more,
    needs_text,
    path,
    price,
    rule,
    state,
    still_open,
    tone,
    worded,
)  # fmt: skip

__all__ = [
    "QUESTIONS", "Line", "Open", "Tone", "about_interval", "across", "action", "advice", "answers", "changed",
    "further", "headline", "leak", "marks", "more", "needs_text", "overview", "path", "price", "relation", "rule",
    "state", "still_open", "tone", "worded",
]  # fmt: skip
