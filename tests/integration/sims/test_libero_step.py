"""LIBERO's control step: compiled and interpreted physics steps, and what is asked only once, give the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.libero_bits import besttakes, drifts

from besttake import registry
from besttake.envs.libero.env import LiberoEnv
from besttake.envs.libero.harness import REST
from besttake.envs.libero.install import import_libero, locate
from besttake.types import Start

pytestmark = pytest.mark.usefixtures("assets")


@pytest.fixture(scope="module")
def env(assets: Path) -> Iterator[LiberoEnv]:
    env = registry.env("libero:goal?task=7")
    assert isinstance(env, LiberoEnv)
    yield env
    env.close()


@pytest.fixture(scope="module")
def compiled(assets: Path) -> Any:
    """The module, which needs robosuite, and robosuite its configuration."""
    import_libero(locate())
    from besttake.envs.libero import compiled as libero_compiled

    return libero_compiled


@pytest.fixture
def anew(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known yet of what compiled steps compute."""
    monkeypatch.setattr(compiled, "_runners", {})
    compiled._compiled.cache_clear()


def _play(env: LiberoEnv, steps: int = 40) -> list[list[bytes]]:
    env.reset(Start(env.spec.tasks[0].name, 0))
    return besttakes(env, drifts(steps), cameras=())


def test_physics_steps_are_compiled_and_compute_what_interpreted_ones_do(env: LiberoEnv, compiled: Any) -> None:
    states = _play(env)
    step = env.simulator()._step
    assert step._run is compiled._compiled()
    step._run = compiled.controller.run
    assert _play(env) == states


def _off_by_a_bit(run: Any) -> Any:
    def almost(model: Any, data: Any, arm: Any, count: int, begun: bool) -> None:
        arm.gains[0, 0] = np.nextafter(arm.gains[0, 0], np.inf)
        run(model, data, arm, count, begun)

    return almost


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("_compiled", None, "the last bits differ"),
        ("DECLARED", {"mj_step1": "void mj_step1(mjModel * m)"}, "declares void mj_step1(const mjModel * m"),
        ("_control", None, "TypingError"),
    ],
    ids=["another BLAS", "another MuJoCo", "cannot be compiled"],
)
def test_what_compiles_to_other_bits_or_not_at_all_is_interpreted(
    env: LiberoEnv, compiled: Any, anew: None, name: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    states, almost = _play(env, 5), _off_by_a_bit(compiled._compiled())
    compiled._compiled.cache_clear()
    monkeypatch.setattr(compiled, "_runners", {})
    monkeypatch.setattr(compiled, name, (lambda: almost) if name == "_compiled" else value)
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path))
    env.close()
    with caplog.at_level("INFO", "besttake"):
        assert _play(env, 5) == states
    assert "physics steps are interpreted, not compiled: " in caplog.text
    assert words in caplog.text
    assert env.simulator()._step._run is compiled.controller.run
    env.close()


def test_code_is_kept_where_nobody_else_can_put_theirs(compiled: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "own"
    folder.mkdir(parents=True, mode=0o700)
    assert compiled.only_ours(folder)
    folder.chmod(0o777)
    assert not compiled.only_ours(folder)
    folder.chmod(0o1777)
    assert not compiled.only_ours(folder)
    folder.chmod(0o700)
    (tmp_path / "cache").chmod(0o770)
    assert not compiled.only_ours(folder)
    (tmp_path / "cache").chmod(0o1777)
    assert compiled.only_ours(folder)


def test_a_stove_is_lit_and_the_goal_holds_when_robosuites_own_step_says_so(env: LiberoEnv) -> None:
    def lit(own: bool) -> list[tuple[bool, bytes]]:
        env.reset(Start(env.spec.tasks[0].name, 0))
        sim = env.simulator()
        if own:
            sim._step = sim.robosuite_step
        inner, seen = sim.robosuite, []
        knob = inner.sim.model.get_joint_qpos_addr("flat_stove_1_button")
        for angle in (0.0, 1.0, 1.0, 0.0, 0.0, 1.0):
            inner.sim.data.qpos[knob] = angle
            success = sim.step(np.asarray(REST, np.float64))
            seen.append((success, inner.sim.model.site_rgba.tobytes()))
        return seen

    lean = lit(own=False)
    assert lean == lit(own=True)
    assert {success for success, _ in lean} == {False, True}
    assert len({colors for _, colors in lean}) == 2


def test_what_touches_what_is_what_robosuite_says(env: LiberoEnv) -> None:
    env.reset(Start(env.spec.tasks[0].name, 0))
    simulator = env.simulator().robosuite
    own = type(simulator).check_contact
    things = [*simulator.objects_dict.values(), *simulator.fixtures_dict.values(), simulator.robots[0].gripper]
    names = [thing.contact_geoms[0] for thing in things if thing.contact_geoms]
    asked = [(one, other) for one in [*things, *names, names[:3]] for other in [*things, *names, names[2:5], None]]
    asked += [("no_such_geom", None), (things[0], ["no_such_geom"]), ([], [])]
    answers = []
    for action in drifts(40):
        env.step(action)
        if env.simulator().robosuite.timestep % 8 == 0:
            theirs = [own(simulator, *pair) for pair in asked]
            assert [simulator.check_contact(*pair) for pair in asked] == theirs
            answers += theirs
    assert simulator.check_contact != own.__get__(simulator)
    assert 20 < sum(answers) < len(answers) - 20
