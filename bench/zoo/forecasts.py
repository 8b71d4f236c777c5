"""Is the forecast to be trusted? Simulated pilots of each cell, their forecasts, and what then really happened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats as sps

from bench.zoo.cells import Cell
from bench.zoo.tables import table
from bench.zoo.takes import WORTH
from besttake.core.planning import Futures, forecast, futures
from besttake.core.sequential import tracks
from besttake.core.stats import Forecast
from besttake.files import short_hash
from besttake.measure.verdict import Question

PILOTS = (20, 60)
MOST = 300
RUNS = 10
NAMES = ("headroom", "gain", "content")
PARTS = ("takes", "content")


def forecasts(directory: Path, populations: Sequence[Cell]) -> str:
    """How often the real number of further starts, up to `MOST`, lies in the range; kept once it was computed."""
    values = [q.values.tobytes() for cell in populations for q in cell.questions]
    kept = directory / "simulated" / f"forecasts-{RUNS}-{short_hash(*values)}.json"
    if not kept.is_file():
        kept.write_text(json.dumps([row for i, cell in enumerate(populations) for row in _pilots(cell, i)]))
    rows = json.loads(kept.read_text())
    lines = []
    for pilot in PILOTS:
        for part in PARTS:
            own = [row for row in rows if row[:2] == [pilot, part]]
            inside = sum(row[2] == "inside" for row in own)
            low, high = sps.binomtest(inside, len(own)).proportion_ci(method="wilson")
            counts = [sum(row[2] == where for row in own) for where in ("below", "above")]
            never = sum(row[3] for row in own)
            share = f"{100 * inside / len(own):.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
            lines.append([str(pilot), part, str(len(own)), share, *map(str, counts), f"{100 * never / len(own):.0f} %"])
    return table(
        f"9. Forecasts from a pilot whose question is open: is the real number, up to {MOST} starts, in the range?",
        [
            "starts", "question", "forecasts", "in the range", "sooner", "later",
            f"forecasts without an end within {MOST}",
        ],
        lines,
    )  # fmt: skip


def _pilots(cell: Cell, seed: int) -> list[tuple[int, str, str, bool]]:
    rng = np.random.default_rng([seed, 5])
    asked = [q for q in cell.questions if q.name in NAMES]
    said = []
    for pilot in PILOTS:
        for _ in range(RUNS):
            rows = rng.integers(cell.starts, size=pilot + MOST)
            real = _real(asked, rows, pilot)
            values = np.stack([q.values[rows[:pilot]] for q in asked], axis=1)
            drawn = futures(
                values, [q.name for q in asked], [q.widest for q in asked], [q.stake for q in asked], WORTH, MOST
            )
            for part in PARTS:
                happened, expected = real.settled(part), drawn.settled(part)
                assert happened is not None
                assert expected is not None
                if happened[0] > 0:
                    made = forecast(expected, MOST)
                    said.append((pilot, part, where(made, float(happened[0])), made.high is None))
    return said


def where(made: Forecast, real: float) -> str:
    """Whether the real number is inside the range, below or above it; None in a range is beyond `MOST`."""
    low = np.inf if made.low is None else made.low
    high = np.inf if made.high is None else made.high
    capped = real if real <= MOST else np.inf
    return "below" if capped < low else "above" if capped > high else "inside"


def _real(asked: Sequence[Question], rows: NDArray[np.int64], pilot: int) -> Futures:
    """After how many starts beyond the pilot each question was answered in fact; 0 where it was before."""
    values = np.stack([q.values[rows] for q in asked], axis=1)
    made = tracks(values, [q.widest for q in asked], [q.stake for q in asked], WORTH)

    def further(times: Sequence[int], others: Sequence[int], ties: bool) -> dict[str, NDArray[np.float64]]:
        later: dict[str, NDArray[np.float64]] = {}
        for question, own, other in zip(asked, times, others, strict=True):
            counts = own <= len(rows) and (own <= other if ties else own < other)
            later[question.name] = np.array([max(0.0, float(own - pilot)) if counts else np.inf])
        return later

    yes, no = [track.yes for track in made], [track.no for track in made]
    return Futures(further(yes, no, ties=False), further(no, yes, ties=True), MOST)
