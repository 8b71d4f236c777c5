from __future__ import annotations

import importlib.util
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.envs.libero import compiled as libero_compiled
from besttake.envs.libero import harness as conventions
from besttake.envs.libero.install import load_init_states
from besttake.errors import ComponentError, MissingExtra

without_libero = pytest.mark.skipif(importlib.util.find_spec("libero") is not None, reason="hf-libero is installed")


def _init_file(path: Path, content: Any, member: str = "archive/data.pkl") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content if isinstance(content, bytes) else pickle.dumps(content, protocol=2))
    return path


def test_initial_states_are_read_back_exactly(tmp_path: Path) -> None:
    states = np.random.default_rng(0).normal(size=(50, 110))
    read = load_init_states(_init_file(tmp_path / "task.pruned_init", states))
    assert np.array_equal(read, states)
    assert read.dtype == np.float64


def test_the_names_that_numpy_1_pickled_under_are_read(tmp_path: Path) -> None:
    old = pickle.dumps(np.arange(6.0).reshape(2, 3), protocol=2).replace(b"numpy._core", b"numpy.core")
    assert load_init_states(_init_file(tmp_path / "old.pruned_init", old)).tolist() == [[0, 1, 2], [3, 4, 5]]


class _Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.target}",)


def test_a_pickle_that_would_run_a_command_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    with pytest.raises(ComponentError, match=r"posix\.system|nt\.system"):
        load_init_states(_init_file(tmp_path / "bad.pruned_init", _Hostile(target)))
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x80\x02garbage", "cannot be read"),
        ([1.0, 2.0], "not a table of numbers"),
        (np.arange(3.0), "not a table of numbers"),
        (np.full((2, 2), np.nan), "not all finite"),
    ],
)
def test_a_damaged_init_file_gives_one_line(tmp_path: Path, content: Any, told: str) -> None:
    with pytest.raises(ComponentError, match=told) as caught:
        load_init_states(_init_file(tmp_path / "damaged.pruned_init", content))
    assert "\n" not in str(caught.value)


def test_pictures_are_flipped_in_both_directions() -> None:
    picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    assert np.array_equal(conventions.upright(picture), np.rot90(picture, 2))
    assert np.array_equal(conventions.upright(picture[None])[0], conventions.upright(picture))
    assert conventions.as_evaluated(picture, 224).shape == (224, 224, 3)
    square = np.zeros((4, 4, 3), np.uint8)
    assert conventions.as_evaluated(square, 4) is square


@without_libero
@pytest.mark.parametrize("uri", ["libero:spatial", "libero:10?task=0"])
def test_without_hf_libero_one_line_names_the_extra(uri: str) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'besttake\[libero\]'"):
        registry.env(uri)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners here")
def test_compiled_code_is_kept_in_private_folders_whatever_the_umask_and_not_where_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "deep" / "cache"
    monkeypatch.setenv("BESTTAKE_CACHE", str(cache))
    before = os.umask(0)
    try:
        folder = libero_compiled._own_folder()
    finally:
        os.umask(before)
    assert folder is not None
    assert {place.stat().st_mode & 0o777 for place in (tmp_path / "deep", cache, folder.parent, folder)} == {0o700}
    assert libero_compiled._own_folder() == folder
    cache.chmod(0o777)
    with caplog.at_level("INFO", "besttake"):
        assert libero_compiled._own_folder() is None
    assert f"compiled code is not kept in {folder}: others can write there" in caplog.text


def test_what_is_not_an_init_file_at_all_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match="do not exist"):
        load_init_states(tmp_path / "none.pruned_init")
    (tmp_path / "text.pruned_init").write_text("hello")
    with pytest.raises(ComponentError, match="not a zip archive"):
        load_init_states(tmp_path / "text.pruned_init")
    with pytest.raises(ComponentError, match=r"no data\.pkl inside"):
        load_init_states(_init_file(tmp_path / "other.pruned_init", b"", member="else"))
