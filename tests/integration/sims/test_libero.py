"""LIBERO under BestTake: the contract, and the same bits as robosuite's own eager loop."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.libero_bits import besttakes, robosuites

from besttake import registry, testing
from besttake.envs.libero import simulator as libero_step
from besttake.envs.libero.env import LiberoEnv
from besttake.envs.libero.harness import REST
from besttake.envs.libero.install import import_libero, locate
from besttake.errors import ComponentError
from besttake.types import Array, Start

# One task of each suite, chosen to cover what differs: a basket, a cabinet, a stove with a light, two-stage kitchens.
ONE_PER_SUITE = ["libero:object?task=4", "libero:spatial?task=3", "libero:goal?task=7", "libero:10?task=2"]
OCCLUDED = ["libero-occ:spatial?task=1", "libero-occ:goal?task=7"]
SMALL = "&size=48"

pytestmark = pytest.mark.usefixtures("assets")


@pytest.fixture(scope="module")
def can_render(assets: Path) -> None:
    env = registry.env("libero:object?task=0" + SMALL)
    env.reset(Start(env.spec.tasks[0].name, 0))
    try:
        env.observe(("wrist",))
    except ComponentError as error:
        pytest.skip(str(error))
    finally:
        env.close()


@pytest.fixture
def make() -> Iterator[Callable[[str], LiberoEnv]]:
    made: list[Any] = []

    def build(uri: str) -> LiberoEnv:
        env = registry.env(uri)
        assert isinstance(env, LiberoEnv)
        made.append(env)
        return env

    yield build
    for env in made:
        env.close()


@pytest.fixture(scope="module", params=[*ONE_PER_SUITE, *OCCLUDED])
def env(request: pytest.FixtureRequest) -> Iterator[LiberoEnv]:
    env = registry.env(request.param + SMALL)
    assert isinstance(env, LiberoEnv)
    yield env
    env.close()


def test_the_contract_holds(env: LiberoEnv, can_render: None) -> None:
    assert "restore" in testing.check_env(env, steps=4)


def test_states_and_pictures_are_those_of_an_eager_hard_reset(env: LiberoEnv, can_render: None) -> None:
    name = env.spec.tasks[0].name
    actions = np.random.default_rng(1).uniform(-1, 1, (4, 7)).astype(np.float32)
    expected = robosuites(env, 3, actions, size=48)

    env.reset(Start(name, 5))
    env.step(actions[0])
    env.reset(Start(name, 3))
    snapshot = pickle.loads(pickle.dumps(env.save()))
    assert besttakes(env, actions) == expected
    env.restore(snapshot)
    assert besttakes(env, actions) == expected


def test_long_takes_stay_on_the_eager_trajectory(env: LiberoEnv) -> None:
    name = env.spec.tasks[0].name
    rng = np.random.default_rng(2)
    # Slow drifts with pauses touch the table and close the gripper; the sampling clock of robosuite must not slip.
    actions = np.repeat(rng.uniform(-0.6, 0.6, (12, 7)), 10, axis=0).astype(np.float32)
    actions[30:50, :6] = 0
    expected = robosuites(env, 0, actions, size=None)
    env.reset(Start(name, 0))
    assert besttakes(env, actions, cameras=()) == expected


def test_another_set_up_than_the_known_one_takes_robosuites_own_step(
    make: Callable[[str], LiberoEnv], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def states(env: LiberoEnv) -> list[list[bytes]]:
        env.reset(Start(env.spec.tasks[0].name, 1))
        return besttakes(env, np.random.default_rng(3).uniform(-1, 1, (3, 7)).astype(np.float32), cameras=())

    known = states(make("libero:object?task=1"))
    monkeypatch.setattr(libero_step, "ROBOSUITE", "1.5.0")
    env = make("libero:object?task=1")
    with caplog.at_level("INFO", "besttake"):
        assert states(env) == known
    assert "robosuite is 1.4.0, not 1.5.0" in caplog.text
    assert env.simulator()._step == env.simulator().robosuite_step


def test_a_scene_built_anew_is_drawn_as_by_a_new_process(make: Callable[[str], LiberoEnv], can_render: None) -> None:
    kept, fresh = make("libero:goal?task=7&size=48"), make("libero:goal?task=7&size=48")
    _pictures(kept, start=1000)
    renderer = kept.simulator()._renderer
    after = _pictures(kept, start=1001)
    assert kept.simulator()._renderer is renderer
    assert all(map(np.array_equal, after, _pictures(fresh, start=1001)))


def _pictures(env: LiberoEnv, start: int = 0) -> list[Any]:
    env.reset(Start(env.spec.tasks[0].name, start))
    env.step(np.asarray(REST, np.float32))
    return list(env.observe(("agentview", "wrist")).images.values())


def test_another_process_computes_the_same_bits(
    make: Callable[[str], LiberoEnv], python: Callable[[str], str], can_render: None
) -> None:
    code = """
import hashlib, numpy as np
from besttake import registry
from besttake.types import Array, Start
env = registry.env("libero:goal?task=7&size=48")
digest = hashlib.sha256()
env.reset(Start(env.spec.tasks[0].name, 2))
for action in np.random.default_rng(4).uniform(-1, 1, (4, 7)).astype(np.float32):
    env.step(action)
    seen = env.observe(("agentview", "wrist"))
    digest.update(seen.state.tobytes() + seen.images["agentview"].tobytes() + seen.images["wrist"].tobytes())
env.close()
print("digest", digest.hexdigest())
"""
    env = make("libero:goal?task=7&size=48")
    env.reset(Start(env.spec.tasks[0].name, 2))
    digest = hashlib.sha256()
    for action in np.random.default_rng(4).uniform(-1, 1, (4, 7)).astype(np.float32):
        env.step(action)
        seen = env.observe(("agentview", "wrist"))
        digest.update(seen.state.tobytes() + seen.images["agentview"].tobytes() + seen.images["wrist"].tobytes())
    assert f"digest {digest.hexdigest()}" in python(code)


def test_starts_beyond_the_fixed_ones_are_placed_by_a_seed_and_repeat(make: Callable[[str], LiberoEnv]) -> None:
    env = make("libero:goal?task=7")
    name = env.spec.tasks[0].name

    def objects(index: int) -> Any:
        env.reset(Start(name, index))
        return env.simulator().robosuite.sim.data.qpos.copy()

    first = objects(1000)
    assert not np.array_equal(first, objects(1001))
    objects(0)
    assert np.array_equal(first, objects(1000))


def test_the_openpi_convention_gives_224_pixels_and_its_horizon(
    make: Callable[[str], LiberoEnv], can_render: None
) -> None:
    env = make("libero:spatial?task=0&convention=openpi&size=64")
    env.reset(Start(env.spec.tasks[0].name, 0))
    assert env.observe(("agentview",)).images["agentview"].shape == (224, 224, 3)
    assert env.spec.tasks[0].horizon == 220


def test_pictures_are_upright(make: Callable[[str], LiberoEnv], can_render: None) -> None:
    env = make("libero:object?task=0&size=48")
    env.reset(Start(env.spec.tasks[0].name, 0))
    upright = env.observe(("agentview",)).images["agentview"]
    raw = env.simulator().render("agentview", 48)
    assert np.array_equal(upright, np.rot90(raw, 2))


def test_poses_to_go_to_are_taken_as_by_robosuites_own_step_also_from_a_snapshot(
    make: Callable[[str], LiberoEnv],
) -> None:
    """``control=absolute``: the lean step, robosuite's own, and one that was interrupted agree to the bit."""
    env = make("libero:spatial?task=0&control=absolute&state=ee6d")
    assert (env.spec.state_dim, env.spec.fingerprint != registry.env("libero:spatial?task=0").spec.fingerprint) == (
        20, True,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    shakes = np.concatenate([rng.normal(0, [0.04, 0.04, 0.01, 0.1, 0.1, 0.1], (12, 6)), np.ones((12, 1))], axis=1)

    def play(own: bool = False, interrupted: bool = False) -> Array:
        env.reset(Start(env.spec.tasks[0].name, 3))
        sim, states = env.simulator(), []
        if own:
            sim._step = sim.robosuite_step
        first = env.observe(()).state
        rest = np.array([*first[:3], 3.1, 0.0, 0.0, 0.0], np.float32)
        for step, shake in enumerate(shakes):
            if interrupted and step == 5:
                saved = env.save()
                env.step(rest)
                env.reset(Start(env.spec.tasks[0].name, 4))
                env.restore(saved)
            env.step((rest + shake).astype(np.float32))
            states.append(env.observe(()).state)
        return np.stack(states)

    lean = play()
    assert np.abs(lean[:, :3] - lean[0, :3]).max() > 1e-3
    np.testing.assert_array_equal(lean, play(interrupted=True))
    np.testing.assert_array_equal(lean, play(own=True))


def test_success_stays_and_the_env_goes_on(make: Callable[[str], LiberoEnv]) -> None:
    env = make("libero:object?task=0")
    name = env.spec.tasks[0].name
    env.reset(Start(name, 0))
    inner = env.simulator().robosuite
    basket = inner.sim.data.get_body_xpos("basket_1_main").copy()
    soup = inner.objects_dict["alphabet_soup_1"].joints[-1]
    inner.sim.data.set_joint_qpos(soup, np.array([*basket[:2], basket[2] + 0.05, 1, 0, 0, 0]))
    rest = np.array([0, 0, 0, 0, 0, 0, -1], np.float32)
    steps = [env.step(rest) for _ in range(15)]
    assert steps[-1].success
    assert not steps[-1].done
    inner.sim.data.set_joint_qpos(soup, np.array([0, 0, 1.5, 1, 0, 0, 0]))
    assert env.step(rest).success
    env.reset(Start(name, 0))
    assert not env.step(rest).success


def test_instructions_are_those_of_the_benchmark() -> None:
    import_libero(locate())
    benchmark = pytest.importorskip("libero.libero.benchmark", reason="LIBERO's own list needs torch")
    for suite in ("spatial", "object", "goal", "10", "90"):
        theirs = benchmark.get_benchmark_dict()[f"libero_{suite}"]()
        ours = registry.env(f"libero:{suite}").spec.tasks
        assert [(t.name, t.language) for t in theirs.tasks] == [(t.name, t.instruction) for t in ours]


def test_nothing_is_asked_at_import_and_no_file_is_left_at_home(python: Callable[[str], str], tmp_path: Path) -> None:
    printed = python(f"""
import os
os.environ["HOME"] = {str(tmp_path)!r}
os.environ.pop("LIBERO_CONFIG_PATH", None)
from besttake import registry
from besttake.types import Array, Start
env = registry.env("libero:object?task=0")
env.reset(Start(env.spec.tasks[0].name, 0))
env.close()
print("ready")
""")
    assert printed.splitlines()[-1] == "ready"
    assert not (tmp_path / ".libero").exists()
