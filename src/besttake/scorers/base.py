"""The contract of a scorer. Check yours with ``besttake.testing.check_scorer``.

A scorer sees the takes of a start and gives each a number per window; the take with the highest one is picked. A window
is the first part of a take. The harness chooses the windows and gives the frames and steps of all windows at once, so
that a scorer reads each take once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from besttake.core.search import Trace
from besttake.errors import ComponentError
from besttake.types import F32, U8

if TYPE_CHECKING:
    from besttake.demos.library import View

CONTROLS = ("random", "shortest", "oracle")
"""Selectors that every scorer is compared with (`besttake.core.select`)."""
_LONGEST_NAME = 200
Reads = Literal["frames", "embeddings", "nearest", "visited", "actions", "states", "instruction", "library"]


@dataclass(frozen=True)
class ScorerSpec:
    """What a scorer is and what it reads.

    Attributes:
        name: Name of the scorer, by which its scores are stored. It must be unique and contain no slash.
        reads: Fields of `Footage` that it needs, or ``"library"`` for the demonstrations.
        fingerprint: Change it whenever scores change.
        length: Whether a score may depend on what follows its window, such as the length of the take. If episodes stop
            at success, that gives the outcome away, and the report says so.
        compares: Whether a score may depend on the other takes of its start. Such a scorer gets one start at a time.
        probability: Whether a score is the probability of success, from 0 to 1.
        notes: Remarks for the report.
        camera: The camera whose frames it needs; empty for any.
        trained_on: Starts (env, task, start) that it was trained on; it is never judged on them.
        encoder: Fingerprint of the encoder whose embeddings it needs; empty for any.
    """

    name: str
    reads: tuple[Reads, ...]
    fingerprint: str
    length: bool = False
    compares: bool = False
    probability: bool = False
    notes: tuple[str, ...] = ()
    camera: str = ""
    trained_on: frozenset[tuple[str, str, int]] = frozenset()
    encoder: str = ""

    def __post_init__(self) -> None:
        """Raise ComponentError for an invalid name or ``reads``."""
        if not self.name.strip() or "/" in self.name or not self.name.isprintable() or len(self.name) > _LONGEST_NAME:
            fits = f"1 to {_LONGEST_NAME} printable characters, none of them a slash"
            raise ComponentError(f"scorer {self.name!r:.100}: a name has {fits}")
        if self.name in CONTROLS:
            raise ComponentError(f"scorer {self.name}: this is the name of a control; give it another")
        if isinstance(self.reads, str):
            raise ComponentError(f'scorer {self.name}: reads is a tuple, as in reads=("{self.reads}",)')
        for field_name, kind in (("reads", tuple), ("notes", tuple), ("trained_on", frozenset)):
            object.__setattr__(self, field_name, kind(getattr(self, field_name)))
        for field_name in self.reads:
            if field_name not in get_args(Reads):
                known = ", ".join(get_args(Reads))
                raise ComponentError(f"scorer {self.name}: reads {field_name!r}, which is none of {known}")


@dataclass(frozen=True)
class Footage:
    """What a scorer sees of one take with F frames and T steps. Fields that its spec does not read are None.

    Attributes:
        steps: The step at which each frame was seen, int32 (F,).
        windows: For each window, which frames belong to it, bool (F,); always the first ones.
        ends: For each window, how many actions belong to it.
        frames: Images of the score camera, uint8 (F, H, W, 3).
        embeddings: Their embeddings, float32 (F, dim).
        nearest: For each frame, the most similar demonstration frame.
        visited: For each window, how much of the best demonstration it visits, float64 (W,) (`besttake.core.score`).
        actions: Actions, float32 (T, action_dim).
        states: States, float32 (T + 1, state_dim).
        instruction: What the robot was asked to do, in words.
        camera: Name of the score camera, if known.
        policy: URI of the policy; empty if the take was only recorded.
        task: Name of the task; empty if the take was only recorded.
    """

    steps: NDArray[np.int32]
    windows: tuple[NDArray[np.bool_], ...]
    ends: tuple[int, ...]
    frames: U8 | None = field(default=None, repr=False)
    embeddings: F32 | None = None
    nearest: Trace | None = None
    visited: NDArray[np.float64] | None = None
    actions: F32 | None = None
    states: F32 | None = None
    instruction: str | None = None
    camera: str = ""
    policy: str = ""
    task: str = ""


@dataclass(frozen=True)
class Score:
    """The scores of one take: one number per window, higher is better; NaN if there is none."""

    values: Sequence[float] | NDArray[np.float64]


class Scorer(Protocol):
    """A scorer (verifier): gives each take of a start a number, and the take with the highest one is picked.

    `besttake.testing.check_scorer` checks an implementation.

    Examples:
        This scorer prefers takes whose actions change little:

        >>> class Calm:
        ...     spec = ScorerSpec("calm", reads=("actions",), fingerprint="1")
        ...     def score(self, takes, demos):
        ...         def calm(actions): return -np.square(np.diff(actions, axis=0)).mean()
        ...         return [Score([calm(take.actions[:end]) for end in take.ends]) for take in takes]
    """

    @property
    def spec(self) -> ScorerSpec:
        """The name of the scorer, what it reads of a take, and what its scores depend on."""
        ...

    def score(self, takes: Sequence[Footage], demos: View | None) -> Sequence[Score]:
        """Score takes of one task.

        Args:
            takes: What each take looked like and did; fields that ``spec.reads`` does not name are None. If
                ``spec.compares``, these are the takes of one start. Otherwise takes of several starts may come
                together, and a score must not depend on the other takes.
            demos: The demonstrations of the task if ``spec.reads`` names ``"library"``, else None.

        Returns:
            One `Score` per take, in the same order, with one number per window; higher is better.
        """
        ...
