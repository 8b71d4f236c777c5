"""A demonstration as a contact sheet: its frames in a row, events marked."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from besttake.core.events import onset_frame
from besttake.demos.library import Library
from besttake.errors import LibraryError

_COLUMNS, _HEIGHT = 12, 96
_GAP, _TEXT = 4, 14
_PAPER, _INK, _EVENT = (255, 255, 255), (60, 60, 60), (214, 90, 30)


def contact_sheet(library: Library, demo: int) -> bytes:
    """PNG of demonstration ``demo``: event frames, and others spread evenly between them.

    An orange frame marks an event; below stands the step, in orange where an event starts.
    """
    info, rows = library.demos[demo], np.flatnonzero(library.frame_demo == demo)
    steps = library.frame_step[rows]
    events = {onset_frame(steps, event) for event in info.events}
    shown = shown_frames(len(rows), sorted(events), _COLUMNS)
    pictures = [_scaled(library, int(rows[i])) for i in shown]
    width, height = pictures[0].width + _GAP, _HEIGHT + _TEXT + _GAP
    lines = -(-len(shown) // _COLUMNS)
    sheet = Image.new("RGB", (min(len(shown), _COLUMNS) * width + _GAP, _TEXT + _GAP + lines * height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    title = f"{info.id}   {info.instruction or info.task}   {info.length} steps, {len(info.events)} events"
    draw.text((_GAP, 2), title, fill=_INK)
    for place, (index, picture) in enumerate(zip(shown, pictures, strict=True)):
        x, y = _GAP + (place % _COLUMNS) * width, _TEXT + _GAP + (place // _COLUMNS) * height
        sheet.paste(picture, (x, y))
        if index in events:
            draw.rectangle((x, y, x + picture.width - 1, y + _HEIGHT - 1), outline=_EVENT, width=2)
        draw.text((x, y + _HEIGHT), str(int(steps[index])), fill=_EVENT if index in events else _INK)
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()


def draw_all(library: Library, directory: Path) -> list[Path]:
    """A contact sheet of each demonstration as ``directory/000-id.png``; the paths, in order."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LibraryError(f"cannot write contact sheets to {directory}: {error.strerror}") from error
    paths = []
    for number, info in enumerate(library.demos):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", info.id)[:80]
        paths.append(directory / f"{number:03d}-{name}.png")
        paths[-1].write_bytes(contact_sheet(library, number))
    return paths


def shown_frames(frames: int, events: list[int], columns: int) -> list[int]:
    """Which of ``frames`` to show: all events, and as many others as fill the row, spread evenly."""
    even = np.linspace(0, frames - 1, min(frames, max(columns, 1))).round().astype(int).tolist()
    spare = [i for i in even if i not in events]
    wanted = max(0, min(frames, columns) - len(events))
    picked = [spare[(k * len(spare)) // wanted] for k in range(min(wanted, len(spare)))]
    return sorted({*events, *picked})


def _scaled(library: Library, frame: int) -> Image.Image:
    picture = Image.fromarray(library.frame_image(frame))
    return picture.resize((max(1, round(picture.width * _HEIGHT / picture.height)), _HEIGHT))
