from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from besttake import registry
from besttake.arms.sampler import PolicyFactory
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.errors import ComponentError, MissingExtra
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.diagnose.playing import replica_count


def planned(**changes: object) -> Plan:
    values = {
        "policy": "python:large_half:make", "env": "testbed:drawer", "starts": 3, "seeds": 2, "arms": "base,retrieve",
        "demos_per_task": 6, "probe_states": 0, "check_states": 0, "rule": "frame", "workers": 1, **changes,
    }  # fmt: skip
    return Plan.model_validate(values)


def test_several_replicas_without_ray_are_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("besttake.verbs.diagnose.playing.find_spec", lambda name: None)
    for asked in ({"replicas": 2}, {"on": "ray"}):
        with pytest.raises(MissingExtra, match=r"several replicas needs ray.*pip install 'besttake\[ray\]'"):
            diagnose(planned(**asked), tmp_path / "run")


def test_auto_is_a_replica_per_gpu_for_policies_that_may_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = registry.policy("testbed:half").spec
    large = replace(small, small=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,7")
    monkeypatch.setattr("besttake.verbs.diagnose.playing.find_spec", lambda name: name)
    assert replica_count(planned(), large) == 3
    assert replica_count(planned(), small) == 1
    assert replica_count(planned(), replace(large, seeded=False)) == 1
    assert replica_count(planned(replicas=2), large) == 2
    monkeypatch.setattr("besttake.verbs.diagnose.playing.find_spec", lambda name: None)
    assert replica_count(planned(), large) == 1


def test_a_replica_whose_policy_is_another_one_than_the_runs_does_not_play() -> None:
    own = registry.policy("testbed:half").spec.fingerprint
    assert PolicyFactory("testbed:half", RetrievalConfig(), fingerprint=own).load().spec.fingerprint == own
    with pytest.raises(ComponentError, match="testbed:half on .* is not the policy that the run was started with"):
        PolicyFactory("testbed:half", RetrievalConfig(), fingerprint="of other weights").load()
