from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from besttake.demos.build import build
from besttake.demos.contact_sheet import contact_sheet, draw_all, shown_frames
from besttake.encoders.hog import Hog
from besttake.errors import LibraryError

ORANGE = (214, 90, 30)


@pytest.fixture(scope="module")
def library(two_tasks, tmp_path_factory):
    return build(two_tasks, Hog(), tmp_path_factory.mktemp("sheets") / "library")


def test_a_contact_sheet_is_a_picture_with_a_mark_for_each_event(library):
    sheet = np.asarray(Image.open(io.BytesIO(contact_sheet(library, 2))).convert("RGB"))
    assert sheet.shape[1] >= 12 * 96
    marked = np.concatenate([[0], (sheet[18] == ORANGE).all(axis=1)])  # the upper edges of the first row
    assert (np.diff(marked) == 1).sum() == len(library.demos[2].events) == 3


@given(st.integers(1, 60), st.integers(1, 20), st.data())
def test_every_event_is_shown_and_no_more_frames_than_fit_beside_them(frames, columns, data):
    events = sorted(data.draw(st.sets(st.integers(0, frames - 1), min_size=1, max_size=frames)))
    shown = shown_frames(frames, events, columns)
    assert set(events) <= set(shown)
    assert shown == sorted(set(shown))
    assert len(shown) <= max(len(events), min(frames, columns))


def test_every_demonstration_gets_a_file_of_its_own(library, tmp_path):
    paths = draw_all(library, tmp_path / "sheets")
    assert [p.name for p in paths[3:5]] == ["003-pick-3.png", "004-push-0.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in paths)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LibraryError, match="cannot write contact sheets"):
        draw_all(library, tmp_path / "file")
