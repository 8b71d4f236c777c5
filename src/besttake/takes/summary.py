"""What a run directory holds, for `besttake runs show`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

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
    """``failures`` counts reasons; ``damaged`` takes will be made again when the run goes on."""

    path: str
    planned: int
    done: int
    failed: int
    missing: int
    damaged: int
    digest: str
    lines: tuple[ArmProgress, ...]
    failures: tuple[tuple[str, int], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarise(path: str | Path) -> Summary:
    """Read a run, verifying every file."""
    with Store.open(path) as store:
        rows, damaged, digest, manifest = store.rows(), store.damaged(), store.digest(), store.manifest
    extent, bad = manifest.extent, {row.key for row in damaged}
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
    lines = tuple(ArmProgress(*name, d, s, f, each - d - f) for name, (d, s, f) in counts.items())
    done, failed, missing = (sum(getattr(line, kind) for line in lines) for kind in ("done", "failed", "missing"))
    reasons = Counter(row.error or "" for row in rows if row.status == "error")
    failures = tuple(reasons.most_common())
    return Summary(str(path), each * len(counts), done, failed, missing, len(damaged), digest, lines, failures)
