"""All that the verifier page says, as one CSV file and as tables for a LaTeX document."""

from __future__ import annotations

import csv as files
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from besttake.core import reject
from besttake.escapes import printable
from besttake.recordings.table import escaped
from besttake.reporting import retrying
from besttake.reporting.numbers import count, estimate_percent, estimate_points, number, percent
from besttake.reporting.verifiers import HEAD, leading, named, texts

if TYPE_CHECKING:
    from besttake.core.estimate import Estimate
    from besttake.measure.verifiers import Verified, Verifier
    from besttake.verbs.verifiers import VerifierResult

Row = Mapping[str, Any]
_NUMBERS = ("success", "gain", "capture", "auc", "over_shortest", "over_bar", "harm")
_RETRIED = ("takes", "success", "gain")
_ENDS = ("", "_low", "_high")
_COLUMNS = (
    "kind", "policy", "env", "tasks", "starts", "takes", "n", "scorer", "window", "verdict_window",
    *(f"{name}{end}" for name in _NUMBERS for end in _ENDS),
    "invalid", "blind", "seconds_per_take", "reads_length",
    *(f"retry_{name}{end}" for name in _RETRIED for end in _ENDS),
    "brier", "calibration_gap", "minus", *(f"difference{end}" for end in _ENDS), "pass_rate", "mean_takes",
    "mean_success", "bin_takes", "stated", *(f"happened{end}" for end in _ENDS),
)  # fmt: skip
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\N{MINUS SIGN}": "$-$", "<": "$<$", ">": "$>$",
    "|": "$|$", '"': "''",
}  # fmt: skip


def csv(result: VerifierResult) -> str:
    """One table, fractions as they are, the pool before the cells. Safe in a spreadsheet.

    ``kind`` says what a row is: a `scorer` or a `control` on a window, a `pair` of scorers, a point of `retrying`, the
    `best of` so many takes, or a bin of a `calibration`. Columns that a kind does not have are empty.
    """
    file = io.StringIO()
    writer = files.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for cell in (result.pooled, *(result.cells if len(result.cells) > 1 else ())):
        where = {key: getattr(cell, key) for key in ("policy", "env", "tasks", "starts", "takes", "n")}
        for row in (*_judged(result, cell), *_paired(cell), *_retried(cell), *_calibrated(cell)):
            whole = {**where, **row}
            whole["verdict_window"] = int(whole["window"] == cell.windows[0])
            writer.writerow({key: _cell(value) for key, value in whole.items()})
    return file.getvalue()


def _cell(value: Any) -> Any:
    """A value as it is safe in a spreadsheet; a number that is not known is left empty."""
    if isinstance(value, str):
        return escaped(printable(value))
    return None if value != value else value


def _judged(result: VerifierResult, cell: Verified) -> Iterator[Row]:
    """Every scorer on every window, and the controls."""
    for v in (*cell.verifiers, *cell.controls):
        row: dict[str, Any] = {"kind": "scorer" if v.window else "control", "scorer": v.scorer, "window": v.window}
        for name in _NUMBERS:
            row |= _ends(name, getattr(v, name))
        row |= {"invalid": v.invalid, "blind": v.blind, "reads_length": int(v.scorer in result.length)}
        row["seconds_per_take"] = result.seconds.get(v.scorer) if v.window else None
        yield {**row, **_summed(cell, v)}


def _summed(cell: Verified, v: Verifier) -> Row:
    """What retrying by a scorer takes and gives, and how far its probabilities hold, where these were measured."""
    row: dict[str, Any] = {}
    for one in cell.retrying:
        if (one.scorer, one.window) == (v.scorer, v.window):
            for name in _RETRIED:
                row |= _ends(f"retry_{name}", getattr(one, name))
    for c in cell.calibration:
        if (c.scorer, c.window) == (v.scorer, v.window):
            row |= {"brier": c.brier, "calibration_gap": c.error}
    return row


def _paired(cell: Verified) -> Iterator[Row]:
    for pair in cell.pairs:
        where = {"kind": "pair", "scorer": pair.first, "minus": pair.second, "window": cell.windows[0]}
        yield {**where, **_ends("difference", pair.difference)}


def _retried(cell: Verified) -> Iterator[Row]:
    """Success against mean takes: of retrying by ever less strict thresholds, and of the best of 1 to n."""
    for one in cell.retrying:
        for rate, point in zip(reject.RATES, one.curve, strict=True):
            spent = {"mean_takes": point.takes, "mean_success": point.success}
            yield {"kind": "retrying", "scorer": one.scorer, "window": one.window, "pass_rate": rate, **spent}
        for point in one.best_of:
            spent = {"mean_takes": point.takes, "mean_success": point.success}
            yield {"kind": "best of", "scorer": one.scorer, "window": one.window, **spent}


def _calibrated(cell: Verified) -> Iterator[Row]:
    for c in cell.calibration:
        for b in c.bins:
            stated = {"bin_takes": b.takes, "stated": b.stated, **_ends("happened", b.happened)}
            yield {"kind": "calibration", "scorer": c.scorer, "window": c.window, **stated}


def _ends(name: str, estimate: Estimate) -> Row:
    return dict(zip((f"{name}{end}" for end in _ENDS), (estimate.value, estimate.low, estimate.high), strict=True))


def latex(result: VerifierResult) -> str:
    """Tables for a paper (booktabs): all scorers on the window that verdicts read, and what else the page shows."""
    pooled = result.pooled
    shown = [0, 2, 3, 4, 5, 7] if not result.bar else [0, 2, 3, 4, 5, 6, 7]
    caption = (
        f"Scorers on the same {pooled.takes} takes of {pooled.starts} starts, best of {pooled.n}, window"
        f" {pooled.windows[0]}; 95 % intervals over starts. Gains in points, harm in % of starts."
    )
    rows = [[texts(result, v)[i] for i in shown] for v in leading(result)]
    parts = ["% Made by besttake verifiers. Needs the packages booktabs and longtable."]
    parts.append(_short_table(caption, [HEAD[i] for i in shown], rows))
    parts += [_long_table(*table) for table in _further(result) if table[-1]]
    return "\n\n".join(parts) + "\n"


_Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _further(result: VerifierResult) -> Iterator[_Table]:
    """Caption, head and rows of the tables after the first one."""
    pooled, window = result.pooled, result.pooled.windows[0]
    pairs = [(p.first, p.second, estimate_points(p.difference, "")) for p in pooled.pairs]
    text = (
        f"Pairs of scorers on the same starts, window {window}: gain of the first minus that of the second, in points"
    )
    yield text, ("scorer", "minus", "difference in gain"), pairs
    text = f"Retrying until the score passes, at most {pooled.n} takes; thresholds from other starts of the same cell"
    yield text, (*retrying.HEAD[:-1], f"success, best of {pooled.n}"), retrying.rows(pooled)
    text = "Success against mean takes: retrying by thresholds that a part of all takes passes, and the best of k"
    yield text, retrying.POINTS, retrying.points(pooled)
    for c in pooled.calibration:
        bins = [(percent(b.stated), estimate_percent(b.happened), str(b.takes)) for b in c.bins]
        text = (
            f"Calibration of {c.scorer} on {count(c.takes, 'take')}: Brier score {number(c.brier, 3)}, mean gap"
            f" {number(c.error, 3)}"
        )
        yield text, ("stated", "happened", "takes"), bins
    if len(result.cells) > 1:
        own = [(cell, scorer, cell.of(scorer)) for cell in result.cells for scorer in result.scorers]
        rows = [
            (named(cell), estimate_points(cell.headroom, ""), scorer, estimate_points(v.gain, ""),
             estimate_percent(v.harm))
            for cell, scorer, v in own if v is not None
        ]  # fmt: skip
        text = "Every scorer in every cell, on the window that its verdict reads; gains in points, harm in % of starts"
        yield text, ("cell", "headroom", "scorer", "gain over random", "harm"), rows


def _short_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        r"\begin{table}", r"\centering", f"\\caption{{{_tex(caption)}}}", _tabular("tabular", head), r"\toprule",
        _line(head), r"\midrule", *map(_line, rows), r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines)


def _long_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that goes on over pages."""
    lines = [
        _tabular("longtable", head), f"\\caption{{{_tex(caption)}}} \\\\", r"\toprule", _line(head), r"\midrule",
        r"\endhead", r"\bottomrule", r"\endfoot", *map(_line, rows), r"\end{longtable}",
    ]  # fmt: skip
    return "\n".join(lines)


def _tabular(kind: str, head: Sequence[str]) -> str:
    return f"\\begin{{{kind}}}{{l{'r' * (len(head) - 1)}}}"


def _line(cells: Sequence[str]) -> str:
    line = " & ".join(map(_tex, cells)) + r" \\"
    return f"{{}}{line}" if line.startswith(("[", "*")) else line  # else the end of the line before would take it in


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in printable(text).replace("\N{NO-BREAK SPACE}", " "))
