from __future__ import annotations

import time
from pathlib import Path

import pytest

from besttake.config import Plan, load_plan, parse_starts
from besttake.errors import PlanError

FLAGS = {"policy": ["testbed:half"], "env": ["testbed"]}


def test_a_file_and_flags_give_the_same_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("policy: testbed:half\nenv: testbed\nstarts: 60\narms: base,cooled\neef-dims: [0, 1, 2]\n")
    flags = {**FLAGS, "starts": "60", "arms": "base,cooled", "eef_dims": "0,1,2"}
    assert load_plan(path, {}) == load_plan(None, flags)


def test_starts_are_a_count_or_a_range() -> None:
    assert parse_starts("20") == (0, 20)
    assert parse_starts("20:60") == (20, 60)
    plan = Plan(policy=("p",), env=("e",), starts="2:4")
    assert plan.chosen_starts(range(100, 110), "e") == (102, 103)


def test_a_range_in_a_file_is_not_a_number_of_base_sixty(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("policy: p\nenv: e\nstarts: 20:40\nseed: 12\n")
    plan = load_plan(path, {})
    assert (plan.starts, plan.seed) == ("20:40", 12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy: p\n", "`env` is missing"),
        ("env: e\n", "`policy` is missing"),
        ("policy: p\nenv: e\nstart: 5\n", "unknown key 'start'; did you mean 'starts'?"),
        ("policy: p\nenv: e\nstarts: many\n", "neither a count (20) nor a range (20:60)"),
        ("policy: p\nenv: e\nseeds: 0\n", "seeds = 0"),
        ("policy: p\nenv: e\nbest_of: 4\n", "best_of = 4: must be at least 2 and at most 3, the number of seeds"),
        ("policy: p\nenv: e\nseeds: 1\nbest_of: 2\n", "best_of = 2: must be at least 1 and at most 1"),
        ("policy: p\nenv: e\narms: [base, warm]\n", "arms"),
        ("policy: p\nenv: e\nwindow: half\n", "window = 'half'"),
        ("policy: p\nenv: e\nretrieval: {rule: guess}\n", "rule must be next, current or frame"),
        ("policy: p\nenv: e\nretrieval: {piror: 0.2}\n", "unknown key 'retrieval.piror'; did you mean 'prior'?"),
        ("policy: p\nenv: e\nnoise: high\n", "retrieval.noise = 'high': must be a valid number"),
        ("policy: [p\n", "not valid YAML at line"),
        ("- p\n", "a plan is a mapping"),
    ],
)
def test_a_wrong_plan_is_one_line_that_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        load_plan(path, {})
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


BOMB = "".join(f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x, x, x'}]\n" for i in range(9))
HOSTILE = {
    "not UTF-8": b"policy: \xff\xfe\nenv: testbed\n",
    "a date that is none": b"policy: testbed:half\nenv: testbed\nstarts: 2001-99-99\n",
    "no boolean": b"policy: testbed:half\nenv: testbed\ntrust_remote_code: !!bool maybe\n",
    "5000 digits": b"policy: testbed:half\nenv: testbed\nseeds: " + b"9" * 5000 + b"\n",
    "deep lists": b"policy: " + b"[" * 2000 + b"]" * 2000,
    "an alias bomb": BOMB.encode(),
    "a map of itself": b"policy: &a\n  env: *a\n",
    "an object": b"!!python/object/apply:os.system [true]\n",
    "not a number": b"policy: testbed:half\nenv: testbed\nworth: .nan\n",
    "empty": b"",
    "large": b"# " + b"x" * (2 << 20),
    "a long arm": b"policy: testbed:half\nenv: testbed\narms: base," + b"9" * 5000 + b"\n",
    "merge": b"<<: &a {policy: testbed:half}\nenv: *a\n",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_plan_is_one_short_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(content)
    began = time.process_time()
    with pytest.raises(PlanError, match=r"plan\.yaml: ") as raised:
        load_plan(path, {})
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1100 + len(str(path))
    assert time.process_time() - began < 10
