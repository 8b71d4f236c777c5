"""Policies are never put together by guess, and episodes never counted twice."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from besttake.recordings.episodes import IngestError
from besttake.verbs.ingest import IngestResult, ingest

DATA = Path(__file__).parent / "data"
RECORDINGS = sorted((DATA / "vla_eval").glob("recording-*.sqlite"))
INFOS = sorted((DATA / "lerobot_eval").glob("*/eval_info.json"))
SHARDS = DATA / "vla_eval_0_1"


def put(path: Path, source: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)
    return path


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def cells(result: IngestResult) -> dict[str, tuple[int, int]]:
    return {cell.policy: (cell.starts, cell.seeds) for cell in result.result.cells}


def test_folders_of_two_policies_are_two_policies(tmp_path: Path) -> None:
    put(tmp_path / "pi0_libero" / "eval_info.json", INFOS[0])
    put(tmp_path / "smolvla_libero" / "eval_info.json", INFOS[1])
    result = ingest([tmp_path])
    assert cells(result) == {"pi0_libero": (16, 1), "smolvla_libero": (16, 1)}
    assert any("named by their folders" in note for note in result.result.notes)
    given = ingest([tmp_path], policy_name={"pi0_libero": "pi0", str(tmp_path / "smolvla_libero"): "smolvla"})
    assert cells(given) == {"pi0": (16, 1), "smolvla": (16, 1)}
    assert cells(ingest([tmp_path], policy_name="one")) == {"one": (16, 2)}


@pytest.mark.parametrize("names", [("run0", "run1"), ("pi0_1000", "pi0_2000"), ("2026-01-01", "2026-01-02")])
def test_folders_that_do_not_tell_policies_apart_are_asked_about(tmp_path: Path, names: tuple[str, str]) -> None:
    for name, info in zip(names, INFOS, strict=False):
        put(tmp_path / name / "eval_info.json", info)
    with pytest.raises(IngestError, match="2 recordings do not say of which .*`policy_name`, NAME if all") as caught:
        ingest([tmp_path])
    assert "\n" not in str(caught.value)


def test_files_that_differ_in_their_seed_alone_are_one_policy_and_others_what_their_names_say(tmp_path: Path) -> None:
    rows = [{"start": i, "success": i % 2} for i in range(6)]
    others = [{"start": i, "success": (i + 1) % 2} for i in range(6)]
    seeds = [table(tmp_path / "a" / "seed1.csv", rows), table(tmp_path / "a" / "seed2.csv", others)]
    assert list(cells(ingest(seeds, policy_name="p")).values()) == list(cells(ingest(seeds)).values()) == [(6, 2)]
    named = [table(tmp_path / "b" / "pi0.csv", rows), table(tmp_path / "b" / "smolvla.csv", others)]
    assert cells(ingest(named)) == {"pi0": (6, 1), "smolvla": (6, 1)}
    seeded = [table(tmp_path / where / "o.csv", [{**row, "seed": 0} for row in own])
              for where, own in (("d", rows), ("e", others))]  # fmt: skip
    repeats = ingest(seeded, policy_name="p", columns={"seed": "folder/"}).result
    assert any("repeat starts and seeds of others" in note for note in repeats.notes)
    with pytest.raises(IngestError, match="d and e have other outcomes .*task=folder/"):
        ingest(seeded, policy_name="p")
    assert cells(ingest(seeded, policy_name="p", columns={"task": "folder/"})) == {"p": (12, 1)}
    with pytest.raises(IngestError, match="2 recordings do not say"):
        ingest([table(tmp_path / "c" / "1.csv", rows), table(tmp_path / "c" / "2.csv", others)])


@pytest.mark.parametrize(("column", "values"), [("agent", ("pi0", "smolvla")), ("train_step", (10_000, 20_000))])
def test_a_column_that_divides_every_start_is_asked_about(tmp_path: Path, column: str, values: tuple[Any, Any]) -> None:
    rows = [{column: v, "task": "t", "episode_idx": i, "success": i % 2} for v in values for i in range(4)]
    path = table(tmp_path / "o.csv", rows)
    with pytest.raises(IngestError, match=f"every start has takes of each '{column}'.*policy={column}.*seed={column}"):
        ingest([path])
    assert cells(ingest([path], columns={"policy": column})) == {str(v): (4, 1) for v in values}
    assert cells(ingest([path], columns={"seed": column})) == {"policy": (4, 2)}


def test_shards_and_the_file_merged_of_them_count_every_episode_once() -> None:
    merged = json.loads((SHARDS / "roll_merged.json").read_text())
    alone = ingest([SHARDS / "roll_merged.json"])
    shards = ingest(sorted(SHARDS.glob("*shard*.json")))
    both = ingest([SHARDS])
    assert both.result.cells == alone.result.cells == shards.result.cells
    (cell,) = both.result.cells
    assert (cell.starts, cell.seeds, both.result.cost.takes) == (12, 1, merged["merge_info"]["total_episodes"])
    assert cell.headroom is not None
    assert cell.headroom.pass_1.value == pytest.approx(merged["mean_success"], abs=1e-4)
    assert sum("counted once" in note for note in both.result.notes) == 2


def test_a_table_saved_in_two_formats_counts_once_and_two_runs_count_twice(tmp_path: Path) -> None:
    """Neither has seeds: before, each episode was two takes that always agreed, and headroom was ruled out."""
    rows: list[dict[str, Any]] = [{"policy": "a", "task": "t", "episode_idx": i, "success": i * i % 3 % 2,
                                   "steps": 40 + i * i % 17} for i in range(12)]  # fmt: skip
    first = table(tmp_path / "o.csv", rows)
    (tmp_path / "o.jsonl").write_text("\n".join(json.dumps(row) for row in reversed(rows)))
    both = ingest([tmp_path])
    assert cells(both) == cells(ingest([first])) == {"a": (12, 1)}
    assert any("o.jsonl has the same rows as o.csv and was counted once" in note for note in both.result.notes)
    lines = (json.dumps({**row, "steps": row["steps"] + i % 2}) for i, row in enumerate(rows))
    (tmp_path / "o.jsonl").write_text("\n".join(lines))
    assert cells(ingest([tmp_path])) == {"a": (12, 2)}
