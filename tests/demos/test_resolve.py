"""What a name of demonstrations means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from besttake.demos.build import BuildHooks
from besttake.demos.resolve import build_at, open_or_build, source_of
from besttake.errors import ComponentError, LibraryError


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two demonstrations as folders of pictures."""
    rng = np.random.default_rng(0)
    for demo in ("a", "b"):
        (tmp_path / "demos" / demo).mkdir(parents=True)
        for step in range(4):
            frame = rng.integers(0, 256, (16, 16, 3), np.uint8)
            Image.fromarray(frame).save(tmp_path / "demos" / demo / f"{step}.png")
    return tmp_path / "demos"


def test_a_folder_is_built_once_and_found_again(pictures: Path, cache: Path) -> None:
    built: list[int] = []
    hooks = BuildHooks(frames=lambda done, expected: built.append(done))
    first = open_or_build(str(pictures), "hog", hooks=hooks)
    again = open_or_build(f"video:{pictures}", "hog", hooks=hooks)
    assert first.path == again.path
    assert cache in first.path.parents
    assert built == [4, 8]


def test_a_library_is_opened_and_must_have_been_embedded_by_the_encoder_that_is_asked_for(
    pictures: Path, tmp_path: Path
) -> None:
    made = build_at(tmp_path / "library", str(pictures), "hog?cells=4")
    assert open_or_build(str(tmp_path / "library")).fingerprint == made.fingerprint
    assert open_or_build(str(tmp_path / "library"), "hog?cells=4").encoder().spec.dim == 4 * 4 * 12
    with pytest.raises(LibraryError, match="embedded by hog"):
        open_or_build(str(tmp_path / "library"), "hog?cells=8")


def test_a_folder_called_as_a_kind_is_the_folder(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures.rename(tmp_path / "testbed")
    monkeypatch.chdir(tmp_path)
    assert source_of("testbed").name == "video:testbed"
    monkeypatch.chdir(tmp_path / "testbed")
    assert source_of("testbed").name == "testbed"


def test_what_is_neither_folder_nor_source_is_one_line() -> None:
    with pytest.raises(LibraryError, match="nowhere is neither a library directory"):
        source_of("nowhere")
    with pytest.raises(ComponentError, match="nowhere:at-all"):
        source_of("nowhere:at-all")
