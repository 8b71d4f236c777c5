"""What a check or a tuning chose is kept, and is not believed when it was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from besttake.files import read_sealed_json
from besttake.verbs.diagnose import choice


def test_a_changed_choice_is_not_believed(tmp_path: Path) -> None:
    place = tmp_path / "checks" / "a.tuned"
    choice._keep(place, {"config": {"prior": 0.3}, "note": "chosen"})
    assert read_sealed_json(place) == {"config": {"prior": 0.3}, "note": "chosen"}
    place.write_text(place.read_text().replace("0.3", "0.9"))
    with pytest.raises(ValueError, match="not what was written"):
        read_sealed_json(place)
