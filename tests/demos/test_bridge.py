"""Real demonstrations of a WidowX: read, probed, retrieved from and ranked. Skipped where the data are not beside."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import besttake
from besttake import registry
from besttake.config import Plan
from besttake.core.events import phases
from besttake.demos.build import Options, build
from besttake.demos.library import Library

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "assets" / "bridge_v2_carrot"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the data set bridge_v2_carrot is not there")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    out = tmp_path_factory.mktemp("bridge") / "library"
    return build(registry.demos(f"lerobot:{DATA}?episodes=0:12"), registry.encoder("hog"), out, Options())


def test_real_demonstrations_have_the_events_that_their_grippers_show(library: Library) -> None:
    head = library.head
    assert (head.camera, head.fps, head.gripper_dim, head.eef_dims) == ("observation.images.image_0", 5, 6, (0, 1, 2))
    assert (head.event_config.gripper_open, head.event_config.gripper_threshold) == (1, 0.5)
    for number, demo in enumerate(library.demos):
        assert demo.frames == demo.length
        is_open = phases(library.chunk(number, 0, demo.length)[:, 6], head.event_config)
        assert set((np.flatnonzero(np.diff(is_open)) + 1).tolist()) <= set(demo.events)
        assert len(demo.events) >= 2


def test_a_policy_is_probed_on_real_demonstrations_and_chunks_are_retrieved_from_the_others(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "widowx"))
    plan = Plan(
        policy=["python:robot:Still"], env=["python:robot:WidowX"], demos=str(library.path), probe_states=60,
        check_states=60,
    )  # fmt: skip
    result = besttake.probe(plan)
    fit = result[0].dfe
    assert 0 < fit.floor.value < fit.dfe.value
    check = result.checks["python:robot:Still"]
    assert {tried.config.rule for tried in check.tried} == {"frame", "current", "next"}


def test_a_held_out_recording_is_not_called_unlike_the_demonstrations(library: Library, tmp_path: Path) -> None:
    result = besttake.rank([f"{DATA}#{number}" for number in range(200, 208)], library.path)
    assert result.references.demos == 12
    assert sum(bool(take.unlike) for take in result.takes) <= 1  # by chance one of 13 is below all
    assert not any("shuffled" in take.unlike for take in result.takes)
    assert any("does not show which takes" in note for note in result.notes)


def test_videos_that_are_not_there_are_named(tmp_path: Path) -> None:
    """Four cameras are described, and the videos of one are there."""
    source = registry.demos(f"lerobot:{DATA}?episodes=0:1&camera=image_2")
    (bad,) = source
    assert bad.reason == "has no video file episode_000306.mp4"
    one = shutil.copytree(DATA / "meta", tmp_path / "set" / "meta")
    assert not registry.demos(f"lerobot:{one.parent}?episodes=0:1").shows(("image_0",))
