"""What was written is what is read: damage to any file of a library is named, and a stopped build goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from besttake.demos.build import BuildHooks, Options, build, build_cached
from besttake.demos.library import Library
from besttake.encoders.cache import CachedEncoder
from besttake.encoders.pixels import Pixels
from besttake.errors import ComponentError, LibraryError
from besttake.types import EncoderSpec


@pytest.fixture(scope="module")
def library(two_tasks, tmp_path_factory):
    return build(two_tasks, Pixels(), tmp_path_factory.mktemp("libraries") / "two")


def use(library: Library) -> None:
    """Use every file of a library as a diagnosis and its report do."""
    library.encoder()
    for task in library.tasks:
        view = library.view(task)
        assert view.index is not None
    library.chunk(0, 0, 4)
    library.state(0, 0)
    library.frame_image(0)


FILES = (
    "embeddings.npy", "frame_demo.npy", "frame_step.npy", "states.npy", "actions.npy", "pictures.bin",
    "picture_ends.npy", "encoder.safetensors",
)  # fmt: skip


def test_every_file_of_a_library_is_covered(library):
    assert {path.name for path in library.path.iterdir()} == {*FILES, "library.json"}
    use(Library.open(library.path))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_one_changed_bit_is_named_before_anything_rests_on_it(library, tmp_path, name, place):
    copy = Path(shutil.copytree(library.path, tmp_path / "copy"))
    data = bytearray((copy / name).read_bytes())
    data[round(place * (len(data) - 1))] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(LibraryError, match=rf"{name} is damaged .its checksum differs.*; build the library again"):
        Library.open(copy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"stride": 1', '"stride": 2'),
        ('"sha256": "', '"sha256": "0'),
        ('"format": 1', '"format": 1e308'),  # found by the campaign
    ],
)
def test_one_changed_value_of_the_head_is_noticed(library, tmp_path, old, new):
    copy = Path(shutil.copytree(library.path, tmp_path / "copy"))
    text = (copy / "library.json").read_text()
    assert old in text
    (copy / "library.json").write_text(text.replace(old, new, 1))
    with pytest.raises(LibraryError, match=r"library.json is damaged"):
        Library.open(copy)


def test_a_file_outside_the_library_is_not_read(library, tmp_path):
    copy = Path(shutil.copytree(library.path, tmp_path / "copy"))
    files = {**library.head.files, "../secret": library.head.files["states.npy"]}
    library.head.model_copy(update={"files": files}).write(copy)
    with pytest.raises(LibraryError, match="'../secret' is not the name of a file in it"):
        Library.open(copy)


def test_a_damaged_library_of_the_cache_is_built_again(two_tasks, tmp_path, caplog):
    made = build_cached(two_tasks, Pixels(), tmp_path)
    good = (made.path / "actions.npy").read_bytes()
    (made.path / "actions.npy").write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    again = build_cached(two_tasks, Pixels(), tmp_path)
    assert (again.path / "actions.npy").read_bytes() == good
    assert "actions.npy is damaged" in caplog.text


def test_colleagues_can_read_a_library(two_tasks, tmp_path):
    mask = os.umask(0o022)
    try:
        made = build(two_tasks, Pixels(), tmp_path / "shared")
    finally:
        os.umask(mask)
    assert oct(made.path.stat().st_mode & 0o777) == "0o755"
    assert {oct(path.stat().st_mode & 0o777) for path in made.path.iterdir()} == {"0o644"}


class Slow:
    """An encoder that is not cheap, and that dies after ``lives`` frames."""

    def __init__(self, lives: float = np.inf) -> None:
        self.spec = EncoderSpec("slow", 3, "slow-1", cheap=False)
        self.seen, self.lives = 0, lives

    def encode(self, images):
        self.seen += len(images)
        if self.seen > self.lives:
            raise KeyboardInterrupt
        means = images.reshape(len(images), -1, 3).mean(axis=1) + 1
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)


def test_a_stopped_build_leaves_no_library_and_encodes_nothing_twice(two_tasks, tmp_path):
    def cached(encoder):
        return CachedEncoder(encoder, tmp_path / "cache")

    different = len({frame.tobytes() for demo in two_tasks.demos for frame in demo.frames})
    whole = Slow()
    build(two_tasks, whole, tmp_path / "whole")
    dies, goes_on = Slow(lives=different // 2), Slow()
    with pytest.raises(ComponentError, match="KeyboardInterrupt"):
        build(two_tasks, cached(dies), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    made = build(two_tasks, cached(goes_on), tmp_path / "out")
    kept = dies.seen - 8  # the block in which it died is lost
    assert kept + goes_on.seen <= different + 8
    np.testing.assert_array_equal(made.embeddings, Library.open(tmp_path / "whole").embeddings)


def test_progress_counts_frames_and_knows_how_many_there_will_be(two_tasks, source_of, tmp_path):
    counted = type("Counted", (source_of,), {"__len__": lambda self: len(self.demos)})
    seen: list[tuple[int, int]] = []
    build(counted(two_tasks.demos), Slow(), tmp_path / "out", hooks=BuildHooks(frames=lambda *now: seen.append(now)))
    frames = sum(len(demo.frames) for demo in two_tasks.demos)
    assert seen[-1] == (frames, frames)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert len(seen) >= frames / 8
    assert all(expected == frames for _, expected in seen)  # all are of the same length
    seen.clear()
    build(two_tasks, Slow(), tmp_path / "uncounted", hooks=BuildHooks(frames=lambda *now: seen.append(now)))
    assert {expected for _, expected in seen} == {0}


@pytest.mark.parametrize("pad", ["hold", "repeat"])
def test_chunks_of_many_steps_are_those_of_each(two_tasks, tmp_path, pad):
    made = build(two_tasks, Pixels(), tmp_path / "made", Options(pad=pad))
    demo, step = np.array([(d, s) for d in (0, 1, len(made.demos) - 1) for s in range(made.demos[d].length)]).T
    chunks = made.chunks(demo, step, 7)
    for row, (d, s) in enumerate(zip(demo, step, strict=True)):
        own = made.actions[sum(one.length for one in made.demos[:d]) :][: made.demos[d].length]
        rest = own[-1].copy()
        if pad == "hold":
            rest[np.arange(len(rest)) != made.head.gripper_dim] = 0
        expected = [own[s + i] if s + i < len(own) else rest for i in range(7)]
        np.testing.assert_array_equal(chunks[row], expected)
        np.testing.assert_array_equal(made.chunk(int(d), int(s), 7), expected)
