"""Write tables as CSV, takes as films (MP4), and figures as SVG."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import astuple, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from besttake.files import write_bytes, write_text
from besttake.reporting.candidates import score_of
from besttake.reporting.figures import all_figures
from besttake.reporting.table import Table
from besttake.result import Result
from besttake.sanitize import csv_cell
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import Scores
from besttake.takes.take import Take
from besttake.types import U8

_KEY = tuple(field.name for field in fields(TakeKey))
_OUTCOME = ("status", "success", "success_step", "steps", "calls", "seconds", "error")


def takes_table(rows: Sequence[Row], scores: Scores | None) -> Table:
    """Make a row per take: its key, its outcome, and its score by every scorer on every window."""
    names = list(scores.names) if scores is not None else []
    table = []
    for row in rows:
        values = [score_of(scores, row.key, name) for name in names]
        finite = (value if math.isfinite(value) else None for value in values)
        table.append((*astuple(row.key), *(getattr(row, name) for name in _OUTCOME), *finite))
    columns = (*_KEY, *_OUTCOME, *(f"score {name.scorer} {name.window}" for name in names))
    return Table("Takes", columns, table)


def write_csv(table: Table, path: Path) -> Path:
    """Write a table as CSV in UTF-8; unknown numbers are empty fields."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(csv_cell, table.names))
    writer.writerows(map(csv_cell, row) for row in table.rows)
    return write_text(path, text.getvalue(), parents=True)


def write_film(take: Take, directory: Path, fps: float) -> Path:
    """Write the scored frames of a take as a film of ``fps`` frames a second, named after the take."""
    return write_bytes(directory / film_name(take.key, take.success), mp4(take.frames(), fps), parents=True)


def film_name(key: TakeKey, success: bool) -> str:
    """Make a file name that every system accepts from the key of a take, and its id, which makes it unique."""
    words = (key.policy, key.task, f"start{key.start}", key.arm, f"seed{key.seed}", "success" if success else "failure")
    plain = "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", word).strip("-.")[:40] for word in words)
    return f"{plain}_{key.id[:8]}.mp4"


def mp4(frames: U8, fps: float) -> bytes:
    """Encode ``frames`` (F, H, W, 3) as H.264 video, which browsers and slides can show."""
    buffer = io.BytesIO()
    with VideoWriter(buffer, fps, frames.shape[1:3]) as encoder:
        for frame in frames:
            encoder.add(frame)
    return buffer.getvalue()


class VideoWriter:
    """Writes frames of ``size`` (height, width) to a file or buffer as H.264.

    The last row or column of an odd size is doubled, because H.264 in its common form needs even sizes.
    """

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


def write_figures(result: Result, directory: Path) -> list[Path]:
    """Write every figure as SVG; the names of a policy's figures have its number in the report and its name."""
    return [write_text(directory / f"{name}.svg", figure.svg(), parents=True) for name, figure in all_figures(result)]
