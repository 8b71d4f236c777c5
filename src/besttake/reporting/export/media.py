"""Takes as films (MP4, one file each) and as a Rerun recording; the figures of a run as SVG, and as PDF for papers."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from besttake.errors import MissingExtra, need
from besttake.files import write_bytes, write_text
from besttake.reporting.figures import every
from besttake.result import Result
from besttake.takes.key import TakeKey
from besttake.takes.take import Take
from besttake.types import U8


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


def write_figures(result: Result, directory: Path, *, pdf: bool = False) -> list[Path]:
    """Every figure as SVG, with ``pdf`` also as PDF; those of a policy carry its number in the report and its name."""
    if pdf:
        need_pdf()
    made = []
    for name, figure in every(result):
        made.append(write_text(directory / f"{name}.svg", figure.svg(), parents=True))
        if pdf:
            made.append(write_bytes(directory / f"{name}.pdf", _pdf(figure.svg()), parents=True))
    return made


def need_pdf() -> None:
    """Raise `MissingExtra` where figures cannot be written as PDF, before anything is written."""
    for library in ("svglib.svglib", "reportlab.graphics"):
        need(library, "a figure as PDF", "pdf")


def _pdf(svg: str) -> bytes:
    from reportlab.graphics import renderPDF
    from svglib.svglib import svg2rlg

    drawing = svg2rlg(io.BytesIO(svg.encode()))
    return bytes(renderPDF.drawToString(drawing))
