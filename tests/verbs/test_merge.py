"""Runs of parts of a plan, joined, are the run of the whole plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from besttake.errors import RunError
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Extent, Manifest
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.verbs.runs import merge


def run(
    out: Path, first: int, end: int, arms: tuple[str, ...] = ("base", "cooled"), shade: int = 0, kind: str = "",
    **changes: Any,
) -> Path:  # fmt: skip
    """A run as `diagnose` leaves it; a take's content depends on its name (and ``shade``) alone."""
    manifest = Manifest(
        plan={"starts": f"{kind}{first}:{end}", "arms": list(arms)}, versions={"numpy": "2"},
        identity={"seed": 0, "policy p": "abc", **changes},
        extent=Extent(
            policies=["p"], tasks=["e t"], starts=list(range(first, end)), seeds=[0, 1], arms=list(arms)
        ),
    )  # fmt: skip
    with Store.write(out, manifest) as store:
        for start in range(first, end):
            for arm in arms:
                for seed in range(2):
                    key = TakeKey("p", "e", "t", start, arm, seed)
                    actions = np.full((3, 2), start + 10 * seed + shade, np.float32)
                    film = Film.pack(np.full((1, 8, 8, 3), shade, np.uint8))
                    store.add(Take(key, None, actions, np.zeros((4, 2), np.float32), film, np.zeros(1, np.int32), 1))
    return out


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return run(tmp_path / "first", 0, 2)


def test_tuning_starts_stay_tuning_starts_and_join_no_others(tmp_path: Path, first: Path) -> None:
    parts = [run(tmp_path / f"part{i}", i, i + 1, kind="tuning:") for i in (2, 3)]
    merge(parts, tmp_path / "out")
    with Store.open(tmp_path / "out") as joined:
        assert joined.manifest.plan["starts"] == "tuning:2:4"
    with pytest.raises(RunError, match="some of the runs are on tuning starts and some are not"):
        merge([first, parts[0]], tmp_path / "mixed")


@pytest.mark.parametrize("begin", [1, 2], ids=["overlapping", "adjoining"])
def test_the_parts_have_the_digest_and_the_plan_of_the_whole(tmp_path: Path, first: Path, begin: int) -> None:
    whole, second = run(tmp_path / "whole", 0, 4), run(tmp_path / "second", begin, 4)
    merged = merge([second, first], tmp_path / "out")
    with Store.open(whole) as store, Store.open(tmp_path / "out") as joined:
        assert merged.digest == joined.digest() == store.digest()
        assert joined.manifest.extent == store.manifest.extent
        assert joined.manifest.plan == store.manifest.plan
        assert joined.manifest.identity == store.manifest.identity
    assert (merged.takes, merged.left_out) == (16, 0)


def refused(tmp_path: Path, first: Path, second: Path, why: str) -> None:
    with pytest.raises(RunError, match=why):
        merge([first, second], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path: Path, first: Path) -> None:
    refused(tmp_path, first, run(tmp_path / "gap", 3, 4), "starts 2:3 are in none of the runs; run them first")
    refused(tmp_path, first, run(tmp_path / "seed", 2, 3, seed=1), "seed does not fit .*: its seed differs")
    refused(tmp_path, first, run(tmp_path / "arms", 2, 3, ("base",)), "in starts and in arms: they are not parts")
    other = "hold different takes of t start 1 seed 0"
    refused(tmp_path, first, run(tmp_path / "other", 1, 3, shade=7), other)


def test_a_part_with_a_damaged_take_leaves_no_half_run(tmp_path: Path, first: Path) -> None:
    damaged = run(tmp_path / "second", 2, 4)
    take = sorted((damaged / "takes").glob("*/*.take"))[-1]
    whole = take.read_bytes()
    take.write_bytes(whole[:-3])
    with pytest.raises(RunError, match="is damaged; run the diagnosis again to redo it"):
        merge([first, damaged], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    take.write_bytes(whole)
    assert merge([first, damaged], tmp_path / "out").takes == 16


def test_a_run_is_never_written_over(tmp_path: Path, first: Path) -> None:
    whole = run(tmp_path / "whole", 0, 4)
    with pytest.raises(RunError, match="is a run already"):
        merge([first, first], whole)
    with pytest.raises(RunError, match="at least two runs"):
        merge([first], tmp_path / "out")
