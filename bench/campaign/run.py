"""Runs stages, try by try, within a time bound, and keeps what came of them."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.campaign.stage import Broken, Stage, rng_of

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_MARK = "<!-- made by python -m bench.campaign --full; below this line nothing is written by hand -->"


@dataclass
class Outcome:
    """What came of one stage: how its tries ended, and how those failed that did."""

    name: str
    what: str
    seed: int
    planned: int
    tries: int = 0
    each: int = 1
    ends: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def short(self) -> bool:
        """Whether time ran out first."""
        return self.tries < self.planned


def run_stage(stage: Stage, seed: int, numbers: range, until: float) -> Outcome:
    """Try ``stage`` with each of ``numbers`` until the monotonic time ``until``."""
    outcome, began = Outcome(stage.name, stage.what, seed, len(numbers), each=stage.each), time.monotonic()
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix=f"campaign-{stage.name}-") as scratch:
        home = Path(scratch) / "stage"
        home.mkdir()
        with stage.prepare(home) as attempt:
            for number in numbers:
                if time.monotonic() > until:
                    break
                with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as place:
                    try:
                        ends[attempt(rng_of(seed, stage.name, number), Path(place))] += 1
                    except Exception as error:
                        ends["broken"] += 1
                        outcome.broken.append(_told(stage, seed, number, error))
                        print(outcome.broken[-1], file=sys.stderr, flush=True)
                outcome.tries += 1
    outcome.ends, outcome.seconds = dict(ends.most_common()), round(time.monotonic() - began, 1)
    return outcome


def _told(stage: Stage, seed: int, number: int, error: Exception) -> str:
    reason = str(error) if isinstance(error, Broken) else "".join(traceback.format_exception(error)[-3:])
    again = f"python -m bench.campaign {stage.name} --seed {seed} --try {number}"
    return f"{' '.join(reason.split())[:600]} [{again}]"


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = [
        "| stage | what is done | tries | how they ended | broken | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in outcomes:
        ends = ", ".join(f"{count} {end}" for end, count in one.ends.items() if end != "broken")
        tries = f"{one.tries * one.each:,}" + (f" of {one.planned * one.each:,}" if one.short else "")
        lines.append(f"| {one.name} | {one.what} | {tries} | {ends} | {len(one.broken)} | {one.seconds:.0f} |")
    return "\n".join(lines)


def keep(outcomes: list[Outcome], order: list[str]) -> None:
    """Put ``outcomes`` in the place of earlier ones of the same stages, and write docs/reliability.md anew."""
    kept = {one["name"]: Outcome(**one) for one in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    kept |= {one.name: one for one in outcomes}
    ordered = [kept[name] for name in order if name in kept]
    RESULTS.write_text(json.dumps([asdict(one) for one in ordered], indent=1) + "\n")
    by_hand = PAGE.read_text().partition(_MARK)[0].rstrip() if PAGE.exists() else "# Reliability"
    broken = [f"- {one.name}: {line}" for one in ordered for line in one.broken]
    parts = [by_hand, _MARK, table(ordered), *(["Broken:", "\n".join(broken)] if broken else [])]
    PAGE.write_text("\n\n".join(parts) + "\n")
