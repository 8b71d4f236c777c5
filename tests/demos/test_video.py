from __future__ import annotations

import csv
import os

import numpy as np
import pytest
import writers
from PIL import Image

from besttake import registry
from besttake.demos.build import Options, build
from besttake.demos.reading import Unreadable
from besttake.demos.video import read_frames
from besttake.encoders.hog import Hog


def picture(step):
    image = np.full((48, 64, 3), 10 + 9 * step, np.uint8)
    image[:8, :8] = 255
    return image


def video(path, length=12, fps=5):
    writers.write_video(path, np.stack([picture(step) for step in range(length)]), fps)


def pictures(folder, length=12):
    folder.mkdir(parents=True)
    for step in range(length):
        Image.fromarray(picture(step)).save(folder / f"{step}.png")


def table(path, length=12, head=("action_1", "state_0", "action_0", "state_1", "state_2"), bad=None):
    rows = np.arange(length * len(head), dtype=float).reshape(length, len(head))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows.tolist())
        if bad:
            file.write(bad)
    return rows


def test_videos_and_picture_folders_are_demonstrations_of_the_task_their_folder_names(tmp_path):
    video(tmp_path / "pour" / "one.mp4")
    pictures(tmp_path / "pour" / "two")
    video(tmp_path / "wipe" / "three.mp4", length=9)
    source = registry.demos(f"video:{tmp_path}")
    demos = list(source)
    assert [(d.id, d.task, len(d.frames)) for d in demos] == [
        ("pour/one.mp4", "pour", 12), ("pour/two", "pour", 12), ("wipe/three.mp4", "wipe", 9),
    ]  # fmt: skip
    assert source.fps == 5
    for step in range(12):
        assert np.abs(demos[0].frames[step].astype(int) - picture(step)).mean() < 3
        np.testing.assert_array_equal(demos[1].frames[step], picture(step))
    assert demos[0].actions is None
    assert demos[0].states is None


def test_a_table_beside_it_gives_states_and_actions_by_the_names_of_its_columns(tmp_path):
    video(tmp_path / "a.mp4")
    pictures(tmp_path / "b")
    rows = table(tmp_path / "a.csv")
    table(tmp_path / "b.csv")
    first, second = registry.demos(f"video:{tmp_path}?task=pour")
    for demo in (first, second):
        assert demo.task == "pour"
        np.testing.assert_array_equal(demo.actions, rows[:, [2, 0]])
        np.testing.assert_array_equal(demo.states, rows[:, [1, 3, 4]])


def test_what_cannot_be_read_is_named_and_the_rest_is_built(tmp_path):
    root = tmp_path / "in"
    video(root / "good.mp4")
    video(root / "cut.mp4")
    (root / "cut.mp4").write_bytes((root / "cut.mp4").read_bytes()[:300])
    (root / "text.mp4").write_text("not a video")
    for name, length, bad in (("short", 7, None), ("words", 12, "a,b,c,d,e\n"), ("strange", 12, None)):
        video(root / f"{name}.mp4")
        head = ("time", "speed") if name == "strange" else ("action_0", "state_0", "action_1", "state_1", "state_2")
        table(root / f"{name}.csv", length, head, bad)
    pictures(root / "torn")
    (root / "torn" / "5.png").write_bytes(b"\x89PNG broken")
    pictures(root / "mixed")
    Image.fromarray(picture(0)[:20]).save(root / "mixed" / "5.png")
    video(root / "single.mp4", length=1)
    made = build(registry.demos(f"video:{root}"), Hog(), tmp_path / "library", Options(skip_bad=True))
    assert [d.id for d in made.demos] == ["good.mp4"]
    left = {b.id: b.reason for b in made.head.left_out}
    assert "damaged video" in left["cut.mp4"]
    assert "damaged video" in left["text.mp4"]
    assert left["short.mp4"] == "has 12 frames that do not belong to its 7 steps"
    assert "not numbers" in left["words.mp4"]
    assert "without columns" in left["strange.mp4"]
    assert "5.png" in left["torn"]
    assert "different size" in left["mixed"]
    assert "1 step" in left["single.mp4"]
    assert all("\n" not in reason for reason in left.values())


def test_a_pipe_among_pictures_or_takes_does_not_block(tmp_path):
    folder = tmp_path / "take"
    folder.mkdir()
    os.mkfifo(folder / "0.png")
    with pytest.raises(Unreadable, match="cannot be read"):
        read_frames(folder)
    with pytest.raises(Unreadable, match="neither a video nor a folder"):
        read_frames(folder / "0.png")
