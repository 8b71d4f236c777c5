from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from besttake import registry
from besttake.arms.sampler import SmallActor
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.errors import ComponentError, PlanError
from besttake.progress import Reporter
from besttake.result import Result
from besttake.takes import devices
from besttake.takes.fleet import ProcessMember
from besttake.takes.key import Row, TakeKey
from besttake.verbs.diagnose import diagnose
from besttake.verbs.playing import Playing, replica_count, settled
from besttake.verbs.session import Session


class Notes(Reporter):
    def __init__(self) -> None:
        super().__init__(shown=False)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def planned(**changes: object) -> Plan:
    values = {
        "policy": "python:large_half:make", "env": "testbed:drawer", "starts": 3, "seeds": 2, "arms": "base,retrieve",
        "demos_per_task": 6, "probe_states": 0, "check_states": 0, "rule": "frame", "workers": 1, **changes,
    }  # fmt: skip
    return Plan.model_validate(values)


def test_a_diagnosis_by_two_replicas_has_the_digest_of_one(tmp_path: Path, cache: Path) -> None:
    notes = Notes()
    two = diagnose(planned(replicas=2), tmp_path / "two", progress=notes)
    one = diagnose(planned(), tmp_path / "one")
    assert two.digest == one.digest
    said = [note for note in notes.notes if "replica" in note]
    assert all(note.startswith("2 replicas on 1 node, 2 workers") for note in said)


def test_auto_is_a_replica_per_gpu_for_policies_that_may_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = registry.policy("testbed:half").spec
    large = replace(small, small=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    assert replica_count(planned(), large) == 3
    assert replica_count(planned(), small) == 1
    assert replica_count(planned(), replace(large, seeded=False)) == 1
    assert replica_count(planned(replicas=2), large) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert replica_count(planned(), large) == 1


def test_replicas_take_over_the_width_that_was_measured_here() -> None:
    spec = replace(registry.policy("testbed:half").spec, width=16)
    assert settled("lerobot:org/name?width=auto&steps=4", spec) == "lerobot:org/name?width=16&steps=4"
    assert settled("lerobot:org/name?steps=4&width=auto", spec) == "lerobot:org/name?steps=4&width=16"
    for uri in ("lerobot:org/name?width=8", "lerobot:org/name?map=width=automatic", "python:mine:make?width=auto"):
        assert settled(uri, spec) == uri


def test_a_replica_whose_policy_is_another_one_than_the_runs_does_not_play() -> None:
    own = registry.policy("testbed:half").spec.fingerprint
    assert SmallActor("testbed:half", RetrievalConfig(), fingerprint=own).load().spec.fingerprint == own
    with pytest.raises(ComponentError, match="testbed:half on .* is not the policy that the run was started with"):
        SmallActor("testbed:half", RetrievalConfig(), fingerprint="of other weights").load()


def test_a_replica_computes_and_draws_on_its_own_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert devices.variables("5") == {"CUDA_VISIBLE_DEVICES": "5", "MUJOCO_EGL_DEVICE_ID": "5"}
    assert devices.variables("GPU-3f") == {"CUDA_VISIBLE_DEVICES": "GPU-3f"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    assert devices.gpus(tmp_path) == ["0", "1"]
    assert devices.gpus(tmp_path / "none") == []


@pytest.mark.parametrize("value", ["0", "many", -1, 1.5, True])
def test_a_wrong_number_of_replicas_is_one_line(value: object) -> None:
    with pytest.raises(PlanError, match="replicas = .*: must be a number from 1 to 1024, or auto"):
        planned(replicas=value)


@pytest.mark.slow
def test_frames_that_replicas_embed_while_they_play_have_the_scores_of_one(tmp_path: Path, cache: Path) -> None:
    encoder = f"python:costly_eye:make?log={tmp_path / 'log'}"
    two = diagnose(planned(replicas=2, encoder=encoder, stride=20), tmp_path / "two")
    assert "embedding" in (tmp_path / "log").read_text().split(), "in a thread of their own"
    shutil.rmtree(cache / "embeddings")
    (tmp_path / "log").unlink()
    one = diagnose(planned(encoder=encoder, stride=20), tmp_path / "one")
    assert "embedding" not in (tmp_path / "log").read_text().split()
    assert two.digest == one.digest
    assert two.cost.frames_encoded > 0


def decided(result: Result) -> tuple[str, list[Any]]:
    """What was played and what it led to."""
    wanted = {"policy", "group", "starts", "takes", "verdict", "path"}
    return result.digest, [cell.model_dump(include=wanted) for cell in (*result.cells, *result.policies)]


@pytest.mark.slow
def test_a_run_until_decided_makes_the_rounds_of_one_replica_though_another_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    rounds: list[list[TakeKey]] = []
    members: list[ProcessMember] = []
    killed: list[int] = []
    played = Playing.__call__

    def noted(self: Playing, keys: Collection[TakeKey]) -> None:
        rounds.append(list(keys))
        played(self, keys)

    class Victim(ProcessMember):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            members.append(self)

    def kill(self: Session, row: Row) -> None:
        if len(rounds) == 2 and members and not killed:
            killed.append(members[0].pid)
            os.kill(members[0].pid, signal.SIGKILL)

    monkeypatch.setattr(Playing, "__call__", noted)
    monkeypatch.setattr(Session, "saw", kill)
    monkeypatch.setattr("besttake.verbs.playing.ProcessMember", Victim)
    until = {"env": "testbed:push", "until": "decided", "budget": 96, "starts": 500, "stride": 20}
    one = diagnose(planned(**until), tmp_path / "one")
    alone, notes = rounds.copy(), Notes()
    rounds.clear()
    two = diagnose(planned(**until, replicas=2), tmp_path / "two", progress=notes)
    assert len(alone) > 2
    assert rounds == alone
    assert decided(two) == decided(one)
    assert len(members) == 2
    assert any("died and is replaced; its takes are played again" in note for note in notes.notes)
