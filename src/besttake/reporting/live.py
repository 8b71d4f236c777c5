"""The page of a run that goes on: what is decided so far, where it is going, its newest takes and its failures.

The page is sent whole once. After that its parts are sent, each as the HTML that replaces it (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from besttake.files import version
from besttake.measure.sofar import SoFar
from besttake.reporting import figures
from besttake.reporting.page import Page, svg
from besttake.reporting.words import live as said


@dataclass(frozen=True)
class NewTake:
    """A take that was just made; ``id`` is what its film is asked by."""

    id: str
    policy: str
    task: str
    start: int
    arm: str
    seed: int
    success: bool
    steps: int


@dataclass(frozen=True)
class Failure:
    """A reason why takes could not be made: how many, and the first of them."""

    reason: str
    takes: int
    first: str


@dataclass(frozen=True)
class State:
    """All that the live page shows. ``phase``: a key of `words.live.phase`; ``silent``: seconds without a sign of life.

    ``done`` takes of ``planned`` (0: not known); ``left``: seconds. ``note``: why a run ended.
    """

    phase: str = "setting up"
    doing: str = ""
    done: int = 0
    failed: int = 0
    planned: int = 0
    left: float | None = None
    silent: float = 0.0
    until: bool = False
    n: int = 1
    worth: float = 0.03
    cells: Sequence[SoFar] = ()
    newest: Sequence[NewTake] = ()
    failures: Sequence[Failure] = ()
    note: str = ""


@dataclass(frozen=True)
class CellView:
    """A cell as the template shows it."""

    one: SoFar
    name: str
    lines: list[said.Line]
    course: Markup


class LivePage:
    """Makes the live page of the run ``name``, and its parts; cells that did not change are not drawn again."""

    def __init__(self, name: str) -> None:
        self._name, self._page = name, Page({"besttake": version()}, served=True)
        self._drawn: dict[tuple[str, str, str], tuple[SoFar, CellView]] = {}

    def whole(self, state: State) -> str:
        """The page."""
        return self._page.render("live.html.j2", **self._context(state))

    def parts(self, state: State) -> dict[str, Any]:
        """What has to be put in place of what the page shows: HTML by id, and the newest takes as data."""
        context = self._context(state)
        names = ("status", "summary", "decided", "failures")
        texts = {f"live-{name}": self._page.render(f"_live_{name}.html.j2", **context) for name in names}
        return {"phase": state.phase, "parts": texts, "newest": [asdict(take) for take in state.newest]}

    def _context(self, state: State) -> dict[str, Any]:
        policies = list(dict.fromkeys(one.cell.policy for one in state.cells))
        summaries = [
            (uri, said.summary([one for one in state.cells if one.cell.policy == uri], state.n, state.worth))
            for uri in policies
        ]
        return {
            "name": self._name, "state": state, "said": said.phase(state.phase, state.silent),
            "meaning": said.meaning(state.until), "summaries": summaries,
            "views": [self._view(one) for one in state.cells],
        }  # fmt: skip

    def _view(self, one: SoFar) -> CellView:
        key = (one.cell.policy, one.cell.env, one.cell.group)
        known = self._drawn.get(key)
        if known is None or known[0] is not one:
            view = CellView(one, said.group_name(one.cell.group), said.lines(one), svg(figures.course(one.cell, "")))
            known = self._drawn[key] = one, view
        return known[1]
