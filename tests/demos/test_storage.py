"""What was written is what is read: damage to any file of a library is named, and a stopped build goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from besttake.demos.build import Options, build, build_cached
from besttake.demos.checks import check_content
from besttake.demos.library import Library
from besttake.encoders.cache import CachedEncoder
from besttake.encoders.pixels import Pixels
from besttake.errors import LibraryError
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
        use(Library.open(copy))
    with pytest.raises(LibraryError, match=rf"{name} is damaged"):
        check_content(Library.open(copy))


def test_a_file_outside_the_library_is_not_read(library, tmp_path):
    copy = Path(shutil.copytree(library.path, tmp_path / "copy"))
    rewritten(copy, files=lambda files: {**files, "../secret": files["states.npy"]})
    with pytest.raises(LibraryError, match="'../secret' is not the name of a file in it"):
        Library.open(copy)


DEMO = {"id": "a", "task": "t", "instruction": "t", "source": {}}


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"gripper_dim": 99}, "gripper_dim is 99 where actions have"),
        ({"gripper_dim": 10**40}, "gripper_dim is 1000"),
        ({"eef_dims": [0, 1, -7]}, r"eef_dims are \(0, 1, -7\) where states have"),
        ({"action_dim": 0, "gripper_dim": None}, "action_dim is 0"),
        ({"stride": -1}, "stride is -1"),
        ({"files": {"x" * 5000: {"size": 1, "sha256": ""}}}, "is not the name of a file in it"),
        ({"demos": [{**DEMO, "length": 3, "frames": 1, "events": [3]}]},
         "a has events outside its 3 steps"),
        ({"demos": [{**DEMO, "length": 0, "frames": 0, "events": []}]},
         "a has 0 frames in 0 steps"),
    ],
)  # fmt: skip
def test_a_head_that_names_what_is_not_there_is_refused_though_its_sums_are_right(library, tmp_path, part, reason):
    copy = Path(shutil.copytree(library.path, tmp_path / "copy"))
    rewritten(copy, **{name: lambda _, value=value: value for name, value in part.items()})
    with pytest.raises(LibraryError, match=rf"library.json is damaged .*{reason}.*; build the library again") as caught:
        Library.open(copy)
    assert len(str(caught.value)) < 500


def rewritten(directory, **changes):
    """Change ``library.json`` as its author could: all its sums are right afterwards."""
    path = directory / "library.json"
    head = json.loads(path.read_text())
    head |= {name: change(head[name]) for name, change in changes.items()}
    path.write_text(json.dumps(sealed(head)))


def sealed(head):
    outside = ("source", "shows", "retrieval", "fingerprint", "checksum")
    parts = {name: value for name, value in head.items() if name not in outside}
    head["fingerprint"] = sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    head.pop("checksum", None)
    return {**head, "checksum": sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()}


def test_a_damaged_library_of_the_cache_is_built_again(two_tasks, tmp_path, caplog):
    made = build_cached(two_tasks, Pixels(), tmp_path)
    good = (made.path / "actions.npy").read_bytes()
    (made.path / "actions.npy").write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    again = build_cached(two_tasks, Pixels(), tmp_path)
    assert (again.path / "actions.npy").read_bytes() == good
    assert "actions.npy is damaged" in caplog.text


def test_half_precision_halves_the_embeddings_and_keeps_the_picks(two_tasks, make_demo, tmp_path):
    full = build(two_tasks, Pixels(), tmp_path / "full")
    half = build(two_tasks, Pixels(), tmp_path / "half", Options(half=True))
    assert half.embeddings.dtype == np.float32
    assert 2 * half.head.files["embeddings.npy"].size < full.head.files["embeddings.npy"].size + 256
    takes = [full.encoder().encode(make_demo(number, "pick").frames) for number in range(20, 32)]
    scores = [[(take @ each.embeddings.T).max(axis=1).mean() for take in takes] for each in (full, half)]
    assert np.abs(np.subtract(scores[0], scores[1])).max() < 1e-3
    assert np.argsort(scores[0]).tolist() == np.argsort(scores[1]).tolist()


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
    with pytest.raises(KeyboardInterrupt):
        build(two_tasks, cached(dies), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    made = build(two_tasks, cached(goes_on), tmp_path / "out")
    kept = dies.seen - 8  # the block in which it died is lost
    assert kept + goes_on.seen <= different + 8
    np.testing.assert_array_equal(made.embeddings, Library.open(tmp_path / "whole").embeddings)


def test_what_a_killed_build_left_is_removed_by_the_next(two_tasks, tmp_path):
    code = (
        "import os, sys, pathlib; from besttake.demos.storage import Writer\n"
        "Writer(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    build(two_tasks, Pixels(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


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
