"""Every sentence about a verdict, made from the numbers and codes of a result; numbers first, in plain words.

The terminal, Markdown, HTML, notebooks and ``result.json`` (``headline`` and ``because``) all take theirs from here.
"""

from besttake.reporting.words.menu import action, menu_lines, path, price, shortest
from besttake.reporting.words.open import Open, opening, still_open
from besttake.reporting.words.phrases import PARTS, Tone, advice, further
from besttake.reporting.words.reasons import because
from besttake.reporting.words.scorers import lines as scorer_lines
from besttake.reporting.words.study import across, changed, overview, r_interval, relation
from besttake.reporting.words.verdict import (
    BADGES,
    BETWEEN_NEEDS,
    QUESTIONS,
    Answer,
    Need,
    answers,
    headline,
    leak,
    needs,
    needs_text,
    state,
    worded,
)  # fmt: skip

__all__ = [
    "BADGES", "BETWEEN_NEEDS", "PARTS", "QUESTIONS", "Answer", "Need", "Open", "Tone", "across", "action", "advice",
    "answers", "because", "changed", "further", "headline", "leak", "menu_lines", "needs", "needs_text", "opening",
    "overview", "path", "price", "r_interval", "relation", "scorer_lines", "shortest", "state", "still_open", "worded",
]  # fmt: skip
