"""How many rows a policy samples at a time, by measuring; tests/integration/lerobot has what needs a model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from besttake.errors import ComponentError
from besttake.policies.lerobot_checkpoint import best_width, compile_parts, kept_width, settle_dtype


class Machine:
    """Calls that take ``fixed`` seconds and ``each`` more per row, up to ``most`` rows."""

    def __init__(self, fixed: float, each: float, most: int = 1000) -> None:
        self.fixed, self.each, self.most, self.now = fixed, each, most, 0.0
        self.tried: list[int] = []

    def sample(self, width: int) -> None:
        self.tried.append(width)
        if width > self.most:
            raise RuntimeError("CUDA out of memory")
        self.now += self.fixed + self.each * width

    def best(self) -> int:
        return best_width(self.sample, lambda: self.now)


def test_where_rows_cost_little_many_are_sampled_at_once() -> None:
    assert Machine(fixed=1.0, each=0.001).best() == 64


def test_where_each_row_costs_the_same_one_at_a_time_is_enough() -> None:
    machine = Machine(fixed=0.0, each=1.0)
    assert machine.best() == 1
    assert max(machine.tried) == 2, "twice the rows brought nothing, so no more were tried"


def test_memory_that_ends_is_the_end_of_the_search_but_not_at_a_single_row() -> None:
    assert Machine(fixed=1.0, each=0.001, most=8).best() == 8
    with pytest.raises(RuntimeError, match="out of memory"):
        Machine(fixed=1.0, each=0.001, most=0).best()


def test_what_was_measured_once_is_kept_for_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path))
    assert kept_width(["a", "b"], lambda: 16) == 16
    assert kept_width(["a", "b"], lambda: 4) == 16
    assert kept_width(["ab", ""], lambda: 4) == 4
    for file in (tmp_path / "widths").iterdir():
        file.write_text('{"width": 1000000}')
    assert kept_width(["a", "b"], lambda: 2) == 2, "a file that says what cannot be is measured again"


def test_a_class_that_knows_no_float16_and_one_that_is_not_known_are_one_line() -> None:
    with pytest.raises(ComponentError, match="dtype=float16: a pi0 policy computes in float32 or bfloat16"):
        settle_dtype(SimpleNamespace(type="pi0", dtype="float32", device="cpu"), "float16", "x")
    with pytest.raises(ComponentError, match="dtype=float32: a wall_x policy computes in bfloat16 alone"):
        settle_dtype(SimpleNamespace(type="wall_x", device="cpu"), "float32", "x")
    with pytest.raises(ComponentError, match="compile=1 is known for smolvla, act, not for tdmpc"):
        compile_parts(object(), "tdmpc", "x")
