"""What numbers mean: said by the user, said by the format, measured, and never assumed without a word."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import writers

from besttake.demos.layout import Said, layout_of
from besttake.errors import LibraryError


@dataclass
class Numbers:
    """A source whose numbers can be looked at."""

    demos: list
    gripper_dim: int | None = None
    gripper_open: int | None = None
    eef_dims: tuple[int, ...] | None = None
    name: str = "numbers"
    camera: str = "wrist"
    fps: float = 10.0
    fingerprint: str = "0"
    notes: tuple[str, ...] = field(default=())

    def rows(self):
        return iter(self.demos)

    def __iter__(self):
        raise AssertionError("pictures are not needed to know what numbers mean")


def episodes(change=lambda actions: actions, states=slice(None), count=3):
    made = [writers.episode(i, side=16) for i in range(count)]
    return [(each.states[:-1, states], change(each.actions.copy())) for each in made]


def gripper(low, high):
    def change(actions):
        actions[:, 6] = np.where(actions[:, 6] > 0, high, low)
        return actions

    return change


def test_two_levels_are_the_gripper_and_the_fingers_tell_which_of_them_opens():
    for low, high in ((-1, 1), (0, 1), (0, 255), (1, 0), (1, -1)):
        layout = layout_of(Numbers(episodes(gripper(low, high))), Said())
        assert layout.gripper_dim == 6
        assert layout.events.gripper_threshold == (low + high) / 2
        assert layout.events.gripper_open == (-1 if low < high else 1)
        assert "action 6 was taken for the gripper" in layout.notes[0]


def test_without_fingers_an_assumption_is_made_and_told():
    only = episodes(gripper(0, 1), states=slice(0, 6))
    layout = layout_of(Numbers(only), Said())
    assert layout.events.gripper_open == 1
    assert "the gripper command 1 was taken for the one that opens" in layout.notes
    layout = layout_of(Numbers(episodes(states=slice(0, 6))), Said())
    assert layout.events.gripper_open == -1
    assert "the gripper command -1 was taken for the one that opens" in layout.notes


def test_commands_that_an_environment_cannot_take_are_turned_only_when_it_is_known_which_opens():
    blind = Numbers(episodes(gripper(0, 1), states=slice(0, 6)))
    with pytest.raises(LibraryError, match="whether the gripper command 0 or 1 opens.*say it with `gripper_open`"):
        layout_of(blind, Said(gripper_as=(-1.0, 1.0)))
    layout = layout_of(blind, Said(gripper_as=(-1.0, 1.0), gripper_open=0))
    assert layout.turn is not None
    np.testing.assert_allclose(layout.turn(np.array([0, 0.5, 1])), [-1, 0, 1])
    layout = layout_of(blind, Said(gripper_as=(-1.0, 1.0), gripper_open=1))
    assert layout.turn is not None
    np.testing.assert_allclose(layout.turn(np.array([0, 0.5, 1])), [1, 0, -1])
    assert (layout.events.gripper_threshold, layout.events.gripper_open) == (0, -1)
    assert layout_of(Numbers(episodes()), Said(gripper_as=(-1.0, 1.0))).turn is None


def test_the_fingers_are_believed_rather_than_the_format():
    layout = layout_of(Numbers(episodes(), gripper_open=1), Said())
    assert layout.events.gripper_open == -1
    assert any("the fingers were believed" in note for note in layout.notes)


def test_a_gripper_that_is_not_named_or_never_moves_is_told():
    def still(actions):
        actions[:, 6] = -1
        return actions

    (note,) = layout_of(Numbers(episodes(still), gripper_dim=6, eef_dims=(0, 1, 2)), Said()).notes
    assert note == "the gripper command is always -1, so no gripper event is seen; is `gripper_dim` 6 right?"

    def any_value(actions):
        actions[:, 6] = np.linspace(0, 1, len(actions)) ** 2
        return actions

    notes = " ".join(layout_of(Numbers(episodes(any_value)), Said()).notes)
    assert "do not say which action is the gripper, so no gripper event is seen; name it with `gripper_dim`" in notes
    assert "do not say where the end effector is, so no turn is seen; name it with `eef_dims`" in notes


def test_states_that_do_not_move_as_the_actions_say_are_not_taken_for_a_position():
    rng = np.random.default_rng(1)
    assert layout_of(Numbers(episodes()), Said()).eef_dims == (0, 1, 2)
    joints = [(rng.normal(0, 1, states.shape).astype(np.float32), actions) for states, actions in episodes()]
    assert layout_of(Numbers(joints), Said()).eef_dims is None
