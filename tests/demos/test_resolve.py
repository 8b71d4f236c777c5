"""What a name of demonstrations means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from besttake.demos.build import Work
from besttake.demos.resolve import build_at, open_or_build
from besttake.errors import LibraryError


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
    built: list[str] = []
    first = open_or_build(str(pictures), "hog", work=Work(built.append))
    again = open_or_build(f"video:{pictures}", "hog", work=Work(built.append))
    assert first.path == again.path
    assert cache in first.path.parents
    assert len(built) == 2


def test_a_library_is_opened_and_must_have_been_embedded_by_the_encoder_that_is_asked_for(
    pictures: Path, tmp_path: Path
) -> None:
    made = build_at(tmp_path / "library", str(pictures), "hog?cells=4")
    assert open_or_build(str(tmp_path / "library")).fingerprint == made.fingerprint
    assert open_or_build(str(tmp_path / "library"), "hog?cells=4").encoder().spec.dim == 4 * 4 * 12
    with pytest.raises(LibraryError, match="embedded by hog"):
        open_or_build(str(tmp_path / "library"), "hog?cells=8")
