"""One small plan keeps its digest and its main numbers, whatever is rebuilt around them.

A number may change only on purpose: then `numbers.json` is made again (``python tests/golden/test_small_plan.py OUT``)
and the change log says why.

The digest and the numbers hold on every x86-64 CPU (`test_every_cpu.py`). On other architectures, such as arm64,
compilers may fuse a product and a sum into one operation, in numpy, in MuJoCo and in the C library. Takes, and the
demonstrations, then differ in their bits, and some that hang on a contact end otherwise. There the digest is not
compared, but what does not hang on single takes is. What was counted must be equal. Of the 30 takes of a policy and
arm, three may end otherwise; each changes pass@1 by 1/30 and pass@2 by 1/15 at most. Demonstration fit, an average over
40 states, may differ by a tenth. No such machine has been tried.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from golden_plans import SAME_BITS, SMALL, measured

KEPT = Path(__file__).with_name("numbers.json")
NUMBERS = re.compile(
    r"/digest|/relation/(r|cells)|/policies/\d+/(starts|takes|missing|scorer|window|dfe/(dfe|floor|ratio)/value"
    r"|(arms/arms/\w+/(pass_1|pass_n|gain)|arms/content|headroom/headroom|selectors/scored/coverage/\w+/gain)/(value|low|high)"
    r"|verdict/(answer|option|optimism|gain/(value|low|high)|(takes|demonstrations|both)/answer)"
    r"|ranking/within/coverage/\w+/value)"
)
PROSE = {"because", "headline", "reason", "notes", "created", "command", "versions", "besttake", "name", "source"}
THIS_TIME = {"seconds", "schema_version", "plan", "fingerprint", "frames_encoded", "made", "path", "library", "sha256"}
COUNTS = re.compile(r"/policies/\d+/(starts|takes|missing)")
PASS_1 = re.compile(r"/policies/\d+/arms/arms/\w+/pass_1/value")
PASS_2 = re.compile(r"/policies/\d+/arms/arms/\w+/pass_n/value")
FIT = re.compile(r"/policies/\d+/dfe/(dfe|floor)/value")
# Elsewhere: by how much each may differ, absolutely and relatively.
ELSEWHERE = {COUNTS: (0, 0), PASS_1: (3 / 30, 0), PASS_2: (3 / 15, 0), FIT: (0, 0.1)}

Changes = dict[str, tuple[Any, Any]]


def test_a_small_plan_keeps_its_digest_and_its_numbers(tmp_path: Path, cache: Path) -> None:
    now, before = measured(SMALL, tmp_path / "run", PROSE | THIS_TIME), json.loads(KEPT.read_text())
    changed = changes(now, before) if SAME_BITS else changes_elsewhere(now, before)
    assert not changed, f"{len(changed)} numbers changed, e.g. {dict(list(changed.items())[:5])}"


def changes(now: dict[str, Any], before: dict[str, Any]) -> Changes:
    """What differs from ``before``, the digest among it; other versions of libraries may change the tenth digit."""
    both = {path: (value, now.get(path, "gone")) for path, value in before.items()}
    return {path: pair for path, pair in both.items() if not (pair[0] == pair[1] or _close(*pair))}


def changes_elsewhere(now: dict[str, Any], before: dict[str, Any]) -> Changes:
    """What differs from ``before`` by more than another architecture explains."""
    both = [(path, (value, now.get(path, math.nan))) for path, value in before.items()]
    return {
        path: pair
        for path, pair in both
        for kind, (absolute, relative) in ELSEWHERE.items()
        if kind.fullmatch(path) and not math.isclose(*pair, abs_tol=absolute + 1e-9, rel_tol=relative)
    }


def _close(a: Any, b: Any) -> bool:
    return isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def test_another_architecture_may_change_three_takes_but_not_four() -> None:
    before = json.loads(KEPT.read_text())
    assert [sum(bool(kind.fullmatch(path)) for path in before) for kind in (COUNTS, FIT)] == [6, 4]
    assert [sum(bool(kind.fullmatch(path)) for path in before) for kind in (PASS_1, PASS_2)] == [2 * 5] * 2
    rate, fit, takes = "/policies/0/arms/arms/cooled/pass_1/value", "/policies/1/dfe/dfe/value", "/policies/0/takes"
    assert not changes_elsewhere({**before, "/digest": "another", rate: before[rate] - 3 / 30}, before)
    assert [*changes_elsewhere({**before, rate: before[rate] + 4 / 30}, before)] == [rate]
    assert not changes_elsewhere({**before, fit: before[fit] * 1.09}, before)
    assert [*changes_elsewhere({**before, fit: before[fit] * 1.2}, before)] == [fit]
    assert [*changes_elsewhere({**before, takes: before[takes] - 1}, before)] == [takes]
    assert [*changes({**before, "/digest": "another"}, before)] == ["/digest"]
    without = {path: value for path, value in before.items() if path != rate}
    assert [*changes_elsewhere(without, before)] == [rate]


if __name__ == "__main__":
    made = measured(SMALL, Path(sys.argv[1]), PROSE | THIS_TIME)
    kept = {path: value for path, value in sorted(made.items()) if NUMBERS.fullmatch(path)}
    lines = (f"{json.dumps(path)}: {json.dumps(value)}" for path, value in kept.items())
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
