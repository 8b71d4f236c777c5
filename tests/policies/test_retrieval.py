from __future__ import annotations

from pathlib import Path

import pytest

from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.errors import PlanError
from besttake.policies.augmented import read_retrieval
from besttake.takes.manifest import Manifest
from besttake.verbs.diagnose.diagnosis import diagnose

LOOKS_BACK = {"rule": "current", "noise": 0.5, "prior": 0.5, "onset_alignment": True, "gripper_gating": True}


@pytest.fixture(scope="module")
def library(cache: Path) -> Library:
    return open_or_build("testbed:pick", "pixels", Options(max_demos=3))


def run(directory: Path, library: Library, arms: list[str]) -> Path:
    plan = Plan(
        policy=["testbed:half"], env=["testbed:pick"], demos=str(library.path), starts="1", seeds=1, arms=arms,
        retrieval=LOOKS_BACK, probe_states=0, workers=1,
    )  # fmt: skip
    diagnose(plan, directory)
    return directory


def test_a_library_is_served_as_it_was_tuned_or_by_default(library: Library) -> None:
    assert read_retrieval(library.path)[1] == RetrievalConfig()
    assert read_retrieval(library.path, dials={"prior": 0.3, "noise": None})[1] == RetrievalConfig(prior=0.3)
    with pytest.raises(PlanError, match="^noise must lie between 0 and 1, not 3"):
        read_retrieval(library.path, dials={"noise": 3})


def test_a_run_is_served_as_it_was_diagnosed(library: Library, tmp_path: Path) -> None:
    found, config = read_retrieval(run(tmp_path / "run", library, ["base", "retrieve"]))
    assert found.fingerprint == library.fingerprint
    assert config == RetrievalConfig.from_dict(LOOKS_BACK)
    manifest = Manifest.read(tmp_path / "run")
    other = manifest.model_copy(update={"identity": {**manifest.identity, "library": "another"}})
    (tmp_path / "run" / "run.json").write_bytes(other.to_bytes())
    with pytest.raises(PlanError, match="no longer the library"):
        read_retrieval(tmp_path / "run")
