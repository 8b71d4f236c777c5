"""The ways in which a demonstrated chunk gets into a sample (`besttake.core.retrieve.RetrievalConfig.way`)."""

from __future__ import annotations

from collections.abc import Mapping

from besttake.arms.base import Acting, Need, Request, Sample, Tools
from besttake.core.retrieve import RetrievalConfig, Way
from besttake.core.warmstart import blend, on_step
from besttake.types import F32, PolicySpec, Warm

NEEDS: Mapping[Way, tuple[Need, ...]] = {"start": ("warm start",), "path": ("warm start", "mid flow"), "blend": ()}
"""What each way in needs of a policy."""


def bring_in(take: Request, tools: Tools, chunk: F32, config: RetrievalConfig) -> Acting:
    """One sample with ``chunk`` in it."""
    sample = yield Sample(take.observation, take.draw, start_of(tools.policy, chunk, config))
    return finished(sample, chunk, config)


def start_of(policy: PolicySpec, chunk: F32, config: RetrievalConfig) -> Warm | None:
    """How the sample starts that ``chunk`` gets into."""
    if config.way == "start":
        return Warm(config.alpha, chunk)
    if config.way == "path":
        time = on_step(config.alpha, policy.flow_steps)
        return Warm(time, chunk, time)
    return Warm(config.alpha) if policy.cools else None


def finished(sample: F32, chunk: F32, config: RetrievalConfig) -> F32:
    """What is executed of the sample that `start_of` started."""
    return blend(sample, chunk, config.alpha) if config.way == "blend" else sample
