"""Arithmetic in a fixed order agrees with numpy's own, and a row's bits depend on that row alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from besttake.core.arithmetic import eigh, exp, orthonormal, product, rough_product

RNG = np.random.default_rng(0)


def _normal(shape: tuple[int, ...], kind: type) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 40, 256), (7, 256, 40), (33, 60, 3), (50, 3, 1), (5, 9000, 1)])
def test_a_product_is_that_of_numpy_within_rounding(shape: tuple[int, int, int], kind: type) -> None:
    k, j, i = shape
    rows, matrix = _normal((k, j), kind), _normal((j, i), kind)
    result = product(rows, matrix)
    assert result.shape == (k, i)
    assert result.dtype == kind
    exact = rows.astype(np.float64) @ matrix.astype(np.float64)
    np.testing.assert_allclose(result, exact, atol=j * np.finfo(kind).eps * np.abs(rows).max() * np.abs(matrix).max())
    np.testing.assert_allclose(result, rough_product(rows, matrix), atol=1e-3 if kind is np.float32 else 1e-11)


@pytest.mark.parametrize("kinds", [(np.float32, np.float32), (np.float64, np.float64), (np.float32, np.float64)])
@pytest.mark.parametrize("width", [1, 2, 3, 17, 256])
@pytest.mark.parametrize("depth", [1, 5, 60, 9000, 20_000])
def test_a_row_has_the_same_bits_alone_in_any_batch_and_at_any_place(
    depth: int, width: int, kinds: tuple[type, type]
) -> None:
    rows, matrix = _normal((9, depth), kinds[0]), _normal((depth, width), kinds[1])
    together = product(rows, matrix)
    for row in range(9):
        assert np.array_equal(product(rows[row], matrix), together[row])
        assert np.array_equal(product(rows[row : row + 1], matrix)[0], together[row])
    order = RNG.permutation(9)
    assert np.array_equal(product(rows[order], matrix), together[order])
    assert np.array_equal(product(rows[2:7], matrix), together[2:7])


def test_how_arrays_lie_in_memory_does_not_change_a_bit() -> None:
    rows, matrix = RNG.standard_normal((20, 30)), RNG.standard_normal((30, 10))
    spread_out = np.zeros((40, 60))
    spread_out[::2, ::2] = rows
    expected = product(rows, matrix)
    assert np.array_equal(product(np.asfortranarray(rows), np.asfortranarray(matrix)), expected)
    assert np.array_equal(product(spread_out[::2, ::2], matrix), expected)


def test_a_product_of_several_columns_is_summed_in_order() -> None:
    rows, matrix = RNG.standard_normal((4, 100)), RNG.standard_normal((100, 6))
    expected = np.zeros((4, 6))
    for j in range(100):
        expected += rows[:, j, None] * matrix[j]
    assert np.array_equal(product(rows, matrix), expected)


def test_exp_is_within_two_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-87, 88, 1_000_003), RNG.normal(0, 1, 100_000), [0.0, -0.0, 1e-30, -1e-30]])
    x = x.astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert exp(x).dtype == np.float32
    assert np.max(np.abs(exp(x) - exact) / np.spacing(exact.astype(np.float32))) <= 2
    assert exp(np.zeros(1, np.float32))[0] == 1


@pytest.mark.parametrize("shape", [(5, 1), (8, 8), (100, 20)])
def test_orthonormal_columns_span_those_of_the_block(shape: tuple[int, int]) -> None:
    block = RNG.standard_normal(shape)
    basis = orthonormal(block)
    np.testing.assert_allclose(basis.T @ basis, np.eye(shape[1]), atol=1e-14)
    np.testing.assert_allclose(basis @ (basis.T @ block), block, atol=1e-12)


def test_columns_that_add_nothing_become_zero() -> None:
    few = RNG.standard_normal((30, 3))
    block = np.column_stack([few, few @ RNG.standard_normal((3, 4)), np.zeros(30)])
    basis = orthonormal(block)
    assert np.allclose(basis[:, 3:], 0, atol=1e-14)
    np.testing.assert_allclose(basis[:, :3].T @ basis[:, :3], np.eye(3), atol=1e-14)
    np.testing.assert_allclose(basis @ (basis.T @ block), block, atol=1e-12)


def _check_eigh(symmetric: NDArray[np.float64]) -> None:
    values, vectors = eigh(symmetric)
    size = max(1.0, float(np.abs(symmetric).max(initial=0.0))) * len(symmetric)
    np.testing.assert_allclose(values, np.linalg.eigh(symmetric)[0], atol=1e-13 * size)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(symmetric)), atol=1e-13)
    np.testing.assert_allclose(symmetric @ vectors, vectors * values, atol=1e-13 * size)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 33, 80])
def test_eigh_is_that_of_numpy(count: int) -> None:
    half = RNG.standard_normal((count, count + 5))
    _check_eigh(half @ half.T)
    _check_eigh(half[:, :count] + half[:, :count].T)


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_eigh_bears_repeated_eigenvalues(count: int) -> None:
    _check_eigh(np.zeros((count, count)))
    _check_eigh(3 * np.eye(count))
    axes = orthonormal(RNG.standard_normal((count, count)))
    twice = np.repeat(np.arange(1.0, count + 1), 2)[:count]
    _check_eigh((axes * twice) @ axes.T)
    _check_eigh(np.ones((count, count)))
