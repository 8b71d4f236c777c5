"""Scores as a table: what is left of it when scorers are chosen, and what is believed of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from besttake.measure import scores as module
from besttake.measure.scores import Scores


def test_scores_of_no_take_can_be_cut_to_any_scorer() -> None:
    assert dict(Scores({}, "", {}).only(["manifold", "coverage"]).scorers) == {}


@pytest.mark.parametrize(
    "head",
    [
        {},
        {"checks": {}},
        {"checks": []},
        {"checks": {"counts": None}, "scorers": 5, "traces": {}},
        {"checks": {"x": 1}},
    ],
    ids=str,
)
def test_a_head_that_we_would_not_write_is_damage_though_its_checksum_is_right(
    tmp_path: Path, head: dict[str, Any]
) -> None:
    head = {"schema": 2, **head}
    sealed = {**head, "sha256": module._sha256(json.dumps(head, sort_keys=True).encode())}
    data = save({"counts": np.zeros(1, np.int64)}, {"head": json.dumps(sealed)})
    (tmp_path / "scores.safetensors").write_bytes(data)
    kept, damaged = Scores.intact(tmp_path)
    assert kept is None
    assert damaged
    del sealed["schema"]  # as a damaged name would, it must not make the file one of a version without checksums
    (tmp_path / "scores.safetensors").write_bytes(save({"counts": np.zeros(1, np.int64)}, {"head": json.dumps(sealed)}))
    assert Scores.intact(tmp_path, older=True)[1]
