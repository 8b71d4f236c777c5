"""Hostile names stay names, wherever they are shown."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from besttake.progress import SafeConsole
from besttake.reporting.page import Page, asset, may_load
from besttake.sanitize import markdown, printable

CLEAR, LINK, FORMULA = "a\x1b[2J\x1b]0;title\x07\x9b31mz", "[x](javascript:alert(1))", "=cmd|' /C calc'!A0"


@given(st.text())
def test_nothing_printable_moves_the_cursor(text: str) -> None:
    shown = printable(text)
    assert all(letter in "\n\t" or not (ord(letter) < 32 or 127 <= ord(letter) < 160) for letter in shown)
    assert printable("plain, ünïcödé ✓\n") == "plain, ünïcödé ✓\n"


def test_a_console_writes_codes_out_and_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    console = SafeConsole()
    console.file = out
    console.print(CLEAR, style="red")
    assert "\x1b[2J" not in out.getvalue()
    assert "\\x1b[2J" in out.getvalue()
    assert "\x9b" not in out.getvalue()
    assert "\x1b[31m" in out.getvalue()


def test_markdown_has_no_links_no_images_and_no_html() -> None:
    assert markdown(LINK) == r"\[x\](javascript:alert(1))"
    assert markdown("![x](y) <script>\n# h") == r"\!\[x\](y) &lt;script&gt; \# h"


def test_hostile_names_go_through_ingest_and_every_report(tmp_path: Path, call) -> None:
    names = [CLEAR, LINK, FORMULA, "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>"]
    with (tmp_path / "outcomes_in.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("policy", "task", "start", "seed", "success"))
        for name in names:
            table.writerows((name, name, start, seed, (start + seed) % 2) for start in range(4) for seed in range(2))
    out = tmp_path / "run"
    for command in (
        ["ingest", str(tmp_path / "outcomes_in.csv"), "-o", str(out)],
        ["report", str(out), "--format", "md"],
        ["export", str(out), "--figures", str(tmp_path / "figures")],
    ):
        code, out_text, err_text = call(*command)
        assert not code
        assert not {"\x1b", "\x9b"} & {*out_text, *err_text}
    with (out / "outcomes.csv").open(newline="") as file:
        kept = list(csv.reader(file))
    assert {row[0] for row in kept} >= {f"'{FORMULA}", LINK}
    page, notes = (out / "report.html").read_text(), (out / "report.md").read_text()
    assert "](javascript:" not in notes.replace(r"\](", "")
    assert "<img" not in notes
    assert "\x1b" not in notes
    assert "onerror=alert(1)>" not in page.replace("&gt;", "")
    assert "<script>alert(1)" not in page
    for figure in (tmp_path / "figures").iterdir():
        assert "<img" not in figure.read_text()
        assert "<script>alert" not in figure.read_text()


def test_a_page_runs_no_script_but_ours() -> None:
    text = Page("a run", "finished", "A run", []).html()
    policy = may_load()
    assert f'content="{policy}"'.replace("'", "&#39;") in text
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert asset("page.js") in text
