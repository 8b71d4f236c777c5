"""The headroom relation: does headroom predict what selection gains? (paper, Fig. 1 and Sec. 4.2)

Headroom and gain of a cell both contain pass@1, which alone correlates them. Disjoint splits avoid this: there headroom
comes from one half of a cell's starts and gain from the other. What cannot be computed (fewer than three cells, no
variation) is an `Estimate` of None with a reason. Below eight cells a correlation has a value but no interval, because
we know of none that holds there.

`scipy.stats` takes most of a second to import, so the functions that use it import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.arithmetic import F64, product
from besttake.core.select import pooled_auc
from besttake.core.stats import Estimate

_DRAWS = 2_000
FEWEST = 8
"""A correlation has an interval, and the relation a line, from this many cells on."""


@dataclass(frozen=True)
class CellGains:
    """One policy on one task group: headroom (S,) and selection gain (S,) of each start; NaN where a start is missing.

    ``retrieval`` (S,) is the gain of retrieval at the same starts, where it was run.
    """

    policy: str
    group: str
    headroom: ArrayLike
    gain: ArrayLike
    retrieval: ArrayLike | None = None


@dataclass(frozen=True)
class Captures:
    """Capture, gain / headroom, over the ``cells`` that have headroom: mean, standard deviation and range."""

    cells: int = 0
    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Across:
    """What the paper reports over all cells besides the relation, with scores on ``window`` ("": each cell its own).

    ``retrieval``: r of headroom with the gain of retrieval. ``auc``: the AUC of the scores of all ``takes`` of all
    policies together; takes without a valid score (``invalid``) are left out.
    """

    window: str
    captures: Captures
    retrieval: Estimate
    auc: Estimate
    takes: int
    invalid: int


@dataclass(frozen=True)
class FittedLine:
    """The least-squares line of gain on headroom, and its 95 % bootstrap band at ``x`` for a figure."""

    slope: float
    intercept: float
    x: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class SplitHalfCorrelation:
    """r over random disjoint halves of the starts: mean and sd over the ``splits`` splits in which it is defined."""

    mean: float | None = None
    sd: float | None = None
    splits: int = 0
    reason: str = ""


@dataclass(frozen=True)
class HeadroomRelation:
    """Correlations of gain with headroom. Their intervals resample cells and the starts within them."""

    r: Estimate
    spearman: Estimate
    line: FittedLine | None
    disjoint: SplitHalfCorrelation
    within: dict[str, Estimate]
    leave_one_out: dict[str, Estimate]


def fit_line(x: ArrayLike, y: ArrayLike) -> FittedLine | None:
    """The least-squares line over cells and its pointwise 95 % band; None for too few cells or equal headrooms."""
    a, b, _ = _pairs(x, y)
    if a.size < FEWEST or np.ptp(a) < 1e-12:
        return None
    from_mean = a - a.mean()
    slope = np.sum(from_mean * b) / np.sum(from_mean**2)
    intercept = b.mean() - slope * a.mean()
    grid = np.linspace(min(0.0, float(a.min())), float(a.max()) * 1.05, 50)
    index = np.random.default_rng(0).integers(a.size, size=(_DRAWS, a.size))
    xs, ys = a[index], b[index]
    dx = xs - xs.mean(axis=1, keepdims=True)
    spread = np.sum(dx**2, axis=1)
    varied = spread > 1e-12
    slopes = np.sum(dx * ys, axis=1)[varied] / spread[varied]
    lines = ys.mean(axis=1)[varied, None] + slopes[:, None] * (grid - xs.mean(axis=1)[varied, None])
    low, high = np.percentile(lines, [2.5, 97.5], axis=0)
    return FittedLine(float(slope), float(intercept), grid.tolist(), low.tolist(), high.tolist())


def pearson(cells: Sequence[CellGains], *, draws: int = _DRAWS) -> Estimate:
    """Pearson r with a percentile interval from resampled cells and, within each, resampled starts.

    Resampling starts accounts for the noise of a cell with few of them. With 8 to 40 cells of 20 and 80 starts the
    interval covers 93 % or more, where a BCa interval over cells alone covers 72 to 96 % (docs/result.md).
    """
    return _nested(cells, lambda means: means, draws)


def spearman(cells: Sequence[CellGains], *, draws: int = _DRAWS) -> Estimate:
    """Spearman rho, with the same kind of interval as `pearson`."""
    from scipy.stats import rankdata

    return _nested(cells, lambda means: rankdata(means, axis=1), draws)


def _nested(cells: Sequence[CellGains], transform: Callable[[F64], F64], draws: int) -> Estimate:
    """Pearson r of the cells' means (draws, C) after ``transform``.

    Resampling starts pulls the replicas towards 0, so the interval is widened to include the value.
    """
    a, b, reason = _pairs(*_means(cells))
    if reason:
        return Estimate(n=a.size, reason=reason)
    from scipy.stats import pearsonr

    value = float(pearsonr(transform(a[None])[0], transform(b[None])[0]).statistic)
    if a.size < FEWEST:
        return Estimate(value, None, None, a.size, f"fewer than {FEWEST} cells: no interval")
    replicas = _rows_r(*map(transform, _nested_means(cells, draws)))
    if np.isfinite(replicas).mean() < 0.5:
        return Estimate(value, None, None, a.size, "too few cells differ for an interval")
    low, high = np.nanpercentile(replicas, [2.5, 97.5])
    return Estimate(value, min(float(low), value), max(float(high), value), a.size)


def _nested_means(cells: Sequence[CellGains], draws: int) -> tuple[F64, F64]:
    """Mean headroom and gain (draws, C) of cells drawn with replacement, each from starts drawn with replacement."""
    data = [d for d in map(_paired, cells) if len(d)]
    generator = np.random.default_rng(0)
    index = generator.integers(len(data), size=(draws, len(data)))
    means = np.empty((draws, len(data), 2))
    for j, starts in enumerate(data):
        unique, counts = np.unique(np.round(starts, 12), axis=0, return_counts=True)
        drawn = generator.multinomial(len(starts), counts / len(starts), size=int(np.sum(index == j)))
        means[index == j] = product(drawn.astype(np.float64), unique) / len(starts)
    return means[:, :, 0], means[:, :, 1]


def disjoint_splits(cells: Sequence[CellGains], *, splits: int = 50) -> SplitHalfCorrelation:
    """r with headroom from one random half of each cell's starts and gain from the other, over ``splits`` splits."""
    data = [d for d in map(_paired, cells) if len(d) >= 2]
    if len(data) < 3:
        return SplitHalfCorrelation(None, None, 0, "fewer than three cells with two starts")
    generator = np.random.default_rng(0)
    correlations = []
    for _ in range(splits):
        headroom, gain = np.empty(len(data)), np.empty(len(data))
        for j, starts in enumerate(data):
            shuffled = generator.permutation(starts)
            half = len(starts) // 2
            headroom[j], gain[j] = shuffled[:half, 0].mean(), shuffled[half:, 1].mean()
        correlations.append(float(_rows_r(headroom[None], gain[None])[0]))
    r = np.array(correlations)[np.isfinite(correlations)]
    if r.size < 2:
        return SplitHalfCorrelation(None, None, int(r.size), "headroom or gain does not vary over cells")
    return SplitHalfCorrelation(float(r.mean()), float(r.std(ddof=1)), int(r.size))


def relate(cells: Sequence[CellGains]) -> HeadroomRelation:
    """The headroom relation over cells, with its tests."""
    x, y = _means(cells)
    names = sorted({c.policy for c in cells})
    return HeadroomRelation(
        pearson(cells), spearman(cells), fit_line(x, y), disjoint_splits(cells),
        within={p: pearson([c for c in cells if c.policy == p]) for p in names},
        leave_one_out={p: pearson([c for c in cells if c.policy != p]) for p in names if len(names) > 1},
    )  # fmt: skip


def captures(cells: Sequence[CellGains]) -> Captures:
    """The part of the headroom that selection gains, over the cells that have headroom."""
    x, y = _means(cells)
    ratios = y[x > 1e-12] / x[x > 1e-12]
    if not ratios.size:
        return Captures()
    sd = float(ratios.std(ddof=1)) if ratios.size > 1 else None
    return Captures(int(ratios.size), float(ratios.mean()), sd, float(ratios.min()), float(ratios.max()))


def retrieval_pearson(cells: Sequence[CellGains]) -> Estimate:
    """r of headroom with the gain of retrieval, over the cells where it was run; the interval is that of `pearson`."""
    known = [replace(cell, gain=cell.retrieval) for cell in cells if cell.retrieval is not None]
    return pearson(known) if known else Estimate(reason="retrieval was not run")


def across(cells: Sequence[CellGains], outcomes: Sequence[F64], scores: Sequence[F64], window: str) -> Across:
    """`Across` of ``cells``, whose takes have ``outcomes`` and ``scores``, (S, N) for each cell."""
    y, s = stacked(outcomes), stacked(scores)
    valid = np.isfinite(y) & np.isfinite(s)
    auc = pooled_auc(y, s) if len(y) else Estimate(reason="no take has a score")
    invalid = int(np.sum(np.isfinite(y) & ~np.isfinite(s)))
    return Across(window, captures(cells), retrieval_pearson(cells), auc, int(valid.sum()), invalid)


def stacked(arrays: Sequence[F64]) -> F64:
    """The takes (S, N) of several cells as one array; cells with fewer seeds are filled up with NaN."""
    columns = max((array.shape[1] for array in arrays), default=1)
    rows = [np.pad(array, ((0, 0), (0, columns - array.shape[1])), constant_values=np.nan) for array in arrays]
    return np.concatenate([np.empty((0, columns)), *rows])


def _means(cells: Sequence[CellGains]) -> tuple[F64, F64]:
    """Mean headroom and gain (C,) of each cell; NaN for a cell without starts."""
    data = [_paired(c) for c in cells]
    x, y = (np.array([d[:, i].mean() if len(d) else np.nan for d in data]) for i in (0, 1))
    return x, y


def _paired(cell: CellGains) -> F64:
    rows = np.stack([np.asarray(v, dtype=np.float64) for v in (cell.headroom, cell.gain)], axis=1)
    kept: F64 = rows[~np.isnan(rows).any(axis=1)]
    return kept


def _pairs(x: ArrayLike, y: ArrayLike) -> tuple[F64, F64, str]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    kept = np.isfinite(a) & np.isfinite(b)
    a, b = a[kept], b[kept]
    if a.size < 3:
        return a, b, f"{a.size} {'cell' if a.size == 1 else 'cells'}; a correlation needs at least three"
    if np.ptp(a) < 1e-12:
        return a, b, "headroom is the same in all cells"
    if np.ptp(b) < 1e-12:
        return a, b, "gain is the same in all cells"
    return a, b, ""


def _rows_r(a: F64, b: F64) -> F64:
    """Pearson r (n,) of each row of ``a`` and ``b`` (n, C); NaN where one does not vary."""
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    left, right = np.mean(a * a, axis=1), np.mean(b * b, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.mean(a * b, axis=1) / np.sqrt(left * right)
    return np.where((left > 1e-14) & (right > 1e-14), np.clip(r, -1, 1), np.nan)
