"""Damage to every file of a run: each is without effect, or named in one line and mended; none changes a number."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.campaign.havoc import damaged
from bench.campaign.stage import Attempt, check, stage
from bench.campaign.tiny import TAKES, World, environment_of, make_world, numbers
from besttake.errors import BestTakeError
from besttake.progress import Reporter
from besttake.result import Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.scores import Scores
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.report import report
from besttake.verbs.runs import summarise

_TOGETHER = 8
_TAKES = 4


@stage(
    "run-mutations", "damage eight or nine files of a run one by one, read it; then all at once, and run it again",
    ci=5, full=250, each=_TOGETHER,
)  # fmt: skip
def run_mutations(scratch: Path) -> Iterator[Attempt]:
    world = make_world(scratch)
    with environment_of(world.cache), WorkerPool(1) as workers, _staying(workers):
        killed = _killed(world, scratch / "killed")
        read = _read(world.reference)

        def attempt(rng: random.Random, place: Path) -> tuple[str, int]:
            run = place / "run"
            shutil.copytree(killed if rng.random() < 0.2 else world.reference, run)
            done = _one_by_one(rng, run, read)
            _mended(world, run, read, "; ".join(done))
            return "each named or without effect, all mended", len(done)

        yield attempt


def _one_by_one(rng: random.Random, run: Path, expected: dict[str, Any]) -> list[str]:
    """Damage files one at a time, check what readers see, and then leave all of them damaged; what was done.

    All but ``run.json``, which nobody could mend.
    """
    done: list[str] = []
    damaged: list[tuple[Path, Path]] = []
    for path in _victims(rng, run):
        good, bad = run.with_name("good"), run.with_name(f"bad-{len(done)}")
        shutil.copyfile(path, good)
        done.append(mutate_file(rng, path, run))
        _check_readers(run, done[-1], expected)
        if path.exists():
            path.rename(bad)
        good.rename(path)
        damaged.append((path, bad))
    for path, bad in damaged:
        path.unlink(missing_ok=True)
        if bad.exists():
            bad.rename(path)
    return done


def _victims(rng: random.Random, run: Path) -> list[Path]:
    takes = rng.sample(sorted(run.glob("takes/*/*.take")), _TAKES)
    others = sorted(p for p in run.iterdir() if p.is_file() and p.name not in (".lock", "run.json"))
    tables = [path for path in others if path.name.startswith("takes.sqlite")]
    return [rng.choice(tables), *takes, *(path for path in others if path not in tables)]  # readers clear the log away


def _check_readers(run: Path, what: str, expected: dict[str, Any]) -> None:
    """`Broken` when a reader sees something else than before without a word."""
    for name, value in _read(run).items():
        if isinstance(value, BestTakeError):
            check("\n" not in str(value), f"{what}: {name} is told in several lines")
        elif value is not None:  # None: the scores are gone, and whoever needs them says so
            check(value == expected[name], f"{what}: {name} changed without a word")


def _mended(world: World, run: Path, expected: dict[str, Any], what: str) -> None:
    """`Broken` unless the same command makes a damaged run the unbroken one's twin."""
    try:
        diagnose(world.plan, run, progress=Reporter(shown=False))
    except BestTakeError as error:
        check(False, f"{what}: not mended: {error}")
    shown = summarise(run)
    check((shown.done, shown.missing, shown.damaged) == (TAKES, 0, 0), f"{what}: {shown.done} takes after mending")
    check(shown.digest == world.digest, f"{what}: another digest after mending")
    check(numbers(run) == world.numbers, f"{what}: another number after mending")
    check(_read(run) == expected, f"{what}: something is still damaged after mending")


@stage(
    "store-mutations", "damage one file of a small run directory, read it, open it to write, make what it lacks",
    ci=4, full=40, each=50,
)  # fmt: skip
def store_mutations(scratch: Path) -> Iterator[Attempt]:
    reference, killed, manifest = scratch / "reference", scratch / "killed", Manifest(identity={"seed": 0})
    with Store.write(reference, manifest) as store:
        rows = [store.add(_take(start, seed), seconds=1.25) for start in range(2) for seed in range(8)]
        digest = store.digest()
        shutil.copytree(reference, killed)  # as a killed writer leaves it, with its write-ahead log

    def attempt(rng: random.Random, place: Path) -> str:
        named = 0
        for number in range(50):
            run = place / str(number)
            shutil.copytree(killed if rng.random() < 0.3 else reference, run)
            what = mutate(rng, run)
            named += _store_mended(run, manifest, rows, digest, what)
            shutil.rmtree(run)
        return f"{named // 10 * 10} or more of 50 named, all mended"

    yield attempt


def _store_mended(run: Path, manifest: Manifest, rows: list[Row], digest: str, what: str) -> bool:
    """Whether damage was named; `Broken` when a reader saw another take, or it could not be mended."""
    said: list[str] = []
    expected = {row.key: row.identity for row in rows}
    try:
        with Store.open(run) as store:
            seen = {row.key: row.identity for row in store.rows()}
            check(seen.items() <= expected.items(), f"{what}: a row changed without a word")
            # The last row of a killed writer may be lost with the end of its log: its file is there, and is taken in.
            check(len(seen) >= len(rows) - ("wal" in what), f"{what}: a row is gone without a word")
            said += map(str, store.damaged())
    except BestTakeError as error:
        check("\n" not in str(error), f"{what}: told in several lines")
        said.append(str(error))
    if what.split()[1] == "run.json":  # refused, or without effect
        return bool(said)
    with Store.write(run, manifest) as store:
        said += store.mended
        store.forget(store.damaged())
        have = {row.key for row in store.rows()}
        lost = [row.key for row in rows if row.key not in have]
        check(len(lost) <= 2, f"{what}: {len(lost)} takes are to be made again")
        for key in lost:
            store.add(_take(key.start, key.seed))
        check(store.digest() == digest, f"{what}: another digest after mending")
    with Store.open(run) as store:
        check(store.digest() == digest and not store.damaged(), f"{what}: still damaged after mending")
    return bool(said)


def _take(start: int, seed: int) -> Take:
    rng = np.random.default_rng(10 * start + seed)
    return Take(
        TakeKey("p", "testbed", "pick", start, "base", seed), 3 if seed % 2 else None,
        rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(6, 7)).astype(np.float32),
        Film.pack(rng.integers(0, 256, (3, 16, 16, 3), np.uint8)), np.array([0, 2, 4], np.int32), 1,
    )  # fmt: skip


def _read(run: Path) -> dict[str, Any]:
    """What the readers of a run see: a value each, or the error that they raise."""
    readers: dict[str, Callable[[], Any]] = {
        "rows": lambda: [
            (r.key, r.status, r.success, r.success_step, r.steps, r.sha256) for r in Store.open(run).rows()
        ],
        "takes": lambda: [take.success_step for _, take in Store.open(run).takes()],
        "scores": lambda: (scores := Scores.open(run)) and scores.digest(),
        "result": lambda: _told(Result.load(run / "result.json")),
        "report": lambda: report(run, run / "page.md", format="md").exists(),
    }
    seen: dict[str, Any] = {}
    for name, reader in readers.items():
        try:
            seen[name] = reader()
        except BestTakeError as error:
            seen[name] = error
    (run / "page.md").unlink(missing_ok=True)
    return seen


def _told(result: Result) -> dict[str, Any]:
    kept = result.model_dump()
    return {name: kept[name] for name in ("cells", "policies", "digest", "relation", "worth")}


def _staying(workers: WorkerPool) -> Any:
    """Every diagnosis has these workers, and leaves them for the next."""

    class Kept:
        def __enter__(self) -> WorkerPool:
            return workers

        def __exit__(self, *_: object) -> None:
            pass

    return patch("besttake.verbs.diagnose.diagnosis.WorkerPool", lambda *_: Kept())


def _killed(world: World, place: Path) -> Path:
    """The reference as a killed writer leaves it, with its write-ahead log."""
    with Store.open(world.reference) as store:
        manifest = store.manifest
    original = place.with_name("to-kill")
    shutil.copytree(world.reference, original)
    with Store.write(original, manifest) as store:
        rows = store.rows()[:5]
        store._writer.add(rows)
        shutil.copytree(original, place)
    check((place / "takes.sqlite-wal").stat().st_size > 0, "no write-ahead log to attack")
    return place


def mutate(rng: random.Random, run: Path) -> str:
    """Change one file below ``run`` at random; returns what was done."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault("take" if path.suffix == ".take" else path.name, []).append(path)
    return mutate_file(rng, rng.choice(kinds[rng.choice(sorted(kinds))]), run)


def mutate_file(rng: random.Random, path: Path, run: Path) -> str:
    """Change one file below ``run`` at random; returns what was done."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    name = rng.choice(sorted(MUTATIONS))
    detail = MUTATIONS[name](rng, path, files)
    return f"{name} {path.relative_to(run)} {detail}".strip()


def _damage(rng: random.Random, path: Path, _: list[Path]) -> str:
    bad, what = damaged(rng, path.read_bytes())
    path.write_bytes(bad)
    return what


def _overwrite(rng: random.Random, path: Path, _: list[Path]) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return "(empty)"
    at = rng.randrange(len(data))
    length = min(len(data) - at, rng.choice([1, 2, 8, 64, 512, 4096]))
    data[at : at + length] = bytes(length) if rng.random() < 0.5 else rng.randbytes(length)
    path.write_bytes(data)
    return f"{length} bytes at {at}"


def _cut(rng: random.Random, path: Path, _: list[Path]) -> str:
    data = path.read_bytes()
    length = rng.randrange(len(data) + 1)
    path.write_bytes(data[:length])
    return f"to {length} of {len(data)} bytes"


def _extend(rng: random.Random, path: Path, _: list[Path]) -> str:
    length = rng.choice([1, 7, 512, 4096, 10_000])
    with path.open("ab") as file:
        file.write(bytes(length) if rng.random() < 0.5 else rng.randbytes(length))
    return f"by {length} bytes"


def _other(rng: random.Random, path: Path, files: list[Path]) -> str:
    """The content of another file of the same kind."""
    others = [p for p in files if p.suffix == path.suffix and p != path]
    if not others:
        return "(none)"
    other = rng.choice(others)
    path.write_bytes(other.read_bytes())
    return f"of {other.name}"


def _digit(rng: random.Random, path: Path, _: list[Path]) -> str:
    """Another digit: what stays valid JSON, and may be a number of a result."""
    data = bytearray(path.read_bytes())
    places = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return "(none)"
    at = rng.choice(places)
    data[at] = rng.choice([d for d in b"0123456789" if d != data[at]])
    path.write_bytes(data)
    return f"at {at}"


def _delete(rng: random.Random, path: Path, _: list[Path]) -> str:
    path.unlink()
    return ""


def _directory(rng: random.Random, path: Path, _: list[Path]) -> str:
    if path.suffix != ".take":  # a file that someone made a directory is theirs to move
        return "(left)"
    path.unlink()
    path.mkdir()
    return ""


MUTATIONS: dict[str, Callable[[random.Random, Path, list[Path]], str]] = {
    "damage": _damage, "overwrite": _overwrite, "cut": _cut, "extend": _extend, "content": _other,
    "digit": _digit, "delete": _delete, "directory": _directory,
}  # fmt: skip
