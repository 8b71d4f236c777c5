"""vla-eval's benchmarks in this process."""

from __future__ import annotations

import numpy as np
import pytest

from besttake import registry, testing
from besttake.envs.vla_eval import coke_can
from besttake.errors import ComponentError
from besttake.types import Start

pytestmark = pytest.mark.usefixtures("assets")

LIBERO = "vla-eval:libero:LIBEROBenchmark?suite=libero_object&send_state=true&send_wrist_image=true&task=0"


def test_the_contract_holds_for_its_libero() -> None:
    env = registry.env(LIBERO + "&num_steps_wait=0&gripper_dim=6&eef_dims=0,1,2")
    assert testing.check_env(env, steps=2) == ("spec", "observe", "reset", "lazy", "starts")
    spec = env.spec
    assert (spec.cameras, spec.score_camera, spec.state_dim) == (("agentview", "wrist"), "wrist", 8)
    assert (spec.tasks[0].group, spec.tasks[0].horizon, spec.starts) == ("libero_object", 280, range(50))
    env.close()


def test_its_eager_libero_and_our_lazy_one_see_the_same() -> None:
    # The object suite has no fixtures, whose place vla-eval draws anew at each reset.
    action = np.array([0.3, -0.2, 0.1, 0, 0, 0, 1], np.float32)
    seen = []
    for uri in (LIBERO, "libero:object?task=0&convention=vla-eval"):
        env = registry.env(uri)
        env.reset(Start(env.spec.tasks[0].name, 1))
        env.step(action)
        seen.append(env.observe(("agentview", "wrist")))
        env.close()
    assert seen[0].instruction == seen[1].instruction
    assert np.allclose(seen[0].state, seen[1].state, atol=1e-6)
    for camera in ("agentview", "wrist"):
        assert np.array_equal(seen[0].images[camera], seen[1].images[camera])


def test_the_coke_can_starts_are_the_25_positions_of_the_published_grid() -> None:
    from vla_eval.benchmarks.simpler.benchmark import SimplerEnvBenchmark

    benchmark = SimplerEnvBenchmark(**coke_can(orientation="standing"))
    resets = [benchmark._build_va_reset_kwargs({"episode_idx": index})["options"] for index in range(25)]
    cans = np.array([reset["obj_init_options"]["init_xy"] for reset in resets])
    assert len(np.unique(cans, axis=0)) == 25
    assert cans.min(axis=0).tolist() == [-0.35, -0.02]
    assert cans.max(axis=0).tolist() == [-0.12, 0.42]
    assert all(reset["robot_init_options"]["init_xy"].tolist() == [0.35, 0.2] for reset in resets)
    assert benchmark.seed == 0
    assert benchmark.env_build_kwargs["upright"]


def test_the_coke_can_says_what_is_missing_where_simpler_env_is_not_installed() -> None:
    pytest.importorskip("vla_eval")
    with pytest.raises(ComponentError, match="needs simpler_env, which is not installed"):
        registry.env("vla-eval:coke-can?orientation=vertical")
