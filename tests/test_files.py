"""Files are written whole, and say what they are."""

import json
import os
from pathlib import Path

import pytest

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
