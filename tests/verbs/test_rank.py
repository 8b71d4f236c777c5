"""Ranking recorded takes: real videos, real folders, a real LeRobot data set layout."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import writers
from PIL import Image

from besttake.config import Plan
from besttake.errors import BestTakeError, PlanError
from besttake.verbs.rank import rank

SIDE = 48


def film(path: float, frames: int = 20) -> np.ndarray:
    """A disk that moves along a line; ``path`` shifts the line, so that demonstrations have 0."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    shown = np.zeros((frames, SIDE, SIDE, 3), np.uint8)
    for f in range(frames):
        at = 0.15 + 0.7 * f / 19
        disk = (x - at) ** 2 + (y - 0.3 - path * (f > 4)) ** 2 < 0.02
        shown[f] = np.where(disk[..., None], (240, 120, 20), (40, 60, 90))
    return shown


def write_video(path: Path, frames: np.ndarray, rate: int = 10) -> Path:
    writers.write_video(path, frames, rate)
    return path


def write_folder(path: Path, frames: np.ndarray) -> Path:
    path.mkdir()
    for i, frame in enumerate(frames):
        Image.fromarray(frame).save(path / f"{i}.png")
    return path


def write_dataset(root: Path, films: list[np.ndarray]) -> Path:
    """A LeRobotDataset v3 that stores its pictures in the table."""
    camera = "observation.images.wrist"
    info = {
        "codebase_version": "v3.0", "fps": 10, "total_episodes": len(films),
        "features": {camera: {"dtype": "image", "shape": [SIDE, SIDE, 3], "names": None}},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    }  # fmt: skip
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (root / "data" / "chunk-000").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    rows, episodes = [], []
    for number, shown in enumerate(films):
        episodes.append({
            "episode_index": number, "tasks": ["move"], "length": len(shown), "data/chunk_index": 0,
            "data/file_index": 0,
        })  # fmt: skip
        for step, frame in enumerate(shown):
            picture = {"bytes": writers.png(frame), "path": f"{step}.png"}
            rows.append({camera: picture, "episode_index": number, "frame_index": step})
    pq.write_table(pa.Table.from_pylist(rows), root / "data" / "chunk-000" / "file-000.parquet")
    pq.write_table(pa.Table.from_pylist(episodes), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    return root


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("demos")
    for i in range(4):
        write_video(folder / f"demo{i}.mp4", film(0.01 * i))
    return folder


def test_the_take_that_stays_close_to_the_demonstrations_wins(demos: Path, tmp_path: Path) -> None:
    names = [
        write_video(tmp_path / "far.mp4", film(0.45)),
        write_video(tmp_path / "close.mp4", film(0.02)),
        write_folder(tmp_path / "between", film(0.2)),
    ]
    result = rank(names, demos, scorer="manifold")
    assert [Path(take.name).stem for take in result.takes] == ["close", "between", "far"]
    assert result.takes[0].place == 1
    for take in result.takes:
        assert take.score == pytest.approx(np.mean(take.best), abs=1e-5)
    assert [take.name for take in rank(str(names[0]), demos).takes] == [str(names[0])]
    assert (result.demos, result.window, result.scorer, result.encoder) == (4, "common", "manifold", "pixels")
    assert rank(names, demos).scorer == Plan.model_fields["scorer"].default[0]


def test_unequal_takes_are_compared_on_their_common_frames_and_it_says_so(demos: Path, tmp_path: Path) -> None:
    short = write_video(tmp_path / "short.mp4", film(0.45, frames=12))
    long = write_video(tmp_path / "long.mp4", film(0.1, frames=20))
    result = rank([short, long], demos, scorer="manifold")
    assert {take.scored for take in result.takes} == {12}
    for take in result.takes:
        assert take.score == pytest.approx(np.mean(take.best[:12]), abs=1e-5)
    assert "only the first 1.2 s" in result.notes[0]
    whole = rank([short, long], demos, window="episode")
    assert {take.scored for take in whole.takes} == {12, 20}
    assert "length gives the outcome away" in whole.notes[0]


def test_a_take_that_cannot_be_read_is_named_and_the_others_are_ranked(demos: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    names = [tmp_path / "broken.mp4", write_video(tmp_path / "fine.mp4", film(0.1))]
    result = rank(names, demos)
    assert [take.place for take in result.takes] == [1, None]
    assert "damaged" in result.takes[1].problem


def test_episodes_of_a_lerobot_data_set_are_takes(demos: Path, tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data set", [film(0.45), film(0.3), film(0.02)])
    result = rank([f"{root}#1", f"{root}#2"], demos)
    assert [take.name for take in result.takes] == [f"{root}#2", f"{root}#1"]
    several = rank([f"lerobot:{root}#0:3"], demos)
    numbers = [take.name.rpartition("#")[2] for take in several.takes]
    assert numbers[0] == "2"
    assert sorted(numbers) == ["0", "1", "2"]
    with pytest.raises(PlanError, match="no such episode"):
        rank([f"{root}#7"], demos)


def test_json_has_the_scores_and_the_traces(demos: Path, tmp_path: Path) -> None:
    names = [write_video(tmp_path / "odd.mp4", film(0.1)), write_video(tmp_path / "plain.mp4", film(0.3, 14))]
    result = rank(names, demos)
    data = json.loads(result.to_json())
    assert [take["score"] for take in data["takes"]] == [take.score for take in result.takes]
    assert [tuple(take["best"]) for take in data["takes"]] == [take.best for take in result.takes]


def test_the_same_take_at_another_frame_rate_scores_the_same_and_shares_its_place(demos: Path, tmp_path: Path) -> None:
    slow = write_video(tmp_path / "slow.mp4", film(0.1))
    fast = write_video(tmp_path / "fast.mp4", np.repeat(film(0.1), 3, axis=0), rate=30)
    far = write_video(tmp_path / "far.mp4", np.repeat(film(0.45), 3, axis=0), rate=30)
    result = rank([far, fast, slow], demos)
    assert [take.place for take in result.takes] == [1, 1, 3]
    first, second, third = result.takes
    assert Path(third.name).stem == "far"
    assert first.score == pytest.approx(second.score, abs=0.004)
    assert {take.scored for take in result.takes} == {20}
    assert {take.frames for take in result.takes} == {20, 60}
    assert "compared at 10 frames a second" in result.notes[0]
    folder = write_folder(tmp_path / "folder", np.repeat(film(0.1), 2, axis=0))
    assert {t.scored for t in rank([slow, folder], demos, fps=20).takes} == {20}


def test_a_take_of_one_frame_is_not_compared_and_cuts_no_other(demos: Path, tmp_path: Path) -> None:
    """All takes begin alike: on their first frame alone, the failure would win or tie."""
    names = [
        write_folder(tmp_path / "one", film(0.0, frames=1)),
        write_video(tmp_path / "far.mp4", film(0.45)),
        write_video(tmp_path / "close.mp4", film(0.02)),
    ]
    result = rank(names, demos)
    assert [Path(take.name).stem for take in result.takes] == ["close", "far", "one"]
    assert [take.scored for take in result.takes] == [20, 20, 0]
    assert "it has 1 frame (0.0 s), too short to be compared" in result.takes[2].problem


def turned(video: Path) -> Path:
    """The video with a tag that says: show it turned by 90 degrees clockwise, as a phone writes it."""
    data = bytearray(video.read_bytes())
    at = data.index(b"tkhd") + 44
    matrix = (0, 1 << 16, 0, -(1 << 16), 0, 0, SIDE << 16, 0, 1 << 30)
    data[at : at + 36] = struct.pack(">9i", *matrix)
    copy = video.with_name(f"turned-{video.name}")
    copy.write_bytes(data)
    return copy


def test_the_rotation_tag_of_a_video_is_honoured(demos: Path, tmp_path: Path) -> None:
    upright = write_video(tmp_path / "a.mp4", film(0.1))
    lying = write_video(tmp_path / "b.mp4", np.rot90(film(0.1), 1, axes=(1, 2)).copy())
    tagged = turned(lying)
    scores = {Path(take.name).name: take.score for take in rank([upright, lying, tagged], demos).takes}
    assert scores["turned-b.mp4"] == pytest.approx(scores["a.mp4"], abs=0.01)
    assert float(scores["b.mp4"] or 0) < float(scores["a.mp4"] or 0) - 0.02


@pytest.mark.parametrize("scorer", ["manifold", "coverage"])
def test_what_is_unlike_the_demonstrations_is_marked(demos: Path, tmp_path: Path, scorer: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, SIDE, SIDE, 3), np.uint8)
    names = [
        write_folder(tmp_path / "noise", noise),
        write_folder(tmp_path / "far", film(0.45)),
        write_folder(tmp_path / "like", film(0.015)),
    ]
    result = rank(names, demos, scorer=scorer)
    marks = {Path(take.name).name: take.unlike for take in result.takes}
    assert marks["like"] == ""
    assert marks["noise"] == "unlike the demonstrations: no better than its own pixels shuffled"
    assert marks["far"].startswith("unlike the demonstrations")
    assert (result.references.demos, result.references.held_out is not None) == (4, True)
    assert any("held out" in note for note in result.notes)


def test_held_out_demonstrations_score_as_ranking_them_against_the_others_says(demos: Path, tmp_path: Path) -> None:
    scores = []
    for i in range(4):
        others = tmp_path / f"without{i}"
        others.mkdir()
        for j in range(4):
            if j != i:
                shutil.copyfile(demos / f"demo{j}.mp4", others / f"demo{j}.mp4")
        (take,) = rank([demos / f"demo{i}.mp4"], others, encoder="hog", scorer="manifold").takes
        scores.append(take.score)
    held_out = rank([demos / "demo0.mp4"], demos, encoder="hog", scorer="manifold").references.held_out
    assert held_out == pytest.approx(min(score for score in scores if score is not None), abs=1e-3)


def test_the_error_of_a_score_is_that_of_the_jackknife(demos: Path, tmp_path: Path) -> None:
    (take,) = rank([write_video(tmp_path / "a.mp4", film(0.2))], demos, scorer="manifold").takes
    parts = np.array_split(np.array(take.best), 8)
    left = [np.mean(np.concatenate([p for j, p in enumerate(parts) if j != i])) for i in range(8)]
    assert take.error == pytest.approx(np.sqrt(7 / 8 * np.sum((left - np.mean(left)) ** 2)), rel=1e-3)


def test_the_command_fails_when_no_take_could_be_ranked(demos: Path, tmp_path: Path, call) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    broken = ("rank", tmp_path / "broken.mp4", "--demos", demos)
    code, *written = call(*broken)
    assert (code, "damaged" in " ".join(written)) == (2, True)
    assert call(*broken, demos / "demo1.mp4")[0] == 0


def test_missing_takes_and_demonstrations_are_named(demos: Path, tmp_path: Path) -> None:
    with pytest.raises(BestTakeError, match="nowhere"):
        rank([tmp_path / "nowhere.mp4"], demos)
    with pytest.raises(BestTakeError, match="neither a library"):
        rank([demos / "demo0.mp4"], tmp_path / "nothing")
    with pytest.raises(PlanError, match="no takes"):
        rank([], demos)
