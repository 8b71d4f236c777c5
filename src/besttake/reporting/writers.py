"""Files to take along: tables (CSV, Parquet, LaTeX), films and Rerun recordings of takes, figures (SVG)."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from besttake.arms import BASE
from besttake.errors import MissingExtra
from besttake.files import write_bytes, write_text
from besttake.reporting.figures import every
from besttake.reporting.numbers import MINUS, estimate_points, number
from besttake.reporting.table import Column, Head, Table, right
from besttake.reporting.tables import rates
from besttake.result import Cell, Estimate, Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import Scores
from besttake.takes.take import Take
from besttake.types import U8

_KEY = tuple(field.name for field in fields(TakeKey))
_OUTCOME = ("status", "success", "success_step", "steps", "calls", "seconds", "error")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", "\N{MIDDLE DOT}": r"$\cdot$",
}  # fmt: skip


def takes_table(rows: Sequence[Row], scores: Scores | None) -> Table:
    """A row per take: its key, its outcome, and its score by every scorer on every window."""
    names = list(scores.names) if scores is not None else []
    table = []
    for row in rows:
        own = scores.get(row.key) if scores is not None else None
        outcome = tuple(getattr(row, name) for name in _OUTCOME)
        values = [None if own is None else own.scores.get(name) for name in names]
        known = (value if value is not None and math.isfinite(value) else None for value in values)
        table.append((*astuple(row.key), *outcome, *known))
    columns = (*_KEY, *_OUTCOME, *(f"score {name.scorer} {name.window}" for name in names))
    return Table("Takes", columns, table)


def write_csv(table: Table, path: Path) -> Path:
    """One CSV file, UTF-8; an empty field is a number that is not known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.names)
    writer.writerows(tuple("" if value is None else value for value in row) for row in table.rows)
    return write_text(path, text.getvalue(), parents=True)


def write_parquet(table: Table, path: Path) -> Path:
    """One Parquet file; a number that is not known is null."""
    import pyarrow
    from pyarrow import parquet

    values = {name: [row[i] for row in table.rows] for i, name in enumerate(table.names)}
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table(values), sink)
    return write_bytes(path, sink.getvalue(), parents=True)


def latex(result: Result) -> str:
    """The cells as a LaTeX table: success in %, gains in points with 95 % intervals, answers."""
    arms = list(dict.fromkeys(arm for cell in result.cells if cell.arms for arm in cell.arms.arms if arm != BASE))
    rows: list[tuple[object, ...]] = []
    for cell in (*result.policies, *result.cells):
        gains = [cell.chosen.gain if cell.chosen else None, *(_gain_of(cell, arm) for arm in arms)]
        said = [estimate_points(gain, "") or "--" for gain in gains]
        group = "all" if cell.group == "*" else cell.group
        rows.append((cell.policy, group, *map(_rate, rates(cell)[:2]), *said, *_answers(cell)))
    columns: Head = ["policy", "tasks", *right("pass@1", "pass@N", "select", *arms), "takes?", "demos?", "both?"]
    command = "".join(f"% {line}\n" for line in (result.command or "besttake").splitlines())
    made = f"% Made by BestTake {result.besttake} from the takes with digest {result.digest}:\n{command}"
    return made + table_latex(Table("", columns, rows))


def table_latex(table: Table) -> str:
    """A LaTeX table as wide as the text; numbers with three digits."""
    lines = [" & ".join(map(_text, row)) + r" \\" for row in (table.names, *table.rows)]
    body = "\n".join([lines[0], "\\midrule", *lines[1:]])
    sides = "".join("r" if isinstance(column, Column) and column.right else "l" for column in table.columns)
    return (
        "% Needs \\usepackage{booktabs,graphicx}.\n\\resizebox{\\linewidth}{!}{%\n"
        f"\\begin{{tabular}}{{{sides}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}}}\n"
    )


def _text(value: object) -> str:
    return "--" if value is None else _escaped(f"{value:.3f}" if isinstance(value, float) else str(value))


def _answers(cell: Cell) -> list[str]:
    """Whether more takes, demonstrations and both together help."""
    if cell.verdict is None:
        return ["not measured"] * 3
    return [answer.answer for answer in cell.verdict.answers.values()]


def _gain_of(cell: Cell, arm: str) -> Estimate | None:
    known = cell.arms.arms.get(arm) if cell.arms is not None else None
    return known.gain if known is not None else None


def _rate(estimate: Estimate | None) -> str:
    return number(estimate.value, scale=100) if estimate is not None and estimate.value is not None else "--"


def _escaped(text: str) -> str:
    """Text as LaTeX shows it: whatever a name holds is never a command."""
    return "".join(_LATEX.get(letter, letter if letter.isprintable() else "?") for letter in text)


def write_latex(result: Result, path: Path) -> Path:
    """`latex` as a file, to be read with ``\\input``."""
    return write_text(path, latex(result), parents=True)


def write_film(take: Take, directory: Path, fps: float) -> Path:
    """The scored frames of a take as a film of ``fps`` frames a second; its name says which take it is."""
    return write_bytes(directory / film_name(take.key, take.success), mp4(take.frames(), fps), parents=True)


def film_name(key: TakeKey, success: bool) -> str:
    """A file name that any system takes: the key in plain letters, and its id, by which no two are the same."""
    words = (key.policy, key.task, f"start{key.start}", key.arm, f"seed{key.seed}", "success" if success else "failure")
    plain = "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", word).strip("-.")[:40] for word in words)
    return f"{plain}_{key.id[:8]}.mp4"


def mp4(frames: U8, fps: float) -> bytes:
    """H.264 video of ``frames`` (F, H, W, 3), as every browser and slide shows it."""
    buffer = io.BytesIO()
    with VideoWriter(buffer, fps, frames.shape[1:3]) as encoder:
        for frame in frames:
            encoder.add(frame)
    return buffer.getvalue()


class VideoWriter:
    """Writes frames of ``size`` (height, width) to a file or buffer; the last row or column of an odd size is doubled,
    because H.264 in its common form wants even ones."""

    def __init__(self, file: Any, fps: float, size: tuple[int, ...], *, key_every: int = 12) -> None:
        import av

        self._pad = [*((0, side % 2) for side in size), (0, 0)]
        self._container = av.open(file, "w", format="mp4")
        rate = Fraction(fps).limit_denominator(1000)
        self._stream = self._container.add_stream("libx264", rate=rate, options={"crf": "18", "g": str(key_every)})
        self._stream.height, self._stream.width = (side + side % 2 for side in size)
        self._stream.pix_fmt = "yuv420p"
        self._frame = av.VideoFrame.from_ndarray

    def add(self, frame: U8) -> None:
        """Append one frame."""
        whole = np.pad(frame, self._pad, mode="edge")
        self._container.mux(self._stream.encode(self._frame(np.ascontiguousarray(whole))))

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._container.mux(self._stream.encode())
        self._container.close()


def write_recording(
    takes: Iterable[Take], path: Path, fps: int, on_take: Callable[[int], None] = lambda count: None
) -> Path:
    """One file with an entity per take; it appears under its name when it is whole."""
    try:
        import rerun as rr
    except ImportError:
        raise MissingExtra("rerun-sdk", "rerun", "a Rerun recording") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    recording = rr.RecordingStream("besttake")
    try:
        recording.save(str(temporary))
        for take in takes:
            _log(rr, recording, take, fps)
            on_take(1)
        recording.flush()
        recording.disconnect()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _log(rr: Any, to: Any, take: Take, fps: int) -> None:
    key = take.key
    words = (key.policy, key.task, str(key.start), key.arm, str(key.seed))
    entity = "/".join(re.sub(r"[^A-Za-z0-9.-]+", "-", word) for word in words)
    for step, frame in zip(take.frame_steps, take.frames(), strict=True):
        to.set_time("time", duration=float(step) / fps)
        to.log(f"{entity}/camera", rr.Image(frame).compress(jpeg_quality=90))
    for step in range(take.steps):
        to.set_time("time", duration=step / fps)
        to.log(f"{entity}/action", rr.Scalars(take.actions[step]))
        to.log(f"{entity}/state", rr.Scalars(take.states[step]))
    if take.success_step is not None:
        to.set_time("time", duration=take.success_step / fps)
        to.log(f"{entity}/outcome", rr.TextLog("success"))


def write_figures(result: Result, directory: Path) -> list[Path]:
    """Every figure as SVG; those of a policy carry its number in the report and its name."""
    return [write_text(directory / f"{name}.svg", figure.svg(), parents=True) for name, figure in every(result)]
