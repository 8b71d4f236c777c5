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


@pytest.mark.parametrize(
    "names", [("run0", "run1"), ("pi0_1000", "pi0_2000"), ("2026-01-01", "2026-01-02"), ("a/seed1", "a/seed2")]
)
def test_folders_that_do_not_tell_policies_apart_are_asked_about(tmp_path: Path, names: tuple[str, str]) -> None:
    for name, info in zip(names, INFOS, strict=False):
        put(tmp_path / name / "eval_info.json", info)
    with pytest.raises(
        IngestError, match="2 recordings do not say of which policy .*`policy_name`, NAME if all"
    ) as caught:
        ingest([tmp_path])
    assert "\n" not in str(caught.value)


def test_two_checkpoints_behind_one_kind_of_server_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="3 recordings do not say of which policy"):
        ingest([DATA / "vla_eval"])
    assert cells(ingest(RECORDINGS[:1])) == {"Pusher": (16, 1)}
    put(tmp_path / "pi0" / "recording-a.sqlite", RECORDINGS[0])
    put(tmp_path / "pi05" / "recording-b.sqlite", RECORDINGS[1])
    assert cells(ingest([tmp_path])) == {"pi0": (16, 1), "pi05": (16, 1)}


def test_tables_without_a_policy_are_asked_about_unless_their_names_tell(tmp_path: Path) -> None:
    rows = [{"start": i, "success": i % 2} for i in range(6)]
    others = [{"start": i, "success": (i + 1) % 2} for i in range(6)]
    seeds = [table(tmp_path / "a" / "seed1.csv", rows), table(tmp_path / "a" / "seed2.csv", others)]
    with pytest.raises(IngestError, match="2 recordings do not say"):
        ingest(seeds)
    assert cells(ingest(seeds, policy_name="p")) == {"p": (6, 2)}
    named = [table(tmp_path / "b" / "pi0.csv", rows), table(tmp_path / "b" / "smolvla.csv", others)]
    assert cells(ingest(named)) == {"pi0": (6, 1), "smolvla": (6, 1)}


def test_a_name_never_makes_one_of_two_policies_that_files_name(tmp_path: Path) -> None:
    rows = [{"policy": p, "start": i, "success": i % 2} for p in ("a", "b") for i in range(4)]
    path = table(tmp_path / "o.csv", rows)
    with pytest.raises(IngestError, match="names the policies a, b: `policy_name` x would make one of them"):
        ingest([path], policy_name="x")
    with pytest.raises(IngestError, match="no recording is called elsewhere"):
        ingest([path], policy_name={"elsewhere": "x"})


def test_checkpoints_of_one_model_in_a_table_are_policies_of_their_own(tmp_path: Path) -> None:
    rows = [{"model": "pi0", "checkpoint": c, "start": i, "success": i % 2} for c in (10, 20) for i in range(4)]
    assert cells(ingest([table(tmp_path / "o.csv", rows)])) == {"pi0 / 10": (4, 1), "pi0 / 20": (4, 1)}


@pytest.mark.parametrize(("column", "values"), [("agent", ("pi0", "smolvla")), ("train_step", (10_000, 20_000))])
def test_a_column_that_divides_the_takes_of_every_start_is_asked_about(
    tmp_path: Path, column: str, values: tuple[Any, Any]
) -> None:
    rows = [{column: v, "task": "t", "episode_idx": i, "success": i % 2} for v in values for i in range(4)]
    path = table(tmp_path / "o.csv", rows)
    with pytest.raises(IngestError, match=f"every start has takes of each '{column}'.*policy={column}.*seed={column}"):
        ingest([path])
    assert cells(ingest([path], columns={"policy": column})) == {str(v): (4, 1) for v in values}
    assert cells(ingest([path], columns={"seed": column})) == {"policy": (4, 2)}


@pytest.mark.parametrize("column", ["video", "attempt", "rng_seed", "index", "why"])
def test_columns_that_only_number_or_describe_takes_are_not_asked_about(tmp_path: Path, column: str) -> None:
    rows: list[dict[str, Any]] = []
    for take in range(3):
        for i in range(8):
            said = {"video": f"{i}_{take}.mp4", "attempt": f"try {take}", "rng_seed": 7 * take, "index": take + 1}
            rows.append(
                {"episode_idx": i, "success": i * take % 2, column: said.get(column, ["", "slip"][i * take % 2])}
            )
    assert cells(ingest([table(tmp_path / "o.csv", rows)])) == {"policy": (8, 3)}


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


def test_a_missing_shard_that_turns_up_is_added_to_the_merged_file(tmp_path: Path) -> None:
    """The merged file knows one shard only; the other lies beside it."""
    merged = json.loads((SHARDS / "roll_merged.json").read_text())
    first = json.loads((SHARDS / "roll_shard0of2.json").read_text())
    merged["tasks"] = first["tasks"]
    (tmp_path / "roll_merged.json").write_text(json.dumps(merged))
    for shard in SHARDS.glob("*shard*.json"):
        put(tmp_path / shard.name, shard)
    assert ingest([tmp_path]).result.cost.takes == 12


def test_a_recording_and_its_export_of_another_folder_count_once(tmp_path: Path) -> None:
    put(tmp_path / "a" / RECORDINGS[0].name, RECORDINGS[0])
    put(tmp_path / "exports" / "x_aggregate.json", DATA / "vla_eval" / "seed0_aggregate.json")
    result = ingest([tmp_path])
    assert cells(result) == {"Pusher": (16, 1)}
    assert any("counted once" in note for note in result.result.notes)


def test_evaluations_of_one_name_and_other_episodes_are_all_kept(tmp_path: Path) -> None:
    """Two checkpoints, each run with ``--eval-id seed0``."""
    put(tmp_path / "pi0" / "recording-seed0.sqlite", RECORDINGS[0])
    text = (DATA / "vla_eval" / "seed1_aggregate.json").read_text().replace("seed1-roll", "seed0-roll")
    (tmp_path / "pi05").mkdir()
    (tmp_path / "pi05" / "roll_aggregate.json").write_text(text)
    assert cells(ingest([tmp_path])) == {"pi0": (16, 1), "pi05": (16, 1)}


def test_what_a_table_has_of_another_counts_once(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"policy": "p", "start": i, "seed": s, "success": (i * s) % 2} for i in range(5) for s in range(3)
    ]
    table(tmp_path / "all.csv", rows)
    table(tmp_path / "some.csv", [*rows[:6], {"policy": "p", "start": 9, "seed": 0, "success": 1}])
    result = ingest([tmp_path])
    assert result.result.cost.takes == 16
    assert any("6 takes of all.csv" in note for note in result.result.notes)
    other = [{**row, "success": 1 - row["success"]} for row in rows]
    table(tmp_path / "other.csv", other)
    assert ingest([tmp_path / "all.csv", tmp_path / "other.csv"]).result.cost.takes == 30


def test_a_copy_counts_once_unless_it_is_said_to_be_of_another_policy(tmp_path: Path) -> None:
    rows = [{"start": i, "success": i % 2} for i in range(6)]
    paths = [table(tmp_path / "pi0.csv", rows), table(tmp_path / "smolvla.csv", rows)]
    once = ingest(paths)
    assert once.result.cost.takes == 6
    assert any("smolvla.csv repeats pi0.csv" in note for note in once.result.notes)
    apart = ingest(paths, policy_name={"pi0.csv": "pi0", "smolvla.csv": "smolvla"})
    assert cells(apart) == {"pi0": (6, 1), "smolvla": (6, 1)}


def test_a_table_saved_in_two_formats_counts_once_and_two_runs_count_twice(tmp_path: Path) -> None:
    """Neither has seeds: before, each episode was two takes that always agreed, and headroom was ruled out."""
    rows: list[dict[str, Any]] = [
        {"policy": "a", "task": "t", "episode_idx": i, "success": i * i % 3 % 2, "steps": 40 + i * i % 17}
        for i in range(12)
    ]
    first = table(tmp_path / "o.csv", rows)
    (tmp_path / "o.jsonl").write_text("\n".join(json.dumps(row) for row in reversed(rows)))
    both = ingest([tmp_path])
    assert cells(both) == cells(ingest([first])) == {"a": (12, 1)}
    assert any("o.jsonl has the same rows as o.csv and was counted once" in note for note in both.result.notes)
    (tmp_path / "o.jsonl").write_text(
        "\n".join(json.dumps({**row, "steps": row["steps"] + i % 2}) for i, row in enumerate(rows))
    )
    assert cells(ingest([tmp_path])) == {"a": (12, 2)}
