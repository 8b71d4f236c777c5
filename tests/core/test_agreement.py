"""The parts of disagreement against populations whose parts are known, and pairs counted one by one."""

from itertools import combinations

import numpy as np
import pytest

from besttake.core.agreement import sources
from besttake.core.policy_pool import pools


def drawn(rng: np.random.Generator, starts: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Takes of one task: chance .5 on average, moved by the start, the env's seed and the policy's seed."""
    seeds = np.tile(np.repeat([[0, 1, 2, 3]], 2, axis=1), (starts, 1))  # each policy seed twice
    envs = seeds // 2
    chance = 0.5 + 0.2 * rng.choice([-1, 1], (starts, 1))
    chance = chance + 0.15 * rng.choice([-1, 1], (starts, 2))[np.arange(starts)[:, None], envs]
    chance = chance + 0.1 * rng.choice([-1, 1], (starts, 4))[np.arange(starts)[:, None], seeds]
    return (rng.random(chance.shape) < chance).astype(float), envs, seeds


def test_the_parts_are_those_of_the_population():
    """Variances .04 of the start, .0225 of the env's seed, .01 of the policy's seed, in .25 of an outcome."""
    y, envs, seeds = drawn(np.random.default_rng(0))
    found = sources(y, ["t"] * len(y), envs, seeds)
    expected = {"start": 0.16, "env seed": 0.09, "policy seed": 0.04, "numerics": 0.71}
    for name, share in expected.items():
        part = found.parts[name]
        assert part.value == pytest.approx(share, abs=0.03)
        assert part.low is not None
        assert part.high is not None
        assert part.low <= share <= part.high
    assert sum(part.value or 0 for part in found.parts.values()) == pytest.approx(1)


def test_disagreement_is_counted_over_pairs_that_share_just_so_much():
    y, envs, seeds = drawn(np.random.default_rng(1), starts=12)
    tasks = ["a"] * 5 + ["b"] * 7
    found = sources(y, tasks, envs, seeds)
    by_hand: dict[str, list[float]] = {"start": [], "env seed": [], "policy seed": []}
    for s in range(len(y)):
        own: dict[str, list[float]] = {name: [] for name in by_hand}
        for i, j in combinations(range(8), 2):
            name = "policy seed" if seeds[s, i] == seeds[s, j] else "env seed" if envs[s, i] == envs[s, j] else "start"
            own[name].append(float(y[s, i] != y[s, j]))
        for name, unlike in own.items():
            by_hand[name].append(float(np.mean(unlike)))
    assert {name: pytest.approx(np.mean(rates)) for name, rates in by_hand.items()} == {
        name: found.disagreement[name] for name in by_hand
    }
    between = [np.mean([np.mean(y[i][:, None] != y[j][None]) for j in range(12) if j != i and tasks[j] == tasks[i]])
               for i in range(12)]  # fmt: skip
    assert found.disagreement["task"] == pytest.approx(np.mean(between))


def fleiss(y: np.ndarray) -> float:
    p, alike = y.mean(), np.mean([np.mean([a == b for a, b in combinations(row, 2)]) for row in y])
    chance = p**2 + (1 - p) ** 2
    return float((alike - chance) / (1 - chance))


def test_within_one_task_the_part_of_the_start_is_nearly_kappa_and_tasks_alone_are_no_agreement():
    rng = np.random.default_rng(2)
    y = (rng.random((3000, 3)) < rng.choice([0.2, 0.8], (3000, 1))).astype(float)
    assert sources(y, ["t"] * 3000).start.value == pytest.approx(fleiss(y), abs=1e-3)
    task = np.repeat([0, 1], 1500)
    y = (rng.random((3000, 3)) < np.where(task, 0.2, 0.8)[:, None]).astype(float)
    assert fleiss(y) > 0.3
    assert sources(y, task.tolist()).start.value == pytest.approx(0, abs=0.03)


def test_where_each_task_has_one_start_nothing_can_be_said():
    assert sources([[1, 0], [1, 1]], ["a", "b"]).reason
    assert sources([[1], [0]], ["a", "a"]).reason == "one outcome per start"


def test_one_take_each_is_the_mean_over_all_pairs_of_takes_and_the_score_picks_the_higher():
    rng = np.random.default_rng(3)
    outcomes = {name: (rng.random((40, 3)) < rate).astype(float) for name, rate in (("a", 0.6), ("b", 0.5))}
    scores = {name: rng.random((40, 3)) for name in outcomes}
    outcomes["b"][0] = np.nan  # b has no take of the first start
    (pool,) = pools({name: range(40) for name in outcomes}, outcomes, scores)
    each, picked = [], []
    for s in range(1, 40):
        pairs = [(i, j) for i in range(3) for j in range(3)]
        each.append(np.mean([max(outcomes["a"][s, i], outcomes["b"][s, j]) for i, j in pairs]))
        chosen = [outcomes["a"][s, i] if scores["a"][s, i] > scores["b"][s, j] else outcomes["b"][s, j]
                  for i, j in pairs]  # fmt: skip
        picked.append(np.mean(chosen) - np.mean(outcomes["a"][s]))
    assert (pool.starts, pool.best) == (39, "a")
    assert pool.each.value == pytest.approx(np.mean(each))
    assert pool.picked is not None
    assert pool.picked.value == pytest.approx(np.mean(picked))
    two = [np.mean([max(row[i], row[j]) for i, j in combinations(range(3), 2)]) for row in outcomes["a"][1:]]
    assert pool.gain.value == pytest.approx(np.mean(each) - np.mean(two))
