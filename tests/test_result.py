from __future__ import annotations

import json
from pathlib import Path

import pytest

from besttake.errors import RunError
from besttake.result import SCHEMA, Cost, Relation, Result

DOCS = Path(__file__).parents[1] / "docs"


def test_the_documented_schema_is_the_schema() -> None:
    assert json.loads((DOCS / "result.schema.json").read_text()) == Result.model_json_schema()
    assert f"schema version {SCHEMA})" in (DOCS / "result.md").read_text()


RESULT = Result(
    besttake="", created="", command="", digest="", plan={}, versions={}, library=None, worth=0.03, cells=[],
    policies=[], relation=Relation(reason="few"), notes=["read"],
    cost=Cost(takes=0, errors=0, steps=0, policy_calls=0, frames_scored=0, frames_encoded=0, seconds={}),
)  # fmt: skip


@pytest.mark.parametrize("schema", range(SCHEMA))
def test_a_damaged_number_of_the_schema_does_not_switch_the_checksum_off(schema: int) -> None:
    values = json.loads(RESULT.to_json())
    with pytest.raises(RunError, match=f"is of schema {schema}, this BestTake reads {SCHEMA}"):
        Result.from_bytes(json.dumps({**values, "schema_version": schema, "worth": 0.5}).encode())


def test_a_result_is_loaded_by_its_file_or_by_its_run(tmp_path: Path) -> None:
    result = RESULT
    (tmp_path / "result.json").write_text(result.to_json())
    assert Result.load(str(tmp_path)) == Result.load(tmp_path / "result.json")
    assert Result.load(tmp_path).notes == ["read"]
