"""What numbers mean: said by the user, said by the format, measured, and never assumed without a word."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import writers

from besttake.demos.build import Options, build
from besttake.demos.layout import DataHints, layout_of
from besttake.encoders.hog import Hog
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
        layout = layout_of(Numbers(episodes(gripper(low, high))), DataHints())
        assert layout.gripper_dim == 6
        assert layout.events.gripper_threshold == (low + high) / 2
        assert layout.events.gripper_open == (-1 if low < high else 1)
        assert "action 6 was taken for the gripper" in layout.notes[0]


def test_without_fingers_an_assumption_is_made_and_told():
    only = episodes(gripper(0, 1), states=slice(0, 6))
    layout = layout_of(Numbers(only), DataHints())
    assert layout.events.gripper_open == 1
    assert "the gripper command 1 was taken for the one that opens" in layout.notes
    layout = layout_of(Numbers(episodes(states=slice(0, 6))), DataHints())
    assert layout.events.gripper_open == -1
    assert "the gripper command -1 was taken for the one that opens" in layout.notes


def test_commands_that_an_environment_cannot_take_are_turned_only_when_it_is_known_which_opens():
    blind = Numbers(episodes(gripper(0, 1), states=slice(0, 6)))
    with pytest.raises(LibraryError, match="whether the gripper command 0 or 1 opens.*`gripper_open`"):
        layout_of(blind, DataHints(gripper_as=(-1.0, 1.0)))
    layout = layout_of(blind, DataHints(gripper_as=(-1.0, 1.0), gripper_open=0))
    assert layout.turn is not None
    np.testing.assert_allclose(layout.turn(np.array([0, 0.5, 1])), [-1, 0, 1])
    layout = layout_of(blind, DataHints(gripper_as=(-1.0, 1.0), gripper_open=1))
    assert layout.turn is not None
    np.testing.assert_allclose(layout.turn(np.array([0, 0.5, 1])), [1, 0, -1])
    assert (layout.events.gripper_threshold, layout.events.gripper_open) == (0, -1)
    assert layout_of(Numbers(episodes()), DataHints(gripper_as=(-1.0, 1.0))).turn is None


def test_the_fingers_are_believed_rather_than_the_format():
    layout = layout_of(Numbers(episodes(), gripper_open=1), DataHints())
    assert layout.events.gripper_open == -1
    assert any("the fingers are believed" in note for note in layout.notes)


def test_the_user_is_believed_before_all():
    said = DataHints(gripper_dim=2, eef_dims=(3, 4), gripper_threshold=0.1, gripper_open=0.4, angle=30)
    layout = layout_of(Numbers(episodes()), said)
    assert (layout.gripper_dim, layout.eef_dims) == (2, (3, 4))
    events = layout.events
    assert (events.gripper_threshold, events.gripper_open, events.angle) == (0.1, 1, 30)
    assert layout_of(Numbers(episodes()), replace(said, turns="every")).events == events.every_turn()


def test_noise_about_the_middle_of_a_range_is_no_change():
    rng = np.random.default_rng(0)

    def change(actions):
        actions[:, 6] = np.concatenate([np.zeros(8), 0.5 + rng.uniform(-0.04, 0.04, 8), np.ones(8)])
        return actions

    events = layout_of(Numbers(episodes(change), gripper_dim=6), DataHints()).events
    assert events.gripper_threshold == 0.5
    assert events.hysteresis == pytest.approx(0.1)


def test_more_demonstrations_are_looked_at_where_the_first_do_not_move_the_gripper():
    def still(actions):
        actions[:, 6] = 0
        return actions

    rows = episodes(still, count=1) * 20 + episodes(gripper(0, 1))
    for declared in (None, 6):
        layout = layout_of(Numbers(rows, gripper_dim=declared), DataHints())
        assert (layout.gripper_dim, layout.events.gripper_threshold, layout.events.gripper_open) == (6, 0.5, -1)


def test_a_gripper_that_is_not_named_or_never_moves_is_told():
    def still(actions):
        actions[:, 6] = -1
        return actions

    (note,) = layout_of(Numbers(episodes(still), gripper_dim=6, eef_dims=(0, 1, 2)), DataHints()).notes
    assert note == "the gripper command never changes, so no gripper event is seen; is `gripper_dim` 6 right?"

    def any_value(actions):
        actions[:, 6] = np.linspace(0, 1, len(actions)) ** 2
        return actions

    notes = " ".join(layout_of(Numbers(episodes(any_value)), DataHints()).notes)
    assert "do not say which action is the gripper, so no gripper event is seen; name it with `gripper_dim`" in notes
    assert "do not say where the end effector is, so no turn is seen; name it with `eef_dims`" in notes


def test_states_that_do_not_move_as_the_actions_say_are_not_taken_for_a_position():
    rng = np.random.default_rng(1)
    assert layout_of(Numbers(episodes()), DataHints()).eef_dims == (0, 1, 2)
    joints = [(rng.normal(0, 1, states.shape).astype(np.float32), actions) for states, actions in episodes()]
    assert layout_of(Numbers(joints), DataHints()).eef_dims is None


def test_a_library_without_gripper_changes_or_actions_says_so(make_demo, source_of, tmp_path):
    demos = [make_demo(i) for i in range(2)]
    made = build(source_of(demos), Hog(), tmp_path / "whole")
    assert made.head.notes == ()
    for demo in demos:
        demo.actions[:, 3] = np.where(demo.actions[:, 3] > 0, 1, 0.5)
    made = build(source_of(demos), Hog(), tmp_path / "still")
    assert "no demonstration opens or closes the gripper (action 3 never crosses 0)" in made.head.notes[0]
    seen = [make_demo(i, states=None, actions=None) for i in range(2)]
    made = build(source_of(seen, gripper_dim=None, eef_dims=None), Hog(), tmp_path / "seen", Options())
    assert made.head.notes == ("it has no actions: it can score takes but not be retrieved from",)
