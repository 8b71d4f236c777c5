from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from besttake.reporting import takes
from besttake.result import Result
from besttake.takes.scores import Scores
from besttake.takes.take import Film


def shown_of(run: Path, result: Result, **limits: Any) -> takes.PageTakes:
    return takes.page_takes(run, result.cells, takes.PageLimits(**limits))


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
