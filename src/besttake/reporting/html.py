"""Make the report of a run as an HTML page."""

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
    "How to read the pictures: each row is one option. Its name says how many takes it plays, in which arm and, after"
    " the comma, which score picks one of them. The dot shows how many points of success it gains over one take"
    " of the policy as it is, and the line shows the 95 % interval. A hollow dot means that the gain may be chance"
    " (all options are tested at once). The recommended option, or the best estimate so far, is blue. The dashed line"
    " is the smallest gain worth acting on."
)
_LADDER = (
    "Success in percent with each way to keep one take per start, with 95 % intervals over starts. A score is useful"
    " if it does better than a random take and than the shortest take."
)
_ARMS = (
    "Difference to the frozen policy as it is, in points, paired by start. `cooled` samples with less noise and costs"
    " nothing, `shuffled` starts from a random demonstrated chunk; retrieval helps only if it beats both. The last rows"
    " say what retrieved actions add to cooling, and what retrieval adds to keeping the best take."
)
_FIT = (
    "Demonstration-fit error: how far the policy's samples are from the demonstrated actions. At a ratio of 1 they are"
    " as far from them as the demonstrations are from each other."
)
_TASKS, _SIDE = 4, 150
"""How many tasks have a picture on the first screen, and the pixels of its side."""
_RELATION = (
    "Small marks are cells, large ones policies; on the dotted line all headroom is captured. Hover to see numbers,"
    " click to see takes."
)


def make_html(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run to ``out`` (default: ``RUN/report.html``)."""
    directory = Path(run)
    result = Result.load(directory / "result.json")
    text = report_page(result, page_takes(directory, result.cells), run=directory).html()
    return write_text(Path(out or directory / "report.html"), text, parents=True)


def report_page(result: Result, takes: PageTakes, stamp: str = "", run: Path | None = None) -> Page:
    """Make the page of a result with the ``takes`` from `page_takes`; a served page has a ``stamp``.

    ``run`` is the directory that the commands on the page name.
    """
    cells = result.policies
    names = ", ".join(cell.policy for cell in cells)
    heading = f"What {names} needs" if len(cells) == 1 else "What these policies need"
    sections = [
        _verdict(result, takes, run), _why(result),
        takes_section(takes, result.cells, scored=bool(_scored(result))), _ladder(result), _relation(result),
        _arms(result), _fit(result), _tables(result),
    ]  # fmt: skip
    return Page(
        names or "an empty run", words.overview(result), heading if cells else "This run has no takes yet.",
        [section for section in sections if section.parts], *takes_scripts(takes), stamp=stamp,
    )  # fmt: skip


def takes_section(takes: PageTakes, cells: Sequence[Cell], *, scored: bool) -> Section:
    """Make the section with a map of all takes and the films of some."""
    if takes.heat is None:
        return Section("takes", "Every take", [prose(takes.note, "none")], "Takes")
    errors = any(cell.errors for cell in cells)
    films = template("films.html.j2", starts=takes.starts, kinds=KINDS, errors=errors, scored=scored)
    return Section("takes", "Every take", [films], "Takes", "wide")


def takes_scripts(takes: PageTakes) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the scripts that `takes_section` needs, and their data."""
    if takes.heat is None:
        return (), {}
    return ("takes.js", "heat.js"), {"takes-data": {"heat": takes.heat}}


def _scored(result: Result) -> list[Cell]:
    """Return the policies with a score whose gain is known."""
    policies = [(cell, cell.selectors.scored.values()) for cell in result.policies if cell.selectors is not None]
    return [
        cell for cell, scorers in policies
        if any(selector.gain.value is not None for windows in scorers for selector in windows.values())
    ]  # fmt: skip


def _verdict(result: Result, takes: PageTakes, run: Path | None) -> Section:
    """Make the first screen: what to do with each policy, and what each option gains."""
    cells = result.policies
    if not cells:
        nothing = "No policy has run yet. `besttake diagnose` on this directory goes on where it stopped."
        notes = [prose(sentence(note), "note") for note in result.notes]
        return Section("verdict", "", [prose(nothing, "state"), *notes], "Verdict")
    parts, gains = [], [figures.option_gains(cell, i, result.worth) for i, cell in enumerate(cells)]
    for i, cell in enumerate(cells):
        details = Markup("").join(prose(line, "small") for line in words.details(cell))
        rise = result_tables.success(cell)
        rate = Markup('<span class="rise">{}</span>').format(f"{rise} success") if rise != "-" else Markup("")
        head = Markup('<h2 class="name">{} {}</h2>').format(key(i, cell.policy) if len(cells) > 1 else "", rate)
        command = words.act_command(result, run, cell) or words.plan_command(run, cell)
        act = Markup('<pre class="command">{}</pre>').format(command) if command else ""
        see = Markup(' · <a href="#takes" class="see" data-policy="{}">its takes</a>').format(cell.policy)
        links = Markup('<p class="small"><a href="#policy-{}">why</a>{}</p>').format(i, see if takes.heat else "")
        drawn = picture(gains[i]) or picture(figures.ladder(cell, i), "Success in percent")
        headline = prose(words.headline(cell), "headline")
        text = Markup("<div>{}{}{}{}{}</div>").format(head, headline, details, act, links)
        article = Markup('<article class="decision" data-policy="{}">{}{}</article>')
        parts.append(article.format(cell.policy, text, drawn))
    parts += [prose(_PICTURES, "small legend-line")] if any(gains) else []
    return Section("verdict", "", [*parts, _task_pictures(takes)], "Verdict")


def _task_pictures(takes: PageTakes) -> Markup:
    """Show the first frame of the first film of each task."""
    films: dict[str, Film] = {}
    for start in takes.starts:
        film = next((take.film for take in start.takes if take.film is not None), None)
        if film is not None and len(films) < _TASKS:
            films.setdefault(start.task, film)
    image = Markup('<div><img src="data:image/jpeg;base64,{}" alt="task {}"><span class="none">{}</span></div>')
    pictures = {task: b64encode(jpeg(film.unpack()[0], _SIDE)).decode() for task, film in films.items()}
    return block("strip", *(image.format(data, task, task) for task, data in pictures.items())) if films else Markup("")


def _why(result: Result) -> Section:
    """Answer the paper's questions for each policy, and list its options."""
    parts = [_policy(i, cell, result) for i, cell in enumerate(result.policies)]
    if lines := words.pools(result):
        parts += [title("What another policy adds"), bullets(lines, "notes")]
    if parts and result.notes:
        parts += [title("Notes on this run", "notes"), bullets(map(sentence, result.notes), "notes")]
    return Section("why", "Why, and what is open", parts, "Why")


def _policy(i: int, cell: Cell, result: Result) -> Markup:
    parts = [Markup('<h3 class="name" id="policy-{}">{}</h3>').format(i, key(i, cell.policy))]
    special_case, room = words.special_case(cell), cell.headroom
    if special_case and special_case != words.headline(cell):
        parts.append(prose(special_case, "state"))
    if room is not None and room.pass_1.value is not None:
        facts = {
            "pass@1": estimate_percent(room.pass_1), f"pass@{room.n}": estimate_percent(room.pass_n),
            "headroom, points": estimate_points(room.headroom, ""),
        }  # fmt: skip
        fact = Markup('<span>{} <span class="num">{}</span></span>')
        parts.append(block("facts", *(fact.format(name, with_interval(text)) for name, text in facts.items() if text)))
    if answers := words.answers(cell, result.worth):
        answer = Markup('<div class="answer {}"><dt>{} <b class="badge">{}</b></dt><dd>{}</dd></div>')
        items = Markup("").join(answer.format(a.tone, a.question, a.badge, code(a.sentence)) for a in answers)
        parts.append(Markup('<dl class="answers">{}</dl>').format(items))
    if cell.verdict is not None and len(cell.verdict.options) > 1:
        parts.append(result_tables.options(cell).section("choices"))
    if error_rate := words.error_rate(cell):
        parts.append(prose(error_rate, "small"))
    if audit := words.audit(cell):
        parts += [prose(audit), picture(figures.sources(cell, i))]
    parts += [prose(sentence(note), "note") for note in cell.notes]
    return Markup('<article class="verdict" data-policy="{}">{}</article>').format(cell.policy, Markup("").join(parts))


def _ladder(result: Result) -> Section:
    """Compare each way to keep one take."""
    drawn = []
    for i, cell in enumerate(result.policies):
        figure = figures.ladder(cell, i)
        below = [prose(words.special_case(cell) or "Nothing was measured.", "none")] if figure is None else []
        drawn.append(picture(figure, key(i, cell.policy), *below))
    parts = [prose(_LADDER), block("pair", *drawn) if drawn else prose("There are no takes yet.", "none")]
    if scored := _scored(result):
        parts += [title("Every scorer, on the window that the verdict reads"), result_tables.scorers(scored).section()]
    return Section("ladder", "Every way to keep one take", parts, "More", "folded")


def _relation(result: Result) -> Section:
    """Draw gain against headroom over the cells."""
    drawn = figures.relation(result)
    if drawn is None or result.relation.interval is None:  # with fewer than eight cells there is nothing to see
        return Section("relation", "", [])
    item = Markup("<li>{}</li>")
    names = Markup("").join(item.format(key(i, cell.policy)) for i, cell in enumerate(result.policies))
    legend = Markup('<ul class="legend">{}</ul>').format(names)
    beside = [bullets(words.relation_sentences(result.relation)), legend]
    if result.relation.r is not None:
        beside.append(result_tables.within_policies(result).section("compact"))
    parts = [block("side", picture(drawn), block("", *beside, prose(_RELATION, "small")))]
    return Section("relation", "Gain against headroom", parts, style="folded")


def _arms(result: Result) -> Section:
    """Compare each arm with the frozen policy."""
    drawn = [
        picture(None, key(i, cell.policy), result_tables.arms(cell).section("compact"))
        for i, cell in enumerate(result.policies)
        if cell.arms is not None and len(cell.arms.arms) > 1
    ]
    return Section("arms", "The arms", [prose(_ARMS), *drawn] if drawn else [], style="folded")


def _fit(result: Result) -> Section:
    """Show the demonstration fit, and the check of retrieval."""
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
    """Show every cell and task, and how the run was made."""
    lead = "Success in percent, differences in points. Click a heading to sort, or ▶ to see the takes of a cell."
    parts = [prose(lead), result_tables.cells(result.cells).section(name="cells")]
    if not result.cells:
        parts = [prose("No cells: nothing has been run.", "none")]
    if sum(len(cell.tasks) for cell in result.cells) > len(result.cells):
        parts += [title("Per task"), result_tables.tasks(result.cells).section(name="tasks")]
    for cell in result.cells:
        if cell.notes:
            parts.append(prose(f"{cell.policy}, {cell.group}: {' '.join(map(sentence, cell.notes))}", "note"))
    parts += [title("How it was made"), block("made", *_cost_and_versions(result))]
    if result.command:
        parts += [title("Make it again", level=4), Markup('<pre class="command">{}</pre>').format(result.command)]
    for name, values in (("The plan", result.plan), ("The demonstrations", result.library)):
        if values:
            text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
            parts.append(_unprinted(name, Markup("<pre>{}</pre>").format(text)))
    return Section("tables", "Every cell and task, and how it was made", parts, style="folded")


def _unprinted(name: str, inside: Markup) -> Markup:
    """Make a part that is folded on the screen, and left out on paper."""
    return Markup('<details class="onscreen"><summary>{}</summary>{}</details>').format(name, inside)


def _cost_and_versions(result: Result) -> list[Markup]:
    counted = ("takes", "errors", "steps", "policy_calls", "frames_scored", "frames_encoded")
    cost = [(name.replace("_", " "), f"{getattr(result.cost, name):,}".replace(",", "\u202f")) for name in counted]
    cost += [(stage, time_text(seconds)) for stage, seconds in result.cost.seconds.items()]
    versions = [("besttake", result.besttake), *result.versions.items(), ("made", result.created)]
    versions += [("digest of takes", result.digest[:16])] if result.digest else []
    return [
        Markup("<div>{}{}</div>").format(title(name, level=4), Table("", ("", ""), rows).section("compact"))
        for name, rows in (("Cost", cost), ("Versions", versions))
    ]
