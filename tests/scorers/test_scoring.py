from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.pixels import Pixels
from besttake.errors import RunError
from besttake.files import safetensors_metadata
from besttake.measure.scores import ScoreName, Scores, run_digest
from besttake.scorers import scoring
from besttake.scorers.portion import Context, score_portion
from besttake.scorers.scoring import Scoring, costs_of, score_run
from besttake.takes.pool import LocalPool
from besttake.takes.store import Store
from besttake.takes.summary import summarise
from besttake.types import F32, U8, Demo


def scored(run: Path, library: Library, pool: LocalPool | None = None) -> tuple[Scores, bytes]:
    """The scores made anew, and the file they are kept in."""
    (run / "scores.safetensors").unlink(missing_ok=True)
    with Store.open(run) as store:
        scores = score_run(store, library, library.encoder(), pool=pool)
    return scores, (run / "scores.safetensors").read_bytes()


def by_hand(frames: np.ndarray, library: Library, task: str) -> tuple[float, float]:
    """Manifold and coverage of embedded frames, one demonstration after the other."""
    demos = [library.embeddings[library.frame_demo == i] for i, demo in enumerate(library.demos) if demo.task == task]
    products = [frames.astype(np.float64) @ demo.T.astype(np.float64) for demo in demos]
    manifold = np.max([p.max(axis=1) for p in products], axis=0).mean()
    return manifold, manifold + max(np.average(p.max(axis=0), weights=np.arange(p.shape[1]) + 1) for p in products)


def test_what_a_worker_imports_to_score_is_little() -> None:
    """Scipy alone would double the start of a worker."""
    code = (
        "import sys, besttake.scorers.portion, besttake.scorers.coverage, besttake.takes.process;"
        " print(*({'scipy', 'rich', 'PIL', 'mujoco', 'typer'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_window_of_every_take_is_scored_as_by_hand(run: Path, library: Library) -> None:
    scores, _ = scored(run, library)
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


def test_portions_and_workers_change_no_bit_of_the_scores(
    run: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = scored(run, library)
    for portion in (1, 5, 100):
        monkeypatch.setattr(scoring, "_PORTION", portion)
        assert scored(run, library)[1] == whole
    monkeypatch.setattr(scoring, "_PORTION", 4)
    pool = LocalPool(2)
    try:
        assert scored(run, library, pool)[1] == whole
    finally:
        pool.close()


def test_scores_that_are_still_true_are_read_and_not_made_again(
    run: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = scored(run, library)
    monkeypatch.setattr(scoring, "score_portion", lambda *_: pytest.fail("scored again"))
    with Store.open(run) as store:
        again = score_run(store, library, library.encoder())
    assert {key: score.scores for key, score in again.items()} == {key: score.scores for key, score in made.items()}


def test_what_scoring_cost_is_not_believed_where_it_is_not_what_was_written(
    run: Path, library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for name in ("scores.safetensors", "scoring.json"):
        (copy / name).unlink(missing_ok=True)
    scored(copy, library)
    place = copy / "scoring.json"
    data = place.read_bytes()
    assert all(0 < seconds < 60 for seconds in costs_of(copy).values())
    for wrong in (data.replace(b": 0.0", b": 9.0", 1), data[:-1], b"[" * 100_000, b"[]", b'{"manifold": 3.0}'):
        assert wrong != data
        place.write_bytes(wrong)
        caplog.clear()
        assert costs_of(copy) == {}
        assert "scoring.json is damaged" in caplog.text
    place.unlink()
    os.mkfifo(place)
    assert costs_of(copy) == {}


def test_a_run_until_decided_that_goes_on_keeps_scores_that_were_added_and_what_scoring_cost(
    run: Path, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for name in ("scores.safetensors", "scoring.json"):
        (copy / name).unlink(missing_ok=True)
    with Store.open(copy) as store:
        first = Scoring(store, library, library.encoder()).finish()
        assert {*costs_of(copy)} == {"manifold", "coverage"}
        score_run(store, library, library.encoder(), ["smoothness"])
        whole = (copy / "scores.safetensors").read_bytes()
        assert Scoring(store, library, library.encoder(), ["coverage", "last"]).finish().scorers.keys() == {
            "coverage", "last",
        }  # fmt: skip
        after = Scores.open(copy)
        assert after is not None
        assert {*after.scorers} == {"manifold", "coverage", "smoothness", "last"}
        (copy / "scores.safetensors").write_bytes(whole)
        monkeypatch.setattr(scoring, "score_portion", lambda *_: pytest.fail("scored again"))
        again = Scoring(store, library, library.encoder()).finish()
    assert {key: one.scores for key, one in again.items()} == {key: one.scores for key, one in first.items()}
    assert {*costs_of(copy)} == {"manifold", "coverage", "smoothness", "last"}
    kept = Scores.open(copy)
    assert kept is not None
    assert {*kept.scorers} == {"manifold", "coverage", "smoothness"}


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
    several = ["manifold", "coverage", "consensus", "last", "progress", "dtw"]
    with Store.open(run) as store:
        scores = score_run(store, library, counting, several)
        assert list(scores.scorers) == several
        assert Counting.frames == sum(len(take.frame_steps) for _, take in store.takes())
        score_run(store, library, counting, several)
        assert Counting.frames == sum(len(take.frame_steps) for _, take in store.takes())


class Renamed:
    """The same under other names; the instruction says which task it is."""

    name, fingerprint, camera, fps = "renamed", "1", "front", 10.0
    gripper_dim, gripper_open, eef_dims = None, 1, None

    def __init__(self, demos: Iterable[Demo]) -> None:
        self.demos = demos

    def __iter__(self) -> Iterator[Demo]:
        words = {"pick": "take it up", "push": "shove it away"}
        for demo in self.demos:
            yield replace(demo, task=f"episode {int(demo.id) % 2}", instruction=words[demo.task])


@pytest.mark.parametrize("workers", [0, 1])
def test_the_instruction_finds_demonstrations_that_the_name_does_not(
    run: Path, library: Library, wanderings: Iterable[Demo], tmp_path: Path, workers: int
) -> None:
    named, _ = scored(run, library)
    renamed = build(Renamed(wanderings), Pixels(), tmp_path / "renamed")
    mixed, _ = scored(run, renamed)
    (run / "scores.safetensors").unlink()
    words = {"pick": "Take it up.", "push": "shove it away"}
    pool = LocalPool(workers) if workers else None
    with Store.open(run) as store:
        matched = score_run(store, renamed, renamed.encoder(), context=Context(words), pool=pool)
        again = score_run(store, renamed, renamed.encoder(), context=Context(words))
    if pool is not None:
        pool.close()
    assert {key: score.scores for key, score in matched.items()} == {k: s.scores for k, s in named.items()}
    assert matched.fingerprint == again.fingerprint != mixed.fingerprint
    assert any(mixed[key].scores != named[key].scores for key in named)


def changed(path: Path, name: str) -> None:
    """Negate one array of a safetensors file, and leave all else as it is."""
    data = path.read_bytes()
    arrays, head = load(data), safetensors_metadata(data)
    arrays[name] = -arrays[name]
    path.write_bytes(save(arrays, head))


def test_damaged_scores_are_named_and_only_they_are_made_again(
    run: Path, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = tmp_path / "run"
    shutil.copytree(run, again)
    with Store.open(again) as store:
        before = scoring.score_run(store, library, library.encoder())
        changed(again / "scores.safetensors", "scores manifold")
        with pytest.raises(RunError, match=r"scores.safetensors is damaged \(manifold\); run the same diagnosis again"):
            Scores.open(again)
        assert summarise(again).damaged_scores == ("manifold",)
        asked: list[str] = []

        def watched(*parts: Any) -> Any:
            asked.extend(scorer.spec.name for scorer in parts[1].scorers.values())
            return score_portion(*parts)

        monkeypatch.setattr(scoring, "score_portion", watched)
        mended = scoring.score_run(store, library, library.encoder())
        assert store.mended == ["scores.safetensors was damaged (manifold); what it lacks is scored anew"]
    assert set(asked) == {"manifold"}
    assert mended.digest() == before.digest()
    assert mended.names == before.names, "in another order an option could win a tie"


@pytest.mark.parametrize("name", ["best", "counts", "nearest", "steps"])
def test_scores_whose_common_part_is_damaged_are_all_made_again(
    run: Path, library: Library, tmp_path: Path, name: str
) -> None:
    again = tmp_path / "run"
    shutil.copytree(run, again)
    with Store.open(again) as store:
        before = scoring.score_run(store, library, library.encoder())
        changed(again / "scores.safetensors", name)
        with pytest.raises(RunError, match="scores.safetensors is damaged"):
            Scores.open(again)
        assert scoring.score_run(store, library, library.encoder()).digest() == before.digest()
    assert Scores.open(again) is not None


def test_the_digest_of_a_run_sees_a_single_bit_of_a_score(run: Path, library: Library) -> None:
    with Store.open(run) as store:
        scores = scoring.score_run(store, library, library.encoder())
    key = next(iter(scores))
    name = scores.names[0]
    before = run_digest("takes", scores)
    scores[key].scores[name] = float(np.nextafter(scores[key].scores[name], 9))
    assert run_digest("takes", scores) != before
