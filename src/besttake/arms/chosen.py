"""What follows from the arms that a plan names: which a policy can run, and what their takes depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from besttake import registry
from besttake.arms.base import ArmSpec, Need
from besttake.arms.ways import NEEDS
from besttake.core.retrieve import RetrievalConfig, Way
from besttake.types import PolicySpec


def specs_of(arms: Iterable[str]) -> dict[str, ArmSpec]:
    """The spec of each arm, by its URI."""
    return {uri: registry.arm(uri).spec for uri in arms}


def runnable(policy: PolicySpec, arms: Iterable[str], way: Way = "start") -> tuple[tuple[str, ...], list[str]]:
    """Those of ``arms`` that the policy can run, and a line for each that it cannot; ``way`` is the plan's."""
    reasons = {uri: unmet(policy, spec.needs, way) for uri, spec in specs_of(arms).items()}
    notes = [f"{policy.name}: no {uri} arm, {reason}" for uri, reason in reasons.items() if reason]
    return tuple(uri for uri, reason in reasons.items() if not reason), notes


def unmet(policy: PolicySpec, needs: tuple[Need, ...], way: Way = "start") -> str:
    """The reason why the policy cannot meet ``needs``; empty where it can."""
    if "way in" in needs:
        needs = (*needs, *NEEDS[way])
    if "cooling" in needs and not policy.cools:
        return f"its sampling noise is out of reach (kind {policy.kind}; `cools` in its spec)"
    if "warm start" in needs and not policy.warm_start:
        return "it cannot begin from a given chunk (`warm_start` in its spec)"
    if "mid flow" in needs and not policy.flow_steps:
        return "it cannot begin in the middle of its flow; use `way` start or blend"
    if "candidates" in needs and policy.kind == "deterministic":
        return "a deterministic policy has one candidate"
    return ""


def identity(
    specs: Mapping[str, ArmSpec], config: RetrievalConfig, candidates: int, library: str | None
) -> dict[str, Any]:
    """What the takes of these arms depend on, for the run's identity; ``library`` is its fingerprint."""
    entries: dict[str, Any] = {}
    for uri, spec in specs.items():
        if "alpha" in spec.settings:
            entries["alpha"] = config.alpha if config.cooling is None else [config.alpha, config.cooling]
        if "retrieval" in spec.settings:
            entries.update(retrieval=config.to_dict(), library=library)
        if "candidates" in spec.settings:
            entries["candidates"] = [candidates, library]
        if spec.fingerprint or (spec.library and not spec.settings):
            entries[f"arm {uri}"] = [spec.fingerprint, library if spec.library else None]
    return entries
