"""The report of a run."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from besttake.demos.reading import jpeg
from besttake.files import write_text
from besttake.reporting import figures, result_tables, words
from besttake.reporting.candidates import KINDS
from besttake.reporting.numbers import estimate_percent, estimate_points, sentence, time_text
from besttake.reporting.page import Page, Section, block, bullets, code, key, picture, prose, template, title
from besttake.reporting.table import Table, with_interval
from besttake.reporting.takes import PageTakes, page_takes
from besttake.result import Cell, Result
from besttake.takes.take import Film

_PICTURES = (
    "How to read the pictures: each row is one option. Its name says how many takes it runs, how they are sampled and,"
    " after the comma, which score picks one of them. The dot shows how many points of success it gains over one take"
    " of the policy as it is, and the line shows the 95 % interval. A hollow dot: the gain is not shown, with all"
    " options tested at once. Blue: what is recommended, or the best estimate so far. The dashed line is the smallest"
    " gain worth acting on."
)
_LADDER = (
    "Success, in percent, with each way to keep one take per start; 95 % intervals over starts. A score is worth"
    " something where it leaves a random take behind, and where the shortest cannot do the same."
)
_ARMS = (
    "Difference to the frozen policy as it is, in points, paired by start. `cooled` shrinks the noise and is free,"
    " `shuffled` warms up with any demonstration; retrieval earns its name only where it beats both. The last rows"
    " decide: what retrieved content adds to cooling, and what retrieval adds to keeping the best take."
)
_FIT = (
    "Demonstration-fit error: how far the policy's samples are from the demonstrated actions. A ratio of 1 is as far as"
    " demonstrations are from each other."
)
_TASKS, _SIDE = 4, 150
"""Pictures of tasks on the first screen, and pixels of a side."""
_RELATION = (
    "Small marks are cells, large ones policies; the dotted line is where all headroom is captured. Hover for numbers,"
    " click to see the takes."
)


def make_html(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run, ``RUN/report.html`` unless ``out`` says where."""
    directory = Path(run)
    result = Result.load(directory / "result.json")
    text = report_page(result, page_takes(directory, result.cells), run=directory).html()
    return write_text(Path(out or directory / "report.html"), text, parents=True)


def report_page(result: Result, takes: PageTakes, stamp: str = "", run: Path | None = None) -> Page:
    """The page of a result; ``takes`` is what `page_takes` gave, and a ``stamp`` makes it a page that is served.

    ``run`` is where the run is, as the commands on the page name it.
    """
    cells = result.policies
    names = ", ".join(cell.policy for cell in cells)
    heading = f"What {names} needs" if len(cells) == 1 else "What these policies need"
    every = takes_section(takes, result.cells, scored=bool(_scored(result)))
    sections = [
        _verdict(result, takes, run), _why(result), every, _ladder(result), _relation(result), _arms(result),
        _fit(result), _tables(result),
    ]  # fmt: skip
    return Page(
        names or "an empty run", words.overview(result), heading if cells else "This run has no takes yet.",
        [section for section in sections if section.parts], *takes_scripts(takes), stamp=stamp,
    )  # fmt: skip


def takes_section(takes: PageTakes, cells: Sequence[Cell], *, scored: bool) -> Section:
    """Every take as a square of a map, and the films of some of them."""
    if takes.heat is None:
        return Section("takes", "Every take", [prose(takes.note, "none")], "Takes")
    errors = any(cell.errors for cell in cells)
    films = template("films.html.j2", starts=takes.starts, kinds=KINDS, errors=errors, scored=scored)
    return Section("takes", "Every take", [films], "Takes", "wide")


def takes_scripts(takes: PageTakes) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The scripts that `takes_section` needs, and their data."""
    if takes.heat is None:
        return (), {}
    return ("takes.js", "heat.js"), {"takes-data": {"heat": takes.heat}}


def _scored(result: Result) -> list[Cell]:
    """The policies whose takes have a score that can be judged."""
    return [
        cell
        for cell in result.policies
        if cell.selectors
        and any(one.gain.value is not None for own in cell.selectors.scored.values() for one in own.values())
    ]


def _path(i: int) -> str:
    return f"/policies/{i}"


def _verdict(result: Result, takes: PageTakes, run: Path | None) -> Section:
    """The first screen: what to do with each policy, and what each option gains."""
    cells = result.policies
    if not cells:
        nothing = "There is nothing to say about a policy before it has run. `besttake diagnose` on this directory goes"
        notes = [prose(sentence(note), "note") for note in result.notes]
        return Section("verdict", "", [prose(f"{nothing} on where it stopped.", "state"), *notes], "Verdict")
    parts, menus = [], [figures.menu(cell, _path(i), result.worth) for i, cell in enumerate(cells)]
    for i, cell in enumerate(cells):
        said = Markup("").join(prose(line, "small") for line in words.details(cell))
        rise = result_tables.success(cell)
        rate = Markup('<span class="rise">{}</span>').format(f"{rise} success") if rise != "-" else Markup("")
        named = key(i, cell.policy) if len(cells) > 1 else ""
        head = Markup('<h2 class="name">{} {}</h2>').format(named, rate)
        command = words.act_command(result, run, cell) or words.plan_command(run, cell)
        act = Markup('<pre class="command">{}</pre>').format(command) if command else ""
        see = Markup(' · <a href="#takes" class="see" data-policy="{}">its takes</a>').format(cell.policy)
        links = Markup('<p class="small"><a href="#policy-{}">why</a>{}</p>').format(i, see if takes.heat else "")
        drawn = picture(menus[i])
        if menus[i] is None:
            drawn = picture(figures.ladder(cell, _path(i)), "Success in percent")
        text = Markup("<div>{}{}{}{}{}</div>").format(head, prose(words.headline(cell), "headline"), said, act, links)
        article = Markup('<article class="decision" data-policy="{}">{}{}</article>')
        parts.append(article.format(cell.policy, text, drawn))
    parts += [prose(_PICTURES, "small legend-line")] if any(menus) else []
    return Section("verdict", "", [*parts, _task_pictures(takes)], "Verdict")


def _task_pictures(takes: PageTakes) -> Markup:
    """What each task looks like: the first frame of the first film of each."""
    films: dict[str, Film] = {}
    for start in takes.starts:
        film = next((take.film for take in start.takes if take.film is not None), None)
        if film is not None and len(films) < _TASKS:
            films.setdefault(start.task, film)
    image = Markup('<div><img src="data:image/jpeg;base64,{}" alt="task {}"><span class="none">{}</span></div>')
    shown = [
        image.format(b64encode(jpeg(film.unpack()[0], _SIDE)).decode(), task, task) for task, film in films.items()
    ]
    return block("strip", *shown) if shown else Markup("")


def _why(result: Result) -> Section:
    """The answers to the paper's questions, and the options of each policy."""
    parts = [_policy(i, cell, result) for i, cell in enumerate(result.policies)]
    if added := words.pools(result):
        parts += [title("What another policy adds"), bullets(added)]
    if parts and result.notes:
        parts += [title("Notes on this run", "notes"), bullets(map(sentence, result.notes), "notes")]
    return Section("why", "Why, and what is open", parts, "Why")


def _policy(i: int, cell: Cell, result: Result) -> Markup:
    parts = [Markup('<h3 class="name" id="policy-{}">{}</h3>').format(i, key(i, cell.policy))]
    state, room = words.special_case(cell), cell.headroom
    if state and state != words.headline(cell):
        parts.append(prose(state, "state"))
    if room is not None and room.pass_1.value is not None:
        facts = {
            "pass@1": estimate_percent(room.pass_1), f"pass@{room.n}": estimate_percent(room.pass_n),
            "headroom, points": estimate_points(room.headroom, ""),
        }  # fmt: skip
        fact = Markup('<span>{} <span class="num">{}</span></span>')
        parts.append(block("facts", *(fact.format(name, with_interval(text)) for name, text in facts.items() if text)))
    if answers := words.answers(cell, result.worth):
        answer = Markup('<div class="answer {}"><dt>{} <b class="badge">{}</b></dt><dd>{}</dd></div>')
        own = Markup("").join(answer.format(a.tone, a.question, a.badge, code(a.sentence)) for a in answers)
        parts.append(Markup('<dl class="answers">{}</dl>').format(own))
    if cell.verdict is not None and len(cell.verdict.options) > 1:
        parts.append(result_tables.options(cell).section("choices"))
    if rule := words.error_rate(cell):
        parts.append(prose(rule, "small"))
    if known := words.audit(cell):
        parts += [prose(known), picture(figures.sources(cell, f"/policies/{i}"))]
    parts += [prose(sentence(note), "note") for note in cell.notes]
    return Markup('<article class="verdict" data-policy="{}">{}</article>').format(cell.policy, Markup("").join(parts))


def _ladder(result: Result) -> Section:
    """Each way to keep one take."""
    drawn = []
    for i, cell in enumerate(result.policies):
        figure, below = figures.ladder(cell, _path(i)), []
        if figure is None:
            below.append(prose(words.special_case(cell) or "No ladder: nothing was measured.", "none"))
        drawn.append(picture(figure, key(i, cell.policy), *below))
    parts = [prose(_LADDER), block("pair", *drawn) if drawn else prose("No takes, no ladder.", "none")]
    if scored := _scored(result):
        parts += [title("Every scorer, on the window that the verdict reads"), result_tables.scorers(scored).section()]
    return Section("ladder", "Every way to keep one take", parts, "More", "folded")


def _relation(result: Result) -> Section:
    """Gain against headroom over the cells."""
    drawn = figures.relation(result)
    if drawn is None or result.relation.interval is None:  # with fewer than eight cells there is nothing to see
        return Section("relation", "", [])
    beside = [bullets(words.relation_sentences(result.relation)), _legend(cell.policy for cell in result.policies)]
    if result.relation.r is not None:
        beside.append(result_tables.within_policies(result).section("compact"))
    parts = [block("side", picture(drawn), block("", *beside, prose(_RELATION, "small")))]
    return Section("relation", "Gain against headroom", parts, style="folded")


def _legend(names: Any) -> Markup:
    items = Markup("").join(Markup("<li>{}</li>").format(key(i, name)) for i, name in enumerate(names))
    return Markup('<ul class="legend">{}</ul>').format(items)


def _arms(result: Result) -> Section:
    """Each arm against the frozen policy."""
    drawn = [
        picture(None, key(i, cell.policy), result_tables.arms(cell).section("compact"))
        for i, cell in enumerate(result.policies)
        if cell.arms is not None and len(cell.arms.arms) > 1
    ]
    return Section("arms", "The arms", [prose(_ARMS), *drawn] if drawn else [], style="folded")


def _fit(result: Result) -> Section:
    """Demonstration fit, and the check of retrieval."""
    parts, fitted = [], [cell for cell in result.policies if cell.dfe is not None]
    if fitted:
        parts += [prose(_FIT), result_tables.fit(fitted).section()]
    if result.checks:
        parts.append(title("How retrieval was chosen"))
        for uri, check in result.checks.items():
            parts.append(Markup('<p class="says"><b>{}</b>: {}.</p>').format(uri, words.check_sentence(check)))
            if not check.reason:
                inside = result_tables.check(check).section() + prose(result_tables.CHECK_LEGEND, "small")
                parts.append(_unprinted("Everything that was tried", inside))
    return Section("fit", "Fit to the demonstrations", parts, style="folded")


def _tables(result: Result) -> Section:
    """Every cell and task, and how the run was made."""
    lead = "Success in percent, differences in points. Click a heading to sort, ▶ to see takes of a cell."
    parts = [prose(lead), result_tables.cells(result.cells).section(name="cells")]
    if not result.cells:
        parts = [prose("No cells: nothing has been run.", "none")]
    if sum(len(cell.tasks) for cell in result.cells) > len(result.cells):
        parts += [title("Per task"), result_tables.tasks(result.cells).section(name="tasks")]
    for cell in result.cells:
        if cell.notes:
            parts.append(prose(f"{cell.policy}, {cell.group}: {' '.join(map(sentence, cell.notes))}", "note"))
    parts += [title("How it was made"), block("made", *_made(result))]
    if result.command:
        parts += [title("Make it again", level=4), Markup('<pre class="command">{}</pre>').format(result.command)]
    for name, values in (("The plan", result.plan), ("The demonstrations", result.library)):
        if values:
            text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
            parts.append(_unprinted(name, Markup("<pre>{}</pre>").format(text)))
    return Section("tables", "Every cell and task, and how it was made", parts, style="folded")


def _unprinted(name: str, inside: Markup) -> Markup:
    """A part that is folded on the screen, and left out on paper."""
    return Markup('<details class="onscreen"><summary>{}</summary>{}</details>').format(name, inside)


def _made(result: Result) -> list[Markup]:
    cost, counted = result.cost, ("takes", "errors", "steps", "policy_calls", "frames_scored", "frames_encoded")
    spent = [(name.replace("_", " "), f"{getattr(cost, name):,}".replace(",", "\u202f")) for name in counted]
    versions = [("besttake", result.besttake), *result.versions.items(), ("made", result.created)]
    versions += [("digest of takes", result.digest[:16])] if result.digest else []
    facts = {
        "Cost": [*spent, *((stage, time_text(seconds)) for stage, seconds in cost.seconds.items())],
        "Versions": versions,
    }
    return [
        Markup("<div>{}{}</div>").format(title(name, level=4), Table("", ("", ""), rows).section("compact"))
        for name, rows in facts.items()
        if rows
    ]
