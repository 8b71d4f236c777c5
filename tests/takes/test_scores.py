"""What is believed of a file of scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from besttake.errors import RunError
from besttake.takes import scores as module
from besttake.takes.scores import Scores


@pytest.mark.parametrize("head", [{}, {"keys": []}, {"keys": {}, "sources": 5, "traces": {}}, {"schema": 2}], ids=str)
def test_a_head_that_we_would_not_write_is_damage_though_its_checksum_is_right(
    tmp_path: Path, head: dict[str, Any]
) -> None:
    head, arrays = {"schema": module._SCHEMA, **head}, {"counts": np.zeros(1, np.int64)}
    sealed = {**head, "sha256": module._checksum(head, arrays)}
    (tmp_path / "scores.safetensors").write_bytes(save(arrays, {"head": json.dumps(sealed)}))
    with pytest.raises(RunError, match="is damaged"):
        Scores.open(tmp_path)
