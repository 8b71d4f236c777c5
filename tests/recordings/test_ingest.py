import contextlib
import csv
import io
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from rich.console import Console

from besttake.core.headroom import pass_at_k
from besttake.recordings.episodes import IngestError
from besttake.recordings.read import read
from besttake.reporting.terminal import ingested, layout
from besttake.result import Result
from besttake.verbs.ingest import ingest

DATA = Path(__file__).parent / "data"
RECORDINGS = sorted((DATA / "vla_eval").glob("recording-*.sqlite"))
EXPORTS = sorted((DATA / "vla_eval").glob("*_aggregate.json"))
INFOS = sorted((DATA / "lerobot_eval").glob("*/eval_info.json"))


@pytest.fixture(scope="module")
def recorded() -> Result:
    """What the three recordings give."""
    return ingest(RECORDINGS, policy_name="Pusher").result


def outcomes_by_hand(task: str) -> np.ndarray:
    """(starts, seeds) of one task, straight from the exported JSON."""
    columns = []
    for path in EXPORTS:
        tasks = {t["task"]: t for t in json.loads(path.read_text())["tasks"]}
        episodes = sorted(tasks[task]["episodes"], key=lambda e: e["episode_id"])
        columns.append([np.nan if e.get("failure_reason") else float(e["metrics"]["success"]) for e in episodes])
    return np.array(columns).T


def test_headroom_of_a_recording_equals_what_its_export_says_by_hand(recorded: Result) -> None:
    (cell,) = recorded.cells
    assert (cell.policy, cell.env, cell.seeds, cell.starts) == ("Pusher", "roll", 3, 15)
    whole = np.concatenate([outcomes_by_hand("roll far"), outcomes_by_hand("roll near")])
    whole = whole[np.isfinite(whole).all(axis=1)]  # the start that errors left with two takes is said in a note
    assert any("of 16 starts" in note for note in cell.notes)
    assert cell.headroom is not None
    assert cell.headroom.pass_1.value == pytest.approx(pass_at_k(whole, 1))
    assert cell.headroom.pass_n.value == pytest.approx(pass_at_k(whole, 3))
    assert cell.headroom.mixed > 0
    for line in cell.tasks:
        assert line.pass_1.value == pytest.approx(pass_at_k(outcomes_by_hand(line.task), 1))


def test_a_recording_and_its_export_say_the_same_and_are_counted_once(recorded: Result) -> None:
    exported = ingest(EXPORTS, policy_name="Pusher").result
    assert recorded.cells == exported.cells
    both = ingest([DATA / "vla_eval"], policy_name="Pusher").result
    assert both.cells == recorded.cells
    assert any("counted once" in note for note in both.notes)


def test_errors_are_missing_takes_not_failures(recorded: Result) -> None:
    sources, _ = read(RECORDINGS[:1])
    errors = [o for o in sources[0].episodes if o.success is None]
    assert [(o.task, o.start) for o in errors] == [("roll far", "5")]
    assert "contact solver diverged" in errors[0].error
    assert recorded.cost.errors == 3
    assert recorded.cells[0].errors == 3


def test_lerobot_eval_gives_a_cell_per_suite_and_says_how_episodes_were_paired() -> None:
    result = ingest(INFOS, policy_name="tiny").result
    (cell,) = result.cells
    assert (cell.policy, cell.group, cell.seeds, cell.starts) == ("tiny", "roll", 3, 16)
    infos = [json.loads(path.read_text()) for path in INFOS]
    rates = [info["overall"]["pc_success"] / 100 for info in infos]
    assert cell.headroom is not None
    assert cell.headroom.pass_1.value == pytest.approx(np.mean(rates))
    assert any("paired by their place" in note for note in result.notes)
    assert not any("paired by their place" in note for note in ingest(INFOS[0]).result.notes)


def test_the_older_eval_info_pairs_by_the_recorded_seed(tmp_path: Path) -> None:
    def info(name: str, wins: list[bool], first: int) -> Path:
        episodes = [{"episode_ix": i, "success": won, "seed": first + i} for i, won in enumerate(wins)]
        path = tmp_path / name
        path.write_text(json.dumps({"per_episode": episodes, "aggregated": {}}))
        return path

    paths = [info("a.json", [True, False, True], 0), info("b.json", [True, True, False], 1)]
    (cell,) = ingest(paths, policy_name="p").result.cells
    assert (cell.starts, cell.seeds) == (2, 2)
    assert "2 of 4 starts have 2 outcomes" in cell.notes[0]


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


ROWS = [
    {"model": m, "suite": "s", "task": t, "start": i, "seed": s, "success": (i + s + len(t)) % (2 + (m == "b")) == 0}
    for m in "ab"
    for t in ("in", "out")
    for i in range(5)
    for s in range(3)
]


@pytest.mark.parametrize("name", ["o.csv", "o.parquet"])
def test_tables_are_read_by_common_names(tmp_path: Path, name: str) -> None:
    result = ingest([table(tmp_path / name, ROWS)]).result
    assert [c.policy for c in result.policies] == ["a", "b"]
    for cell in result.policies:
        values = np.array([float(r["success"]) for r in ROWS if r["model"] == cell.policy]).reshape(10, 3)
        assert cell.headroom is not None
        assert cell.headroom.pass_n.value == pytest.approx(pass_at_k(values, 3))
    assert any("policy from 'model'" in note for note in result.notes)


def test_columns_can_be_named(tmp_path: Path) -> None:
    rows = [{"won?": "yes" if i % 2 else "no", "scene": i // 2, "n": i % 2} for i in range(12)]
    path = table(tmp_path / "o.csv", rows)
    with pytest.raises(IngestError, match="name it with `columns`, for example success=NAME and"):
        ingest([path])
    with pytest.raises(IngestError, match="name it with `columns`, for example start=NAME"):
        ingest([path], columns={"success": "won?"})
    (cell,) = ingest([path], columns={"success": "won?", "start": "scene", "seed": "n"}).result.cells
    assert (cell.starts, cell.seeds) == (6, 2)
    assert cell.headroom is not None
    assert cell.headroom.headroom.value == pytest.approx(0.5)


WON = [[(i * 7 + s * s) % 5 < (1, 4)[i % 2] for s in range(6)] for i in range(12)]
"""Outcomes of twelve starts, of which every other one is hard."""


def test_folders_that_number_starts_are_compared_with_the_column_that_counts_episodes(tmp_path: Path) -> None:
    """Each folder repeats one start: the column counts the repeats, and takes agree by the folder."""
    for i, wins in enumerate(WON):
        table(tmp_path / f"start_{i}" / "o.csv", [{"episode": s, "success": int(won)} for s, won in enumerate(wins)])
    read = ingest(tmp_path).result
    (cell,) = read.cells
    assert (cell.starts, cell.seeds) == (12, 6)
    assert any("the start is 'start/'" in note and "'episode' -0." in note for note in read.notes)
    assert cell.headroom is not None
    assert cell.headroom.curve[5].value == pytest.approx(np.mean([max(wins) for wins in WON]))
    assert ingest(tmp_path, columns={"start": "start/"}).result.cells == read.cells
    assert ingest(tmp_path, columns={"start": "episode"}).result.cells[0].starts == 6
    for i in range(1, 12, 2):
        shutil.rmtree(tmp_path / f"start_{i}")  # those that are left are alike
    with pytest.raises(IngestError, match="which column names the start.*'start/'.*'episode'.*start=start/"):
        ingest(tmp_path)


def test_of_two_folders_that_number_starts_the_one_counts_by_which_takes_agree(tmp_path: Path) -> None:
    for i, s in np.ndindex(12, 6):
        (path := tmp_path / f"start_{i}" / f"episode_{s}.json").parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"success": WON[i][s]}))
    read = ingest(tmp_path).result
    assert (read.cells[0].starts, read.cells[0].seeds) == (12, 6)
    assert any("the start is 'start/'" in note for note in read.notes)
    assert ingest(tmp_path, columns={"start": "start/episode/"}).result.cells[0].starts == 72
    with pytest.raises(IngestError, match="says from which start it ran.*start=scene/ for"):
        ingest(tmp_path, columns={"start": "scene/"})


def test_folders_number_tasks_and_starts_and_a_column_counts_starts_within_them(tmp_path: Path) -> None:
    for t, i, s in np.ndindex(2, 6, 6):  # files of two tasks are equal, and no copies
        rows = [{"episode": j, "success": int(WON[2 * i + (i + j) % 2][s])} for j in range(2)]
        table(tmp_path / f"task_{t}" / f"start_{i}" / f"seed_{s}.csv", rows)
    read = ingest(tmp_path).result
    assert (read.cells[0].starts, read.cells[0].seeds, read.cost.takes) == (24, 6, 144)
    assert any("the start is 'start/episode'" in note for note in read.notes)


@pytest.mark.parametrize(("folder", "said"), [("seed_{}", {}), ("run_{}", {"seed": 0})])
def test_a_file_of_one_episode_has_its_start_in_its_path(tmp_path: Path, folder: str, said: dict[str, int]) -> None:
    for i, s in np.ndindex(12, 6):
        (path := tmp_path / folder.format(s) / f"episode_{i}" / "result.json").parent.mkdir(parents=True)
        path.write_text(json.dumps({"success": WON[i][s], "reward": 1.0 * WON[i][s], **said}))
    read = ingest(tmp_path, policy_name="p").result
    (cell,) = read.cells
    assert (cell.starts, cell.seeds, read.cost.takes) == (12, 6, 72)
    assert cell.headroom is not None
    assert cell.headroom.pass_1.value == pytest.approx(np.mean(WON))
    assert any("number in their path" in note for note in read.notes)


@pytest.mark.parametrize(
    "names",
    [
        ("ck/episode_1000/o.csv", "ck/episode_2000/o.csv"), ("dp_episode_1000.csv", "dp_episode_2000.csv"),
        ("dp/episode_1000/o.csv", "dp/episode_2000/o.csv", "act/o.csv"), ("dp_init_1.csv", "dp_init_2.csv", "act.csv"),
        ("dp_task_1.csv", "dp_task_2.csv", "act.csv"),
    ],
)  # fmt: skip
def test_numbers_that_may_be_of_checkpoints_are_asked_about(tmp_path: Path, names: tuple[str, ...]) -> None:
    for k, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        rows = [{"task": "t", "start": i, "success": int(wins[0]) ^ (i < k)} for i, wins in enumerate(WON)]
        table(tmp_path / name, rows)
    with pytest.raises(IngestError, match="recordings do not say of which policy"):
        ingest(tmp_path)
    assert ingest(tmp_path, policy_name="p").result.cells[0].seeds == len(names)


def test_equal_files_of_a_harness_are_copies_and_equal_tables_of_two_scenes_are_not(tmp_path: Path) -> None:
    for folder in ("results", "backup"):
        shutil.copytree(INFOS[0].parent, tmp_path / "info" / folder)
    assert ingest(tmp_path / "info", policy_name="p").result.cost.takes == ingest(INFOS[0]).result.cost.takes
    for name in ("run_0", "run_1", "run_1 (copy)"):  # two runs that both succeed always, and a copy
        table(tmp_path / "runs" / f"{name}.csv", [{"start": i, "success": 1} for i in range(10)])
    assert ingest(tmp_path / "runs", policy_name="p").result.cost.takes == 20
    for scene in (1, 2):
        table(tmp_path / f"scene_{scene}" / "o.csv", [{"seed": s, "success": s % 2} for s in range(6)])
    assert ingest([*tmp_path.glob("scene_*")], policy_name="p", columns={"start": "scene/"}).result.cells[0].starts == 2


def test_tasks_are_grouped_by_a_column_that_also_tells_them_apart(tmp_path: Path) -> None:
    rows = [{"suite": s, "task_id": t, "start": 0, "success": int(s == "a")} for s in "ab" for t in range(50)]
    (policy,) = ingest(table(tmp_path / "o.csv", rows), columns={"group": "suite"}).result.policies
    assert (policy.starts, policy.seeds) == (100, 1)  # not 50 starts with two outcomes
    assert [(line.task, line.starts) for line in policy.tasks] == [("a", 50), ("b", 50)]


def test_forty_policies_stand_on_one_screen_with_what_is_doubtful_first(tmp_path: Path) -> None:
    rows = [{"policy": f"p{p}", "suite": s, "start": i, "seed": k, "success": int(i * (p + 2) % 5 < 2 if p else k)}
            for p in range(40) for s in "abc" for i in range(20) for k in range(2 + (i < p // 2))]  # fmt: skip
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(layout(ingested(ingest(table(tmp_path / "o.csv", rows))), 80))
    text = console.export_text()
    assert len(text.splitlines()) < 60
    assert text.index("may not share a start") < text.index("A perfect pick")
    assert "more rows, " in text


def test_a_diagnosis_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(IngestError, match="holds a diagnosis"):
        ingest(RECORDINGS, tmp_path, policy_name="p")


def test_an_episode_that_was_run_again_counts_with_its_last_result(tmp_path: Path) -> None:
    copy = tmp_path / "recording-x.sqlite"
    shutil.copyfile(RECORDINGS[0], copy)
    with contextlib.closing(sqlite3.connect(copy)) as database, database:
        query = "select * from episode_results where task_name = 'roll near' and episode_id = 0"
        row = database.execute(query).fetchone()
        won = json.loads(row[6])["success"]
        again = (*row[:1], "again", *row[2:6], json.dumps({"success": not won}), *row[7:])
        database.execute(f"insert into episode_results values ({','.join('?' * len(again))})", again)
    sources, _ = read([copy])
    (episode,) = [o for o in sources[0].episodes if (o.task, o.start) == ("roll near", "0")]
    assert episode.success is (not won)


def test_a_link_that_leads_out_of_a_folder_is_passed_over_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    rows = [{"task": "t", "start": i, "seed": s, "success": (i + s) % 2} for i in range(4) for s in range(2)]
    table(folder / "own.csv", rows)
    other = table(tmp_path / "other.csv", [{**row, "success": 1} for row in rows])
    (folder / "link.csv").symlink_to(other)
    (folder / "inner.csv").symlink_to("own.csv")
    read = ingest([folder])
    assert read.result.cells[0].takes == 8
    assert any("link.csv is a link that leads out of" in note for note in read.result.notes)
    assert ingest([folder / "link.csv"]).result.cells[0].takes == 8  # named by the user
