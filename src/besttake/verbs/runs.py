"""List run directories with their verdicts, merge runs of parts of one plan, and open a run for reading.

A merged run (`merge`) holds the takes that one run of the whole plan would hold, so it has the same digest. Scores and
verdicts are not copied: `diagnose` with the whole plan scores the takes that are there, and gives the verdict.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, Self, overload

from besttake.config import is_tuning, parse_starts
from besttake.errors import BestTakeError, RunError
from besttake.files import version
from besttake.reporting import words
from besttake.reporting.numbers import percent
from besttake.reporting.table import Column, Entry, Head, Table, Tabular, right
from besttake.result import Cell, Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Extent, Manifest
from besttake.takes.scores import Scores, run_digest
from besttake.takes.store import Store
from besttake.takes.take import Take
from besttake.types import U8

State = Literal["finished", "unfinished", "damaged"]
_DEEPEST = 4


@dataclass(frozen=True)
class PolicyLine:
    """The verdict of a run on one policy: its pass@1, what it needs in a few words, and the whole sentence."""

    policy: str
    pass_1: float | None
    needs: str
    headline: str


@dataclass(frozen=True)
class ListedRun:
    """A run directory. An unfinished run has no ``policies`` yet; ``problem`` says what is wrong with a damaged one."""

    path: str
    state: State
    created: str = ""
    takes: int = 0
    command: str = ""
    digest: str = ""
    policies: tuple[PolicyLine, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class RunList(Tabular):
    """The runs, the newest first."""

    runs: tuple[ListedRun, ...]

    def to_json(self) -> str:
        """As JSON text: a list of runs."""
        return json.dumps([asdict(run) for run in self.runs], indent=1, allow_nan=False)

    def _table(self) -> Table:
        rows = []
        for run in self.runs:
            finished = run.state == "finished"
            created, takes = (run.created[:16].replace("T", " "), run.takes) if finished else ("", None)
            for line in run.policies or (PolicyLine("", None, run.problem, ""),):
                rate = Entry(percent(line.pass_1) or "-", "" if line.pass_1 is not None else "none", line.pass_1)
                needs = line.needs if finished else Entry(run.problem or run.state, "warn")
                rows.append((Entry(run.path, "best"), line.policy, rate, needs, created, takes))
        columns: Head = ["run", "policy", *right("pass@1"), "needs", Column("made", extra=True)]
        columns += right("takes", extra=True)
        return Table(f"{len(self.runs)} runs", columns, rows)


def list_runs(directory: str | Path = ".") -> RunList:
    """List all runs in ``directory`` and up to 4 levels below, the newest first; RunError if it is not a directory."""
    root = Path(directory)
    if not root.is_dir():
        raise RunError(f"{root} is not a directory; name one that holds runs, e.g. runs")
    runs = [_read(path) for path in _run_directories(root, _DEEPEST)]
    return RunList(tuple(sorted(runs, key=lambda run: (run.created, run.path), reverse=True)))


def _run_directories(directory: Path, levels: int) -> Iterator[Path]:
    """Yield run directories down to ``levels`` below ``directory``, but none inside another run."""
    if any((directory / name).is_file() for name in ("run.json", "result.json")):
        yield directory
    elif levels:
        try:
            entries = sorted(entry.path for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        for path in entries:
            if not Path(path).name.startswith("."):
                yield from _run_directories(Path(path), levels - 1)


def _read(path: Path) -> ListedRun:
    try:
        if not (path / "result.json").is_file():
            return ListedRun(str(path), "unfinished", command=Manifest.read(path).command)
        result = Result.load(path / "result.json")
    except BestTakeError as error:
        return ListedRun(str(path), "damaged", problem=str(error))
    policies = tuple(map(_line, result.policies))
    return ListedRun(str(path), "finished", result.created, result.cost.takes, result.command, result.digest, policies)


def _line(policy: Cell) -> PolicyLine:
    pass_1 = policy.headroom.pass_1.value if policy.headroom is not None else None
    return PolicyLine(policy.policy, pass_1, words.needs_text(policy), words.headline(policy))


_SPLIT = {"policies": "policy", "tasks": "task", "starts": "starts", "seeds": "seeds", "arms": "arms"}
"""What a plan can be split by: its name in the extent of a run, and the key of the plan."""


@dataclass(frozen=True)
class MergedRun:
    """A merged run: how many takes it holds, how many failed ones were left out, and the digest of its takes."""

    path: str
    takes: int
    left_out: int
    digest: str


def merge(runs: Sequence[str | Path], out: str | Path, *, command: str = "") -> MergedRun:
    """Merge ``runs`` of parts of one plan into a new run in ``out``; RunError if they do not fit together."""
    if len(runs) < 2:
        raise RunError("name at least two runs to merge")
    if (Path(out) / "run.json").exists():
        raise RunError(f"{out} is a run already; choose another directory with `out`")
    with ExitStack() as closing:
        stores = [closing.enter_context(Store.open(run)) for run in runs]
        manifest = _merged_manifest(stores, command)
        _check_takes(stores)
        closing.enter_context(_removed_on_error(Path(out)))
        merged = closing.enter_context(Store.write(out, manifest))
        for store in stores:
            present = {row.key for row in merged.rows()}
            for row in store.rows():
                if row.status == "done" and row.key not in present:
                    merged.add(store.load(row), row.seconds)
        left_out = len({row.key for store in stores for row in store.rows()} - {row.key for row in merged.rows()})
        return MergedRun(str(out), len(merged.rows()), left_out, merged.digest())


@contextmanager
def _removed_on_error(out: Path) -> Iterator[None]:
    """Remove the directory ``out`` after an error, such as a damaged take of a part, if it did not exist before."""
    existed = out.exists()
    try:
        yield
    except BaseException:
        if not existed:
            shutil.rmtree(out, ignore_errors=True)
        raise


def _merged_manifest(stores: Sequence[Store], command: str) -> Manifest:
    """The manifest of all runs together; RunError if they are not parts of one plan."""
    first = stores[0]
    identity: dict[str, Any] = {}
    for store in stores:
        for name, value in store.manifest.identity.items():
            if identity.setdefault(name, value) != value:
                raise RunError(f"{store.path} does not fit {first.path}: its {name} differs")
        if store.manifest.versions != first.manifest.versions:
            names = sorted(dict(store.manifest.versions.items() ^ first.manifest.versions.items()))
            raise RunError(f"{store.path} does not fit {first.path}: made with another version of {', '.join(names)}")
    plans = [store.manifest.plan for store in stores]
    parts = [store.manifest.extent.model_dump() for store in stores]
    differing = [name for name in _SPLIT if any(part[name] != parts[0][name] for part in parts)]
    if len(differing) > 1:
        raise RunError(
            f"the runs differ in {' and in '.join(differing)}: they are not parts of one plan, split by one of these"
        )
    extent = {name: list(dict.fromkeys(value for part in parts for value in part[name])) for name in _SPLIT}
    extent["starts"].sort()
    plan = dict(plans[0])
    for name in differing:
        key = _SPLIT[name]
        plan[key] = _merged_starts(stores) if name == "starts" else _union([part.get(key) for part in plans])
    skipped = {policy: arms for store in stores for policy, arms in store.manifest.skipped.items()}
    return Manifest(
        besttake=version(), command=command, plan=plan, versions=first.manifest.versions,
        library=first.manifest.library, identity=identity, extent=Extent(**extent), skipped=skipped,
        outgrown=[outgrown for store in stores for outgrown in store.manifest.outgrown],
    )  # fmt: skip


def _merged_starts(stores: Sequence[Store]) -> str:
    """Merge the starts of runs into one range; RunError if it has a gap, or if only some are tuning starts."""
    texts = [store.manifest.plan["starts"] for store in stores]
    kinds = {is_tuning(text) for text in texts}
    if len(kinds) > 1:
        raise RunError("some of the runs are on tuning starts and some are not, so they are not parts of one plan")
    spans, kind = sorted(map(parse_starts, texts)), "tuning:" if True in kinds else ""
    first, end = spans[0]
    for begin, stop in spans[1:]:
        if begin > end:
            gap = f"{kind}{end}:{begin}"
            raise RunError(f"starts {gap} are in none of the runs; run them first (`starts` {gap})")
        end = max(end, stop)
    return f"{kind}{first}:{end}"


def _union(values: Sequence[Any]) -> Any:
    """The union of lists, in order; of numbers the largest."""
    if all(isinstance(value, list | tuple) for value in values):
        return list(dict.fromkeys(item for value in values for item in value))
    return max(values)


def _check_takes(stores: Sequence[Store]) -> None:
    """RunError if two runs hold different takes with the same key."""
    known: dict[Any, tuple[Row, Path]] = {}
    for store in stores:
        for row in store.rows():
            if row.status != "done":
                continue
            other, path = known.setdefault(row.key, (row, store.path))
            if other.identity != row.identity:
                key = row.key
                raise RunError(
                    f"{store.path} and {path} hold different takes of {key.task} start {key.start} seed {key.seed}"
                    f" ({key.arm}): they were not made by the same policy and env"
                )


_KEY_COLUMNS = tuple(field.name for field in fields(TakeKey))


class Takes(Mapping[TakeKey, Take], Tabular):
    """The finished takes of a run in canonical order, by key or by index. A take is read when you access it.

    ``takes[0]`` is the first take, ``takes[-10:]`` a list of the last ten, and ``takes[key]`` the take of a key;
    iterating yields keys.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows = {row.key: row for row in store.rows() if row.status == "done"}

    @property
    def rows(self) -> list[Row]:
        """The rows of the table of takes (key, outcome, number of steps), without reading any take."""
        return list(self._rows.values())

    @overload
    def __getitem__(self, key: TakeKey | int) -> Take: ...
    @overload
    def __getitem__(self, key: slice) -> list[Take]: ...
    def __getitem__(self, key: TakeKey | int | slice) -> Take | list[Take]:
        if isinstance(key, slice):
            return [self._store.load(row) for row in self.rows[key]]
        return self._store.load(self.rows[key] if isinstance(key, int) else self._rows[key])

    def __iter__(self) -> Iterator[TakeKey]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} takes in {self._store.path}: takes[0], takes[key], or loop over .items()>"

    def _table(self) -> Table:
        rows = [(*astuple(row.key), row.success, row.success_step, row.steps) for row in self._rows.values()]
        columns = (*_KEY_COLUMNS, "success", "success_step", "steps")
        return Table(f"{len(rows)} takes in {self._store.path}", columns, rows)


class RunScores(Scores, Tabular):
    """The scores of a run by take, shown as a table with one column per scorer and window."""

    def _table(self) -> Table:
        rows = [(*astuple(key), *(take.scores[name] for name in self.names)) for key, take in self.items()]
        return Table(f"Scores of {len(rows)} takes", (*_KEY_COLUMNS, *map(str, self.names)), rows)


class Run:
    """A run directory, opened for reading. Data is loaded when you first access it.

    Examples:
        >>> with besttake.Run.open("runs/demo") as run:                            # doctest: +SKIP
        ...     print(run.result.policies[0].verdict.headline)
        ...     actions = {key: take.actions for key, take in run.takes.items()}
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the run in directory ``path``.

        Raises:
            RunError: The directory is not a run.
        """
        directory = Path(path)
        if not any((directory / name).is_file() for name in ("run.json", "result.json")):
            raise RunError(f"{directory} is not a run (it has neither run.json nor result.json)")
        return cls(directory)

    @cached_property
    def takes(self) -> Takes:
        """The finished takes by key (policy, env, task, start, arm, seed). Each take is read when you access it.

        ``take.actions`` is float32 (T, action_dim) and ``take.states`` float32 (T + 1, state_dim). Raises RunError if
        the run has no takes, such as one made by `besttake.ingest`.
        """
        return Takes(self._store)

    @cached_property
    def scores(self) -> RunScores | None:
        """The scores by the same keys, as in ``scores[key].scores["coverage", "full"]``; None if nothing was scored."""
        return RunScores.open(self.path)

    @cached_property
    def result(self) -> Result:
        """The result of the run. Raises RunError if the run is not finished."""
        return Result.load(self.path / "result.json")

    def films(self) -> Iterator[tuple[TakeKey, U8]]:
        """Yield the key and the scored frames, uint8 (F, H, W, 3), of each finished take."""
        for key, take in self.takes.items():
            yield key, take.frames()

    @cached_property
    def _store(self) -> Store:
        return Store.open(self.path)

    def close(self) -> None:
        """Close the table of takes. Leaving a ``with`` block does this for you."""
        if "_store" in self.__dict__:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run.open({str(self.path)!r})"


@dataclass(frozen=True)
class ArmProgress:
    """How many takes of a policy, task and arm are done, succeeded, failed in an error, or are missing."""

    policy: str
    env: str
    task: str
    arm: str
    done: int
    succeeded: int
    failed: int
    missing: int


@dataclass(frozen=True)
class Summary:
    """The state of a run. ``damaged`` takes and scores are made again when it continues; ``failures`` counts reasons.
    ``digest`` covers takes, outcomes and scores, ``takes_digest`` the takes and outcomes alone."""

    path: str
    planned: int
    done: int
    failed: int
    missing: int
    damaged: int
    damaged_scores: bool
    digest: str
    takes_digest: str
    lines: tuple[ArmProgress, ...]
    failures: tuple[tuple[str, int], ...]


def summarise(path: str | Path) -> Summary:
    """Summarise a run after verifying every file."""
    with Store.open(path) as store:
        rows, damaged, takes, manifest = store.rows(), store.damaged(), store.digest(), store.manifest
    scores, damaged_scores = None, False
    try:
        scores = Scores.open(path)
    except RunError:
        damaged_scores = True
    extent, damaged_keys = manifest.extent, {row.key for row in damaged}
    # A run until decided plans as it goes, so nothing is missing.
    until = manifest.plan.get("until") is not None
    per_arm = len(extent.starts) * len(extent.seeds)
    counts = {
        (policy, env, task, arm): [0, 0, 0]
        for policy, place, arm in product(extent.policies, extent.tasks, extent.arms)
        for env, _, task in [place.partition(" ")]
        if arm not in manifest.skipped.get(policy, ())
    }
    for row in rows:
        count = counts.setdefault((row.key.policy, row.key.env, row.key.task, row.key.arm), [0, 0, 0])
        if row.status == "error":
            count[2] += 1
        elif row.key not in damaged_keys:
            count[0] += 1
            count[1] += bool(row.success)
    lines = tuple(ArmProgress(*name, d, s, f, 0 if until else per_arm - d - f) for name, (d, s, f) in counts.items())
    done, failed, missing = (sum(getattr(line, kind) for line in lines) for kind in ("done", "failed", "missing"))
    reasons = Counter(row.error or "" for row in rows if row.status == "error")
    failures = tuple(reasons.most_common())
    planned = done + failed if until else per_arm * len(counts)
    return Summary(
        str(path), planned, done, failed, missing, len(damaged), damaged_scores, run_digest(takes, scores), takes,
        lines, failures,
    )  # fmt: skip
