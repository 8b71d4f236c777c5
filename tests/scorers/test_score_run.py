from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from besttake.demos.library import Library
from besttake.encoders.pixels import Pixels
from besttake.errors import RunError
from besttake.files import safetensors_metadata
from besttake.scorers import score_run
from besttake.scorers.score_run import Context, make_scorers, score_takes
from besttake.takes.manifest import Manifest
from besttake.takes.scores import ScoreName, Scores, run_digest
from besttake.takes.store import Store
from besttake.types import F32, U8
from besttake.verbs.runs import summarise

MANIFEST = Manifest(identity={"seed": 0})


def scored(run: Path, library: Library | None, *uris: str, context: Context | None = None) -> Scores:
    """The scores made anew."""
    (run / "scores.safetensors").unlink(missing_ok=True)
    return kept_or_scored(run, library, *uris, context=context)


def kept_or_scored(run: Path, library: Library | None, *uris: str, context: Context | None = None) -> Scores:
    encoder = None if library is None else library.encoder()
    scorers = [*make_scorers(uris or ("manifold", "coverage")).values()]
    with Store.open(run) as store:
        return score_takes(store, library, encoder, scorers, context=context)


def by_hand(frames: np.ndarray, library: Library, task: str) -> tuple[float, float]:
    """Manifold and coverage of embedded frames, one demonstration after the other."""
    demos = [library.embeddings[library.frame_demo == i] for i, demo in enumerate(library.demos) if demo.task == task]
    products = [frames.astype(np.float64) @ demo.T.astype(np.float64) for demo in demos]
    manifold = np.max([p.max(axis=1) for p in products], axis=0).mean()
    return manifold, manifold + max(np.average(p.max(axis=0), weights=np.arange(p.shape[1]) + 1) for p in products)


def test_every_window_of_every_take_is_scored_as_by_hand(run: Path, library: Library) -> None:
    scores = scored(run, library)
    encoder = library.encoder()
    with Store.open(run) as store:
        takes = [take for _, take in store.takes()]
    assert list(scores) == [take.key for take in takes]
    for take in takes:
        rivals = [t for t in takes if (t.key.task, t.key.start) == (take.key.task, take.key.start)]
        ends = {t.key: t.success_step if t.success_step is not None else t.steps for t in rivals}
        coded = encoder.encode(take.frames())
        got = scores[take.key]
        for window, end in (("episode", ends[take.key]), ("full", take.steps), ("common", min(ends.values()))):
            manifold, coverage = by_hand(coded[take.frame_steps <= end], library, take.key.task)
            assert got.scores[ScoreName("manifold", window)] == pytest.approx(manifold, abs=1e-6)
            assert got.scores[ScoreName("coverage", window)] == pytest.approx(coverage, abs=1e-6)
        pairs = (coded.astype(np.float64) * library.embeddings[got.nearest]).sum(axis=1)
        np.testing.assert_allclose(got.best, pairs, atol=1e-6)
        assert {library.demos[library.frame_demo[f]].task for f in got.nearest} == {take.key.task}


def test_batches_change_no_bit_of_the_scores(run: Path, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scored(run, library).digest()
    for size in (1, 5, 100):
        monkeypatch.setattr(score_run, "_BATCH", size)
        assert scored(run, library).digest() == whole


def test_only_takes_whose_start_has_changed_are_scored_again(run: Path, library: Library, tmp_path: Path) -> None:
    ours = make_scorers(["manifold", "coverage"]).values()
    before = scored(run, library)
    copy = tmp_path / "run"
    with Store.open(run) as store, Store.write(copy, MANIFEST) as part:
        takes = [take for _, take in store.takes()]
        for take in takes[:-1]:
            part.add(take)
        some = score_takes(part, library, library.encoder(), [*ours])
        part.add(takes[-1])
        whole = score_takes(part, library, library.encoder(), [*ours])
        assert some.new > whole.new == sum(len(take.frame_steps) for take in takes[-3:])
        assert whole.digest() == before.digest()
        assert score_takes(part, library, library.encoder(), [*ours]).new == 0
        score_takes(part, library, library.encoder(), [*make_scorers(["smoothness"]).values()])
        score_takes(part, library, library.encoder(), [*ours])
    kept = Scores.open(copy)
    assert kept is not None
    assert [*kept.scorers] == ["manifold", "coverage", "smoothness"]


class Counting(Pixels):
    """Counts the frames that it encodes."""

    frames = 0

    def encode(self, images: U8) -> F32:
        Counting.frames += len(images)
        return super().encode(images)


def test_no_frame_is_encoded_twice_whoever_reads_its_embedding(run: Path, library: Library) -> None:
    (run / "scores.safetensors").unlink(missing_ok=True)
    encoder, Counting.frames = library.encoder(), 0
    assert isinstance(encoder, Pixels)
    counting = Counting.from_arrays(encoder.arrays())
    several = ["manifold", "coverage"]
    scorers = [*make_scorers(several).values()]
    with Store.open(run) as store:
        scores = score_takes(store, library, counting, scorers)
        assert list(scores.scorers) == several
        assert Counting.frames == sum(len(take.frame_steps) for _, take in store.takes())
        score_takes(store, library, counting, scorers)
        assert Counting.frames == sum(len(take.frame_steps) for _, take in store.takes())


def changed(path: Path, name: str) -> None:
    """Negate one array of a safetensors file, and leave all else as it is."""
    data = path.read_bytes()
    arrays, head = load(data), safetensors_metadata(data)
    arrays[name] = -arrays[name]
    path.write_bytes(save(arrays, head))


@pytest.mark.parametrize("name", ["scores", "best", "counts", "nearest", "steps"])
def test_damaged_scores_are_named_and_made_again(run: Path, library: Library, tmp_path: Path, name: str) -> None:
    again = Path(shutil.copytree(run, tmp_path / "run"))
    before = scored(again, library)
    changed(again / "scores.safetensors", name)
    with pytest.raises(RunError, match=r"scores.safetensors is damaged; run the same diagnosis again"):
        Scores.open(again)
    assert summarise(again).damaged_scores
    mended = kept_or_scored(again, library)
    assert mended.digest() == before.digest()
    assert mended.names == before.names, "in another order an option could win a tie"
    assert Scores.open(again) is not None


def test_the_digest_of_a_run_sees_a_single_bit_of_a_score(run: Path, library: Library) -> None:
    scores = scored(run, library)
    key = next(iter(scores))
    name = scores.names[0]
    before = run_digest("takes", scores)
    scores[key].scores[name] = float(np.nextafter(scores[key].scores[name], 9))
    assert run_digest("takes", scores) != before


ODD = """
import sys
import numpy as np
from besttake.errors import BestTakeError
from besttake.scorers.base import Score, ScorerSpec

class Odd:
    def __init__(self, way, **options):
        self.way, self.calls = way, 0
        self.spec = ScorerSpec(f"odd {way}", reads=("actions",), fingerprint="1", **options)

    def score(self, takes, demos):
        self.calls += 1
        if self.way == "raises":
            raise ValueError("no such\\n  thing")
        if self.way == "ours":
            raise BestTakeError("not\\ntoday")
        if self.way == "interrupted":
            raise KeyboardInterrupt
        if self.way == "endless":
            return iter(lambda: Score([1.0] * 3), None)
        value = {"nan": np.nan, "restless": self.calls}.get(self.way, 1.0)
        longer = 1000.0 * ("length" in self.way)
        if self.way == "half":
            return [Score([np.nan if i else 1.0] * 3) for i, take in enumerate(takes)]
        print("as I said")
        return [Score([value - longer * len(take.actions)] * 3) for take in takes][self.way == "short" :]

def make(way="well"):
    return Odd(way)

def with_camera():
    return Odd("camera", camera="wrist")
"""
WRONG = {
    "raises": r"^scorer odd raises: ValueError: no such thing \(.*odd_scorer\.py:\d+\)$",
    "short": r"^scorer odd short: 26 scores for 27 takes$",
    "ours": r"^scorer odd ours: not today$",
    "endless": r"^scorer odd endless: 28 scores for 27 takes$",
    "nan": r"^scorer odd nan: it gave none of 54 takes a number$",
}


@pytest.fixture(autouse=True)
def odd(module) -> None:
    module("odd_scorer", ODD)


def ways(*names: str) -> list[str]:
    return [f"python:odd_scorer:make?way={name}" for name in names]


def test_scorers_that_fail_lose_their_own_columns_with_one_line_each(
    run: Path, library: Library, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_run, "_BATCH", 100)
    alone = scored(run, library, "manifold")
    scores = scored(run, library, *ways(*WRONG, "well"), "manifold")
    assert {name.removeprefix("odd ") for name in scores.lost} == {*WRONG}
    for way, line in WRONG.items():
        assert re.search(line, scores.lost[f"odd {way}"])
    assert "as I said" not in capfd.readouterr().out
    assert list(scores.scorers) == ["odd well", "manifold"]
    for key, one in alone.items():
        assert {name: value for name, value in scores[key].scores.items() if name.scorer == "manifold"} == one.scores
    kept = Scores.open(run)
    assert kept is not None
    assert set(kept.scorers) == {"manifold", "odd well"}


def test_who_stops_a_scorer_keeps_the_scores_of_those_before_it(run: Path, library: Library) -> None:
    with pytest.raises(KeyboardInterrupt):
        scored(run, library, *ways("well", "interrupted"), "manifold")
    kept = Scores.open(run)
    assert kept is not None
    assert set(kept.scorers) == {"manifold", "odd well"}
    assert kept_or_scored(run, library, *ways("well"), "manifold").new == 0


def test_a_scorer_that_reads_length_is_noticed_though_it_does_not_say_so(
    run: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_run, "_BATCH", 4)
    scores = scored(run, library, *ways("length", "well", "half", "restless"))
    assert scores.length == {"odd length"}
    assert not scores.lost
    kept = Scores.open(run)
    assert kept is not None
    assert kept.length == {"odd length"}
