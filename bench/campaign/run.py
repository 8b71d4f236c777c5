"""Runs stages, try by try, within a time bound, and adds up what came of them.

A stage can be run in pieces: with the same seed a piece goes on where the last one stopped, with another it makes tries
of its own. ``results.json`` has a line of counts per stage and seed; docs/reliability.md has their sums.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.campaign.stage import STAGES, Broken, Stage, rng_of

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_MARK = "<!-- made by python -m bench.campaign --full; below this line nothing is written by hand -->"


@dataclass
class Outcome:
    """What came of the tries of one stage with one seed: how they ended, and, by number, how those failed that did."""

    name: str
    seed: int
    tries: int = 0
    attacks: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    commits: list[str] = field(default_factory=list)

    def plus(self, later: Outcome) -> Outcome:
        """With the tries of a later piece; a try that was broken and was made again counts once."""
        again = {number for number in self.broken if number in later.ends_of}
        ends = Counter(self.ends)
        ends["broken"] -= len(again)
        ends.update(later.ends)
        broken = {number: line for number, line in self.broken.items() if number not in again} | later.broken
        return Outcome(
            self.name, self.seed, self.tries + later.tries - len(again), self.attacks + later.attacks,
            dict((+ends).most_common()), broken, round(self.seconds + later.seconds, 1),
            [*dict.fromkeys([*self.commits, *later.commits])],
        )  # fmt: skip

    def __post_init__(self) -> None:
        self.ends_of: set[str] = set()  # the numbers that this piece tried


def run_stage(stage: Stage, seed: int, numbers: Iterable[int], until: float) -> Outcome:
    """Try ``stage`` with each of ``numbers`` until the monotonic time ``until``."""
    outcome, began = Outcome(stage.name, seed, commits=[_commit()]), time.monotonic()
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
                        end = attempt(rng_of(seed, stage.name, number), Path(place))
                        name, attacks = end if isinstance(end, tuple) else (end, stage.each)
                        ends[name] += 1
                        outcome.attacks += attacks
                    except Exception as error:
                        ends["broken"] += 1
                        outcome.broken[str(number)] = _told(stage, seed, number, error)
                        print(outcome.broken[str(number)], file=sys.stderr, flush=True)
                outcome.tries += 1
                outcome.ends_of.add(str(number))
    outcome.ends, outcome.seconds = dict(ends.most_common()), round(time.monotonic() - began, 1)
    return outcome


def _told(stage: Stage, seed: int, number: int, error: Exception) -> str:
    reason = str(error) if isinstance(error, Broken) else "".join(traceback.format_exception(error)[-3:])
    again = f"python -m bench.campaign {stage.name} --seed {seed} --try {number}"
    return f"{' '.join(reason.split())[:600]} [{again}]"


def _commit() -> str:
    """The commit that is attacked, marked where the package differs from it."""
    root = PAGE.parents[1]
    git = ["git", "-C", str(root)]
    said = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    differs = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", str(root / "src")], check=False).returncode
    return (said.stdout.strip() or "unknown") + ("-dirty" if differs else "")


def kept() -> dict[tuple[str, int], Outcome]:
    """What earlier pieces gave, by stage and seed."""
    pieces = [Outcome(**one) for one in json.loads(RESULTS.read_text() or "[]")] if RESULTS.exists() else []
    return {(one.name, one.seed): one for one in pieces}


def keep(piece: Outcome) -> None:
    """Add a piece to the earlier ones, and write docs/reliability.md anew."""
    with _alone():
        pieces = kept()
        place = (piece.name, piece.seed)
        pieces[place] = pieces[place].plus(piece) if place in pieces else piece
        _write(pieces)


def forget(stages: Iterable[str]) -> None:
    """Drop what earlier pieces of ``stages`` gave."""
    with _alone():
        _write({place: one for place, one in kept().items() if place[0] not in set(stages)})


@contextmanager
def _alone() -> Iterator[None]:
    """Pieces may run side by side; their results are written one after the other."""
    with RESULTS.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(pieces: dict[tuple[str, int], Outcome]) -> None:
    order = list(STAGES)
    ordered = sorted(pieces.values(), key=lambda one: (order.index(one.name), one.seed))
    RESULTS.write_text(json.dumps([asdict(one) for one in ordered], indent=1) + "\n")
    by_hand = PAGE.read_text().partition(_MARK)[0].rstrip() if PAGE.exists() else "# Reliability"
    broken = [f"- {one.name}: {line}" for one in ordered for line in one.broken.values()]
    commits = ", ".join(dict.fromkeys(commit for one in ordered for commit in one.commits))
    parts = [by_hand, _MARK, table(ordered), f"Commits that were attacked: {commits}."]
    PAGE.write_text("\n\n".join([*parts, *(["Broken:", "\n".join(broken)] if broken else [])]) + "\n")


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table, a line per stage."""
    lines = [
        "| stage | what is done | attacks | how the attempts ended | broken | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, stage in STAGES.items():
        pieces = [one for one in outcomes if one.name == name]
        if not pieces:
            continue
        ends, attacks, planned = Counter[str](), sum(one.attacks for one in pieces), stage.full * stage.each
        for one in pieces:
            ends.update(one.ends)
        listed = "; ".join(f'{count:,} x "{end}"' for end, count in ends.most_common() if end != "broken")
        count = f"{attacks:,}" + (f" of {planned:,}" if attacks < planned else "")
        seconds = sum(one.seconds for one in pieces)
        lines.append(f"| {name} | {stage.what} | {count} | {listed} | {ends['broken']} | {seconds:.0f} |")
    return "\n".join(lines)
