"""Takes that besttake exports are opened, and trained on, by LeRobot itself."""

from __future__ import annotations

import numpy as np
import pytest

from besttake.config import Plan
from besttake.takes.store import Store
from besttake.verbs.diagnose import diagnose
from besttake.verbs.export import Wanted, export


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    place = tmp_path_factory.mktemp("export")
    plan = Plan(
        policy="testbed:strong", env="testbed:drawer", starts=2, seeds=2, arms=("base",), check_states=0, probe_states=0
    )
    diagnose(plan, place / "run")
    export(place / "run", Wanted(lerobot=place / "set", fps=10))
    with Store.open(place / "run") as store:
        return place / "set", [store.load(row) for row in store.rows()]


def test_lerobot_opens_the_takes_with_pictures_states_actions_and_success(exported):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root, takes = exported
    dataset = LeRobotDataset("besttake/takes", root=root)
    ends = [take.success_step or take.steps for take in takes]
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (len(takes), sum(ends), 10)
    first = 0
    for take, end in zip(takes, ends, strict=True):
        for step in (0, 1, end // 2, end - 1):
            row = dataset[first + step]
            assert np.array_equal(row["action"].numpy(), take.actions[step])
            assert np.array_equal(row["observation.state"].numpy(), take.states[step])
            assert bool(row["next.success"]) == (step + 1 == take.success_step)
            assert bool(row["next.done"]) == (step == end - 1)
            assert row["task"] == "pull the drawer open by its handle"
            kept = int(row["frame_step"])
            assert kept == max(s for s in take.frame_steps if s <= step)
            frame = take.frames()[list(take.frame_steps).index(kept)] / 255
            shown = row["observation.images.camera"].numpy().transpose(1, 2, 0)
            assert np.abs(shown - frame).mean() < 0.03
        first += end
    episode = dataset.meta.episodes[0]
    assert episode["besttake/policy"] == "testbed:strong"
    assert set(dataset.meta.stats["action"]) >= {"mean", "std", "min", "max", "q01", "q99"}
