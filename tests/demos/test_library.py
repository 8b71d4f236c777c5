from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from besttake.core import score
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.base import UnreadableDemo
from besttake.demos.build import Options, build, build_cached
from besttake.demos.library import Library, check_retrieval, check_tasks
from besttake.encoders.hog import Hog
from besttake.encoders.pixels import Pixels
from besttake.errors import LibraryError
from besttake.types import EnvSpec, TaskSpec


@pytest.fixture(scope="module")
def library(two_tasks, tmp_path_factory):
    return build(two_tasks, Pixels(), tmp_path_factory.mktemp("libraries") / "two")


def env(**changes):
    task = TaskSpec("pick", "pick", "pick the block", 50)
    whole = {"action_dim": 4, "state_dim": 4, "cameras": ("wrist",), "score_camera": "wrist", **changes}
    return EnvSpec("world", (task,), range(10), **whole)


def test_states_actions_and_order_are_kept_exactly(library, two_tasks):
    again = Library.open(library.path)
    assert again.tasks == ("pick", "push")
    assert [d.id for d in again.demos] == [d.id for d in two_tasks.demos]
    for number, demo in enumerate(two_tasks.demos):
        np.testing.assert_array_equal(again.chunk(number, 0, len(demo.actions)), demo.actions)
        for step in (0, 7, 29):
            np.testing.assert_array_equal(again.state(number, step), demo.states[step])
        assert again.demos[number].instruction == demo.instruction
        assert again.demos[number].source == demo.source


def test_embeddings_are_those_of_the_stored_encoder(library, two_tasks):
    encoder = Library.open(library.path).encoder()
    assert encoder.spec.fingerprint == library.head.encoder.fingerprint
    for number, demo in enumerate(two_tasks.demos):
        rows = np.flatnonzero(library.frame_demo == number)
        np.testing.assert_array_equal(library.frame_step[rows], demo.frame_steps)
        np.testing.assert_array_equal(library.embeddings[rows], encoder.encode(demo.frames))


def test_the_score_of_a_demonstration_against_its_own_library_is_one(library, two_tasks):
    encoder = library.encoder()
    trace = library.view("push").index.nearest(encoder.encode(two_tasks.demos[5].frames))
    assert score.manifold(trace) == pytest.approx(1, abs=1e-6)
    assert np.all(np.isin(library.frame_demo[library.view("push").frames[trace.frame]], [4, 5, 6, 7]))


def test_events_are_the_start_the_corner_and_the_grasp(library):
    for info in library.demos:
        assert info.events == (0, 10 + int(info.id.split("/")[1]) % 3, 20)


def test_event_frames_are_embedded_even_where_the_stride_skips_them(two_tasks, tmp_path):
    strided = build(two_tasks, Pixels(), tmp_path / "strided", Options(stride=7))
    for number, info in enumerate(strided.demos):
        steps = strided.frame_step[strided.frame_demo == number]
        assert set(info.events) <= set(steps)
        assert set(range(0, 30, 7)) <= set(steps)
        assert len(steps) <= 5 + 3


def test_retrieval_finds_the_corner_of_the_most_similar_demonstration_and_returns_the_grasp(library, two_tasks):
    view = library.view("pick")
    retriever = view.retriever(RetrievalConfig(rule="next"), horizon=6)
    demo = two_tasks.demos[2]
    corner = int(library.demos[2].events[1])
    embedding = library.encoder().encode(demo.frames[corner : corner + 1])
    match = retriever.query(embedding, demo.actions[None, corner : corner + 6], demo.states[None, corner])[0]
    assert (match.demo, match.matched_step, match.step) == (2, corner, 20)
    np.testing.assert_array_equal(match.chunk, demo.actions[20:26])
    assert view.candidates(RetrievalConfig(), 6).open.tolist() == [True, True, False] * 4
    assert len(view.candidates(RetrievalConfig(rule="frame"), 6).demo) == 120


def test_a_task_is_found_by_name_else_by_instruction_else_all_is_used_and_said(library):
    assert library.view("push").matched == "task"
    assert library.view("push").demos.tolist() == [4, 5, 6, 7]
    assert library.view("unknown_name", "Push the block.").matched == "instruction"
    assert library.view("push_the_block").demos.tolist() == [4, 5, 6, 7]
    assert library.view("sweep").matched == "all"
    assert len(library.view("sweep").demos) == 8
    assert library.view("push") is library.view("push")


def test_the_same_library_is_built_once_and_anything_else_builds_another(make_demo, source_of, tmp_path):
    source = source_of([make_demo(i) for i in range(3)])
    first = build_cached(source, Hog(), tmp_path)
    reads = len(source.reads)
    assert build_cached(source, Hog(), tmp_path).path == first.path
    assert len(source.reads) == reads
    others = {
        build_cached(source, Hog(), tmp_path, Options(stride=2)).path,
        build_cached(source, Hog(bins=8), tmp_path, Options(encoder_uri="hog?bins=8")).path,
        build_cached(source, Hog(), tmp_path, Options(angle=30)).path,
        build_cached(source, Hog(), tmp_path, Options(turns="every")).path,
        build_cached(source_of([make_demo(i) for i in range(4)]), Hog(), tmp_path).path,
    }
    assert len(others | {first.path}) == 6


def test_a_failed_build_leaves_nothing_and_an_existing_library_stays(make_demo, source_of, tmp_path):
    out = tmp_path / "lib"
    good = build(source_of([make_demo(0), make_demo(1)]), Hog(), out)
    broken = source_of([make_demo(0), UnreadableDemo("episode 1", "has a damaged video")])
    with pytest.raises(LibraryError, match="episode 1 has a damaged video"):
        build(broken, Hog(), out)
    assert Library.open(out).fingerprint == good.fingerprint
    assert [p.name for p in tmp_path.iterdir()] == ["lib"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(LibraryError, match="not a library"):
        build(source_of([make_demo(0)]), Hog(), tmp_path / "mine")


def bad_ones(make_demo):
    good = make_demo(0)
    nan = good.actions.copy()
    nan[4, 1] = np.nan
    return {
        "has 0 steps": make_demo(1, actions=good.actions[:0], states=good.states[:0]),
        "has 1 step,": make_demo(2, actions=good.actions[:1], states=good.states[:1]),
        "actions that are not numbers, first at step 4": make_demo(3, actions=nan),
        "actions of 3 numbers and states of 4 numbers": make_demo(4, actions=good.actions[:, :3]),
        "has no frames": make_demo(5, frames=good.frames[:0], frame_steps=good.frame_steps[:0]),
        "do not belong": make_demo(6, frame_steps=good.frame_steps + 5),
        "29 states for 30": make_demo(7, states=good.states[:-1]),
        "cannot be read": UnreadableDemo("file 8", "cannot be read"),
    }


def test_with_skip_bad_the_rest_is_built_and_what_was_left_out_is_listed(make_demo, source_of, tmp_path):
    bad = bad_ones(make_demo)
    made = build(
        source_of([make_demo(0), *bad.values(), make_demo(9)]), Pixels(), tmp_path / "rest", Options(skip_bad=True)
    )
    assert [d.id for d in made.demos] == ["pick/0", "pick/9"]
    left = {b.id: b.reason for b in Library.open(made.path).head.left_out}
    assert set(left) == {item.id for item in bad.values()}
    assert all(reason in left[item.id] for reason, item in bad.items())
    with pytest.raises(LibraryError, match="no demonstration is left"):
        build(source_of(list(bad.values())[:2]), Hog(), tmp_path / "none", Options(skip_bad=True))


def test_a_library_of_pictures_alone_scores_but_cannot_be_retrieved_from(make_demo, source_of, tmp_path):
    source = source_of([make_demo(i, states=None, actions=None) for i in range(2)], gripper_dim=None, eef_dims=None)
    pictures = build(source, Hog(), tmp_path / "pictures")
    assert pictures.actions is None
    assert pictures.states is None
    assert len(pictures.view("pick").index.nearest(pictures.embeddings[:4]).best) == 4
    with pytest.raises(LibraryError, match="only pictures"):
        check_retrieval(pictures, env())
    with pytest.raises(LibraryError, match="only pictures"):
        pictures.view("pick").retriever(RetrievalConfig(rule="frame"), 5)


def task(name, instruction=""):
    return TaskSpec(name, name, instruction, 80)


def test_what_does_not_fit_is_told_in_one_line(library, make_demo, source_of, tmp_path):
    check_retrieval(library, env())
    for changes, words in (
        ({"action_dim": 7}, "actions of 4 numbers, but world has 7"),
        ({"state_dim": 8}, "states of 4 numbers, but world has 8"),
        ({"score_camera": "agentview"}, "shows camera wrist, but world is scored by agentview"),
    ):
        with pytest.raises(LibraryError, match=words):
            check_retrieval(library, env(**changes))
    with pytest.raises(LibraryError, match="was embedded by pixels"):
        library.check_encoder(Hog())
    with pytest.raises(LibraryError, match="no demonstration of sweep"):
        check_tasks(library, [task("push"), task("sweep")])
    blind = build(source_of([make_demo(0)], gripper_dim=None, eef_dims=None), Hog(), tmp_path / "blind")
    with pytest.raises(LibraryError, match="no events.*`gripper_dim`"):
        check_retrieval(blind, env())
    check_retrieval(blind, env(), RetrievalConfig(rule="frame"))
    with pytest.raises(LibraryError, match="`gripper_dim` 9 is outside"):
        build(source_of([make_demo(0)]), Hog(), tmp_path / "wide", Options(gripper_dim=9))


def test_missing_damaged_and_newer_libraries_are_told_apart(library, two_tasks, tmp_path):
    with pytest.raises(LibraryError, match="no library.json"):
        Library.open(tmp_path)
    copy = build(two_tasks, Hog(), tmp_path / "copy")
    head = json.loads((copy.path / "library.json").read_text())
    (copy.path / "states.npy").rename(tmp_path / "states.npy")
    with pytest.raises(LibraryError, match="states.npy is damaged"):
        Library.open(copy.path)
    (copy.path / "library.json").write_text(json.dumps({**head, "format": 99}))
    with pytest.raises(LibraryError, match="newer BestTake"):
        Library.open(copy.path)
    (copy.path / "library.json").write_text('{"format": 1}')
    with pytest.raises(LibraryError, match="damaged"):
        Library.open(copy.path)
    (copy.path / "library.json").write_text("{")
    with pytest.raises(LibraryError, match="damaged"):
        Library.open(copy.path)


_STREAM = """
import resource, sys
import numpy as np
from besttake.demos.build import Options, build
from besttake.types import Demo, EncoderSpec

class Source:
    name, camera, fps, fingerprint, gripper_dim, gripper_open, eef_dims = "big", "wrist", 10.0, "x", 3, -1, (0, 1, 2)
    def __iter__(self):
        for i in range(250):
            rng = np.random.default_rng(i)
            yield Demo(str(i), "t", rng.integers(0, 255, (400, 16, 16, 3), dtype=np.uint8), np.arange(400),
                       rng.random((400, 8), dtype=np.float32), rng.random((400, 7), dtype=np.float32))

class Wide:
    spec = EncoderSpec("wide", 1536, "w")
    def encode(self, images):
        rows = np.tile(images.reshape(len(images), -1).astype(np.float32) - 127, 2)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

library = build(Source(), Wide(), sys.argv[1], Options(gripper_dim=None))
view = library.view("t")
assert len(view.frames) == 100_000
found = view.index.nearest(np.array(view.embeddings[::999]))
assert (found.frame == np.arange(0, 100_000, 999)).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
def test_a_hundred_thousand_frames_are_indexed_and_searched_under_a_gigabyte_and_a_half(tmp_path):
    source = str(Path(__file__).resolve().parents[2] / "src")
    run = subprocess.run(
        [sys.executable, "-c", _STREAM, str(tmp_path / "big")],
        env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 1500
