import numpy as np
import pytest

from besttake import registry, testing
from besttake.takes.draws import Draw
from besttake.testbed import seeds
from besttake.testbed.policy import NAMES
from besttake.testbed.tasks import TASKS, World
from besttake.types import Observation, Start, Warm


@pytest.fixture(scope="module", params=NAMES)
def policy(request):
    return registry.policy(f"testbed:{request.param}")


def _situations(count):
    """Observations from real starts, with draws of their own and every kind of warm start."""
    worlds = {task: World(task) for task in TASKS}
    observations, draws, warm = [], [], []
    chunk = np.random.default_rng(1).uniform(-1, 1, (10, 4)).astype(np.float32)
    for row in range(count):
        task = TASKS[row % 4]
        worlds[task].reset(seeds.TUNING[row])
        observations.append(Observation({}, worlds[task].state()))
        draws.append(Draw(3, task, start=row, seed=row % 3, chunk=row % 5))
        warm.append([None, Warm(0.7), Warm(0.7, 0.3, chunk), Warm(0.1, 0.5, chunk)][row % 4])
    return observations, draws, warm


def test_the_policy_keeps_its_contract_to_the_last_bit(policy):
    assert testing.check_policy(policy, atol=0.0) == ("shape", "repeat", "batch", "draw", "warm")


def test_a_row_has_the_same_bits_alone_and_anywhere_in_any_batch(policy):
    observations, draws, warm = _situations(64)
    alone = np.concatenate([policy.sample([o], [d], [w]) for o, d, w in zip(observations, draws, warm, strict=True)])
    for size in (2, 3, 7, 15, 16, 17, 31, 33, 64):
        order = np.random.default_rng(size).permutation(64)
        for first in range(0, 64, size):
            rows = order[first : first + size]
            batch = policy.sample([observations[r] for r in rows], [draws[r] for r in rows], [warm[r] for r in rows])
            assert np.array_equal(batch, alone[rows]), size


def test_the_policy_sees_things_a_few_millimetres_off_and_anew_at_each_chunk():
    blurred, sharp = registry.policy("testbed:mid"), registry.policy("testbed:mid?perception_mm=0")
    observations, draws, _ = _situations(4)
    assert not np.array_equal(blurred.sample(observations, draws), sharp.sample(observations, draws))
    assert blurred.spec.fingerprint != sharp.spec.fingerprint
    offsets = np.stack([Draw(0, "pick", s, 0).normal((6,), "perception") for s in range(500)])
    assert abs(offsets.std() - 1) < 0.05


def _success(name, starts):
    """Share of takes that succeed, over the four tasks, one seed each."""
    env, policy = registry.env("testbed"), registry.policy(f"testbed:{name}")
    replan, won = policy.spec.replan, []
    for task in env.spec.tasks:
        for start in starts:
            env.reset(Start(task.name, start))
            done = False
            for step in range(task.horizon):
                if step % replan == 0:
                    chunk = policy.sample([env.observe(())], [Draw(0, task.name, start, 0, step // replan)])[0]
                done = env.step(chunk[step % replan]).success
                if done:
                    break
            won.append(done)
    return np.mean(won)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("half", 0.15, 0.70), ("few", 0.35, 0.85), ("alt", 0.20, 0.70), ("mid", 0.60, 0.95), ("strong", 0.70, 0.99)],
)
def test_success_on_tuning_starts_is_where_each_policy_was_measured(name, low, high):
    assert low <= _success(name, seeds.TUNING[60:80]) <= high
