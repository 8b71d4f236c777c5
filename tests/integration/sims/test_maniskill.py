"""The Bridge tasks under BestTake: the contract, and starts that do not remember the take before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from besttake import registry, testing
from besttake.envs.maniskill import ManiSkillEnv
from besttake.errors import ComponentError
from besttake.types import Start

pytestmark = pytest.mark.usefixtures("assets")

REST = np.array([0, 0, 0, 0, 0, 0, 1], np.float32)


@pytest.mark.parametrize("task", ["carrot", "spoon", "stack"])
def test_the_contract_holds_without_a_renderer(task: str) -> None:
    env = registry.env(f"maniskill:{task}?render=none")
    assert "starts" in testing.check_env(env, render=False)
    env.close()


def test_the_contract_holds_with_pictures() -> None:
    try:
        env = registry.env("maniskill:carrot?render=cpu")
    except ComponentError as error:
        pytest.skip(str(error))
    assert "lazy" in testing.check_env(env, steps=3)
    env.reset(Start("carrot", 0))
    assert env.observe(env.spec.cameras).images["3rd_view_camera"].shape == (480, 640, 3)
    env.close()


def test_the_state_of_bridge_follows_what_is_commanded() -> None:
    """Position and yaw against the gripper's own link, by matrices; a closed gripper has openness 0."""
    try:
        env = registry.env("maniskill:carrot?render=cpu&state=bridge")
    except ComponentError as error:
        pytest.skip(str(error))
    env.reset(Start("carrot", 0))
    first = env.observe(()).state
    assert env.spec.state_dim == len(first) == 8
    assert np.abs(first[3:6]).max() < 0.1  # it points down, which is where Bridge's angles are zero
    assert first[7] == 1
    for _ in range(6):
        env.step(np.array([0.02, 0, 0, 0, 0, 0.1, -1], np.float32))
    last = env.observe(()).state
    assert last[0] - first[0] > 0.05
    assert last[5] - first[5] > 0.3
    assert (last[6], last[7]) == (0, 0)
    robot = env._opened.agent.robot
    base, hand = (each.sp.to_transformation_matrix() for each in (robot.pose, robot.links_map["ee_gripper_link"].pose))
    seen = np.linalg.inv(base) @ hand
    roll, pitch, yaw = last[3:6]
    turns = [((1, 2), roll), ((2, 0), pitch), ((0, 1), yaw)]
    rotation = np.eye(3)
    for (one, two), angle in turns:
        turn = np.eye(3)
        turn[one, one] = turn[two, two] = np.cos(angle)
        turn[one, two], turn[two, one] = -np.sin(angle), np.sin(angle)
        rotation = turn @ rotation
    # Pointing down, the hand's own x axis is the base's -z, and its z the base's x.
    assert np.allclose(rotation @ [[0, 0, 1], [0, 1, 0], [-1, 0, 0]], seen[:3, :3], atol=1e-4)
    assert np.allclose(last[:3], seen[:3, 3], atol=1e-5)
    env.close()


def test_another_process_computes_the_same_bits(python: Callable[[str], str]) -> None:
    printed = python("""
import hashlib, numpy as np
from besttake import registry
from besttake.types import Start
env = registry.env("maniskill:stack?render=none")
env.reset(Start("stack", 7))
digest = hashlib.sha256()
for action in np.random.default_rng(4).uniform(-0.03, 0.03, (12, 7)).astype(np.float32):
    env.step(action)
    digest.update(env.observe(()).state.tobytes())
print("digest", digest.hexdigest())
""")
    import hashlib

    env = registry.env("maniskill:stack?render=none")
    actions = np.random.default_rng(4).uniform(-0.03, 0.03, (12, 7)).astype(np.float32)
    digest = hashlib.sha256(_play(env, 7, actions)[1:].tobytes())
    assert f"digest {digest.hexdigest()}" in printed
    env.close()


def test_success_is_read_at_the_last_step_unless_told_otherwise() -> None:
    outcomes = {reading: _carrot_put_and_taken(reading) for reading in ("last", "any")}
    assert not any(step.success for step in outcomes["last"])
    assert outcomes["last"][-1].done
    assert outcomes["any"][-1].success
    assert not outcomes["any"][-1].done
    put = _carrot_put_and_taken("last", taken=False)
    assert [step.success for step in put] == [False] * 7 + [True]


def test_the_state_tells_where_the_objects_are_when_there_are_no_pictures() -> None:
    env = registry.env("maniskill:carrot?render=none")
    env.reset(Start("carrot", 0))
    first = env.observe(()).state
    env.reset(Start("carrot", 6))
    second = env.observe(()).state
    assert np.array_equal(first[:8], second[:8])
    assert np.abs(first[8:11] - second[8:11]).max() > 0.05
    assert first[7] == pytest.approx(1.0)
    with pytest.raises(ComponentError, match=r"cameras are off \(render=none\)"):
        env.observe(env.spec.cameras)
    env.close()


def _play(env: Any, index: int, actions: Any) -> Any:
    env.reset(Start(env.spec.tasks[0].name, index))
    seen = [env.observe(()).state]
    for action in actions:
        env.step(action)
        seen.append(env.observe(()).state)
    return np.stack(seen)


def _carrot_put_and_taken(reading: str, *, taken: bool = True) -> list[Any]:
    from mani_skill.utils.structs.pose import Pose

    env = registry.env(f"maniskill:carrot?render=none&horizon=8&success={reading}")
    assert isinstance(env, ManiSkillEnv)
    env.reset(Start("carrot", 0))
    carrot = env._env.objs[env._env.source_obj_name]
    plate = env._env.objs[env._env.target_obj_name].pose.p
    away = carrot.pose
    carrot.set_pose(Pose.create_from_pq(plate + plate.new_tensor([0, 0, 0.03]), away.q))
    steps = [env.step(REST) for _ in range(5)]
    if taken:
        carrot.set_pose(away)
    steps += [env.step(REST) for _ in range(3)]
    env.close()
    return steps
