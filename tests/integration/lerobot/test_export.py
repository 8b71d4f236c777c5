"""Takes that besttake exports are opened, and trained on, by LeRobot itself."""

from __future__ import annotations

import numpy as np
import pytest

from besttake.config import Plan
from besttake.takes.store import Store
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.export import ExportOptions, export


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    place = tmp_path_factory.mktemp("export")
    plan = Plan(
        policy="testbed:strong", env="testbed:drawer", starts=2, seeds=2, arms=("base",), check_states=0, probe_states=0
    )
    diagnose(plan, place / "run")
    export(place / "run", ExportOptions(lerobot=place / "set", fps=10))
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


def test_a_policy_of_lerobot_is_trained_a_step_on_them(exported):
    import torch
    from lerobot.configs.types import FeatureType
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.utils.feature_utils import dataset_to_policy_features

    root, _ = exported
    about = LeRobotDataset("besttake/takes", root=root).meta
    features = dataset_to_policy_features(about.features)
    outputs = {name: f for name, f in features.items() if f.type is FeatureType.ACTION}
    inputs = {name: f for name, f in features.items() if name.startswith("observation.")}
    config = ACTConfig(
        input_features=inputs, output_features=outputs, chunk_size=4, n_action_steps=4, dim_model=32, n_heads=2,
        dim_feedforward=32, n_encoder_layers=1, n_decoder_layers=1, latent_dim=4, n_vae_encoder_layers=1,
        pretrained_backbone_weights=None, device="cpu",
    )  # fmt: skip
    policy = ACTPolicy(config)
    dataset = LeRobotDataset("besttake/takes", root=root, delta_timestamps={"action": [i / 10 for i in range(4)]})
    batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=2)))
    loss, _ = policy.forward(batch)
    loss.backward()
    assert torch.isfinite(loss)
