"""A scripted LIBERO demonstration in every layout that people have: the same library, and it succeeds again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.demos.build import Options, build
from besttake.demos.library import Library
from besttake.encoders.hog import Hog
from besttake.envs.libero.env import LiberoEnv
from besttake.types import Start
from scripted_libero.expert import Manner, plan
from scripted_libero.ground_truth import GroundTruth

sys.path.append(str(Path(__file__).resolve().parents[2] / "demos"))
import writers

pytestmark = pytest.mark.usefixtures("assets")
GRIPPER = (-1.0, 1.0)


@pytest.fixture(scope="module")
def env() -> Iterator[LiberoEnv]:
    made = registry.env("libero:object?task=2&size=64")
    assert isinstance(made, LiberoEnv)
    yield made
    made.close()


@pytest.fixture(scope="module")
def episode(env: LiberoEnv) -> writers.Episode:
    """The expert's attempt at start 5, with all that LIBERO's script would record."""
    task = env.spec.tasks[0]
    env.reset(Start(task.name, 5))
    robot = env.simulator().robosuite
    states, pictures, joints, simulator, actions = [], [], [], [], []

    def look() -> None:
        seen = env.observe(("wrist",))
        states.append(seen.state)
        pictures.append(seen.images["wrist"])
        joints.append(np.array(robot.robots[0]._joint_positions))

    look()
    for action in plan(GroundTruth(robot), Manner.draw(np.random.default_rng(0))):
        simulator.append(robot.sim.get_state().flatten())
        actions.append(action)
        success = env.step(action).success
        look()
        if success:
            break
    assert success
    frames = np.stack(pictures)
    return writers.Episode(
        task.name, task.instruction, np.stack(states), np.stack(actions), {"wrist": frames, "agentview": frames},
        np.stack(joints), np.stack(simulator),
    )  # fmt: skip


@pytest.fixture(scope="module")
def libraries(episode: writers.Episode, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Library]:
    root = tmp_path_factory.mktemp("formats")
    uris = {
        "lerobot v3": f"lerobot:{writers.hugging_face_libero(root / 'v3', [episode])}",
        "lerobot v2.0": f"lerobot:{writers.openpi_libero(root / 'v20', [episode])}",
        "lerobot v2.1": f"lerobot:{writers.ipec_libero(root / 'v21', [episode])}",
        "rlds": f"rlds:{writers.rlds_libero(root / 'rlds', [episode], shards=1)}",
        "openvla hdf5": f"hdf5:{writers.openvla_hdf5(root / 'openvla', [episode])}",
        "libero hdf5": f"hdf5:{writers.libero_hdf5(root / 'libero', [episode])}",
    }
    options = Options(gripper_as=GRIPPER)
    return {name: build(registry.demos(uri), Hog(), root / f"library {name}", options) for name, uri in uris.items()}


def test_they_give_the_same_library(libraries: dict[str, Library], episode: writers.Episode) -> None:
    length, first = len(episode), libraries["lerobot v3"]
    for name, library in libraries.items():
        # LIBERO's own script records after the step, so its first action has no observation.
        skipped = 1 if name == "libero hdf5" else 0
        assert library.demos[0].length == length - skipped, name
        np.testing.assert_array_equal(library.chunk(0, 0, length - skipped), episode.actions[skipped:], err_msg=name)
        np.testing.assert_allclose(library.states, episode.states[skipped:-1], atol=1e-6, err_msg=name)
        assert (library.head.gripper_dim, library.head.eef_dims) == (6, (0, 1, 2)), name
        events = {event - (1 if name != "libero hdf5" else 0) for event in library.demos[0].events if event > 1}
        assert events == {event - 1 for event in first.demos[0].events if event > 1}, name
        cosine = (library.embeddings * first.embeddings[skipped:]).sum(axis=1)
        assert cosine.min() > (0.97 if name == "lerobot v2.1" else 0.999999), name


@pytest.mark.parametrize("name", ["lerobot v2.1", "rlds", "libero hdf5"])
def test_their_actions_succeed_again(
    libraries: dict[str, Library], env: LiberoEnv, episode: writers.Episode, name: str
) -> None:
    library = libraries[name]
    env.reset(Start(env.spec.tasks[0].name, 5))
    actions = library.chunk(0, 0, library.demos[0].length)
    if name == "libero hdf5":
        env.step(episode.actions[0])
    assert [env.step(action).success for action in actions][-1]
