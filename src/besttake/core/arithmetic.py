"""Arithmetic that gives the same bits on every x86-64 CPU.

numpy leaves matrix products to a BLAS, and exp, log, tan and others to its own loops. Both choose their code by the CPU
they run on, and the results differ in the last bit, which a simulation with contacts can turn into another outcome.
Everything that decides a take or a score on the embedded testbed therefore uses these functions, which apply
elementary operations, rounded in one way only by IEEE 754, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LOG2_E = np.float32(np.log2(np.e))
# log 2 in two parts: the first has so few bits that its product with an exponent is exact.
_LOG_2_HIGH, _LOG_2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_TAYLOR = [np.float32(1 / factorial) for factorial in (5040, 720, 120, 24, 6, 2, 1, 1)]
_SWEEPS = 30
# einsum adds up a single column in pieces of numpy's buffer, and where they end depends on the batch.
_LONGEST = 8192


def product(rows: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """``rows @ matrix`` for (J,) or (K, J) and (J, I): each row is summed on its own, in an order set by J alone.

    A row therefore has the same bits alone and in any batch: einsum without ``optimize`` never calls the BLAS. It takes
    two to six times as long as the BLAS, which `rough_product` uses.
    """
    if matrix.shape[1] == 1 and len(matrix) > _LONGEST:
        parts = range(0, len(matrix), _LONGEST)
        return np.asarray(sum(product(rows[..., i : i + _LONGEST], matrix[i : i + _LONGEST]) for i in parts))
    # Both get one type: einsum would convert them in pieces and begin a new sum with each.
    kind = rows.dtype if rows.dtype == matrix.dtype else np.result_type(rows, matrix)
    left, right = np.ascontiguousarray(rows, kind), np.ascontiguousarray(matrix, kind)
    summed: NDArray[Any] = np.einsum("j,ji->i" if rows.ndim == 1 else "kj,ji->ki", left, right)
    return summed


def rough_product(rows: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """``rows @ matrix`` by the BLAS: fast, but its last bits depend on the CPU, the threads and the batch.

    Use it only for bounds and nominations that allow for rounding in any order and are then compared exactly.
    """
    return np.asarray(np.matmul(rows, matrix))  # any order: every caller allows for rounding


def length(vectors: NDArray[Any]) -> Any:
    """The Euclidean length along the last axis."""
    return np.sqrt(np.square(vectors).sum(axis=-1))


def exp(x: F32) -> F32:
    """The exponential of float32 numbers, clipped to [-87, 88]; within 2 units in the last place."""
    x = np.minimum(np.maximum(x, np.float32(-87)), np.float32(88))
    power = np.rint(x * _LOG2_E)
    rest = (x - power * _LOG_2_HIGH) - power * _LOG_2_LOW
    value: F32 = rest * _TAYLOR[0]
    for coefficient in _TAYLOR[1:-1]:
        value += coefficient
        value *= rest
    value += _TAYLOR[-1]
    # Two to that power: a float32 whose exponent field holds it and whose other bits are zero.
    value *= ((power.astype(np.int32) + 127) << 23).view(np.float32)
    return value


def orthonormal(block: F64) -> F64:
    """Orthonormal columns that span those of ``block`` (n, k), by Gram-Schmidt; dependent columns become zero."""
    columns = np.array(block.T, order="C")
    before = length(columns)
    for _ in range(2):  # one pass is inaccurate where columns were nearly parallel
        for i, column in enumerate(columns):
            size = length(column)
            column *= 0.0 if size <= 1e-10 * before[i] else 1 / size
            after = columns[i + 1 :]
            after -= product(after, column[:, None]) * column
        before = np.ones(len(columns))
    return columns.T


def eigh(symmetric: F64) -> tuple[F64, F64]:
    """``np.linalg.eigh``: ascending eigenvalues (n,) and eigenvectors (n, n), by Jacobi rotations.

    Each round rotates n / 2 disjoint pairs of axes at once, and the rounds of a sweep cover every pair. Sweeps repeat
    until the matrix is diagonal.
    """
    count = len(symmetric)
    size = count + count % 2
    rest, axes = np.zeros((size, size)), np.eye(size)
    rest[:count, :count] = symmetric
    order = np.arange(size)
    for _ in range(_SWEEPS):
        off_diagonal = np.abs(rest - np.diag(np.diag(rest))).max(initial=0.0)
        if off_diagonal <= 1e-15 * np.abs(rest).max(initial=0.0):
            break
        for _ in range(size - 1):
            _rotate(rest, axes, order[: size // 2], order[: size // 2 - 1 : -1])
            order = np.concatenate([order[:1], np.roll(order[1:], 1)])
    values = np.diag(rest)[:count]
    order = np.argsort(values, kind="stable")
    return values[order], axes[:count, order]


def _rotate(rest: F64, axes: F64, p: NDArray[np.intp], q: NDArray[np.intp]) -> None:
    """Turn each pair of axes (p, q) so that their entry of ``rest`` becomes zero."""
    entry = rest[p, q]
    slope = (rest[q, q] - rest[p, p]) / (2 * np.where(entry == 0, 1.0, entry))
    tangent = np.where(slope >= 0, 1.0, -1.0) / (np.abs(slope) + np.sqrt(slope * slope + 1))
    tangent = np.where(entry == 0, 0.0, tangent)
    cosine = 1 / np.sqrt(tangent * tangent + 1)
    sine = tangent * cosine
    for columns in (rest, rest.T, axes):
        first, second = columns[:, p], columns[:, q]
        columns[:, p], columns[:, q] = cosine * first - sine * second, sine * first + cosine * second
