from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from besttake.errors import BestTakeError, RunError
from besttake.takes.film import Film
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Extent, Manifest
from besttake.takes.store import Store
from besttake.takes.summary import summarise
from besttake.takes.take import Take

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


def test_the_digest_sees_a_single_changed_bit(tmp_path: Path) -> None:
    take = make_take()
    other = make_take()
    other.actions[0, 0] = np.nextafter(other.actions[0, 0], np.float32(9))
    digests = []
    for name, one in (("a", take), ("b", other)):
        with Store.write(tmp_path / name, MANIFEST) as store:
            store.add(one)
            digests.append(store.digest())
    assert digests[0] != digests[1]


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
        f"store = Store.write({str(tmp_path / 'run')!r}, Manifest()); print('have it', flush=True); time.sleep(60)"
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


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    Store.write(tmp_path / "run", MANIFEST).close()
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    for open_it in (lambda: Store.open(tmp_path / "run"), lambda: Store.write(tmp_path / "run", MANIFEST)):
        with pytest.raises(RunError, match="newer BestTake"):
            open_it()


def planned(starts: list[int]) -> Manifest:
    return MANIFEST.model_copy(update={"extent": MANIFEST.extent.model_copy(update={"starts": starts})})


def test_another_plan_is_refused_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    Store.write(tmp_path / "run", MANIFEST).close()
    with pytest.raises(RunError, match="another plan: its seed is 0, yours is 1"):
        Store.write(tmp_path / "run", MANIFEST.model_copy(update={"identity": {"seed": 1}}))
    with pytest.raises(RunError, match="its starts include 1, yours do not"):
        Store.write(tmp_path / "run", planned([0]))
    Store.write(tmp_path / "run", planned([0, 1, 2])).close()


def test_a_fingerprint_learned_later_must_stay_the_same(tmp_path: Path) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.claim("policy p", "abc")
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.claim("policy p", "abc")
        with pytest.raises(RunError, match="another plan: its policy p"):
            store.claim("policy p", "xyz")


def test_a_truncated_database_is_one_clear_line(tmp_path: Path) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        for seed in range(50):
            store.add(make_take(seed=seed))
    database = tmp_path / "run" / "takes.sqlite"
    database.write_bytes(database.read_bytes()[:5000])
    with pytest.raises(RunError, match="takes.sqlite is damaged"):
        Store.write(tmp_path / "run", MANIFEST)
    with pytest.raises(RunError, match="takes.sqlite is damaged"):
        Store.open(tmp_path / "run")


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not a run"):
        Store.write(tmp_path, MANIFEST)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["thesis.tex"]


def test_what_a_killed_writer_left_half_written_is_swept_away(tmp_path: Path) -> None:
    Store.write(tmp_path / "run", MANIFEST).close()
    stray = tmp_path / "run" / "takes" / "x.take.tmp"
    stray.write_bytes(b"half")
    Store.write(tmp_path / "run", MANIFEST).close()
    assert not stray.exists()


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="choose another directory"):
        Store.write(tmp_path / "file" / "run", MANIFEST)


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


def test_a_run_of_an_older_version_opens(tmp_path: Path) -> None:
    Store.write(tmp_path / "run", MANIFEST).close()
    old = {"schema": 1, "identity": {"seed": 0}, "extent": {"starts": [0]}, "noted": "by an older version"}
    (tmp_path / "run" / "run.json").write_text(json.dumps(old))
    with Store.open(tmp_path / "run") as store:
        assert store.manifest.extent.starts == [0]
        assert store.manifest.skipped == {}
        assert store.manifest.library is None
    Store.write(tmp_path / "run", MANIFEST).close()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 1, "extent": 3}', '{"schema": "new"}'])
def test_a_damaged_manifest_is_one_clear_line(tmp_path: Path, text: str) -> None:
    Store.write(tmp_path / "run", MANIFEST).close()
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(RunError, match=r"run.json is damaged .*choose another directory") as caught:
        Store.open(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_the_table_is_read_once_and_follows_what_is_added_and_forgotten(tmp_path: Path) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.add(make_take(seed=1))
        statements: list[str] = []
        store._db.set_trace_callback(statements.append)
        late = store.add(make_take(seed=0))
        failed = store.add_error(TakeKey("p", "testbed", "pick", 1, "base", 0), "the arm\nfell off")
        assert [row.key.seed for row in store.rows()] == [0, 1, 0]
        store.forget([late])
        store.rows().clear()
        in_memory, digest = store.rows(), store.digest()
        assert not [text for text in statements if text.lower().startswith("select")]
    assert in_memory[-1] == failed
    with Store.open(tmp_path / "run") as store:
        assert store.rows() == in_memory
        assert store.digest() == digest


def test_what_a_policy_cannot_run_is_kept_in_the_manifest(tmp_path: Path) -> None:
    with Store.write(tmp_path / "run", MANIFEST) as store:
        store.skip("p", ["retrieve"])
    with Store.open(tmp_path / "run") as store:
        assert store.manifest.skipped == {"p": ["retrieve"]}
