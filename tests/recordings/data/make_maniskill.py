"""Makes ``maniskill/trajectory.json``: four short episodes from two starts, recorded by ManiSkill's RecordEpisode.

Run with a Python that has mani_skill 3.0.1 and a Vulkan device: ``python make_maniskill.py``.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import gymnasium as gym
import mani_skill.envs  # noqa: F401
from mani_skill.utils.wrappers.record import RecordEpisode


def main() -> None:
    out = Path(__file__).parent / "maniskill"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        env = gym.make(
            "PushCube-v1", obs_mode="state", control_mode="pd_ee_delta_pos", render_backend="cpu", sim_backend="cpu",
            max_episode_steps=6,
        )  # fmt: skip
        env = RecordEpisode(
            env, scratch, save_trajectory=True, save_video=False, trajectory_name="trajectory", source_type="rl",
            source_desc="two starts, twice",
        )  # fmt: skip
        for seed in (0, 1, 0, 1):
            env.reset(seed=seed)
            done = False
            while not done:
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                done = bool(terminated) or bool(truncated)
        env.close()
        shutil.copyfile(Path(scratch) / "trajectory.json", out / "trajectory.json")


if __name__ == "__main__":
    main()
