"""What a run directory holds, for `besttake runs show`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
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
    extent = manifest.extent
    bad = {row.key for row in damaged}
    each = len(extent.starts) * len(extent.seeds)
    seen: dict[tuple[str, str, str, str], list[int]] = {}
    for policy in extent.policies:
        for place in extent.tasks:
            env, task = place.split(" ", 1)
            for arm in (a for a in extent.arms if a not in manifest.skipped.get(policy, ())):
                seen[policy, env, task, arm] = [0, 0, 0]
    for row in rows:
        counts = seen.setdefault((row.key.policy, row.key.env, row.key.task, row.key.arm), [0, 0, 0])
        if row.status == "error":
            counts[2] += 1
        elif row.key not in bad:
            counts[0] += 1
            counts[1] += bool(row.success)
    lines = tuple(ArmProgress(*name, d, s, f, each - d - f) for name, (d, s, f) in seen.items())
    reasons = Counter(row.error or "" for row in rows if row.status == "error")
    return Summary(
        path=str(path),
        planned=each * len(seen),
        done=sum(line.done for line in lines),
        failed=sum(line.failed for line in lines),
        missing=sum(line.missing for line in lines),
        damaged=len(damaged),
        digest=digest,
        lines=lines,
        failures=tuple(reasons.most_common()),
    )
