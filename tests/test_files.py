"""Files are written whole, and say what they are."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from besttake import files
from besttake.files import read_json


def test_a_file_is_written_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert files.write_text(path, "old") == path
    files.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_file_that_cannot_be_written_is_named_as_the_user_named_it(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError) as caught:
        files.write_text(tmp_path / "taken", "text")
    assert caught.value.filename == str(tmp_path / "taken")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_missing_directories_are_made_only_when_asked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write_text(tmp_path / "deep" / "a.txt", "x")
    assert files.write_text(tmp_path / "deep" / "a.txt", "ü", parents=True).read_text(encoding="utf-8") == "ü"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.write_text(tmp_path / "a.txt", "old")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_sha256_of_a_file(tmp_path: Path) -> None:
    path = files.write_bytes(tmp_path / "a", b"abc")
    assert files.sha256_of(path) == hashlib.sha256(b"abc").hexdigest()


def test_the_cache_is_where_the_variable_says_else_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path))
    assert files.cache_dir() == tmp_path
    monkeypatch.delenv("BESTTAKE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert files.cache_dir() == tmp_path / "cache" / "besttake"


def test_metadata_of_safetensors_from_a_file_and_from_bytes(tmp_path: Path) -> None:
    data = save({"a": np.zeros(3, np.float32)}, {"head": "x"})
    path = files.write_bytes(tmp_path / "a.safetensors", data)
    assert files.safetensors_metadata(data) == files.safetensors_metadata(path) == {"head": "x"}
    assert files.safetensors_metadata(save({"a": np.zeros(3, np.float32)})) == {}
    with pytest.raises(ValueError):
        files.safetensors_metadata(b"no such file at all")


def test_version_of_what_is_and_is_not_installed() -> None:
    assert files.version("numpy") == np.__version__
    assert files.version("no-such-distribution") == "unknown"
    assert files.version("no-such-distribution", "") == ""


def test_json_is_read_up_to_a_size_and_never_ends_in_a_recursion(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for good in ("[" * 60 + "]" * 60, json.dumps(["[" * 500, '"{' * 500, "\\"] * 100), "{}", "3"):
        path.write_text(good)
        assert read_json(path) == read_json(good) == read_json(good.encode()) == json.loads(good)
    for bad in ("[" * 100_000, '{"a":' * 5000, "", "\xff", "9" * 5000, "[1,", b"\xff\xfe[]"):
        with pytest.raises(ValueError, match=r".*"):
            read_json(bad)
    path.write_text("[" + "1," * 1000 + "1]")
    with pytest.raises(ValueError, match="more than 100 bytes"):
        read_json(path, most=100)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        read_json(tmp_path / "pipe")
    with pytest.raises(OSError, match="directory"):
        read_json(tmp_path)
