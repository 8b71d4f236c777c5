from __future__ import annotations

import json
from pathlib import Path

from besttake.result import Result

DOCS = Path(__file__).parents[1] / "docs"


def test_the_documented_schema_is_the_schema() -> None:
    assert json.loads((DOCS / "result.schema.json").read_text()) == Result.model_json_schema()


def test_every_part_of_a_cell_is_explained() -> None:
    text = (DOCS / "result.md").read_text()
    fields = Result.model_json_schema()["$defs"]["Cell"]["properties"]
    plain = {"policy", "env", "group", "starts", "seeds", "takes", "errors", "missing", "notes"}
    assert [name for name in fields if f"`{name}`" not in text and name not in plain] == []
