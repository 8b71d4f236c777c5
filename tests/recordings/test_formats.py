"""Logs, videos and trajectory files, written byte for byte as the scripts of their projects write them."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from besttake.recordings.episodes import IngestError
from besttake.recordings.read import read
from besttake.reporting.terminal import ingested, layout
from besttake.verbs.ingest import ingest

DATA = Path(__file__).parent / "data"
TASKS = (
    "pick up the black bowl between the plate and the ramekin and place it on the plate",
    "pick up the black bowl next to the ramekin and place it on the plate",
)
DATE = "2026_01_02-03_04_05"


def openvla_lines(outcomes: dict[str, list[bool]], repeat: dict[int, str] | None = None) -> list[str]:
    """What ``run_libero_eval.py`` of openvla/openvla writes into its log, and by and large prints."""
    lines, total, wins = ["Task suite: libero_spatial"], 0, 0
    for task, won in outcomes.items():
        for i, one in enumerate(won):
            lines += ["", f"Task: {task}", f"Starting episode {i + 1}..."]
            lines += [f"Caught exception: {repeat[total]}"] if repeat and total in repeat else []
            total, wins = total + 1, wins + one
            lines += [f"Success: {one}", f"# episodes completed so far: {total}"]
            lines.append(f"# successes: {wins} ({wins / total * 100:.1f}%)")
        lines += [f"Current task success rate: {float(np.mean(won))}", f"Current total success rate: {wins / total}"]
    return lines


def drawn(seed: int, trials: int = 5) -> dict[str, list[bool]]:
    rng = np.random.default_rng(seed)
    return {task: [bool(w) for w in rng.random(trials) < 0.6] for task in TASKS}


def log(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def outcomes_of(path: Path) -> dict[str, list[bool | None]]:
    (recording,), _ = read([path])
    found: dict[str, list[bool | None]] = {}
    for episode in sorted(recording.episodes, key=lambda e: int(e.start)):
        found.setdefault(episode.task, []).append(episode.success)
    return found


def test_an_openvla_log_gives_every_episode_its_task_start_and_outcome(tmp_path: Path) -> None:
    name = f"EVAL-libero_spatial-openvla-{DATE}--seed7.txt"
    path = log(tmp_path / name, openvla_lines(drawn(1)))
    assert outcomes_of(path) == drawn(1)
    result = ingest([path]).result
    (cell,) = result.cells
    assert (cell.policy, cell.env, cell.starts, cell.seeds) == ("openvla", "libero_spatial", 10, 1)


def test_a_log_and_what_it_printed_count_once(tmp_path: Path) -> None:
    lines = openvla_lines(drawn(4))
    name = f"EVAL-libero_spatial-openvla-{DATE}.txt"
    log(tmp_path / "logs" / name, lines)
    log(tmp_path / "slurm-123.out", [f"Logging to local log file: ./experiments/logs/{name}", *lines])
    result = ingest([tmp_path]).result
    assert result.cost.takes == 10
    assert sum("counted once" in note for note in result.notes) == 1


def test_an_exception_is_a_missing_take_and_a_cut_log_says_so(tmp_path: Path) -> None:
    won = {TASKS[0]: [True, False, True]}
    lines = openvla_lines(won, repeat={1: "EGL context lost"})
    path = log(tmp_path / "EVAL-libero_spatial-openvla-2026_01_02-03_04_05.txt", lines)
    (recording,), _ = read([path])
    assert [e.success for e in recording.episodes] == [True, None, True]
    assert recording.episodes[1].error == "EGL context lost"
    log(path, lines[: next(i for i, line in enumerate(lines) if line == "Starting episode 3...") + 1])
    (recording,), notes = read([path])
    assert len(recording.episodes) == 2
    assert any("1 episodes were begun and not finished" in note for note in notes)


def openpi_text(outcomes: dict[str, list[bool]]) -> str:
    """What ``examples/libero/main.py`` of openpi prints to standard error: logging between the bars of tqdm."""
    bar = "\r 10%|#         | 1/10 [00:21<03:12, 21.44s/it]"
    text = ""
    for line in openvla_lines(outcomes):
        if line.startswith("Task: "):
            text += f"INFO:root:\n{line}  {'█▌' * (len(text) % 2)}  | 1/2 [02:10<02:10, 130.98s/it]\n{bar}"
        elif line:
            text += f"INFO:root:{line}\n"
    return text


def robotwin_text(task: str, outcomes: dict[int, bool]) -> str:
    """What ``script/eval_policy.py`` of RoboTwin prints, in its colours: how many it has won so far, and the seed."""
    text, wins = f"\033[34mTask Name: {task}\033[0m\nstep: \033[92m1 / 400\033[0m\r", 0
    for i, (seed, won) in enumerate(outcomes.items(), start=1):
        wins += won
        text += (
            f"\033[92m{'Success!' if won else 'Fail!'}\033[0m\n\033[93m{task}\033[0m | \033[94mACT\033[0m | demo_clean"
        )
        text += f" | demo-50\nSuccess rate: \033[96m{wins}/{i}\033[0m => 50.0%, current seed: \033[90m{seed}\033[0m\n\n"
    return text


def test_a_robotwin_log_gives_the_outcome_of_every_seed_of_its_env(tmp_path: Path) -> None:
    won = {100001: False, 100003: True, 100004: True, 100009: False}
    for task in ("click_bell", "adjust_bottle"):
        (tmp_path / f"{task}_demo_clean_slot0_gpu0_port5694_eval.log").write_text(robotwin_text(task, won) * 2)
    recordings, _ = read([tmp_path])
    assert [{int(e.start): e.success for e in one.episodes} for one in recordings] == [won] * 4
    counts = r"rate: (?P<wins>\d+)/(?P<count>\d+) .*seed: (?P<start>\d+)"
    assert ingest([tmp_path], policy_name="act", patterns=[counts]).result.cells[0].takes == 16
    result = ingest([tmp_path], policy_name="act").result
    assert [(cell.env, cell.starts, cell.seeds) for cell in result.cells] == [("demo_clean", 8, 2)]


def test_an_openpi_log_is_read_between_its_progress_bars(tmp_path: Path) -> None:
    path = tmp_path / "pi05_spatial.log"
    path.write_text(openpi_text(drawn(8)))
    assert outcomes_of(path) == drawn(8)
    (tmp_path / "pi0_fast.log").write_text(openpi_text(drawn(9)))
    assert {cell.policy for cell in ingest([tmp_path]).result.cells} == {"pi0_fast", "pi05_spatial"}


def test_a_log_that_was_appended_to_holds_two_evaluations(tmp_path: Path) -> None:
    path = tmp_path / "nohup.out"
    path.write_text(openpi_text(drawn(8)) + openpi_text(drawn(9)))
    first, second = read([path])[0]
    assert [e.success for e in first.episodes] == [w for ws in drawn(8).values() for w in ws]
    assert [(e.task, e.start) for e in second.episodes] == [(e.task, e.start) for e in first.episodes]
    assert [e.success for e in second.episodes] == [w for ws in drawn(9).values() for w in ws]
    with pytest.raises(IngestError, match="2 recordings do not say"):
        ingest([path])


def test_a_log_that_lost_lines_is_refused(tmp_path: Path) -> None:
    lines = openvla_lines({TASKS[0]: [True, True, False]})
    lines.remove("Success: True")
    with pytest.raises(IngestError, match="its own count says 2 successes, its episodes 1"):
        read([log(tmp_path / "a.log", lines)])


def simpler(root: Path, checkpoint: str, outcomes: list[bool], tag: str = "") -> None:
    """The folders of ``maniskill2_evaluator.py`` of SimplerEnv, variant "episode" and, for the can, "xy"."""
    folder = root / checkpoint / "bridge_table_1_v1" / "arm_pd_ee_target_delta_pose" / "PutCarrotOnPlateInScene-v0"
    folder /= "rob_0.147_0.028_rot_0.000_-0.000_3.142_rgb_overlay_bridge_real_eval_1"
    (folder / "actions").mkdir(parents=True, exist_ok=True)
    for i, won in enumerate(outcomes):
        stats = f"moved_correct_obj_{won}_is_src_obj_grasped_{won}{tag}"
        name = f"{'success' if won else 'failure'}_obj_episode_{i}_{stats}"
        (folder / f"{name}.mp4").write_bytes(b"")
        (folder / "actions" / f"{name}.png").write_bytes(b"")


def test_simplerenv_results_are_policies_by_checkpoint(tmp_path: Path) -> None:
    simpler(tmp_path / "results", "rt_1_x", [True, False, True])
    simpler(tmp_path / "results", "octo-base", [False, False, True])
    can = tmp_path / "results" / "rt_1_x" / "google_pick_coke_can_1_v4" / "arm_pd" / "GraspSingle-v0_lr_switch_True"
    can /= "rob_0.35_0.2_rot_0.000_-0.000_3.142_rgb_overlay_google_coke_can_real_eval_1"
    can.mkdir(parents=True)
    (can / "success_obj_-0.35_-0.02_consecutive_grasp_True.mp4").write_bytes(b"")
    (can / "failure_obj_-0.235_0.42_consecutive_grasp_False.mp4").write_bytes(b"")
    result = ingest([tmp_path]).result
    rates = {cell.policy: cell.headroom and cell.headroom.pass_1.value for cell in result.cells}
    assert rates == {"octo-base": pytest.approx(1 / 3), "rt_1_x": pytest.approx(3 / 5)}


def test_two_simplerenv_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    simpler(tmp_path, "rt_1_x", [True, False, True])
    simpler(tmp_path, "rt_1_x", [True, True, True])
    with pytest.raises(IngestError, match="1 starts have several videos"):
        ingest([tmp_path])


def test_simplerenv_on_maniskill_3_names_its_videos_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "real2sim_eval" / "octo-small_PutCarrotOnPlateInScene-v1"
    folder.mkdir(parents=True)
    for i, won in enumerate([True, False, False]):
        (folder / f"gpu_eval_{i}_success={won}.mp4").write_bytes(b"")
    (folder / "gpu_64_envs_eval_metrics.json").write_text(json.dumps({"success": 1 / 3, "total_episodes": 3}))
    (cell,) = ingest([tmp_path]).result.cells
    assert (cell.policy, cell.starts) == ("octo-small", 3)
    assert cell.headroom is not None
    assert cell.headroom.pass_1.value == pytest.approx(1 / 3)


def test_maniskill_trajectories_give_takes_by_the_seed_of_their_reset() -> None:
    path = DATA / "maniskill" / "trajectory.json"
    said = json.loads(path.read_text())["episodes"]
    (recording,), _ = read([path])
    expected = [(str(e["reset_kwargs"]["seed"]), bool(e["success"]), e["elapsed_steps"]) for e in said]
    assert [(e.start, e.success, e.steps) for e in recording.episodes] == expected
    (cell,) = ingest([path]).result.cells
    assert (cell.env, cell.starts, cell.seeds) == ("PushCube-v1", 2, 2)


def test_what_a_spreadsheet_would_run_is_written_as_text_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("task,start,success\n+cmd|'/c calc'!A1,-1,1\n=1+1,0,0\n'quoted,1,1\n")
    ingest([tmp_path / "o.csv"], tmp_path / "run", policy_name="@x")
    lines = (tmp_path / "run" / "outcomes.csv").read_text().splitlines()
    assert not any(cell[:1] in ("=", "+", "@") for line in lines for cell in line.split(","))
    assert lines[1].startswith("'@x,outcomes,'+cmd|'/c calc'!A1,-1,")
    (recording,), _ = read([tmp_path / "run" / "outcomes.csv"])
    assert [(e.policy, e.task, e.start) for e in recording.episodes] == [
        ("@x", "+cmd|'/c calc'!A1", "-1"), ("@x", "=1+1", "0"), ("@x", "'quoted", "1"),
    ]  # fmt: skip


def test_one_bad_file_never_ends_a_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "wrong.json").write_text('{"benchmark": "b", "tasks": [{"task": 3, "episodes": [{"metrics": 7}]}]}')
    (tmp_path / "half.json").write_text('{"per_task": [{"task_group": "g"}]}')
    (tmp_path / "maybe.csv").write_text("start,success\n0,maybe\n")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    (tmp_path / "recording-x.sqlite").write_bytes(b"SQLite format 3\0garbage")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "fine.csv").write_text("start,success\n0,1\n0,0\n")
    result = ingest([tmp_path])
    assert result.result.cost.takes == 2
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(layout(ingested(result), 300))
    text = console.export_text()
    assert "csv x 1 (2 episodes)" in text
    assert "passed over" in text
    with pytest.raises(IngestError, match="not a regular file"):
        ingest([tmp_path / "pipe.csv"])


def test_what_only_later_lines_of_json_say_is_read(tmp_path: Path) -> None:
    """A crash first, then episodes with all they have; settings before and a summary after them."""
    rows: list[dict[str, object]] = [
        {"config": {"suite": "libero_10"}},
        {"task": "t", "init_state_id": 0, "error": "EGL"},
        {"task": "t", "init_state_id": 0, "success": True, "seed": 1, "model": "a", "num_steps": 7},
        {"task": "t", "init_state_id": 0, "success": False, "seed": 1, "model": "b", "num_steps": 9},
        {"event": "begin", "task": "t", "init_state_id": 1},
        {"summary": {"mean": 0.5}, "success_rate": 0.5},
    ]
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    (recording,), notes = read([tmp_path / "o.jsonl"])
    assert [(e.success, e.seed, e.policy, e.steps, e.error) for e in recording.episodes] == [
        (None, "", "", None, "EGL"), (True, "1", "a", 7, ""), (False, "1", "b", 9, ""),
    ]  # fmt: skip
    assert any("left out what holds no outcome, lines 1, 5, 6" in note for note in notes)
