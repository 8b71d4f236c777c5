"""What was prepared of a library is kept beside it, and never used where it is not as it was written."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from bench.campaign.havoc import damaged

from besttake.core import retrieve, spaces
from besttake.core.retrieve import RetrievalConfig
from besttake.core.search import Index
from besttake.demos import index, view
from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.pixels import Pixels

CONFIG = RetrievalConfig(rule="frame", reliability=0.1)


@pytest.fixture(scope="module")
def made(two_tasks, tmp_path_factory):
    return build(two_tasks, Pixels(), tmp_path_factory.mktemp("libraries") / "two")


@pytest.fixture(autouse=True)
def _everything_is_kept():
    with mock.patch.object(view, "_KEPT", 0), mock.patch.object(retrieve, "_PLAIN", 0):
        yield


@pytest.fixture
def copy(made, tmp_path):
    return Path(shutil.copytree(made.path, tmp_path / "copy"))


def used(path):
    """What is found in a library."""
    library = Library.open(path)
    own = library.view("pick")
    rng = np.random.default_rng(0)
    images = library.embeddings[:6] + 0.1 * rng.standard_normal((6, library.embeddings.shape[1]))
    chunks, states = library.chunks(np.zeros(6, int), np.arange(6), 5), library.states[:6]
    matches = own.retriever(CONFIG, 5).query(images, chunks, states)
    trace = own.index.nearest(images)
    return [(m.candidate, m.distance, m.parts, m.chunk.tobytes()) for m in matches], trace.frame.tolist()


def files(path):
    return sorted((path / index.FOLDER).iterdir())


def no_work():
    broken = AssertionError("it was prepared again")
    return mock.patch.object(spaces.Prepared, "of", side_effect=broken), mock.patch.object(
        Index, "build", side_effect=broken
    )


def test_what_was_prepared_once_is_read_by_the_next_process(made, copy):
    with mock.patch.object(view, "_KEPT", 1 << 60):
        plain = used(copy)
    assert not (copy / index.FOLDER).exists()
    assert used(copy) == plain
    assert len(files(copy)) == 4  # image, chunk, state, search
    first, second = no_work()
    with first, second:
        assert used(copy) == plain
    assert Library.open(copy).fingerprint == made.fingerprint


def test_arrays_are_mapped_not_read(copy):
    used(copy)
    prepared = Library.open(copy).view("pick").retriever(CONFIG, 5)._spaces[0]._prepared
    owner = prepared.short
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    assert isinstance(owner, np.memmap)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_index_is_made_anew_and_never_used(copy, caplog, seed):
    plain = used(copy)
    good = {path: path.read_bytes() for path in files(copy)}
    rng = random.Random(seed)
    for path, content in good.items():
        bad, _ = damaged(rng, content)
        path.write_bytes(bad)
    with caplog.at_level("WARNING"):
        assert used(copy) == plain
    assert {path: path.read_bytes() for path in files(copy)} == good
    changed = sum(f"{path} is damaged" in caplog.text for path in good)
    assert changed >= 1


def test_the_index_of_another_library_or_purpose_is_not_used(copy):
    plain = used(copy)
    first, second = files(copy)[:2]
    swapped = first.read_bytes(), second.read_bytes()
    first.write_bytes(swapped[1])
    second.write_bytes(swapped[0])
    assert used(copy) == plain
    assert (first.read_bytes(), second.read_bytes()) == swapped


def test_a_library_that_may_only_be_read_works(copy):
    plain = used(copy)
    shutil.rmtree(copy / index.FOLDER)
    (copy / index.FOLDER).write_text("in the way")  # root may write anywhere, but not into a file
    assert used(copy) == plain
    assert (copy / index.FOLDER).read_text() == "in the way"


def test_a_full_disk_costs_no_query_and_leaves_nothing_behind(copy):
    plain = used(copy)
    shutil.rmtree(copy / index.FOLDER)
    with mock.patch.object(os, "fsync", side_effect=OSError(28, "No space left on device")):
        assert used(copy) == plain
    assert files(copy) == []


def planted(path, change):
    """An index of the same name with other arrays, and the sums that belong to them."""
    for file in files(path):
        name = json.loads(file.read_bytes()[:4096].removeprefix(index._MAGIC))["name"]
        index._write(file, name, change(dict(index._read(file, name))))


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: {},
        lambda arrays: {**arrays, "more": np.zeros(3)},
        lambda arrays: dict.fromkeys(arrays, np.zeros(())),
        lambda arrays: {name: array[..., :-1] for name, array in arrays.items()},
        lambda arrays: {name: array.astype(np.float16) for name, array in arrays.items()},
        lambda arrays: {n: np.full_like(a, np.nan if a.dtype.kind == "f" else -1) for n, a in arrays.items()},
        lambda arrays: {name: array + (10**6 if array.dtype.kind == "i" else 0) for name, array in arrays.items()},
    ],
    ids=["nothing", "more", "single numbers", "shorter", "other types", "not a number", "axes outside"],
)  # fmt: skip
def test_an_index_that_cannot_be_of_this_library_is_made_anew(copy, change):
    plain = used(copy)
    planted(copy, change)
    assert used(copy) == plain


def test_a_pipe_or_a_link_out_of_the_library_is_neither_read_nor_written(copy, tmp_path):
    plain = used(copy)
    for file in files(copy):
        file.unlink()
        os.mkfifo(file)
    assert used(copy) == plain
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(copy / index.FOLDER)
    (copy / index.FOLDER).symlink_to(elsewhere)
    assert used(copy) == plain
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("rows", [np.eye(300, 64), np.ones((300, 64)), np.eye(500, 400), np.ones((9, 1)) * [[1]]])
def test_what_is_prepared_fits_what_it_was_prepared_of_and_nothing_else(rows):
    made = vars(spaces.Prepared.of(rows))
    assert spaces.Prepared.fit(rows, made)
    assert not spaces.Prepared.fit(rows[:, :-1], made)
    assert not spaces.Prepared.fit(rows[:-1], made) or not len(made["keep"])


def test_what_a_search_prepares_fits_its_frames_and_nothing_else():
    frames = np.random.default_rng(0).standard_normal((600, 8)) @ np.random.default_rng(1).standard_normal((8, 600))
    frames = (frames / np.linalg.norm(frames, axis=1, keepdims=True)).astype(np.float32)
    made = Index.build(frames).arrays
    assert set(made) == {"basis", "reduced", "frames"}
    assert view._searches(frames, made)
    assert not view._searches(frames[:-1], made)
    assert not view._searches(frames, {**made, "reduced": made["reduced"] * np.float32(np.nan)})
    assert not view._searches(frames, {"basis": made["basis"]})
