"""Scores as a table: what is left of it when scorers are chosen."""

from besttake.measure.scores import Scores


def test_scores_of_no_take_can_be_cut_to_any_scorer() -> None:
    assert dict(Scores({}, "", {}).only(["manifold", "coverage"]).scorers) == {}
