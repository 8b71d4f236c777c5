"""What a ranking says: takes with their places, the yardsticks beside them, and notes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from besttake.reporting.numbers import number
from besttake.reporting.table import Entry, Head, Table, Tabular, right

if TYPE_CHECKING:
    from besttake.reporting.drawing import Figure


@dataclass(frozen=True)
class Picture:
    """A frame of a take as JPEG, when it was seen, and the demonstration frame it is most like (empty: unknown)."""

    seconds: float
    frame: bytes = field(repr=False)
    nearest: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class RankedTake:
    """A take with its place (1 is best), its score and the frames it rests on.

    Takes whose scores lie within each other's error share a place. ``error`` is the standard error of the score: how
    much it changes when stretches of time are left out. ``unlike`` says why a take is marked "unlike the
    demonstrations". ``best[i]`` is the highest cosine of the frame at ``seconds[i]`` to any demonstration frame,
    ``nearest[i]`` that frame of the library; they are empty where the scorer does not compare frames with
    demonstrations. A take that could not be read or scored has no place, and ``problem`` says why.
    """

    name: str
    place: int | None
    score: float | None
    frames: int
    scored: int
    seconds: tuple[float, ...] = ()
    best: tuple[float, ...] = ()
    nearest: tuple[int, ...] = ()
    problem: str = ""
    error: float | None = None
    unlike: str = ""
    duration: float = 0.0
    pictures: tuple[Picture, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Yardsticks:
    """What a score is measured against: the lowest of ``demos`` held-out demonstrations, and shuffled pixels."""

    held_out: float | None = None
    demos: int = 0
    shuffled: float | None = None


@dataclass(frozen=True)
class RankResult(Tabular):
    """Takes from best to worst, and what their scores mean. Frames were compared ``rate`` times a second."""

    takes: tuple[RankedTake, ...]
    window: str
    scorer: str
    encoder: str
    library: str
    demos: int
    frames: int
    task: str
    matched: str
    notes: tuple[str, ...]
    rate: float = 0.0
    yardsticks: Yardsticks = Yardsticks()

    def to_json(self) -> str:
        """As JSON text, without the pictures."""
        return json.dumps(self.document(), indent=1, allow_nan=False)

    def document(self) -> dict[str, Any]:
        """As plain values, without the pictures."""
        bare = replace(self, takes=tuple(replace(take, pictures=()) for take in self.takes))
        document = asdict(bare)
        for take in document["takes"]:
            del take["pictures"]
        return document

    def plot(self) -> Figure | None:
        """The score of each take over time, as an SVG figure; None where no take has a score."""
        from besttake.reporting.ranking import traces

        return traces(self, self.takes)

    def _table(self) -> Table:
        rows, places = [], [take.place for take in self.takes]
        for take in self.takes:
            tied = " (tied)" if places.count(take.place) > 1 else ""
            place = Entry("" if take.place is None else f"{take.place}{tied}", value=take.place)
            score, error = (Entry(number(value, 4), value=value) for value in (take.score, take.error))
            note = Entry(take.problem, "worse") if take.place is None else Entry(take.unlike, "warn")
            rows.append((place, take.name, score, error, take.scored, take.frames, note))
        heading = f"{len(rows)} takes ranked by {self.scorer} on the window {self.window}, embedded by {self.encoder}"
        columns: Head = ["place", "take", *right("score", "± error", "scored", "frames"), "note"]
        return Table(heading, columns, rows, self.notes)
