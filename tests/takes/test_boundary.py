"""What components give is checked once, where it comes in: one take fails with a line that says what was wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toy

from besttake.arms.base import TakeState, Tools
from besttake.arms.sampler import ArmSampler
from besttake.core.retrieve import RetrievalConfig
from besttake.encoders.base import embeddings_of
from besttake.envs.base import checked_flag, checked_state, checked_step
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.takes.jobs import Begin, End, Failed, Job
from besttake.takes.key import TakeKey
from besttake.takes.worker import Worker
from besttake.types import EncoderSpec, Observation, PolicySpec, Step, WorldSpec

NAN = float("nan")


def played(
    monkeypatch: pytest.MonkeyPatch, step: Any = None, state: Any = None, picture: Any = None
) -> End | Failed:  # fmt: skip
    """A take in a world that gives ``step``, ``state`` or ``picture``."""
    if step is not None:
        monkeypatch.setattr(toy.ToyEnv, "step", lambda *_: step)
    if state is not None:
        monkeypatch.setattr(toy.ToyEnv, "observe", lambda self, cameras: Observation(pictures(cameras), state))
    if picture is not None:
        shown = lambda self, cameras: Observation(dict.fromkeys(cameras, picture), np.zeros(2, np.float32))  # noqa: E731
        monkeypatch.setattr(toy.ToyEnv, "observe", shown)
    key = TakeKey("p", "python:toy:make", "walk", 3, "base", 0)
    job = Job(key, 12, (), "eye", 5, goes_on=False, factory=toy.Factory())
    worker = Worker()
    (answer,) = worker.obey([Begin(0, job, TakeState("walk", "base", Draw(0, "walk", 3, 0)))])
    worker.close()
    assert isinstance(answer, End | Failed)
    return answer


def pictures(cameras: Any) -> dict[str, Any]:
    return {camera: np.zeros((8, 8, 3), np.uint8) for camera in cameras}


@pytest.mark.parametrize("success", [NAN, "no", np.zeros(3), None, 1, np.array(["no"]), [True]])
def test_success_that_is_neither_true_nor_false_is_no_success(success: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = played(monkeypatch, step=Step(success, False))
    assert isinstance(answer, Failed)
    assert "step gave success" in answer.reason
    assert "neither true nor false" in answer.reason
    assert answer.key.start == 3


@pytest.mark.parametrize("success", [True, np.True_, np.array(True)])
def test_every_kind_of_boolean_counts(success: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = played(monkeypatch, step=Step(success, False))
    assert isinstance(answer, End)
    assert answer.take.success_step == 1


@pytest.mark.parametrize("state", [np.array([NAN, 0]), np.zeros(3), np.zeros((2, 1)), "left", np.array([None, 1])])
def test_a_state_is_a_vector_of_finite_numbers(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = played(monkeypatch, state=state)
    assert isinstance(answer, Failed)
    assert "a state is" in answer.reason


@pytest.mark.parametrize(
    "picture", [np.ones((8, 8, 3)), np.zeros((8, 8), np.uint8), np.zeros((0, 8, 3), np.uint8), "x"]
)
def test_a_picture_is_bytes_of_three_colours(picture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers from 0 to 1 used to be kept as black frames, and scored."""
    answer = played(monkeypatch, picture=picture)
    assert isinstance(answer, Failed)
    assert "image 'eye' must be uint8 (H, W, 3), not " in answer.reason


def test_nothing_is_no_step_and_no_state() -> None:
    for nothing in (lambda: checked_step(None), lambda: checked_state(toy.make().spec, None)):  # type: ignore[arg-type]
        with pytest.raises(ComponentError):
            nothing()


def test_a_simulator_may_say_success_as_one_or_nothing() -> None:
    assert all(checked_flag("x", value) for value in (True, np.float32(1), 1))
    assert not checked_flag("x", np.array([0.0]))
    for odd in (NAN, "no", 0.5, None, np.zeros(2)):
        with pytest.raises(ComponentError, match="x: success is .* neither true nor false"):
            checked_flag("x", odd)


class OneBad:
    """A large policy whose second row is ``bad``."""

    spec = PolicySpec("bad", "flow", horizon=3, action_dim=2, replan=3)

    def __init__(self, bad: Any) -> None:
        self.bad = bad

    def sample(self, observations: Any, draws: Any, warm: Any = None) -> Any:
        rows: list[Any] = [np.ones((3, 2), np.float32) for _ in observations]
        for row, draw in enumerate(draws):
            if draw.start == 1:
                rows[row] = self.bad
        return rows


@pytest.mark.parametrize(
    "bad", ["left", np.array([["a", "b"]] * 3), np.full((3, 2), None), np.full((3, 2), NAN), np.ones((2, 2)), None]
)
def test_one_bad_chunk_fails_its_own_take_alone(bad: Any) -> None:
    world = WorldSpec("toy", "eye", 2, 2)
    sampler = ArmSampler(OneBad(bad), Tools(OneBad.spec, world, RetrievalConfig()))
    blocks = sampler.sample([TakeState("walk", "base", Draw(0, "walk", start, 0)) for start in range(3)])
    assert [isinstance(block, Exception) for block in blocks] == [False, True, False]
    assert "the policy bad gave" in str(blocks[1])


@pytest.mark.parametrize("given", [np.zeros((2, 4)), np.zeros((3, 5)), np.zeros((3, 4), np.int64), None, "left"])
def test_embeddings_are_a_row_of_numbers_for_each_picture(given: Any) -> None:
    class Odd:
        spec = EncoderSpec("odd", 4, "1")

        def encode(self, images: Any) -> Any:
            return given

    with pytest.raises(ComponentError, match="the encoder odd gave"):
        embeddings_of(Odd(), np.zeros((3, 8, 8, 3), np.uint8))
