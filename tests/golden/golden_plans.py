"""The plans whose takes and numbers are the same on every x86-64 CPU, and how their results are read.

``python tests/golden/golden_plans.py OUT`` measures both and writes what it measured to OUT/numbers.json.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from besttake.config import load_plan
from besttake.verbs.diagnose.diagnosis import diagnose

SAME_BITS = platform.machine().lower() in {"x86_64", "amd64"}
# Of a result: what differs from run to run.
THIS_RUN = {"seconds", "created", "sha256"}
SMALL: dict[str, Any] = {
    "policy": ["testbed:half", "testbed:alt"], "env": "testbed", "task": ["pick", "push"], "starts": "5", "seeds": 3,
    "best_of": 2, "arms": "base,cooled,shuffled,retrieve,rerank", "stride": 8, "probe_states": 40,
    "demos_per_task": 10, "seed": 7, "rule": "next",
}  # fmt: skip
# All arms, with retrieval chosen by the check; two workers; later takes depend on what earlier ones decided.
UNTIL_DECIDED: dict[str, Any] = {
    "policy": ["testbed:half", "testbed:strong"], "env": "testbed", "task": ["stack", "drawer"], "until": "decided",
    "budget": 300, "arms": "base,cooled,shuffled,retrieve,rerank", "stride": 8, "probe_states": 16,
    "check_states": 16, "demos_per_task": 5, "seed": 3, "scorer": ["coverage", "manifold", "smoothness"],
    "workers": 2,
}  # fmt: skip


def numbers(value: Any, left_out: set[str], path: str = "") -> dict[str, Any]:
    """Every number and word of a result by its JSON pointer, but for what is ``left_out`` at any depth."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name not in left_out}
        return {k: v for name, part in kept.items() for k, v in numbers(part, left_out, f"{path}/{name}").items()}
    if isinstance(value, list):
        return {k: v for i, part in enumerate(value) for k, v in numbers(part, left_out, f"{path}/{i}").items()}
    return {path: value}


def measured(plan: dict[str, Any], out: Path, left_out: set[str]) -> dict[str, Any]:
    """The digest of the takes of a plan and every number of its result."""
    diagnose(load_plan(None, plan), out)
    return numbers(json.loads((out / "result.json").read_text()), left_out)


def plain_arithmetic() -> str:
    """A hash of what the BLAS and numpy's own loops make of some numbers: another one on another kind of CPU."""
    rows = np.random.default_rng(0).standard_normal((64, 64))
    return hashlib.sha256((rows @ rows.T).tobytes() + np.exp(rows).tobytes()).hexdigest()


if __name__ == "__main__":
    out = Path(sys.argv[1])
    every = {
        "small": measured({**SMALL, "workers": 1}, out / "small", THIS_RUN),
        "until decided": measured(UNTIL_DECIDED, out / "until", THIS_RUN),
        "plain arithmetic": plain_arithmetic(),
    }
    (out / "numbers.json").write_text(json.dumps(every))
