"""Takes as a Rerun recording (``.rrd``): frames, states, actions and success over time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from besttake.errors import MissingExtra
from besttake.takes.take import Take


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
