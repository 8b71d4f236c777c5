from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from besttake.errors import BestTakeError, RunError
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Extent, Manifest
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.verbs.runs import summarise

MANIFEST = Manifest(
    identity={"seed": 0},
    extent=Extent(policies=["p"], tasks=["testbed pick"], starts=[0, 1], seeds=[0, 1], arms=["base"]),
)


def make_take(start: int = 0, seed: int = 0, success: int | None = 3) -> Take:
    rng = np.random.default_rng(start * 10 + seed)
    frames = rng.integers(0, 256, (3, 16, 16, 3), np.uint8)
    return Take(
        key=TakeKey("p", "testbed", "pick", start, "base", seed),
        success_step=success,
        actions=rng.normal(size=(5, 4)).astype(np.float32),
        states=rng.normal(size=(6, 7)).astype(np.float32),
        film=Film.pack(frames),
        frame_steps=np.array([0, 2, 4], np.int32),
        calls=1,
    )


def test_a_take_comes_back_as_it_was(tmp_path: Path) -> None:
    take = make_take()
    with Store.write(tmp_path / "run", MANIFEST) as store:
        row = store.add(take)
        again = store.load(row)
    assert again.key == take.key
    assert again.success_step == 3
    assert again.success
    assert np.array_equal(again.actions, take.actions)
    assert np.array_equal(again.states, take.states)
    assert np.array_equal(again.frames(), take.frames())


def test_the_digest_does_not_depend_on_the_order_of_arrival(tmp_path: Path) -> None:
    takes = [make_take(start, seed) for start in range(2) for seed in range(2)]
    digests = []
    for name, order in (("a", takes), ("b", takes[::-1])):
        with Store.write(tmp_path / name, MANIFEST) as store:
            for take in order:
                store.add(take)
            digests.append(store.digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_file_is_noticed_and_not_trusted(tmp_path: Path, damage: str) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        row = store.add(make_take())
        store.add(make_take(seed=1))
        path = tmp_path / "run" / str(row.file)
        data = bytearray(path.read_bytes())
        if damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "flip":
            data[-1] ^= 1
            path.write_bytes(data)
        else:
            path.unlink()
        assert [bad.key.seed for bad in store.damaged()] == [0]
        with pytest.raises(RunError, match="run the diagnosis again"):
            store.load(row)
    assert summarise(tmp_path / "run").damaged == 1


def test_a_second_writer_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    code = (
        "import sys, time; from besttake.takes.store import Store; from besttake.takes.manifest import Manifest\n"
        f"store = Store.write({str(tmp_path / 'run')!r}, Manifest()); print('have it', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "have it"
        with pytest.raises(RunError, match=f"process {holder.pid}"):
            Store.write(tmp_path / "run", MANIFEST)
    finally:
        holder.kill()
        holder.communicate()
    Store.write(tmp_path / "run", MANIFEST).close()


@pytest.mark.parametrize("schema", [1, 99])
def test_another_schema_is_refused(tmp_path: Path, schema: int) -> None:
    Store.write(tmp_path / "run", MANIFEST.model_copy(update={"schema_version": schema})).close()
    for open_it in (lambda: Store.open(tmp_path / "run"), lambda: Store.write(tmp_path / "run", MANIFEST)):
        with pytest.raises(RunError, match=f"is of schema {schema}, this BestTake reads"):
            open_it()


def planned(starts: list[int]) -> Manifest:
    return MANIFEST.model_copy(update={"extent": MANIFEST.extent.model_copy(update={"starts": starts})})


def test_another_plan_is_refused_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    with Store.write(tmp_path / "run", MANIFEST.model_copy(update={"identity": {"seed": 2}})):
        pass  # before the first take any plan will do
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.add(make_take())
    with pytest.raises(RunError, match="another plan: its seed is 0, yours is 1"):
        Store.write(tmp_path / "run", MANIFEST.model_copy(update={"identity": {"seed": 1}}))
    with pytest.raises(RunError, match="its starts include 1, yours do not"):
        Store.write(tmp_path / "run", planned([0]))
    Store.write(tmp_path / "run", planned([0, 1, 2])).close()


@pytest.mark.parametrize(
    "damage", ["cut", "garbage", "empty", "gone", "directory", "middle", "schema", "option", "column"]
)
def test_a_damaged_table_is_one_clear_line_and_is_made_anew_from_the_takes(tmp_path: Path, damage: str) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        for seed in range(50):
            store.add(make_take(seed=seed), seconds=1.5)
        rows, digest = store.rows(), store.digest()
    database = tmp_path / "run" / "takes.sqlite"
    data = database.read_bytes()
    database.unlink()
    if damage == "directory":
        database.mkdir()
    elif damage != "gone":
        bad = {"cut": data[:5000], "garbage": b"no database" * 999, "empty": b""}
        bad |= {"schema": data.replace(b"CREATE TABLE", b"\xbbREATE TABLE"), "column": data.replace(b"_step", b"_stop")}
        bad["option"] = data.replace(b"without rowid", b"\xff\xffthout rowid")  # SQLite's message quotes it
        middle = data[: len(data) // 2] + bytes(2000) + data[len(data) // 2 + 2000 :]
        database.write_bytes(bad.get(damage, middle))
    with pytest.raises(BestTakeError, match=r"takes.sqlite is damaged|cannot use") as caught:
        Store.open(tmp_path / "run")
    assert "\n" not in str(caught.value)
    with Store.write(tmp_path / "run", MANIFEST) as store:
        assert store.mended
        assert [row.key for row in store.rows()] == [row.key for row in rows]
        assert store.digest() == digest
    with Store.write(tmp_path / "run", MANIFEST) as store:
        assert not store.mended
    with Store.open(tmp_path / "run") as store:
        assert store.digest() == digest


def edit(run: Path, statement: str) -> None:
    with closing(sqlite3.connect(run / "takes.sqlite")) as db:
        db.execute(statement)
        db.commit()


@pytest.mark.parametrize(
    "statement",
    [
        "update takes set success = 1 - success where seed = 3",
        "update takes set policy = 'q' where seed = 3",
        "update takes set sha256 = 'f' || substr(sha256, 2) where seed = 3",
        "update takes set checksum = null, success = 1 - success where seed = 3",
    ],
)
def test_a_changed_row_is_never_believed_and_comes_back_from_its_file(tmp_path: Path, statement: str) -> None:
    run = tmp_path / "run"
    with Store.write(run, MANIFEST) as store:
        for seed in range(5):
            store.add(make_take(seed=seed))
        rows, digest = store.rows(), store.digest()
    edit(run, statement)
    with pytest.raises(RunError, match=r"takes.sqlite is damaged \(1 rows are not what was written\)"):
        Store.open(run)
    with Store.write(run, MANIFEST) as store:
        assert "damaged" in store.mended[0]
        assert store.rows() == rows
        assert store.digest() == digest


@pytest.mark.parametrize("what", ["take", "folder", "takes"])
def test_what_stands_in_the_place_of_a_take_is_moved_aside(tmp_path: Path, what: str) -> None:
    run = tmp_path / "run"
    with Store.write(run, MANIFEST) as store:
        row = store.add(make_take())
    path = run / str(row.file)
    path.unlink()
    if what == "take":
        path.mkdir()
        (path / "thesis.tex").write_text("years of work")
    elif what == "folder":
        path.parent.rmdir()
        path.parent.write_text("")
    else:
        shutil.rmtree(run / "takes")
        (run / "takes").write_text("")
    with Store.write(run, MANIFEST) as store:
        assert store.damaged() == [row]
        store.forget([row])
        assert store.add(make_take()) == row
        assert not store.damaged()
    assert what != "take" or list(run.glob("takes/*/*.aside/thesis.tex"))


def test_a_writer_killed_before_its_first_manifest_was_whole_leaves_a_directory_that_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "takes").mkdir(parents=True)
    (run / ".lock").write_text("123")
    (run / "run.json.123.tmp").write_text("{")
    with Store.write(run, MANIFEST) as store:
        store.add(make_take())
    assert not list(run.glob("*.tmp"))


def test_takes_without_any_manifest_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Store.write(run, MANIFEST) as store:
        store.add(make_take())
    (run / "run.json").unlink()
    with pytest.raises(RunError, match="has takes but no run.json"):
        Store.write(run, MANIFEST)


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], None]]:
    """Makes a directory read-only for root too, by a bind mount."""
    mounted: list[Path] = []

    def mount(path: Path) -> None:
        for options in (["--bind", str(path)], ["-o", "remount,bind,ro"]):
            if subprocess.run(["mount", *options, str(path)], capture_output=True, check=False).returncode:
                pytest.skip("this machine does not let us mount")
        mounted.append(path)

    yield mount
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts, which needs root")
@pytest.mark.parametrize("killed", [False, True])
def test_a_run_on_a_read_only_disk_can_be_read(tmp_path: Path, read_only: Callable[[Path], None], killed: bool) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    with Store.write(run, MANIFEST) as store:
        rows = [store.add(make_take(seed=seed)) for seed in range(3)]
        shutil.copytree(run, copy)  # with the write-ahead log, as a killed writer leaves it
    (copy / "takes.sqlite-shm").unlink()
    place = copy if killed else run
    assert (place / "takes.sqlite-wal").exists() == killed
    before = sorted(p.name for p in place.iterdir())
    read_only(place)
    with Store.open(place) as store:
        assert store.rows() == rows
        assert store.load(rows[0]).success
    assert summarise(place).done == 3
    assert sorted(p.name for p in place.iterdir()) == before
    with pytest.raises(RunError, match="cannot write in .*: Read-only file system; choose another directory"):
        Store.write(place, MANIFEST)


def test_reading_leaves_nothing_behind_and_sees_what_is_being_written(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Store.write(run, MANIFEST) as store:
        for seed in range(3):
            store.add(make_take(seed=seed))
            with Store.open(run) as reader:
                assert reader.rows() == store.rows()
    before = sorted(p.name for p in run.iterdir())
    Store.open(run).close()
    assert sorted(p.name for p in run.iterdir()) == before
    assert "takes.sqlite-wal" not in before


def test_a_damaged_log_of_a_killed_writer_is_named_and_loses_nothing(tmp_path: Path) -> None:
    run, killed = tmp_path / "run", tmp_path / "killed"
    with Store.write(run, MANIFEST) as store:
        rows = [store.add(make_take(seed=seed)) for seed in range(12)]
        shutil.copytree(run, killed)
    log = killed / "takes.sqlite-wal"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    with pytest.raises(RunError, match="takes.sqlite is damaged"):
        Store.open(killed)
    with Store.write(killed, MANIFEST) as store:
        assert [row.identity for row in store.rows()] == [row.identity for row in rows]


@pytest.mark.parametrize("gone", [1, 3])
def test_rows_that_were_deleted_are_missed_by_readers_and_restored_by_writers(tmp_path: Path, gone: int) -> None:
    run = tmp_path / "run"
    with Store.write(run, MANIFEST) as store:
        rows = [store.add(make_take(seed=seed)) for seed in range(4)]
    edit(run, f"delete from takes where seed < {gone}")
    assert not (run / "takes.sqlite-wal").exists()
    with pytest.raises(RunError, match=f"takes.sqlite is damaged \\({gone} rows"):
        Store.open(run)
    with Store.write(run, MANIFEST) as store:
        assert [row.identity for row in store.rows()] == [row.identity for row in rows]
    Store.open(run).close()


def test_a_run_that_is_removed_under_its_writer_ends_at_the_next_take(tmp_path: Path) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.add(make_take())
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        with pytest.raises(RunError, match="run was removed or moved while the run went on"):
            store.add(make_take(seed=1))
        with pytest.raises(RunError, match="removed or moved"):
            store.add_error(make_take(seed=1).key, "fell over")
        assert not (tmp_path / "run").exists()
        (tmp_path / "elsewhere").rename(tmp_path / "run")
        store.add(make_take(seed=1))
    with Store.open(tmp_path / "run") as again:
        assert len(again.rows()) == 2


def test_a_take_whose_row_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.add(make_take())
        with monkeypatch.context() as patched:
            patched.setattr(store._writer, "add", full)
            with pytest.raises(BestTakeError, match="no room left"):
                store.add(make_take(seed=1))
    with Store.open(tmp_path / "run") as store:
        assert [row.key.seed for row in store.rows()] == [0]


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not a run"):
        Store.write(tmp_path, MANIFEST)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["thesis.tex"]


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="makes a small tmpfs, which needs root")
def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        kept = 0
        with Store.write(small / "run", MANIFEST) as store:
            with pytest.raises(BestTakeError, match="no room left on the disk") as caught:
                for seed in range(2000):
                    store.add(make_take(seed=seed))
                    kept += 1
            assert caught.value.exit_code == 1
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        with Store.write(small / "run", MANIFEST) as store:
            assert len(store.rows()) >= kept > 10
            assert not store.damaged()
            store.add(make_take(seed=3000))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="choose another directory"):
        Store.write(tmp_path / "file" / "run", MANIFEST)


@pytest.mark.parametrize("text", ["[1]", "{}", "[" * 100_000, '{"schema": 2, "plan": {"seed": 1}}'])
def test_a_damaged_manifest_is_one_clear_line(tmp_path: Path, text: str) -> None:
    Store.write(tmp_path / "run", MANIFEST).close()
    (tmp_path / "run" / "run.json").write_text(text)
    for open_it in (lambda: Store.open(tmp_path / "run"), lambda: Store.write(tmp_path / "run", MANIFEST)):
        with pytest.raises(RunError, match="run.json is damaged .*; choose another directory"):
            open_it()
