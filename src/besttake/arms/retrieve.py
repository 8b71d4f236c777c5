"""The arm `retrieve`: the best match among the demonstrations, brought into the sample in one of three ways.

`start` is the paper's (Eq. 6). What each is compared with has the same noise: `cooled` of the same alpha for `start`
and `blend`; for `path`, which takes nothing from the noise that training would not have taken, `renoised`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from besttake import options
from besttake.arms.base import Acting, ArmSpec, Embed, Perceive, Recall, Request, Sample, Tools
from besttake.arms.ways import NEEDS, bring_in
from besttake.core.events import current
from besttake.core.retrieve import RetrievalConfig
from besttake.errors import ComponentError
from besttake.types import F32


@dataclass(frozen=True)
class _Query:
    """What the take saw at one replan; queries aligned to the onset of an event look back to an earlier one."""

    step: int
    embedding: F32
    chunk: F32
    state: F32


@dataclass(frozen=True)
class Retrieve:
    """Two samples: the policy's own, which the demonstrations are searched by, and one started from the match.

    ``changes`` are values of `RetrievalConfig` other than the plan's, e.g. ``retrieve?rule=frame``.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> ArmSpec:
        """Its control has as much noise as it has."""
        alpha, way = self.changes.get("alpha"), self.changes.get("way")
        control = "renoised" if way == "path" else "cooled"
        return ArmSpec(
            "retrieve", needs=("way in",) if way is None else NEEDS[way], library=True, score_camera=True,
            history=True, control=control if alpha is None else f"{control}?alpha={alpha:g}", settings=("retrieval",),
            fingerprint=f"2 {dict(sorted(self.changes.items()))}" if self.changes else "2",
        )  # fmt: skip

    def act(self, take: Request, tools: Tools) -> Acting:
        """A sample with the retrieved chunk in it, by the configured way."""
        config = RetrievalConfig.from_dict({**tools.config.to_dict(), **self.changes})
        own, state, embedding = yield [
            Sample(take.observation, take.draw), Perceive(take.observation, take.draw), Embed(tools.picture(take)),
        ]  # fmt: skip
        query, phase = _Query(take.step, embedding, own, state), None
        if config.onset_alignment or config.gripper_gating:
            events = tools.demonstrations.head.event_config
            events = events if config.angle is None else replace(events, angle=config.angle)
            now = current(*tools.motion(take), events, step=take.step)
            phase = now.open
            if config.onset_alignment:
                query = _at_onset(take, query, now.onset)
        match = yield Recall(take, config, query.embedding, query.chunk, query.state, phase)
        return (yield from bring_in(take, tools, match.chunk, config))


def _at_onset(take: Request, query: _Query, onset: int) -> _Query:
    """The first replan at or after the onset of the take's current event."""
    take.memory.append(query)
    past: list[_Query] = take.memory
    return next(one for one in past if one.step >= min(onset, query.step))


def make(_: str = "", **changes: Any) -> Retrieve:
    """``retrieve``, or with a configuration of its own, ``retrieve?rule=frame&way=path&alpha=0.5``."""
    values = {name: options.value(text) for name, text in changes.items()}
    try:
        RetrievalConfig.from_dict(values)
    except (TypeError, ValueError) as error:
        raise ComponentError(f"retrieve: {str(error).split('() ')[-1]}") from error
    return Retrieve(values)
