"""The report as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from besttake.files import write_text
from besttake.reporting import changes, checks, figures, timing, words
from besttake.reporting.candidates import KINDS
from besttake.reporting.page import Page, pointer, svg
from besttake.reporting.takes import PageTakes, page_takes
from besttake.result import Cell, Result

if TYPE_CHECKING:
    from besttake.verbs.compare import CompareResult


@dataclass(frozen=True)
class PolicyView:
    """One policy as the template shows it."""

    cell: Cell
    path: str
    first: str
    more: list[str]
    still_open: list[words.Open]
    state: str
    leak: str
    rule: str
    answers: list[words.Line]
    menu: Markup
    course: Markup
    ladder: Markup
    forest: Markup
    curve: Markup
    times: list[tuple[str, Markup]]
    series: int

    @property
    def scored(self) -> bool:
        """Whether any take of this policy has a score that can be judged."""
        every = self.cell.selectors.scored.values() if self.cell.selectors else ()
        return any(one.gain.value is not None for windows in every for one in windows.values())


def make_html(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run, ``RUN/report.html`` unless ``out`` says where."""
    directory = Path(run)
    result = Result.load(directory / "result.json")
    text = render(result, page_takes(directory, result))
    return write_text(Path(out or directory / "report.html"), text, parents=True)


def make_compare_html(compared: CompareResult, out: str | Path) -> Path:
    """Write the page of several runs together (`besttake compare -o`)."""
    result = compared.result
    policies = list(dict.fromkeys(cell.policy for cell in result.policies))
    context = {
        "runs": compared.runs,
        "policies": policies,
        "related": not compared.changes or result.relation.r is not None,
        "across": words.across(compared.across),
        "changes": [(changes.names(one), changes.starts(one), one) for one in compared.changes],
        "changed": words.changed(compared.changes),
        "drawn": svg(changes.figure(compared.changes)),
        "verdicts": [
            (run, cell, words.headline(cell))
            for run, cell in zip(compared.policy_runs, result.policies, strict=True)
        ],
        **_relation(result),
    }  # fmt: skip
    document = {**result.model_dump(mode="json"), "changes": [asdict(change) for change in compared.changes]}
    return Page(document).save(out, "compare.html.j2", **context)


def render(result: Result, takes: PageTakes, *, served: bool = False) -> str:
    """The page of a result; ``takes`` is what `besttake.reporting.takes.page_takes` gave.

    A ``served`` page asks for the films that it lacks at ``starts/ID`` (`besttake.reporting.takes.Starts.json` has the
    answers); a page in a file asks for nothing.
    """
    page = Page(result.model_dump(mode="json"), served=served)
    views = [_view(cell, i, result, takes) for i, cell in enumerate(result.policies)]
    return page.render(
        "report.html.j2",
        **_relation(result),
        views=views,
        overview=words.overview(result),
        needs=words.needs_text,
        marks=words.marks,
        options=svg(figures.options(result)) if len(views) > 1 else "",
        paced=any(line.time for view in views for line in view.still_open),
        fit_error=svg(figures.fit_error(result)),
        checks=[
            (uri, checks.sentence(check), svg(checks.figure(check, pointer("checks", uri), f"Retrieval for {uri}")))
            for uri, check in result.checks.items()
        ],
        any_errors=any(cell.errors for cell in result.cells),
        any_scored=any(view.scored for view in views),
        any_times=any(view.times for view in views),
        any_arms=any(view.forest for view in views),
        any_dfe=any(cell.dfe is not None for cell in result.policies),
        any_extrapolated=not all(p.measured for cell in result.policies if cell.headroom for p in cell.headroom.curve),
        takes=takes,
        kinds=KINDS,
        plan_text=_plan_text(result.plan),
        library=_library(result.library or {}),
    )


def _relation(result: Result) -> dict[str, Any]:
    """What the templates need to show gain against headroom."""
    drawn, relation = svg(figures.relation(result)), result.relation
    about = "" if relation.r is None else words.about_interval(relation)
    return {"result": result, "relation": drawn, "relation_words": words.relation(relation), "about_interval": about}


def _view(cell: Cell, index: int, result: Result, takes: PageTakes) -> PolicyView:
    path = pointer("policies", index)
    return PolicyView(
        cell, path, words.headline(cell), words.more(cell), words.still_open(cell, result), words.state(cell),
        words.leak(cell), words.rule(cell),
        answers=words.answers(cell, result.worth),
        menu=svg(figures.menu(cell, path, result.worth)), course=svg(figures.course(cell, path)),
        ladder=svg(figures.ladder(cell, path)), forest=svg(figures.forest(cell, path)),
        curve=svg(figures.curve(cell, path)),
        times=[
            (name, svg(drawn))
            for name, own in takes.times.get(cell.policy, ())
            if (drawn := timing.figure(name, own)) is not None
        ],
        series=index,
    )  # fmt: skip


def _library(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What the library is, as lines: nested values on one line, empty ones and fingerprints left out."""
    lines = []
    for name, value in about.items():
        if isinstance(value, dict):
            value = value["name"] if "name" in value else ", ".join(f"{key} {part}" for key, part in value.items())
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        if value not in (None, "") and name != "fingerprint":
            lines.append((name.replace("_", " "), str(value)))
    return lines


def _plan_text(plan: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(plan, sort_keys=False, allow_unicode=True)) if plan else ""
