"""What a run directory holds, for `besttake runs show`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from besttake.errors import RunError
from besttake.takes.scores import Scores, run_digest
from besttake.takes.store import Store


@dataclass(frozen=True)
class ArmProgress:
    """One policy, task and arm."""

    policy: str
    env: str
    task: str
    arm: str
    done: int
    succeeded: int
    failed: int
    missing: int


@dataclass(frozen=True)
class Summary:
    """``failures`` counts reasons. ``damaged`` takes, and scores where ``damaged_scores``, are made again when the run
    goes on. ``digest`` covers takes, outcomes and scores, ``takes_digest`` the takes and outcomes alone."""

    path: str
    planned: int
    done: int
    failed: int
    missing: int
    damaged: int
    damaged_scores: bool
    digest: str
    takes_digest: str
    lines: tuple[ArmProgress, ...]
    failures: tuple[tuple[str, int], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarise(path: str | Path) -> Summary:
    """Read a run, verifying every file."""
    with Store.inspect(path) as store:
        rows, damaged, takes, torn, manifest = store.rows(), store.damaged(), store.digest(), store.torn, store.manifest
    scores, lost = None, False
    try:
        scores = Scores.open(path)
    except RunError:
        lost = True
    extent, bad = manifest.extent, {row.key for row in damaged}
    # A run until decided plans as it goes: what it has is what was asked for.
    until = manifest.plan.get("until") is not None
    each = len(extent.starts) * len(extent.seeds)
    counts = {
        (policy, env, task, arm): [0, 0, 0]
        for policy, place, arm in product(extent.policies, extent.tasks, extent.arms)
        for env, _, task in [place.partition(" ")]
        if arm not in manifest.skipped.get(policy, ())
    }
    for row in rows:
        own = counts.setdefault((row.key.policy, row.key.env, row.key.task, row.key.arm), [0, 0, 0])
        if row.status == "error":
            own[2] += 1
        elif row.key not in bad:
            own[0] += 1
            own[1] += bool(row.success)
    lines = tuple(ArmProgress(*name, d, s, f, 0 if until else each - d - f) for name, (d, s, f) in counts.items())
    done, failed, missing = (sum(getattr(line, kind) for line in lines) for kind in ("done", "failed", "missing"))
    reasons = Counter(row.error or "" for row in rows if row.status == "error")
    failures = tuple(reasons.most_common())
    planned = done + failed if until else each * len(counts)
    return Summary(
        str(path), planned, done, failed, missing, len(damaged) + torn, lost, run_digest(takes, scores), takes,
        lines, failures,
    )  # fmt: skip
