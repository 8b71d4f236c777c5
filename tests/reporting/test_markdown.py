import json
from pathlib import Path

from besttake.reporting.markdown import make_json, make_markdown


def test_markdown_carries_the_verdict_and_the_tables(run: Path, tmp_path: Path) -> None:
    text = make_markdown(run, tmp_path / "deep" / "report.md").read_text()
    document = json.loads((run / "result.json").read_text())
    for cell in document["policies"]:
        assert f"## {cell['policy']}" in text
        assert f"{100 * cell['headroom']['pass_1']['value']:.1f} %" in text
    assert text.index("pass@1") < text.index("## Every cell")
    assert "None" not in text
    assert "nan" not in text


def test_json_is_the_result_itself(run: Path, tmp_path: Path) -> None:
    assert make_json(run) == run / "result.json"
    copy = make_json(run, tmp_path / "copy.json")
    assert json.loads(copy.read_text()) == json.loads((run / "result.json").read_text())
