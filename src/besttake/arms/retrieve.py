"""The arms `retrieve`, a sample started from the best match among the demonstrations, and its control `shuffled`.

It starts from ``prior * chunk + noise * eps``. Its control is `cooled` at exactly the same noise, so the difference is
what the retrieved chunk adds. The paper's Eq. 6 is ``retrieve?alpha=0.3``, prior 0.3 and noise 0.7.
`shuffled` takes the chunk of a random event instead of the best match, which shows what any demonstrated chunk does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from besttake import options
from besttake.arms.base import Acting, ArmSpec, Embed, Perceive, Recall, Sample, TakeState, Tools
from besttake.arms.cooled import cooled_at
from besttake.core.events import current
from besttake.core.retrieve import RetrievalConfig
from besttake.errors import ComponentError
from besttake.types import F32, Warm


@dataclass(frozen=True)
class _Query:
    """The query of one replan, remembered because retrieval at the onset of an event uses an earlier one."""

    step: int
    embedding: F32
    chunk: F32
    state: F32


@dataclass(frozen=True)
class Retrieve:
    """The arm ``retrieve``: sample the policy, search the demonstrations with it, and sample again from the match.

    ``changes`` are values of `RetrievalConfig` other than the plan's, e.g. ``retrieve?rule=frame``.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> ArmSpec:
        """The spec; the control is ``cooled`` with the same noise."""
        return ArmSpec(
            "retrieve", needs=("warm start",), library=True, score_camera=True, history=True,
            control=cooled_at(self.changes.get("noise")), settings=("retrieval",),
            fingerprint=f"2 {dict(sorted(self.changes.items()))}" if self.changes else "2",
        )  # fmt: skip

    def act(self, take: TakeState, tools: Tools) -> Acting:
        """``a_init = prior * (the retrieved chunk) + noise * eps``; without a prior nothing is searched."""
        config = tools.config.changed(self.changes)
        if not (prior := config.prior_of(take.task)):
            return (yield Sample(take.observation, take.draw, Warm(config.noise)))
        chunk, state, embedding = yield [
            Sample(take.observation, take.draw), Perceive(take.observation, take.draw), Embed(tools.picture(take)),
        ]  # fmt: skip
        query, phase = _Query(take.step, embedding, chunk, state), None
        if config.onset_alignment or config.gripper_gating:
            events = tools.demonstrations.head.event_config
            events = events if config.angle is None else replace(events, angle=config.angle)
            now = current(*tools.motion(take), events, step=take.step)
            phase = now.open
            if config.onset_alignment:
                query = _query_at_onset(take, query, now.onset)
        match = yield Recall(take, config, query.embedding, query.chunk, query.state, phase)
        return (yield Sample(take.observation, take.draw, Warm(config.noise, prior, match.chunk)))


def _query_at_onset(take: TakeState, query: _Query, onset: int) -> _Query:
    """The query of the first replan at or after the onset of the take's current event."""
    take.memory.append(query)
    past: list[_Query] = take.memory
    return next(earlier for earlier in past if earlier.step >= min(onset, query.step))


def settings_of(arm: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `RetrievalConfig` in an arm's options. ``alpha`` is Eq. 6: prior alpha, noise 1 - alpha."""
    values = {name: options.value(text) for name, text in given.items()}
    if "alpha" in values and {"noise", "prior"} & set(values):
        raise ComponentError(f"{arm}: alpha= sets noise and prior, so give it alone or give those two")
    try:
        if "alpha" in values:
            alpha = values.pop("alpha")
            values |= {"prior": alpha, "noise": round(1 - alpha, 12)}
        RetrievalConfig.from_dict(values)
    except (TypeError, ValueError) as error:
        raise ComponentError(f"{arm}: {str(error).split('() ')[-1]}") from error
    return values


def make(_: str = "", **given: Any) -> Retrieve:
    """Make ``retrieve``, or for example ``retrieve?rule=frame&prior=0.2`` or ``retrieve?alpha=0.3``."""
    return Retrieve(settings_of("retrieve", given))


@dataclass(frozen=True)
class Shuffled:
    """The arm ``shuffled``: one sample started from a random demonstrated chunk, unrelated to the observation.

    ``changes`` are values of `RetrievalConfig` that differ from the plan's, as in `retrieve`.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> ArmSpec:
        """The spec; the control is ``cooled`` with the same noise."""
        return ArmSpec(
            "shuffled", needs=("warm start",), library=True, control=cooled_at(self.changes.get("noise")),
            settings=("retrieval",), fingerprint=f"{dict(sorted(self.changes.items()))}" if self.changes else "",
        )  # fmt: skip

    def act(self, take: TakeState, tools: Tools) -> Acting:
        """``a_init = prior * (the chunk of a random event) + noise * eps``."""
        config = tools.config.changed(self.changes)
        chunk = tools.retriever(take, config).random(take.draw.generator("shuffle")).chunk
        return (yield Sample(take.observation, take.draw, Warm(config.noise, config.prior_of(take.task), chunk)))


def make_shuffled(_: str = "", **given: Any) -> Shuffled:
    """Make ``shuffled``, or for example ``shuffled?alpha=0.3``."""
    return Shuffled(settings_of("shuffled", given))
