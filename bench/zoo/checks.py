"""What the check at held-out demonstrations chooses for each policy, beside what the roll-outs measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import besttake
from bench.zoo.tables import content, difference, points, table
from bench.zoo.takes import COOLED, F64, RETRIEVE, TASKS, Policy
from besttake import registry
from besttake.config import Plan
from besttake.core.offline import complexity
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.resolve import open_or_build
from besttake.reporting.words import retrieval_name
from besttake.verbs.diagnose.check import check_retrieval_of
from besttake.verbs.diagnose.choice import config_of

Chosen = dict[str, Any]
Play = Callable[[str, RetrievalConfig | float], F64]
NEAR = 0.02


def check_all(directory: Path, uris: Mapping[str, str]) -> dict[str, Chosen]:
    """By policy: the configuration that the check chooses (None: no prior helps), and the noise.

    Kept in ``directory/checks.json``.
    """
    kept = directory / "checks.json"
    known: dict[str, Chosen] = json.loads(kept.read_text()) if kept.is_file() else {}
    library, tasks = open_or_build("testbed"), registry.env("testbed").spec.tasks
    for name, uri in uris.items():
        if name not in known:
            check = check_retrieval_of(registry.policy(uri), library, tasks)
            chosen = config_of(check, RetrievalConfig(), tasks).to_dict() if check.helps else None
            known[name] = {"chosen": chosen, "noise": check.noise}
            kept.write_text(json.dumps(known, indent=1))
    return known


def fit_all(directory: Path, uris: Mapping[str, str]) -> dict[str, float]:
    """DFE over floor by policy, probed as `besttake probe` does now. Kept in ``directory/fits.json``."""
    kept = directory / "fits.json"
    known: dict[str, float] = json.loads(kept.read_text()) if kept.is_file() else {}
    for name, uri in uris.items():
        if name not in known:
            cells = besttake.probe(Plan(policy=uri, env="testbed", demos="testbed", check_states=0))
            fit = next(cell.dfe for cell in cells if cell.group == "*" or len(cells) == 1)
            assert fit is not None
            known[name] = fit.ratio.value or np.nan
            kept.write_text(json.dumps(known, indent=1))
    return known


def short_name(config: RetrievalConfig | None) -> str:
    """A configuration by the name it has in the study; `cooling` where nothing was chosen."""
    if config is None:
        return "cooling"
    known = {arm: name for name, (arm, _) in RETRIEVE.items()}
    own = f"retrieve?rule={config.rule}&rerank={config.rerank}&noise={config.noise:g}&prior={config.prior:g}"
    alone = not config.by_task and complexity(config)[0] == 0
    name = retrieval_name(config)
    return known.get(own, name) if alone else name + (", by task" if config.by_task else "")


@dataclass(frozen=True)
class Pick:
    """What the check chose for a policy, with the measured success of each start under it and under cooling."""

    name: str
    retrieve: F64 | None
    noise: float
    cooled: F64

    @property
    def content(self) -> float:
        """Retrieve minus cooled at the same noise; 0 where nothing was chosen."""
        return 0.0 if self.retrieve is None else float((self.retrieve - self.cooled).mean())


def pick(policy: Policy, chosen: Chosen, play: Play) -> Pick:
    """The takes of what was chosen, from the policy's run or played on the same starts."""
    config = None if chosen["chosen"] is None else RetrievalConfig.from_dict(chosen["chosen"])

    name, noise = short_name(config), float(chosen["noise"])
    arm = COOLED.get(noise)
    cooled = policy.rate(arm) if arm in policy.outcomes else play(policy.name, noise)
    if config is None:
        return Pick(name, None, noise, cooled)

    def rate(prior: float) -> F64:
        own = replace(config, prior=prior, by_task=())
        known = short_name(own)
        return cooled if not prior else policy.rate(RETRIEVE[known][0]) if known in RETRIEVE else play(policy.name, own)

    return Pick(name, np.stack([rate(config.prior_of(task))[i] for i, task in enumerate(TASKS)]), noise, cooled)


def picks(zoo: Sequence[Policy], chosen: Mapping[str, Chosen], play: Play) -> str:
    """Is the measured content of what the check chooses within two points of the best configuration's?"""
    rows, near, loss = [], 0, []
    for policy in zoo:
        own, base = pick(policy, chosen[policy.name], play), policy.rate()
        measured = {"cooling": 0.0} | {config: float(content(policy, config).mean()) for config in RETRIEVE}
        measured[own.name] = own.content
        best = max(measured, key=lambda config: measured[config])
        good = own.content >= measured[best] - NEAR
        near += good
        single = {f"cooled {noise:g}": policy.rate(arm) for noise, arm in COOLED.items() if arm in policy.outcomes}
        single |= {f"cooled {own.noise:g}": own.cooled}
        single |= {config: policy.rate(arm) for config, (arm, _) in RETRIEVE.items()}
        single |= {} if own.retrieve is None else {own.name: own.retrieve}
        top = max(single, key=lambda option: float(single[option].mean()))
        better = own.cooled if own.retrieve is None or own.retrieve.mean() < own.cooled.mean() else own.retrieve
        loss.append(float((single[top] - better).mean()))
        rows.append(
            [
                policy.name, own.name, f"{100 * own.content:+.1f}", f"{best}: {100 * measured[best]:+.1f}",
                "yes" if good else "no", "–" if own.retrieve is None else points(difference(own.retrieve - base)),
                f"{own.noise:g}: {points(difference(own.cooled - base))}",
                f"{top}: {100 * float((single[top] - base).mean()):+.1f}",
            ]
        )  # fmt: skip
    header = ["policy", "chosen", "its content", "best measured content", "within 2 points", "gain of what was chosen"]
    title = f"8. What the check chooses before a take is spent: within two points of the best for {near} of {len(zoo)}"
    text = table(title, [*header, "gain of the cooling chosen", "best one-take option measured"], rows)
    below = f"{100 * np.mean(loss):.1f} points below the best option measured, on average"
    return f"{text}\n\nThe better one of the two arms that were chosen is {below}."
