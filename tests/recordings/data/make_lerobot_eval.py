"""Makes ``lerobot_eval/``: small evaluations by ``lerobot-eval`` itself of a tiny policy.

Run with a Python that has lerobot 0.6.1 (with diffusion): ``python make_lerobot_eval.py``. Only the top-level numbers
of each ``eval_info.json`` are kept as written; paths of videos are shortened to their file names.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium as gym
import numpy as np
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.scripts.lerobot_eval import eval_main

EPISODES = 8


class Roll(gym.Env):
    """A ball rolls to a goal; the start's slope comes from the seed of the reset."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    _max_episode_steps = 12

    def __init__(self, goal: float) -> None:
        self.goal, self.task_description, self.task = goal, f"roll {goal}", f"roll {goal}"
        box = gym.spaces.Box(-10, 10, (2,), np.float32)
        self.observation_space = gym.spaces.Dict({"agent_pos": box, "environment_state": box})
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.render_mode = "rgb_array"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps, self.slope = 0.0, 0, float(np.random.default_rng(seed).uniform(-0.2, 0.2))
        return self._seen(), {"is_success": False}

    def step(self, action):
        self.place += 0.25 + 0.4 * float(action[0]) + self.slope
        self.steps += 1
        won = self.place >= self.goal
        return self._seen(), float(won), won, self.steps >= self._max_episode_steps, {"is_success": won}

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)

    def _seen(self):
        seen = np.array([self.place, self.goal], np.float32)
        return {"agent_pos": seen, "environment_state": seen}


@EnvConfig.register_subclass("roll")
@dataclass
class RollConfig(EnvConfig):
    task: str = "roll"
    fps: int = 10
    features: dict = field(
        default_factory=lambda: {
            "action": PolicyFeature(type=FeatureType.ACTION, shape=(1,)),
            "agent_pos": PolicyFeature(type=FeatureType.STATE, shape=(2,)),
            "environment_state": PolicyFeature(type=FeatureType.ENV, shape=(2,)),
        }
    )
    features_map: dict = field(
        default_factory=lambda: {
            "action": "action",
            "agent_pos": "observation.state",
            "environment_state": "observation.environment_state",
        }
    )

    @property
    def gym_kwargs(self) -> dict:
        return {}

    def create_envs(self, n_envs, use_async_envs=False):
        mode = gym.vector.AutoresetMode.SAME_STEP
        return {
            "roll": {
                i: gym.vector.SyncVectorEnv([lambda g=goal: Roll(g) for _ in range(n_envs)], autoreset_mode=mode)
                for i, goal in enumerate((2.4, 3.2))
            }
        }


def main() -> None:
    here = Path(__file__).parent
    shutil.rmtree(here / "lerobot_eval", ignore_errors=True)
    for run in range(3):
        with tempfile.TemporaryDirectory() as scratch:
            evaluate(scratch, 1000 + run, EPISODES, 4)
            keep_info(Path(scratch), here / "lerobot_eval" / f"run{run}")


def evaluate(out: str, seed: int, episodes: int, batch: int) -> None:
    sys.argv = [
        "lerobot-eval", "--env.type=roll", "--policy.type=diffusion", "--policy.device=cpu",
        "--policy.push_to_hub=false", "--policy.down_dims=[16,32]", "--policy.n_groups=4",
        "--policy.num_inference_steps=4", f"--eval.batch_size={batch}", f"--eval.n_episodes={episodes}",
        "--eval.use_async_envs=false", f"--output_dir={out}", f"--seed={seed}",
    ]  # fmt: skip
    eval_main()


def keep_info(evaluation: Path, out: Path) -> None:
    info = json.loads((evaluation / "eval_info.json").read_text())
    out.mkdir(parents=True)
    (out / "eval_info.json").write_text(json.dumps(_short(info), indent=2))


def _short(value):
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return Path(value).name if isinstance(value, str) and "/" in value else value


if __name__ == "__main__":
    main()
