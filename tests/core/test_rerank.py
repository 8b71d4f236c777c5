from __future__ import annotations

import numpy as np

from besttake.core.rerank import alike, closeness


def test_the_most_alike_frames_come_first_and_ties_go_to_the_lowest() -> None:
    library = np.array([[1.0, 0], [0, 1], [1, 0], [0.6, 0.8]])
    assert alike(np.array([1.0, 0]), library, 3).tolist() == [0, 2, 3]


def test_closeness_is_what_three_loops_give() -> None:
    rng = np.random.default_rng(0)
    chunks, shown, scale = rng.normal(size=(4, 5, 3)), rng.normal(size=(6, 5, 3)), np.array([1.0, 2.0, 0.5])
    slow = [-min(np.sqrt(np.mean(((c - s) / scale) ** 2)) for s in shown) for c in chunks]
    assert np.allclose(closeness(chunks, shown, scale), slow)


def test_a_demonstrated_chunk_is_as_close_as_can_be() -> None:
    rng = np.random.default_rng(1)
    shown = rng.normal(size=(6, 5, 3))
    candidates = np.stack([rng.normal(size=(5, 3)), shown[4], rng.normal(size=(5, 3))])
    scores = closeness(candidates, shown, np.zeros(3))
    assert scores.argmax() == 1
    assert scores[1] == 0
