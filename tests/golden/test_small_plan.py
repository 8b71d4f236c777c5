"""One small plan keeps its digest and every number of its result, whatever is rebuilt around them.

`numbers.json` was written by version 0.1.0 (commit 01e3ce1), before the code was laid out anew. A number may change
only on purpose: then the file is made again (``python tests/golden/test_small_plan.py``) and the change log says why.
Two quantities used to be shown twice with different intervals. `selectors/oracle/gain` now has the interval of the
headroom, and `arms/arms/base/selected_gain` that of the gain; these 23 numbers were made again on purpose. The
190 numbers of checks and demonstration fit were made again when their states were spread over the course of the
demonstrations.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from besttake.config import load_plan
from besttake.verbs.diagnose import diagnose

KEPT = Path(__file__).with_name("numbers.json")
PROSE = {"because", "headline", "reason", "notes", "created", "command", "versions", "besttake", "name", "source"}
THIS_TIME = {"seconds", "schema_version", "plan", "fingerprint", "frames_encoded", "made", "path", "library", "sha256"}
PLAN: dict[str, Any] = {
    "policy": ["testbed:half", "testbed:alt"], "env": "testbed", "task": ["pick", "push"], "starts": "5", "seeds": 3,
    "best_of": 2, "arms": "base,cooled,shuffled,retrieve,rerank", "stride": 8, "probe_states": 40,
    "demos_per_task": 10, "seed": 7, "rule": "next",
}  # fmt: skip


def numbers(value: Any, path: str = "") -> dict[str, Any]:
    """Every number and code of a result by its JSON pointer."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name not in PROSE | THIS_TIME}
        return {k: v for name, part in kept.items() for k, v in numbers(part, f"{path}/{name}").items()}
    if isinstance(value, list):
        return {k: v for i, part in enumerate(value) for k, v in numbers(part, f"{path}/{i}").items()}
    return {path: value}


def measured(out: Path) -> dict[str, Any]:
    diagnose(load_plan(None, PLAN), out)
    return numbers(json.loads((out / "result.json").read_text()))


def test_a_small_plan_keeps_its_digest_and_its_numbers(tmp_path: Path, cache: Path) -> None:
    now, before = measured(tmp_path / "run"), json.loads(KEPT.read_text())
    assert now["/digest"] == before["/digest"]
    changed = {
        path: (value, now.get(path, "gone"))
        for path, value in before.items()
        if not (now.get(path, "gone") == value or _close(now.get(path), value))
    }
    assert not changed, f"{len(changed)} numbers changed, e.g. {dict(list(changed.items())[:5])}"


def _close(a: Any, b: Any) -> bool:
    floats = isinstance(a, float) and isinstance(b, float)
    return floats and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


if __name__ == "__main__":
    lines = (f"{json.dumps(path)}: {json.dumps(value)}" for path, value in sorted(measured(Path(sys.argv[1])).items()))
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
