"""Properties of the arms that a plan names: which ones a policy can run, and what their takes depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from besttake import registry
from besttake.arms.base import ArmSpec, Need
from besttake.core.retrieve import RetrievalConfig
from besttake.types import PolicySpec


def specs_of(arms: Iterable[str]) -> dict[str, ArmSpec]:
    """The spec of each arm, by its URI."""
    return {uri: registry.arm(uri).spec for uri in arms}


def runnable(policy: PolicySpec, arms: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """The ``arms`` that the policy can run, and a one-line reason for each that it cannot."""
    reasons = {uri: unmet(policy, spec.needs) for uri, spec in specs_of(arms).items()}
    notes = [f"{policy.name}: no {uri} arm, {reason}" for uri, reason in reasons.items() if reason]
    return tuple(uri for uri, reason in reasons.items() if not reason), notes


def unmet(policy: PolicySpec, needs: tuple[Need, ...]) -> str:
    """The reason why the policy cannot meet ``needs``; empty if it can."""
    if "cooling" in needs and not policy.cools:
        return f"its sampling noise is out of reach (kind {policy.kind}; `cools` in its spec)"
    if "warm start" in needs and not policy.warm_start:
        return "it cannot begin from a given chunk (`warm_start` in its spec)"
    if "candidates" in needs and policy.kind == "deterministic":
        return "a deterministic policy has one candidate"
    return ""


def identity(
    specs: Mapping[str, ArmSpec], config: RetrievalConfig, candidates: int, library: str | None
) -> dict[str, Any]:
    """What the takes of these arms depend on, for the run's identity; ``library`` is its fingerprint."""
    entries: dict[str, Any] = {}
    for uri, spec in specs.items():
        if "noise" in spec.settings:
            entries["noise"] = config.noise
        if "retrieval" in spec.settings:
            entries.update(retrieval=config.to_dict(), library=library)
        if "candidates" in spec.settings:
            entries["candidates"] = [candidates, library]
        if spec.fingerprint or (spec.library and not spec.settings):
            entries[f"arm {uri}"] = [spec.fingerprint, library if spec.library else None]
    return entries
