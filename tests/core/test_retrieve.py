from __future__ import annotations

import json
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_retrieval import PlainRetriever

from besttake.core import retrieve
from besttake.core.retrieve import Candidates, RetrievalConfig, Retriever, alike, closeness, warm_start


def world(seed=0, demos=4, events=5, dim=6, horizon=3, action=2, state=4):
    rng = np.random.default_rng(seed)
    n = demos * events
    return rng, Candidates(
        embeddings=rng.standard_normal((n, dim)).astype(np.float32),
        chunks=rng.standard_normal((n, horizon, action)).astype(np.float32),
        demo=np.repeat(np.arange(demos), events),
        step=np.tile(np.arange(events) * 7, demos),
        states=(rng.standard_normal((n, state)) * [1, 10, 100, 0.01]).astype(np.float32),
        open=np.tile(np.arange(events) % 2 == 0, demos),
    )


def rms_z(values, query):
    """Root mean square z-difference over the dimensions that vary, written out."""
    flat = np.asarray(values, np.float64).reshape(len(values), -1)
    mean, sd = flat.mean(0), flat.std(0)
    keep = [i for i in range(flat.shape[1]) if sd[i] > 1e-9]
    q = np.asarray(query, np.float64).reshape(-1)
    return np.array(
        [np.sqrt(np.mean([((row[i] - mean[i]) / sd[i] - (q[i] - mean[i]) / sd[i]) ** 2 for i in keep])) for row in flat]
    )


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.tuples(*[st.sampled_from([0.0, 0.5, 1.0, 2.0])] * 3).filter(lambda w: sum(w) > 0),
    st.sampled_from(["next", "current", "frame"]),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from([0, 4]),
    st.booleans(),
)
def test_a_query_finds_what_the_formula_written_out_finds(seed, weights, rule, lead, reliability, rerank, gating):
    rng, known = world(seed)
    config = RetrievalConfig(
        rule=rule, weights=weights, lead=lead, reliability=reliability, rerank=rerank, gripper_gating=gating
    )
    image, chunk, state = rng.standard_normal(6), rng.standard_normal((3, 2)), rng.standard_normal(4)
    match = Retriever(known, config).query(image[None], chunk[None], state[None], [True])[0]

    parts = [rms_z(known.embeddings, image), rms_z(known.chunks, chunk), rms_z(known.states, state)]
    total = sum(w * p for w, p in zip(weights, parts, strict=True)) / sum(weights)
    goal = [min(i + lead, (i // 5) * 5 + 4) if rule == "next" else i for i in range(20)]
    total = total + reliability * rms_z(known.chunks[goal], chunk)
    pool = [i for i in range(20) if not gating or known.open[i]]
    if rerank:
        pool = sorted(pool, key=lambda i: parts[0][i])[:rerank]
    winner = min(pool, key=lambda i: total[i])
    assert match.candidate == winner
    assert match.distance == pytest.approx(total[winner], rel=1e-5)
    assert match.parts == pytest.approx([p[winner] for p in parts], rel=1e-5)
    np.testing.assert_array_equal(match.chunk, known.chunks[goal[winner]])
    assert (match.demo, match.step) == (known.demo[goal[winner]], known.step[goal[winner]])


def test_a_missing_modality_drops_out():
    rng, known = world(7)
    image, chunk = rng.standard_normal((1, 6)), rng.standard_normal((1, 3, 2))
    with_two = Retriever(known, RetrievalConfig(weights=(1, 1, 5))).query(image, chunk)[0]
    assert np.isnan(with_two.parts[2])
    assert with_two.distance == pytest.approx((with_two.parts[0] + with_two.parts[1]) / 2)
    assert np.isfinite(Retriever(known, RetrievalConfig(weights=(0, 1, 0))).query(image)[0].distance)


def test_gating_keeps_to_the_gripper_phase_where_it_can():
    rng, known = world(8)
    retriever = Retriever(known, RetrievalConfig(rule="current", gripper_gating=True))
    images = rng.standard_normal((30, 6))
    assert all(not known.open[m.candidate] for m in retriever.query(images, phases=[False] * 30))
    shut = Candidates(known.embeddings, known.chunks, known.demo, known.step, open=np.zeros(20, bool))
    gated = Retriever(shut, RetrievalConfig(gripper_gating=True)).query(images[:1], phases=[True])
    assert gated[0].candidate == Retriever(shut).query(images[:1])[0].candidate


def test_an_excluded_demonstration_is_never_matched():
    _, known = world(9)
    found = Retriever(known).query(known.embeddings, exclude=known.demo.tolist())
    assert all(m.demo != own for m, own in zip(found, known.demo, strict=True))
    one = Candidates(known.embeddings[:5], known.chunks[:5], known.demo[:5], known.step[:5])
    with pytest.raises(ValueError, match="excluded"):
        Retriever(one).query(known.embeddings[:1], exclude=[0])


def test_a_random_match_is_uniform_over_what_could_be_returned_and_repeats_with_its_generator():
    _, known = world(12)
    retriever = Retriever(known)
    rng = np.random.default_rng(0)
    drawn = [retriever.random(rng) for _ in range(4000)]
    counts = np.bincount([m.candidate for m in drawn], minlength=20)
    assert counts.min() > 130
    assert all(m.step != 0 for m in drawn)
    assert retriever.random(np.random.default_rng(5)).candidate == retriever.random(np.random.default_rng(5)).candidate


def test_a_configuration_survives_json_and_a_meaningless_one_is_refused():
    config = RetrievalConfig(rule="frame", weights=(1, 0.5, 0), prior=0.2, by_task=(("push", 0.0),), rerank=8, lead=2)
    assert RetrievalConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    endless = ({"weights": (1, np.nan, 1)}, {"weights": (np.inf, 1, 1)}, {"reliability": np.nan}, {"noise": np.nan})
    for wrong in (
        {"rule": "best"},
        {"weights": (0, 0, 0)},
        {"prior": 1.5},
        {"by_task": {"push": 2}},
        {"lead": 0},
        {"rerank": -1},
        *endless,
    ):
        with pytest.raises(ValueError):
            RetrievalConfig(**wrong)
    with pytest.raises(ValueError, match="at least one"):
        Retriever(Candidates(np.zeros((0, 2)), np.zeros((0, 1, 1)), np.zeros(0, int), np.zeros(0, int)))


@st.composite
def large_worlds(draw):
    """Candidates and queries that make trouble for bounds: near ties, duplicates, low rank, scales far apart."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    count, dim = draw(st.sampled_from([(40, 5), (150, 70), (300, 96)])), draw(st.sampled_from([2, 30, 90]))
    kind = draw(st.sampled_from(["isotropic", "low rank", "smooth", "duplicates", "near ties", "permuted", "scales"]))
    n, width = count

    def table(columns):
        if kind == "low rank":
            return rng.standard_normal((n, 2)) @ rng.standard_normal((2, columns))
        if kind == "smooth":
            return np.cumsum(rng.standard_normal((n, columns)), axis=0) + 50
        values = rng.standard_normal((n, columns))
        if kind == "permuted":  # the same differences in another order: distances that differ by rounding alone
            return np.stack([rng.permutation(values[0]) for _ in range(n)])
        if kind in ("duplicates", "near ties"):
            values = values[rng.integers(0, 5, n)]
        return values * 10.0 ** rng.integers(-6, 7, columns) if kind == "scales" else values

    def rounded(values):
        values = values.astype(np.float32)
        moved = np.nextafter(values, np.float32(rng.choice([-np.inf, np.inf])))
        return np.where(rng.random(values.shape) < 0.1, moved, values) if kind == "near ties" else values

    images, chunks, states = rounded(table(width)), rounded(table(dim)), rounded(table(3))
    known = Candidates(
        images, chunks.reshape(n, -1, 2) if dim > 1 else chunks, np.arange(n) // 10, np.arange(n) % 10, states,
        open=rng.random(n) < 0.5,
    )  # fmt: skip
    own = rng.integers(0, n, 8)
    far = np.array([0, 0, 1e-7, 1e-3, 0.3, 1, 100, draw(st.sampled_from([1.0, 1e9, 1e30]))])[:, None]

    def asked(values):
        flat = values.reshape(n, -1).astype(np.float64)
        spread = flat.std(axis=0) + 1e-3
        return flat[own] + far * spread * rng.standard_normal((8, flat.shape[1]))

    return known, [asked(table) for table in (images, chunks, states)], own


CHANGES: tuple[dict, ...] = (
    {},
    {"reliability": 0.7},
    {"reliability": 1e25},
    {"rerank": 7},
    {"rule": "frame"},
)


@pytest.mark.parametrize("examples", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_a_match_by_bounds_is_that_of_brute_force_to_the_last_bit(examples):
    asked = given(
        large_worlds(),
        st.tuples(*[st.sampled_from([0.0, 1e-12, 0.5, 1.0, 1e6])] * 3).filter(lambda w: sum(w) > 0),
        st.sampled_from(CHANGES), st.booleans(), st.booleans()
    )  # fmt: skip
    settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))(asked(agrees))()


def agrees(world, weights, changes, excluding, missing):
    known, (images, chunks, states), own = world
    config = RetrievalConfig(weights=weights, gripper_gating=excluding, **changes)
    rest = {
        "phases": [True, False, None, True] * 2 if excluding else None,
        "exclude": known.demo[own].tolist() if excluding else None,
    }
    asked = (images, chunks.reshape(8, *known.chunks.shape[1:]), None if missing else states)
    with mock.patch.object(retrieve, "_PLAIN", 0), np.errstate(over="ignore"):
        fast = Retriever(known, config)
        matches = fast.query(*asked, **rest)
        single = [
            fast.query(*(None if a is None else a[b : b + 1] for a in asked),
                       **{k: None if v is None else v[b : b + 1] for k, v in rest.items()})[0]
            for b in range(8)
        ]  # fmt: skip
        plain = PlainRetriever(known, config).query(*asked, **rest)
    np.testing.assert_array_equal([seen(m) for m in matches], [seen(m) for m in plain])
    np.testing.assert_array_equal([seen(m) for m in single], [seen(m) for m in plain])


def seen(match):
    return (match.candidate, match.demo, match.step, match.matched_step, match.distance, *match.parts)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf, 1e38, 1e300])
def test_a_query_that_is_hardly_a_number_is_matched_as_by_brute_force(strange):
    rng, known = world(13, demos=30)
    images, chunks, states = rng.standard_normal((4, 6)), rng.standard_normal((4, 3, 2)), rng.standard_normal((4, 4))
    images[1, 2] = chunks[2, 0, 0] = states[3, 1] = strange
    with mock.patch.object(retrieve, "_PLAIN", 0), np.errstate(all="ignore"):
        matches = Retriever(known, RetrievalConfig(reliability=0.1)).query(images, chunks, states)
        plain = PlainRetriever(known, RetrievalConfig(reliability=0.1)).query(images, chunks, states)
    np.testing.assert_array_equal([seen(m) for m in matches], [seen(m) for m in plain])


@pytest.mark.parametrize(("scale", "weight"), [(1e28, 1e-8), (1e30, 1e-7), (1e36, 1e-5), (1e37, 1.0)])
def test_huge_embeddings_of_little_weight_are_matched_as_by_brute_force(scale, weight):
    rng = np.random.default_rng(0)
    images = (rng.standard_normal((400, 400)) * scale).astype(np.float32)
    known = Candidates(images, np.zeros((400, 1, 1), np.float32), np.arange(400), np.zeros(400, np.int64))
    config = RetrievalConfig(rule="frame", weights=(weight, 1, 0))
    asked = images[:30] + 0.9 * scale * rng.standard_normal((30, 400)), np.zeros((30, 1, 1))
    matches, plain = Retriever(known, config).query(*asked), PlainRetriever(known, config).query(*asked)
    np.testing.assert_array_equal([seen(m) for m in matches], [seen(m) for m in plain])


def test_the_most_alike_frames_come_first_and_ties_go_to_the_lowest() -> None:
    library = np.array([[1.0, 0], [0, 1], [1, 0], [0.6, 0.8]])
    assert alike(np.array([1.0, 0]), library, 3).tolist() == [0, 2, 3]


def test_closeness_is_what_three_loops_give() -> None:
    rng = np.random.default_rng(0)
    chunks, shown, scale = rng.normal(size=(4, 5, 3)), rng.normal(size=(6, 5, 3)), np.array([1.0, 2.0, 0.5])
    slow = [-min(np.sqrt(np.mean(((c - s) / scale) ** 2)) for s in shown) for c in chunks]
    assert np.allclose(closeness(chunks, shown, scale), slow)


EPS, CHUNK = np.array([[1.0, -2.0]], np.float32), np.array([[10.0, 10.0]], np.float32)


def test_noise_and_prior_are_two_dials_and_equation_6_is_one_setting_of_them() -> None:
    np.testing.assert_allclose(warm_start(EPS, 0.7, 0.3, CHUNK), [[3.7, 1.6]], rtol=1e-6)
    np.testing.assert_allclose(warm_start(EPS, 0.1, 0.2, CHUNK), [[2.1, 1.8]], rtol=1e-6)
    np.testing.assert_allclose(warm_start(EPS, 1, 0.2, CHUNK), [[3.0, 0.0]], rtol=1e-6)
    assert warm_start(EPS, 0.7, 0.3, CHUNK).dtype == np.float32


def test_without_a_prior_it_is_cooled_to_the_bit_and_with_all_the_noise_it_is_eps_itself() -> None:
    eps = np.random.default_rng(0).standard_normal((10, 4), np.float32)
    chunk = np.full((10, 4), 1e30, np.float32)
    for noise in (0.0, 0.1, 0.7):
        assert np.array_equal(warm_start(eps, noise, 0.0, chunk), warm_start(eps, noise))
        assert np.array_equal(warm_start(eps, noise), np.float32(noise) * eps)
    assert warm_start(eps, 1.0, 0.0, chunk) is eps
    assert warm_start(eps, 1.0, 0.3, None) is eps
