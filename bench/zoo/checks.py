"""What the check at held-out demonstrations chooses for each policy, beside what the roll-outs measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.zoo.tables import content, over_base, table
from bench.zoo.takes import COOLED, RETRIEVE, Policy
from besttake import registry
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.resolve import open_or_build
from besttake.verbs.check import check_retrieval_of

Chosen = dict[str, Any]
NEAR = 0.02


def check_all(directory: Path, uris: Mapping[str, str]) -> dict[str, Chosen]:
    """By policy: the configuration that the check chooses (None: nothing beats cooling), and the strength of cooling.

    Kept in ``directory/checks.json``.
    """
    kept = directory / "checks.json"
    known: dict[str, Chosen] = json.loads(kept.read_text()) if kept.is_file() else {}
    library, tasks = open_or_build("testbed"), registry.env("testbed").spec.tasks
    for name, uri in uris.items():
        if name not in known:
            check = check_retrieval_of(registry.policy(uri), library, tasks)
            chosen = None if check.chosen is None else check.chosen.to_dict()
            known[name] = {"chosen": chosen, "cooling": check.cooling}
            kept.write_text(json.dumps(known, indent=1))
    return known


def short_name(chosen: Mapping[str, Any] | None) -> str:
    """A configuration by the name it has in the study; `cooling` where nothing was chosen."""
    if chosen is None:
        return "cooling"
    config = RetrievalConfig.from_dict(chosen)
    plain = RetrievalConfig.from_dict({"rule": config.rule, "alpha": config.alpha, "way": "start"})
    name = f"{config.rule} {config.alpha:g}".replace(" 0.", " .")
    return name if config == plain else f"{name} with other settings"


def picks(zoo: Sequence[Policy], chosen: Mapping[str, Chosen]) -> str:
    """Is the measured content of what the check chooses within two points of the best configuration's?"""
    rows, near = [], 0
    for policy in zoo:
        measured = {"cooling": 0.0} | {config: float(content(policy, config).mean()) for config in RETRIEVE}
        name, best = short_name(chosen[policy.name]["chosen"]), max(measured, key=lambda config: measured[config])
        own = measured.get(name)
        good = own is not None and own >= measured[best] - NEAR
        near += good
        said = "not rolled out" if own is None else f"{100 * own:+.1f}"
        gains = {alpha: float(over_base(policy, arm).mean()) for alpha, arm in COOLED.items() if arm in policy.outcomes}
        strength, strongest = chosen[policy.name]["cooling"], max(gains, key=lambda alpha: gains[alpha])
        cooling = f"{strength}: {100 * gains[strength]:+.1f}" if strength in gains else f"{strength}"
        rows.append(
            [
                policy.name, name, said, f"{best}: {100 * measured[best]:+.1f}", "yes" if good else "no",
                cooling, f"{strongest}: {100 * gains[strongest]:+.1f}",
            ]
        )  # fmt: skip
    title = f"9. What the check chooses before a take is spent: within two points of the best for {near} of {len(zoo)}"
    header = ["policy", "chosen", "its content", "best measured content", "within 2 points"]
    return table(title, [*header, "cooling chosen, and its gain over base", "best cooling measured"], rows)
