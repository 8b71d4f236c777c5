"""A table that someone made by hand is refused, and costs no time."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from besttake.takes import take_table as table
from besttake.takes.key import Row, TakeKey

ROW = Row(TakeKey("p", "e", "t", 0, "base", 0), "error", None, None, 0, 0, None, 0, None, "boom", 0.0)


@pytest.mark.parametrize(
    "made",
    [
        "create view more as with recursive n(i) as (select 0 union all select i + 1 from n) select i from n",
        "create trigger drops after insert on takes begin delete from takes where start = new.start; end",
        "create index slow on takes (length(hex(zeroblob(start + 100000000))))",
    ],
)
def test_what_no_run_has_is_refused_and_mended(tmp_path: Path, made: str) -> None:
    with closing(table.TakeTable(tmp_path)) as own:
        own._db.execute(made)
    with pytest.raises(sqlite3.DatabaseError, match="not a table of takes"):
        table.snapshot(tmp_path)
    with pytest.raises(sqlite3.DatabaseError, match="not a table of takes"):
        table.TakeTable(tmp_path)
    table.remove(tmp_path)
    with closing(table.TakeTable(tmp_path)) as own:
        own.add([ROW])
        assert table.snapshot(tmp_path) == ({ROW.key: ROW}, 0, "")


ODD = [
    ("start", "abc"), ("seed", "x"), ("seed", 3.5), ("arm", 7), ("task", b"t"), ("success", 2), ("success", "yes"),
    ("success_step", "x"), ("steps", None), ("steps", -1), ("calls", "c"), ("file", 5), ("size", -1), ("sha256", 5),
    ("error", 5), ("seconds", "long"), ("seconds", float("inf")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ODD)
def test_a_row_of_types_that_no_take_has_is_torn_though_its_checksum_is_right(
    tmp_path: Path, name: str, value: object
) -> None:
    values = dict(zip(table._FIELDS, table._sealed(ROW)[:-1], strict=True))
    values[name] = value
    line = [*values.values()]
    with closing(table.TakeTable(tmp_path)) as own:
        marks = ", ".join("?" * (len(line) + 1))
        own._db.execute(f"insert into takes ({table._COLUMNS}) values ({marks})", [*line, table._checksum(line)])
        own._db.commit()
    assert table.snapshot(tmp_path) == ({}, 1, "")


def test_a_pipe_in_the_place_of_the_table_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / table.NAME)
    (tmp_path / f"{table.NAME}-wal").write_bytes(b"log")
    with pytest.raises(sqlite3.DatabaseError, match="not a regular file"):
        table.snapshot(tmp_path)


def test_a_table_is_closed_only_when_nobody_writes_into_it(tmp_path: Path) -> None:
    own, begun, go_on, closed = table.TakeTable(tmp_path), threading.Event(), threading.Event(), threading.Event()

    def rows() -> Iterator[Row]:
        begun.set()
        go_on.wait()
        yield ROW

    def close() -> None:
        own.close()
        closed.set()

    threads = [threading.Thread(target=own.add, args=(rows(),)), threading.Thread(target=close)]
    threads[0].start()
    begun.wait()
    threads[1].start()
    too_soon = closed.wait(0.2)
    go_on.set()
    for thread in threads:
        thread.join()
    assert not too_soon
    assert table.snapshot(tmp_path)[0] == {ROW.key: ROW}
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        own.add([ROW])
