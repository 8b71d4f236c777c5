from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from besttake import registry
from besttake.arms.sampler import SmallActor
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.errors import ComponentError, PlanError
from besttake.progress import Reporter
from besttake.takes import devices
from besttake.verbs.diagnose import diagnose
from besttake.verbs.playing import replica_count, settled


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
