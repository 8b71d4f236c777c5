"""Draw the four tasks as the wrist camera sees them: ``python -m bench.testbed_pictures [FILE]``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from besttake.testbed import seeds
from besttake.testbed.camera import RayCamera
from besttake.testbed.expert import Expert
from besttake.testbed.tasks import HORIZONS, TASKS, World
from besttake.types import U8

_PX = 232
_GAP = 8
_TITLE = 26
_SHARPER = 3
_MOMENTS = (0.3, 0.62, 1.0)
"""How far along the way to success each picture is taken."""


def strip(seed: int = seeds.TUNING[6]) -> Image.Image:
    """A column per task, a row per moment, all from the same start index."""
    width, height = len(TASKS) * (_PX + _GAP) + _GAP, _TITLE + len(_MOMENTS) * (_PX + _GAP)
    sheet = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    for column, task in enumerate(TASKS):
        left = _GAP + column * (_PX + _GAP)
        pen.text((left + _PX / 2, _TITLE / 2), task, fill="#333333", font=font, anchor="mm")
        for row, picture in enumerate(_moments(task, seed)):
            small = Image.fromarray(picture).resize((_PX, _PX), Image.Resampling.BOX)
            sheet.paste(small, (left, _TITLE + row * (_PX + _GAP)))
    return sheet


def _moments(task: str, seed: int) -> list[U8]:
    world = World(task)
    world.reset(seed)
    camera = RayCamera(world.model, "wrist", _PX * _SHARPER)
    expert = Expert(task, np.random.default_rng(seed))
    snapshots = [world.save()]
    while not world.succeeded and len(snapshots) < HORIZONS[task]:
        world.step(expert.act(world))
        snapshots.append(world.save())
    pictures = []
    for moment in _MOMENTS:
        world.restore(snapshots[round(moment * (len(snapshots) - 1))])
        pictures.append(camera(world.data))
    return pictures


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/testbed-tasks.png")
    target.parent.mkdir(parents=True, exist_ok=True)
    strip().quantize(96).save(target, optimize=True)
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")
