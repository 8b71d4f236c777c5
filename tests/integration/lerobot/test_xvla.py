"""Takes on LIBERO against those of lerobot-eval: its env, its processors, its `select_action`; X-VLA of poses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from bench.families import answered, lerobots

from besttake import registry
from besttake.conventions import check_compatible
from besttake.envs.libero.install import import_libero, locate
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Observation, Start, Warm

ROOT = Path(__file__).parents[3]
SIZE, STEPS, REPLAN, START = 64, 8, 4, 3
ENV = f"libero:spatial?task=0&size={SIZE}"
POSES = "&state=ee6d&control=absolute"


@pytest.fixture(scope="module", autouse=True)
def _places():
    shared = Path(os.environ.get("BESTTAKE_SHARED", ROOT.parent / "shared")) / "assets"
    if not shared.is_dir():
        pytest.skip(f"no test assets at {shared}; set BESTTAKE_SHARED")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BESTTAKE_LIBERO_ASSETS", os.environ.get("BESTTAKE_LIBERO_ASSETS", str(shared / "libero")))
        yield


def draw(chunk):
    return Draw(5, "libero/task", START, seed=0, chunk=chunk)


def ours(directory, options):
    """(actions, states) of a take played here."""
    env, policy = registry.env(ENV + options), registry.policy(f"lerobot:{directory}?width=1")
    check_compatible(policy.spec, env.spec)
    env.reset(Start(env.spec.tasks[0].name, START))
    actions, states = [], []
    for step in range(STEPS):
        if step % REPLAN == 0:
            seen = env.observe(policy.spec.cameras)
            chunk = policy.sample([seen], [draw(step // REPLAN)])[0]
        states.append(env.observe([]).state)
        env.step(chunk[step % REPLAN])
        actions.append(chunk[step % REPLAN])
    env.close()
    return np.stack(actions), np.stack(states)


def lerobots_own(directory, control, latent):
    """The same by what lerobot-eval calls, with the noise of our draws put in by hand."""
    from lerobot.envs.configs import LiberoEnv as LiberoConfig
    from lerobot.envs.factory import make_env_pre_post_processors
    from lerobot.envs.libero import LiberoEnv
    from lerobot.envs.utils import preprocess_observation
    from libero.libero import benchmark

    policy, before, after = lerobots(directory)
    env_before, env_after = make_env_pre_post_processors(LiberoConfig(), policy.config)
    suite = benchmark.get_benchmark_dict()["libero_spatial"]()
    sizes = {"observation_height": SIZE, "observation_width": SIZE, "obs_type": "pixels_agent_pos"}
    env = LiberoEnv(suite, 0, "libero_spatial", episode_index=START, control_mode=control, **sizes)
    seen, _ = env.reset(seed=0)
    actions, states = [], []
    policy.reset()
    for step in range(STEPS):
        batch = preprocess_observation(batched(seen))
        batch["task"] = [env.task_description]
        batch = env_before(batch)
        states.append(batch["observation.state"][0].numpy())
        with torch.inference_mode(), answered(draw(step // REPLAN), latent):
            action = after(policy.select_action(before(batch)))
        actions.append(env_after({"action": action})["action"][0].numpy())
        seen, *_ = env.step(actions[-1])
    env.close()
    return np.stack(actions), np.stack(states)


def batched(seen):
    return {key: batched(value) for key, value in seen.items()} if isinstance(seen, dict) else np.asarray(seen)[None]


@pytest.mark.parametrize(
    ("name", "options", "control", "dim", "rounding"),
    [("xvla_poses", POSES, "absolute", 20, 0.0), ("eo1", "", "relative", 32, 1e-6)],
)
def test_a_played_take_is_lerobot_evals(checkpoint, name, options, control, dim, rounding):
    """LeRobot rounds axis and angle of the state otherwise."""
    import_libero(locate())
    directory = checkpoint(name)
    mine, states = ours(directory, options)
    theirs, their_states = lerobots_own(directory, control, (tiny.CHUNK, dim))
    np.testing.assert_allclose(states, their_states, rtol=0, atol=rounding)
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=10 * rounding)
    assert np.ptp(states[:, :3], axis=0).max() > 1e-3, "the arm moved"


def observation(seed=3):
    rng = np.random.default_rng(seed)
    images = {camera: rng.integers(0, 256, (SIZE, SIZE, 3), np.uint8) for camera in ("agentview", "wrist")}
    return Observation(images, rng.normal(0, 0.3, 20).astype(np.float32), "open the drawer")


def test_it_keeps_the_contract_and_can_be_cooled_but_not_started_warm(checkpoint):
    policy = registry.policy(f"lerobot:{checkpoint('xvla_poses')}?width=2")
    check_policy(policy, observations=[observation(seed) for seed in range(3)], atol=0.0)
    assert (policy.spec.action_dim, policy.spec.state_dim) == (7, 20)
    assert (policy.spec.cools, policy.spec.warm_start) == (True, False)
    plain, cooled = (policy.sample([observation()], [draw(0)], [warm]) for warm in (None, Warm(0.7)))
    assert not np.array_equal(plain, cooled)
    assert set(np.unique(plain[..., 6])) <= {-1.0, 1.0}
    with pytest.raises(ComponentError, match="cannot be warm-started"):
        policy.sample([observation()], [draw(0)], [Warm(0.7, 0.3, np.zeros((6, 7), np.float32))])


def test_an_env_that_takes_changes_is_refused_with_the_options_that_mend_it(checkpoint):
    spec = registry.policy(f"lerobot:{checkpoint('xvla_poses')}").spec
    for options, hint in (("", r"\?state=ee6d&control=absolute"), ("&state=ee6d", r"\?control=absolute")):
        with pytest.raises(ComponentError, match=f"add {hint} to the env's URI"):
            check_compatible(spec, registry.env(f"libero:spatial?task=0{options}").spec)
