"""A classifier trained on the takes of a run, kept in a file that names no code, and used as a scorer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.demos.build import build
from besttake.encoders.hog import Hog
from besttake.errors import BestTakeError
from besttake.progress import as_reporter
from besttake.scorers.score_run import windowed
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.testing.methods import _SquareDemos
from model_scorers.classifier import TrainedScorer, choose_strength, features, fit, train_classifier


def train(run: Path, out: Path) -> TrainedScorer:
    with Store.open(run) as store:
        return train_classifier(store, out, as_reporter(False))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 starts x 2 seeds that go on after success; a take that succeeds ends with a bright corner."""
    library = build(_SquareDemos(), Hog(), tmp_path_factory.mktemp("libraries") / "squares")
    rng, path = np.random.default_rng(5), tmp_path_factory.mktemp("runs") / "run"
    with Store.write(path, Manifest(identity={"seed": 0}, library=str(library.path))) as store:
        for start in range(24):
            for seed in range(2):
                frames, success = rng.integers(0, 60, (6, 32, 32, 3), np.uint8), bool(rng.random() < 0.5)
                frames[4:, :12, :12] = 255 if success else 30
                store.add(
                    Take(
                        TakeKey("p", "e", "check", start, "base", seed), 7 if success else None,
                        rng.normal(size=(11, 7)).astype(np.float32), rng.normal(size=(12, 8)).astype(np.float32),
                        Film.pack(frames), np.arange(0, 11, 2, dtype=np.int32),
                    )
                )  # fmt: skip
    return path


def test_a_trained_scorer_tells_success_and_is_the_regression_of_its_features(run: Path, tmp_path: Path) -> None:
    trained = train(run, tmp_path / "mine.scorer")
    (task,) = trained.tasks
    assert (task.task, task.takes) == ("check", 48)
    scorer = registry.scorer(trained.uri)
    assert scorer.spec.probability
    assert scorer.spec.trained_on == {("e", "check", start) for start in range(24)}
    with Store.open(run) as store:
        takes = [take for _, take in store.takes()]
    encoder = Hog()
    embedded = [encoder.encode(take.frames()) for take in takes]
    shown = [replace(windowed([take])[0], embeddings=e) for take, e in zip(takes, embedded, strict=True)]
    chances = np.array([score.values[1] for score in scorer.score(shown, None)])
    x = [features(e) for e in embedded]
    y = [take.success for take in takes]
    np.testing.assert_allclose(chances, fit(x, y, task.strength).chance(x), rtol=1e-9)
    assert np.mean((chances > 0.5) == y) > 0.9
    other = scorer.score([replace(shown[0], task="another")], None)
    assert np.isnan(other[0].values).all()


def test_a_file_that_was_changed_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.scorer"
    train(run, path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(BestTakeError, match=r"classifier:.*: the file is damaged; make it again"):
        registry.scorer(f"classifier:{path}")
    path.write_bytes(b"something else")
    with pytest.raises(BestTakeError, match=r"this is no file of `python -m model_scorers.classifier`"):
        registry.scorer(f"classifier:{path}")
    with pytest.raises(BestTakeError, match="No such file"):
        registry.scorer(f"classifier:{tmp_path / 'none'}")
    with pytest.raises(BestTakeError, match="name a file"):
        registry.scorer("classifier")


def test_a_run_with_too_few_of_one_outcome_cannot_be_learned_from(run: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    with Store.open(run) as store:
        takes, manifest = [take for _, take in store.takes()][:6], store.manifest
    with Store.write(few, Manifest(identity={"seed": 0}, library=manifest.library)) as store:
        for take in takes:
            store.add(take)
    with pytest.raises(BestTakeError, match="no task has 5 successes and as many failures"):
        train(few, tmp_path / "mine.scorer")


def test_no_scorer_is_judged_on_a_start_that_it_learned_from(run: Path, tmp_path: Path) -> None:
    from besttake.verbs.diagnose.setup import check_not_trained_on

    trained = train(run, tmp_path / "mine.scorer")
    spec = registry.scorer(trained.uri).spec
    check_not_trained_on([spec], {("e", "check", 24)})
    with pytest.raises(BestTakeError, match="scorer classifier was trained on start 3 of check in e; judge it on"):
        check_not_trained_on([spec], {("e", "check", 24), ("e", "check", 3)})
    with pytest.raises(BestTakeError, match="scorer classifier was trained on start 3 of check in e; judge it on"):
        check_not_trained_on([spec], {("e?size=128", "check", 3)})


def data(n: int = 120, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(2.0, 3.0, (n, d))
    return x, (x[:, 0] - x[:, 1] + rng.normal(0, 2, n) > 0).astype(float)


def newton(z: np.ndarray, y: np.ndarray, strength: float) -> np.ndarray:
    """The same minimum by iteratively reweighted least squares."""
    design = np.column_stack([z, np.ones(len(z))])
    penalty = np.diag([strength] * z.shape[1] + [0.0])
    w = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ w))
        gradient = design.T @ (p - y) / len(y) + penalty @ w
        curvature = (design.T * (p * (1 - p))) @ design / len(y) + penalty
        w -= np.linalg.solve(curvature, gradient)
    return w


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_the_fit_is_the_minimum_that_newtons_method_finds(strength: float) -> None:
    x, y = data()
    model = fit(x, y, strength)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    expected = newton(z, y, strength)
    np.testing.assert_allclose(model.weights, expected, atol=1e-4)
    np.testing.assert_allclose(model.chance(x), 1 / (1 + np.exp(-(z @ expected[:-1] + expected[-1]))), atol=1e-4)


def test_the_mean_chance_is_the_rate_of_success() -> None:
    x, y = data(seed=3)
    assert fit(x, y, 0.5).chance(x).mean() == pytest.approx(y.mean(), abs=1e-5)


def test_noise_asks_for_the_strongest_penalty_and_signal_for_a_weak_one() -> None:
    x, y = data(200, 6)
    noise = np.random.default_rng(1).normal(size=(200, 60))
    starts = [i // 3 for i in range(200)]
    assert choose_strength(noise, y, starts, (1e-3, 1.0)) == 1.0
    assert choose_strength(x, y, starts, (1e-3, 100.0)) == 1e-3


def test_takes_of_a_start_are_left_out_together() -> None:
    """With a copy of each take in another fold a weak penalty would win: the copies give the answer away."""
    rng = np.random.default_rng(2)
    x = np.repeat(rng.normal(size=(40, 60)), 3, axis=0)
    y = np.repeat((rng.random(40) < 0.5).astype(float), 3)
    starts = np.repeat(np.arange(40), 3).tolist()
    assert choose_strength(x, y, starts, (1e-4, 1.0)) == 1.0
    assert choose_strength(x, y, list(range(120)), (1e-4, 1.0)) == 1e-4
