"""A run directory opened to read: takes, scores, result and films, each loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, fields
from functools import cached_property
from pathlib import Path
from typing import Self

from besttake.errors import RunError
from besttake.measure.scores import Scores
from besttake.reporting.table import Table, Tabular
from besttake.result import Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store
from besttake.takes.take import Take
from besttake.types import U8

_KEY_COLUMNS = tuple(field.name for field in fields(TakeKey))


class Takes(Mapping[TakeKey, Take], Tabular):
    """The finished takes of a run by key, in canonical order. A take is read from disk when you access it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows = {row.key: row for row in store.rows() if row.status == "done"}

    @property
    def rows(self) -> list[Row]:
        """The table of takes (key, outcome, number of steps), without reading a take."""
        return list(self._rows.values())

    def __getitem__(self, key: TakeKey) -> Take:
        return self._store.load(self._rows[key])

    def __iter__(self) -> Iterator[TakeKey]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} takes in {self._store.path}>"

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
        """Iterate over the finished takes, yielding the key and the scored frames, uint8 (F, H, W, 3), of each."""
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
