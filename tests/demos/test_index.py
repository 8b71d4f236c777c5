"""What was prepared of a library is kept in the cache, and never used where it is not as it was written."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
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


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Where indexes are kept, in a cache of its own for each test."""
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / index.FOLDER


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


def files(place):
    return sorted(place.iterdir())


def no_work():
    broken = AssertionError("it was prepared again")
    return mock.patch.object(spaces.Prepared, "of", side_effect=broken), mock.patch.object(
        Index, "build", side_effect=broken
    )


def test_what_was_prepared_once_is_read_by_the_next_process(made, copy, place):
    with mock.patch.object(view, "_KEPT", 1 << 60):
        plain = used(copy)
    assert not place.exists()
    assert used(copy) == plain
    assert len(files(place)) == 4  # image, chunk, state, search
    first, second = no_work()
    with first, second:
        assert used(copy) == plain
    assert sorted(path.name for path in copy.iterdir()) == sorted(path.name for path in made.path.iterdir())


def test_arrays_are_mapped_not_read(copy):
    used(copy)
    prepared = Library.open(copy).view("pick").retriever(CONFIG, 5)._spaces[0]._prepared
    owner = prepared.short
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    assert isinstance(owner, np.memmap)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_index_is_made_anew_and_never_used(copy, place, caplog, seed):
    plain = used(copy)
    good = {path: path.read_bytes() for path in files(place)}
    rng = random.Random(seed)
    for path, content in good.items():
        bad, _ = damaged(rng, content)
        path.write_bytes(bad)
    with caplog.at_level("WARNING"):
        assert used(copy) == plain
    assert {path: path.read_bytes() for path in files(place)} == good
    changed = sum(f"{path} is damaged" in caplog.text for path in good)
    assert changed >= 1


def test_the_index_of_another_library_or_purpose_is_not_used(copy, place):
    plain = used(copy)
    first, second = files(place)[:2]
    swapped = first.read_bytes(), second.read_bytes()
    first.write_bytes(swapped[1])
    second.write_bytes(swapped[0])
    assert used(copy) == plain
    assert (first.read_bytes(), second.read_bytes()) == swapped


def test_a_cache_that_cannot_be_written_to_works(copy, place):
    plain = used(copy)
    shutil.rmtree(place)
    place.write_text("in the way")  # root may write anywhere, but not into a file
    assert used(copy) == plain
    assert place.read_text() == "in the way"


def test_an_index_that_comes_with_a_library_is_never_read(copy, place):
    """Its sums can be right and its arrays wrong: then matches would change without a word."""
    plain = used(copy)
    planted(place, lambda arrays: {name: array * 3 if name == "scale" else array for name, array in arrays.items()})
    forged = {path.name: path.read_bytes() for path in files(place)}
    assert used(copy) != plain, "this is what one could do who writes into the cache"
    for folder in (copy, copy / "index", copy / index.FOLDER):
        folder.mkdir(exist_ok=True)
        for name, content in forged.items():
            (folder / name).write_bytes(content)
    shutil.rmtree(place)
    assert used(copy) == plain
    assert {path.name for path in files(place)} == set(forged)


def test_indexes_that_nobody_uses_any_more_are_removed_when_another_is_written(copy, place):
    place.mkdir(parents=True)
    old, recent = place / "old.index", place / "recent.index"
    for path, days in ((old, 61), (recent, 59)):
        path.write_bytes(b"")
        os.utime(path, (time.time() - days * 86400,) * 2)
    used(copy)
    assert not old.exists()
    assert recent.exists()
    kept = [path for path in files(place) if path != recent]
    for path in kept:
        os.utime(path, (0, 0))
    used(copy)
    assert all(path.stat().st_mtime > time.time() - 86400 for path in kept), "using one keeps it"


def test_a_full_disk_costs_no_query_and_leaves_nothing_behind(copy, place):
    plain = used(copy)
    shutil.rmtree(place)
    with mock.patch.object(os, "fsync", side_effect=OSError(28, "No space left on device")):
        assert used(copy) == plain
    assert files(place) == []


def planted(place, change):
    """An index of the same name with other arrays, and the sums that belong to them."""
    for file in files(place):
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
def test_an_index_that_cannot_be_of_this_library_is_made_anew(copy, place, change):
    plain = used(copy)
    planted(place, change)
    assert used(copy) == plain


def test_a_pipe_is_not_read(copy, place):
    plain = used(copy)
    for file in files(place):
        file.unlink()
        os.mkfifo(file)
    assert used(copy) == plain


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
