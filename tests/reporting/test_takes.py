from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from besttake.measure.scores import Scores
from besttake.reporting import candidates, takes
from besttake.result import Result
from besttake.takes.film import Film
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store


def shown_of(run: Path, result: Result, **limits: Any) -> takes.PageTakes:
    return takes.page_takes(run, result.cells, result.policies, takes.Limits(**limits))


def test_shown_starts_are_what_they_are_called(run: Path) -> None:
    result = Result.load(run / "result.json")
    shown = shown_of(run, result)
    kinds = {start.kind for start in shown.starts}
    assert {"rescued", "missed"} <= kinds
    for start in shown.starts:
        plain = [take for take in start.takes if take.arm == "base"]
        ended = [take.success for take in plain]
        picked = [take for take in plain if take.picked]
        assert len(picked) == 1
        assert picked[0].score == max(take.score or 0 for take in plain)
        expected = {
            "rescued": picked[0].success and not all(ended),
            "missed": not picked[0].success and any(ended),
            "failed": not any(ended),
            "succeeded": all(ended),
        }
        assert expected[start.kind]


def test_a_run_whose_every_take_failed_says_why(synthetic: ModuleType, tmp_path: Path) -> None:
    result = synthetic.empty(tmp_path / "run")
    assert shown_of(tmp_path / "run", result).note == "This run has no takes yet."
    with Store.write(tmp_path / "run", Manifest()) as store:
        for seed, reason in enumerate(["the arm fell off", "no memory", "the arm fell off"]):
            store.add_error(TakeKey("p", "testbed", "pick", 0, "base", seed), reason)
    note = shown_of(tmp_path / "run", result).note
    assert note == "No take of this run was finished. 2 failed: the arm fell off. 1 failed: no memory."


def test_a_start_is_shown_with_the_takes_of_every_arm(run: Path) -> None:
    with Store.open(run) as store:
        arms = {row.key.arm for row in store.rows()}
    shown = shown_of(run, Result.load(run / "result.json"))
    assert len(arms) > 1
    assert {take.arm for take in shown.starts[0].takes} == arms
    for arm in arms:
        assert sum(take.picked for take in shown.starts[0].takes if take.arm == arm) == 1


def test_a_start_whose_arms_do_not_fit_keeps_the_plain_takes(run: Path) -> None:
    result = Result.load(run / "result.json")
    first = shown_of(run, result).starts[0]
    plain = sum(
        len(take.film.data) + takes._MOMENT_BYTES * len(take.best)
        for take in first.takes
        if take.arm == "base" and take.film
    )
    [start] = shown_of(run, result, bytes=plain + 1 + len(first.demo.data if first.demo else b"")).starts[:1]
    assert {take.arm for take in start.takes} == {"base"}
    assert start.hidden == sum(take.arm != "base" for take in first.takes)


def test_every_cell_gets_its_turn_before_any_gets_a_second(run: Path) -> None:
    result = Result.load(run / "result.json")
    with Store.open(run) as store:
        by_cell = candidates.candidates(result.cells, store.rows(), Scores.open(run))
    order = [(c.cell.policy, c.cell.group) for c in candidates.choose(by_cell) if c.kind == "rescued"]
    having = [i for i, own in by_cell.items() if any(c.kind == "rescued" for c in own)]
    assert len(set(order[: len(having)])) == len(having)


def test_every_start_has_its_films_in_a_page_with_room_for_them(run: Path) -> None:
    shown = shown_of(run, Result.load(run / "result.json"))
    assert shown.heat is not None
    assert len(shown.starts) == len(shown.heat.starts) == 60
    assert sorted(start.film for start in shown.heat.starts if start.film is not None) == list(range(60))
    for start in shown.heat.starts:
        assert start.film is not None
        inside = shown.starts[start.film]
        assert (inside.task, inside.start, inside.kind) == (start.task, start.start, start.kind)


def test_a_start_without_a_finished_take_is_in_the_map_but_has_no_films(synthetic: ModuleType, tmp_path: Path) -> None:
    shape = synthetic.Shape(
        policies=("p",), tasks=("t",), starts=3, seeds=1, arms=("base",), error="Boom", scored=False
    )
    result = synthetic.build(tmp_path / "run", shape)
    shown = shown_of(tmp_path / "run", result)
    assert shown.heat is not None
    assert [(one.kind == "broken", one.film is None, one.arms[0].takes == "x") for one in shown.heat.starts] == [
        (True, True, True), (False, False, False), (False, False, False)
    ]  # fmt: skip


def test_the_budget_is_kept(run: Path) -> None:
    result = Result.load(run / "result.json")
    whole = shown_of(run, result)
    few = shown_of(run, result, bytes=20_000)
    assert 0 < len(few.starts) < len(whole.starts)
    size = sum(len(take.film.data) for start in few.starts for take in start.takes)
    assert size <= 20_000


def test_large_cameras_are_shrunk_and_long_films_thinned(synthetic: ModuleType, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (100, 120, 200, 3)).astype(np.uint8)
    film, steps = takes.compact(Film.pack(noise), np.arange(100))
    assert (film.width, film.height) == (160, 96)
    assert film.count == len(steps) == 90
    assert (steps[0], steps[-1]) == (0, 99)
    assert film.unpack().shape == (90, 96, 160, 3)


def test_nearest_demonstration_frames_come_along_once_each(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Library:
        asked: list[int] = []  # noqa: RUF012

        def frame_image(self, index: int) -> np.ndarray:
            self.asked.append(index)
            return np.full((200, 200, 3), index, np.uint8)

    library = Library()
    monkeypatch.setattr(takes, "_library", lambda *_: library)
    shown = shown_of(run, Result.load(run / "result.json"), bytes=150_000)
    start = shown.starts[0]
    scores = Scores.open(run)
    assert scores is not None
    take = start.takes[0]
    key = next(k for k in scores if (k.policy, k.task, k.start, k.arm, k.seed) == (
        start.policy, start.task, start.start, "base", take.seed))  # fmt: skip
    import io

    with Image.open(io.BytesIO(start.demo.data)) as image:
        sheet = np.asarray(image.convert("L")).astype(float)
    width, columns = start.demo.width, start.demo.columns
    for place, index in zip(take.nearest, scores[key].nearest, strict=True):
        x = (place % columns) * width + width // 2
        y = (place // columns) * start.demo.height + start.demo.height // 2
        assert sheet[y, x] == pytest.approx(index, abs=4)


def test_a_run_of_outcomes_only_says_that_it_has_no_films(tmp_path: Path, run: Path) -> None:
    shown = shown_of(tmp_path, Result.load(run / "result.json"))
    assert shown.starts == []
    assert "no films" in shown.note
