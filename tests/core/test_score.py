from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from besttake.core import score, search
from besttake.core.score import Demos, cover
from besttake.core.search import Index


def nearest(queries, library):
    return Index.build(library).nearest(queries)


def unit(rng, rows, dim):
    x = rng.standard_normal((rows, dim)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def trajectory_like(rng, rows, dim, rank=24):
    mix = np.random.default_rng(99).standard_normal((rank, dim))
    walk = np.tanh(np.cumsum(rng.standard_normal((rows, rank)), axis=0) / 8)
    x = walk @ mix + 0.05 * rng.standard_normal((rows, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@st.composite
def hard_libraries(draw):
    """Frames and queries that make trouble for rough products: near ties, copies, lengths far apart, low rank."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    frames, dim = draw(st.sampled_from([(30, 3), (200, 65), (300, 400)]))
    kind = draw(st.sampled_from(["isotropic", "copies", "near ties", "low rank", "permuted"]))
    rows = rng.standard_normal((frames + 20, dim))
    if kind in ("copies", "near ties"):
        rows = rows[rng.integers(0, 6, len(rows))]
    if kind == "low rank":
        rows = rng.standard_normal((len(rows), 2)) @ rng.standard_normal((2, dim))
    if kind == "permuted":  # the same products in another order: sums that differ by rounding alone
        rows = np.stack([rng.permutation(rows[0]) for _ in rows])
    rows = rows.astype(np.float32)
    if kind == "near ties":
        rows = np.where(rng.random(rows.shape) < 0.1, np.nextafter(rows, np.float32(9)), rows)
    powers = draw(st.sampled_from([(0, 1), (-15, 15), (-44, -36)]))
    scale = (10.0 ** rng.integers(*powers, (len(rows), 1))).astype(np.float32)
    return (rows * scale)[:20], rows[20:] * (scale[20:] if draw(st.booleans()) else np.float32(1))


@settings(max_examples=60, deadline=None)
@given(hard_libraries())
def test_the_frame_found_is_that_of_float64_products_whatever_the_numbers(world):
    queries, library = world
    product = (queries.astype(np.float64)[:, None] * library.astype(np.float64)).sum(axis=2)
    trace = nearest(queries, library)
    np.testing.assert_array_equal(trace.frame, product.argmax(axis=1))
    np.testing.assert_array_equal(trace.best, product.max(axis=1).astype(np.float32))


def test_a_take_without_frames_or_with_a_broken_embedding_has_no_valid_score():
    library = unit(np.random.default_rng(6), 20, 8)
    assert math.isnan(score.manifold(nearest(np.zeros((0, 8), np.float32), library)))
    take = library[:3].copy()
    take[1, 2] = np.nan
    trace = nearest(take, library)
    assert math.isnan(score.manifold(trace))
    assert trace.frame.tolist() == [0, -1, 2]
    assert score.manifold(trace, np.array([True, False, True])) == pytest.approx(1.0, abs=1e-6)
    demos = Demos.of(np.zeros(20, np.int64), np.arange(20))
    [(trace, shares)] = cover(Index.build(library), [take], [[3, 1, 0, 2]], demos)
    assert np.isnan(shares).tolist() == [True, False, True, True]
    assert trace.frame.tolist() == [0, -1, 2]
    assert math.isnan(score.coverage(trace, float(shares[0])))
    empty = np.zeros((0, 8), np.float32)
    found = cover(Index.build(library), [empty, library[:2], empty], [[0], [2], [5]], demos)
    assert [len(trace.best) for trace, _ in found] == [0, 2, 0]
    assert [bool(np.isnan(shares[0])) for _, shares in found] == [True, False, True]
    assert cover(Index.build(library), [], [], demos) == []


def brute_coverage(take, library, demo, step):
    similar = take.astype(np.float64) @ library.astype(np.float64).T
    shares = []
    for j in np.unique(demo):
        rows = np.flatnonzero(demo == j)
        rows = rows[np.argsort(step[rows])]
        places = np.arange(1, len(rows) + 1)
        shares.append((places * similar[:, rows].max(axis=0)).sum() / places.sum())
    return similar.max(axis=1).mean() + max(shares)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_coverage_is_the_formula_written_out(frames, lengths, seed):
    rng = np.random.default_rng(seed)
    demo = np.repeat(np.arange(len(lengths)), lengths)
    step = np.concatenate([rng.permutation(n) for n in lengths])
    shuffle = rng.permutation(len(demo))
    demo, step = demo[shuffle], step[shuffle]
    take, library = unit(rng, frames, 10), unit(rng, len(demo), 10)
    first = int(rng.integers(1, frames + 1))
    [(trace, shares)] = cover(Index.build(library), [take], [[frames, first]], Demos.of(demo, step))
    np.testing.assert_array_equal(trace.best, nearest(take, library).best)
    for share, n in zip(shares, (frames, first), strict=True):
        assert score.coverage(trace, float(share), np.arange(frames) < n) == pytest.approx(
            brute_coverage(take[:n], library, demo, step), abs=1e-6
        )


def exact_shares(take, counts, library, demo, step):
    """The visited shares to the last bit: single float64 products, rounded once, of every frame of every demo."""
    visited = [[(q.astype(np.float64) * f).sum() for f in library] for q in take]
    shares = []
    for n in counts:
        seen = np.max(visited[:n], axis=0).astype(np.float32).astype(np.float64)
        best = -np.inf
        for j in np.unique(demo):
            rows = np.flatnonzero(demo == j)
            rows = rows[np.argsort(step[rows])]
            places = np.arange(1.0, len(rows) + 1)
            best = max(best, np.add.reduceat(places * seen[rows], [0])[0] / places.sum())
        shares.append(best)
    return np.array(shares)


def demonstrated(rng, make, frames, dim, length):
    """A library of demos of ``length`` with its owners, in mixed order."""
    library, demo, step = make(rng, frames, dim), np.arange(frames) // length, np.arange(frames) % length
    shuffle = rng.permutation(frames)
    return library[shuffle], demo[shuffle], step[shuffle]


@pytest.mark.parametrize("make", [unit, trajectory_like])
def test_shares_are_the_brute_force_ones_to_the_last_bit(make):
    rng = np.random.default_rng(10)
    library, demo, step = demonstrated(rng, make, 500, 256, 25)
    takes, counts = [make(rng, n, 256) for n in (30, 50, 9)], [[30, 11, 20], [50, 50, 1], [9, 4, 9]]
    index = Index.build(library)
    for take, n, (trace, shares) in zip(takes, counts, cover(index, takes, counts, Demos.of(demo, step)), strict=True):
        np.testing.assert_array_equal(shares, exact_shares(take, n, library, demo, step))
        np.testing.assert_array_equal(trace.frame, (take.astype(np.float64) @ library.T).argmax(axis=1))


def test_demonstrations_that_differ_by_less_than_rounding_are_told_apart():
    rng = np.random.default_rng(11)
    shown = trajectory_like(rng, 20, 300)
    copies = [shown + 5e-9 * rng.standard_normal(shown.shape) for _ in range(60)]
    library = np.concatenate(copies).astype(np.float32)
    demo, step = np.repeat(np.arange(60), 20), np.tile(np.arange(20), 60)
    takes = [trajectory_like(rng, 12, 300) for _ in range(12)]
    expected = [exact_shares(take, [12, 5], library, demo, step) for take in takes]
    covered = cover(Index.build(library), takes, [[12, 5]] * 12, Demos.of(demo, step))
    np.testing.assert_array_equal([shares for _, shares in covered], expected)


@pytest.mark.parametrize("make", [unit, trajectory_like])
def test_neither_grouping_nor_blocks_change_a_bit_of_what_takes_cover(make, monkeypatch):
    rng = np.random.default_rng(12)
    library, demo, step = demonstrated(rng, make, 3000, 300, 60)
    takes = [make(rng, int(n), 300) for n in rng.integers(1, 90, 30)]
    counts = [[len(take), (len(take) + 1) // 2, 1] for take in takes]
    demos, index = Demos.of(demo, step), Index.build(library)
    whole = cover(index, takes, counts, demos)
    others = [
        [cover(index, [take], [n], demos)[0] for take, n in zip(takes, counts, strict=True)],
        cover(index, takes[:7], counts[:7], demos) + cover(index, takes[7:], counts[7:], demos),
        cover(index, takes[::-1], counts[::-1], demos)[::-1],
    ]
    for name, size in (("_ROWS", 7), ("_PAIRS", 5), ("QUERIES", 50), ("FRAMES", 700)):
        monkeypatch.setattr(search, name, size)
        if name in vars(score):
            monkeypatch.setattr(score, name, size)
    others.append(cover(index, takes, counts, demos))
    for other in others:
        for (trace, shares), (again, same) in zip(whole, other, strict=True):
            np.testing.assert_array_equal(again.best, trace.best)
            np.testing.assert_array_equal(again.frame, trace.frame)
            np.testing.assert_array_equal(same, shares)
    searched = index.nearest(np.concatenate(takes))
    np.testing.assert_array_equal(np.concatenate([trace.best for trace, _ in whole]), searched.best)
    np.testing.assert_array_equal(np.concatenate([trace.frame for trace, _ in whole]), searched.frame)


def test_searching_many_takes_needs_no_more_memory_than_their_blocks():
    rng = np.random.default_rng(14)
    library = unit(rng, 30_000, 64)
    demos, index = Demos.of(np.arange(30_000) // 100, np.arange(30_000)), Index.build(library)
    takes = [unit(rng, 40, 64) for _ in range(150)]
    tracemalloc.start()
    cover(index, takes, [[40]] * 150, demos)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * 150 * 40 * 30_000 * 4
