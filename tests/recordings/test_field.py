"""Results of published policies, as their harnesses wrote them: `../shared/field`, whose README names the sources."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from besttake.recordings.episodes import IngestError
from besttake.recordings.read import read
from besttake.reporting.terminal import ingested, layout
from besttake.result import Cell
from besttake.verbs.ingest import IngestResult, ingest
from besttake.verbs.report import report

FIELD = Path(__file__).parents[2].parent / "shared" / "field"
RAW, VLA_EVAL = FIELD / "raw", FIELD / "vla-eval-history"
PI0 = next(FIELD.glob("pi0_simpler/carrot/control/n0*/results.csv"), FIELD / "absent")
pytestmark = pytest.mark.skipif(not FIELD.exists(), reason="the published results (../shared/field) are not here")


def rows(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(FIELD / name, "rt") as file:
        yield from csv.DictReader(file)


def by_hand(name: str, env: str) -> dict[str, dict[tuple[str, ...], list[int]]]:
    """The outcomes of each policy by start, without the product."""
    found: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows(name):
        found[row["policy"]][row[env], row["task"], row["start"]].append(int(row["success"]))
    return found


def policy(read: IngestResult, name: str) -> Cell:
    return next(cell for cell in read.result.policies if cell.policy == name)


def numbers(cell: Cell) -> tuple[float, float, float]:
    assert cell.headroom is not None
    estimates = (cell.headroom.pass_1, cell.headroom.pass_n, cell.headroom.headroom)
    return tuple(100 * one.value if one.value is not None else np.nan for one in estimates)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def libero() -> IngestResult:
    return ingest(FIELD / "libero.csv.gz")


@pytest.fixture(scope="module")
def plus(tmp_path_factory: pytest.TempPathFactory) -> IngestResult:
    return ingest(FIELD / "libero_plus.csv.gz", tmp_path_factory.mktemp("plus"))


PUBLISHED = {
    "cosmos-policy": (2000, 97.6, 99.2, 1.6), "pi05-openpi": (1600, 96.3, 99.4, 3.1),
    "fastwam": (2000, 96.6, 99.5, 3.0), "xiaomi-robotics-0": (2000, 98.1, 99.8, 1.7),
    "cosmos": (10030, 80.9, 84.5, 3.6), "pi05": (10030, 84.4, 90.5, 6.1), "gr00t": (10030, 74.4, 85.0, 10.5),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_policies_of_libero_and_libero_plus_are_read_as_their_readme_says(
    libero: IngestResult, plus: IngestResult, name: str
) -> None:
    clean = name in {cell.policy for cell in libero.result.policies}
    source = ("libero.csv.gz", "env") if clean else ("libero_plus.csv.gz", "suite")
    cell, starts = policy(libero if clean else plus, name), by_hand(*source)[name]
    three = [np.mean(taken) for taken in starts.values() if len(taken) == 3]
    some = [max(taken) for taken in starts.values() if len(taken) == 3]
    assert cell.starts == PUBLISHED[name][0]
    assert numbers(cell)[:2] == pytest.approx((100 * np.mean(three), 100 * np.mean(some)))
    assert numbers(cell) == pytest.approx(PUBLISHED[name][1:], abs=0.11)


def test_one_take_each_of_two_policies_is_worth_more_than_two_of_the_better_one(plus: IngestResult) -> None:
    pi05, cosmos = (by_hand("libero_plus.csv.gz", "suite")[name] for name in ("pi05", "cosmos"))
    each = np.mean([1 - (1 - np.mean(pi05[start])) * (1 - np.mean(cosmos[start])) for start in pi05])
    best = plus.result.pools[0]
    assert set(best.policies) == {"pi05", "cosmos"}
    assert best.best == "pi05"
    assert best.alone.value == pytest.approx(0.889, abs=0.0005)
    assert best.each.value == pytest.approx(each)
    assert best.each.value == pytest.approx(0.92, abs=0.0005)


def test_ten_thousand_tasks_take_a_moment_a_screen_and_a_small_page(tmp_path: Path, plus: IngestResult) -> None:
    own = [row for row in rows("libero_plus.csv.gz") if row["policy"] == "cosmos"]
    with (tmp_path / "cosmos.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(own[0]))
        table.writeheader()
        table.writerows(own)
    began = time.process_time()
    result = ingest(tmp_path / "cosmos.csv")
    assert len(own) == 30_090
    assert time.process_time() - began < 5  # 1.5 s where measured, with the start of Python
    assert {line.task for line in result.result.cells[0].tasks} == {row["category"] for row in own}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(layout(ingested(plus), 80))
    assert len(console.export_text().splitlines()) < 50
    assert plus.out is not None
    assert report(plus.out).stat().st_size < 3 << 20


def test_what_is_recorded_for_some_starts_alone_is_not_diluted_by_the_others(tmp_path: Path) -> None:
    """pi0's first 60 starts three times, and 340 once: headroom is that of the 60, and there is no verdict."""
    taken = list(by_hand("libero_plus.csv.gz", "suite")["gr00t"].values())
    mixed = [own for own in taken if 0 < sum(own) < 3][:60]
    lines = [f"{i},{seed},{won}" for i, own in enumerate(mixed) for seed, won in enumerate(own)]
    lines += [f"{i},0,{own[0]}" for i, own in enumerate(taken[:340], start=60)]
    (tmp_path / "o.csv").write_text("\n".join(["start,seed,success", *lines]))
    (cell,) = ingest(tmp_path / "o.csv").result.policies
    alone = np.mean([max(own) - np.mean(own) for own in mixed])
    assert (cell.starts, cell.verdict) == (60, None)
    assert numbers(cell)[2] == pytest.approx(100 * alone)
    assert "60 of 400 starts have 3 outcomes" in cell.notes[0]


def test_a_folder_of_vla_eval_is_a_policy_whose_suites_are_measured_where_they_were_repeated() -> None:
    read_all = ingest([VLA_EVAL])
    assert {cell.policy for cell in read_all.result.policies} == {"oft-joint", "pi0-libero", "xvla-libero"}
    alone = ingest(VLA_EVAL / "oft-joint")
    spatial = next(cell for cell in alone.result.cells if cell.env.endswith("spatial"))
    assert numbers(spatial) == pytest.approx((97.2, 97.8, 0.6))
    (whole,) = alone.result.policies
    assert (whole.policy, whole.starts, whole.verdict) == ("oft-joint", 500, None)
    assert "500 of 2000 starts have 2 outcomes" in whole.notes[0]


def test_timeouts_are_failures_as_in_the_harness_unless_told_otherwise(tmp_path: Path) -> None:
    path = VLA_EVAL / "pi0-libero" / "merged_libero_spatial.json"
    own = json.loads(path.read_text())["overall_success_rate"]
    failures, missing = ingest(path), ingest(path, timeouts="missing")
    assert numbers(failures.result.policies[0])[0] == pytest.approx(100 * own) == pytest.approx(92.6)
    assert (failures.result.cost.errors, missing.result.cost.errors) == (0, 30)
    assert numbers(missing.result.policies[0])[0] == pytest.approx(98.5, abs=0.05)
    assert any("30 episodes ran out of time and count as failures" in note for note in failures.result.notes)
    (tmp_path / "crashed.json").write_text(path.read_text().replace('"timeout"', '"exception"', 10))
    crashed = ingest(tmp_path / "crashed.json").result
    assert crashed.cost.errors == 10
    assert {"20 episodes ran out of time and count as failures",
            "10 episodes ended in another error and count as missing"} <= {*crashed.notes}  # fmt: skip


def test_the_start_of_pi0_on_simplerenv_is_the_column_by_which_takes_agree() -> None:
    chosen = ingest(PI0, columns={"success": "baseline_success"})
    cell = chosen.result.policies[0]
    assert (cell.starts, cell.audit and cell.audit.doubt) == (24, "")
    assert cell.verdict is not None  # 32 points may be there, and nothing that was tried could find them
    assert cell.verdict.answer == "open"
    assert "92.8" in cell.verdict.headline
    assert cell.headroom is not None
    assert [100 * (cell.headroom.curve[k].value or 0) for k in (0, 2)] == pytest.approx([60.6, 82.9], abs=0.1)
    assert any("the start is 'episode_id'" in note and "'episode' 0.00" in note for note in chosen.result.notes)
    wrong = ingest(PI0, columns={"success": "baseline_success", "start": "episode"}).result.policies[0]
    assert numbers(wrong)[2] == pytest.approx(41.5)
    assert wrong.audit is not None and wrong.verdict is not None  # noqa: PT018
    assert wrong.audit.doubt == "chance"
    assert "may not share a start" in wrong.verdict.headline
    with pytest.raises(IngestError, match="success=baseline_success"):
        ingest(PI0)


def test_starts_are_audited_by_what_was_recorded_and_by_agreement_within_a_task(libero: IngestResult) -> None:
    cosmos = policy(libero, "cosmos-policy").audit
    starts = by_hand("libero.csv.gz", "env")["cosmos-policy"]
    tasks: dict[tuple[str, ...], list[list[int]]] = defaultdict(list)
    for key, taken in starts.items():
        tasks[key[:2]].append(taken)
    within = np.mean([2 * np.mean(t) * (3 - sum(t)) / 2 for t in starts.values()])
    between = [np.mean(a) * (1 - np.mean(b)) + np.mean(b) * (1 - np.mean(a))
               for own in tasks.values() for i, a in enumerate(own) for j, b in enumerate(own) if i != j]  # fmt: skip
    assert cosmos is not None
    assert cosmos.doubt == ""
    assert cosmos.sources.start.value == pytest.approx(1 - within / np.mean(between))
    assert sum(part.value or 0 for part in cosmos.sources.parts.values()) == pytest.approx(1)


def test_groots_takes_are_paired_where_each_is_alone_in_its_line_and_doubted(tmp_path: Path) -> None:
    """Its real lines, played twice; then two of them in one line, as vectorised envs list them when they end."""
    lines = (RAW / "groot/libero-plus/seed_7/libero_goal/results/rank_0.jsonl").read_text()
    for kind, text in (("alone", lines), ("listed", re.sub(r"\[(true|false)\]", r"[\1, true]", lines))):
        for seed in (1, 2):
            (tmp_path / kind / f"seed_{seed}").mkdir(parents=True)
            (tmp_path / kind / f"seed_{seed}" / "rank_0.jsonl").write_text(text)
    alone, listed = (ingest(tmp_path / kind).result for kind in ("alone", "listed"))
    (cell,), (other,) = alone.policies, listed.policies
    assert (cell.starts, cell.takes, cell.audit and cell.audit.doubt) == (324, 648, "resets")
    assert not any("order in which" in note for note in alone.notes)
    assert any("order in which" in note for note in listed.notes)
    assert other.headroom is not None
    assert (other.starts, other.headroom.n) == (4 * 324, 1)


def test_agreement_alone_cannot_tell_a_shared_start_where_each_task_has_one(plus: IngestResult) -> None:
    """GR00T's takes of LIBERO-plus are of different starts, Cosmos's are not: without a record nobody can know."""
    doubts = {name: policy(plus, name).audit for name in ("gr00t", "cosmos")}
    assert {one.doubt for one in doubts.values() if one} == {"unknown"}


def test_files_of_two_harnesses_in_one_folder_are_not_taken_for_one_policy(tmp_path: Path) -> None:
    for name in ("xiaomi/LIBERO/seed_1/libero_goal/0_eval.log", "fastwam/result/seed1/worker_001.json"):
        shutil.copy(RAW / name, tmp_path)
    with pytest.raises(IngestError, match="2 recordings do not say of which policy"):
        ingest(tmp_path)


def test_the_files_of_six_harnesses_are_read_without_a_flag() -> None:
    got = ingest(sorted(RAW.iterdir()))
    counted = {cell.policy: (cell.starts, cell.takes) for cell in got.result.policies}
    assert counted == {
        "cosmos": (500, 1500), "fastwam": (2000, 4000), "groot": (648, 648), "openpi": (500, 1000),
        "unifolm": (627, 627), "xiaomi": (500, 1000),
    }  # fmt: skip
    wins = {seed: json.loads((RAW / f"fastwam/result/seed{seed}/summary.json").read_text())["success_rate"]
            for seed in (1, 7)}  # fmt: skip
    assert numbers(policy(got, "fastwam"))[0] == pytest.approx(50 * sum(wins.values()))
    rates = [json.loads((RAW / f"xiaomi/LIBERO/seed_{seed}/libero_goal/merged_results.json").read_text())
             ["summary"]["overall_success_rate"] for seed in (1, 7)]  # fmt: skip
    assert numbers(policy(got, "xiaomi"))[0] == pytest.approx(50 * sum(rates))
    shared = {
        row["start"]: row["success"] for row in rows("libero.csv.gz")
        if (row["policy"], row["seed"]) == ("pi05-openpi", "1") and row["task"].endswith(":turn on the stove")
    }  # fmt: skip
    recordings, _ = read([RAW / "openpi" / "libero" / "seed_1"])
    own = {e.start: e.success for r in recordings for e in r.episodes if e.task == "turn on the stove"}
    assert own == {start: won == "1" for start, won in shared.items()}


def test_logged_values_are_judged_on_windows_that_hide_the_length() -> None:
    columns = {"env": "0", "task": "1", "start": "2", "seed": "3", "success": "4", "values": "5"}
    (cell, *_) = ingest(FIELD / "cosmos_values.json.gz", columns=columns).result.policies
    assert cell.selectors is not None
    gain = {(name, window): 100 * (one.gain.value or 0) for name, windows in cell.selectors.scored.items()
            for window, one in windows.items()}  # fmt: skip
    starts: dict[tuple[str, ...], list[tuple[int, list[float]]]] = defaultdict(list)
    with gzip.open(FIELD / "cosmos_values.json.gz", "rt") as file:
        for suite, task, start, _, won, values in json.load(file):
            starts[suite, task, start].append((won, values))
    ends, means = [], []
    for own in starts.values():
        first = np.mean([won for won, _ in own])
        common = min(len(values) for _, values in own)
        ends.append(max(own, key=lambda take: take[1][common - 1])[0] - first)
        means.append(max(own, key=lambda take: np.mean(take[1]))[0] - first)
    assert gain["last value", "common"] == pytest.approx(100 * np.mean(ends), abs=0.05) == pytest.approx(0.7, abs=0.05)
    assert gain["mean of the values", "episode"] == pytest.approx(100 * np.mean(means), abs=0.05)
    assert gain["mean of the values", "episode"] == pytest.approx(-1.1, abs=0.05)


def test_a_log_is_described_by_patterns_and_a_refusal_says_what_did_not_fit(tmp_path: Path) -> None:
    log = PI0.parent / "run_0" / "baseline.log"
    with pytest.raises(IngestError, match=r"line 4 does not fit: 'Episodes: 20'.*--pattern"):
        ingest(log)
    pattern = r"Episode (?P<start>\d+): (?P<success>\w+) \(steps=(?P<steps>\d+)"
    (cell,) = ingest(log, patterns=[pattern]).result.policies
    assert (cell.starts, round(numbers(cell)[0])) == (20, 60)
    (tmp_path / "format.yaml").write_text(f"name: mine\nfirst: 1\npatterns:\n- '{pattern}'\n")
    (recording,) = ingest(log, patterns=[str(tmp_path / "format.yaml")]).recordings
    assert [episode.start for episode in recording.episodes][:2] == ["0", "1"]
    with pytest.raises(IngestError, match="holds no outcomes.*nearest is LIBERO log.*line 4 does not fit"):
        ingest(log.parent)
    (tmp_path / "empty.log").touch()
    with pytest.raises(IngestError, match=r"empty\.log: the file is empty"):
        ingest(tmp_path / "empty.log")
    with pytest.raises(IngestError, match=r"absent\.yaml: .*No such file"):
        ingest(log, patterns=[str(tmp_path / "absent.yaml")])
    with pytest.raises(IngestError, match="names the groups start; it needs"):
        ingest(log, patterns=["(?P<start>x)"])


def test_a_wide_table_is_read_by_its_init_index_and_policy() -> None:
    result = ingest(FIELD / "smolvla_v4_loco_formal_rollouts.csv").result
    assert [(cell.starts, round(numbers(cell)[0])) for cell in result.policies] == [(100, 44), (100, 42)]
    assert result.pools[0].each.value == pytest.approx(0.86)  # each fails at the task that was held out from it
