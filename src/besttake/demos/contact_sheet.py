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

_GAP, _BAR, _TEXT = 4, 5, 14
_PAPER, _INK, _EVENT, _OTHER = (255, 255, 255), (60, 60, 60), (214, 90, 30), (120, 170, 220)


def contact_sheet(library: Library, demo: int, *, columns: int = 12, height: int = 96) -> bytes:
    """PNG of demonstration ``demo``: event frames, and others spread evenly between them, about ``columns`` in a row.

    An orange frame marks an event; below stands the step, in orange where an event starts.
    """
    if not 0 <= demo < len(library.demos):
        raise LibraryError(
            f"{library.path} has {len(library.demos)} demonstrations, numbered from 0; there is no {demo}"
        )
    info = library.demos[demo]
    rows = np.flatnonzero(library.frame_demo == demo)
    steps = library.frame_step[rows]
    events = {onset_frame(steps, event) for event in info.events}
    shown = shown_frames(len(rows), sorted(events), columns)
    pictures = [_scaled(library, int(rows[i]), height) for i in shown]
    width = max(picture.width for picture in pictures)
    lines = -(-len(shown) // columns)
    cell = (width + _GAP, height + _BAR + _TEXT + _GAP)
    sheet = Image.new("RGB", (min(len(shown), columns) * cell[0] + _GAP, _TEXT + _GAP + lines * cell[1]), _PAPER)
    draw = ImageDraw.Draw(sheet)
    title = f"{info.id}   {info.instruction or info.task}   {info.length} steps, {len(info.events)} events"
    draw.text((_GAP, 2), title, fill=_INK)
    for place, (index, picture) in enumerate(zip(shown, pictures, strict=True)):
        x, y = _GAP + (place % columns) * cell[0], _TEXT + _GAP + (place // columns) * cell[1]
        is_event = index in events
        sheet.paste(picture, (x, y))
        if is_event:
            draw.rectangle((x, y, x + picture.width - 1, y + height - 1), outline=_EVENT, width=2)
        bar = (x, y + height, x + picture.width - 1, y + height + _BAR - 2)
        draw.rectangle(bar, fill=_EVENT if is_event else _OTHER)
        draw.text((x, y + height + _BAR), str(int(steps[index])), fill=_EVENT if is_event else _INK)
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


def _scaled(library: Library, frame: int, height: int) -> Image.Image:
    picture = Image.fromarray(library.frame_image(frame))
    return picture.resize((max(1, round(picture.width * height / picture.height)), height), Image.Resampling.BILINEAR)
