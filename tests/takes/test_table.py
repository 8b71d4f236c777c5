"""A table that someone made by hand is refused, and costs no time."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from besttake.takes import table
from besttake.takes.key import Row, TakeKey

ROW = Row(TakeKey("p", "e", "t", 0, "base", 0), "error", None, None, 0, 0, None, 0, None, "boom", 0.0)


def test_a_view_without_end_in_the_place_of_the_table_is_refused(tmp_path: Path) -> None:
    columns = ", ".join(f"i as {name}" for name in (*table._FIELDS, "checksum"))
    with closing(sqlite3.connect(tmp_path / table.NAME)) as db:
        endless = "with recursive n(i) as (select 0 union all select i + 1 from n limit 100000)"
        db.execute(f"create view TAKES as {endless} select {columns} from n")
        db.commit()
    with pytest.raises(sqlite3.DatabaseError, match="views"):
        table.snapshot(tmp_path)
    assert table.rebuild(tmp_path) == table.Content()


def test_a_column_that_is_computed_is_not_read(tmp_path: Path) -> None:
    with closing(table.Table(tmp_path)) as made:
        made.add([ROW])
        made._db.execute("alter table takes add column more text as (policy) virtual")
        assert made.content().rows == {ROW.key: ROW}


def test_a_pipe_in_the_place_of_the_table_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / table.NAME)
    (tmp_path / f"{table.NAME}-wal").write_bytes(b"log")
    with pytest.raises(sqlite3.DatabaseError, match="not a regular file"):
        table.snapshot(tmp_path)
