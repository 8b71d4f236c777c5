"""A classifier trained on the takes of a run, kept in a file that names no code, and used as a scorer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.core.logistic import fit
from besttake.demos.build import build
from besttake.encoders.hog import Hog
from besttake.errors import BestTakeError
from besttake.progress import as_reporter
from besttake.scorers.classifier import TrainedScorer, features, train_classifier
from besttake.scorers.scoring import windowed
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.testing.methods import _Squares


def train(run: Path, out: Path) -> TrainedScorer:
    with Store.open(run) as store:
        return train_classifier(store, out, as_reporter(False))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 starts x 2 seeds that go on after success; a take that succeeds ends with a bright corner."""
    library = build(_Squares(), Hog(), tmp_path_factory.mktemp("libraries") / "squares")
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
    with pytest.raises(BestTakeError, match=r"this is no file of `besttake score --train`"):
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
