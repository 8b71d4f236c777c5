"""What a check or a tuning chose is kept, and is not believed when it was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from besttake.verbs import choice


def test_a_changed_choice_is_not_believed(tmp_path: Path) -> None:
    place = tmp_path / "checks" / "a.tuned"
    choice._keep(place, {"config": {"alpha": 0.3}, "note": "chosen"})
    values = json.loads(place.read_text())
    assert choice._checked(values) == {"config": {"alpha": 0.3}, "note": "chosen"}
    values["config"]["alpha"] = 0.9
    with pytest.raises(ValueError, match="damaged"):
        choice._checked(values)
