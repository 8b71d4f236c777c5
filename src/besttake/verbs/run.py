"""A run directory opened to read: takes, scores, result and films, each loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, fields
from functools import cached_property
from pathlib import Path
from typing import Self

from besttake.errors import RunError
from besttake.measure.scores import Scores
from besttake.reporting.notebook import Table, Tabular
from besttake.result import Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store
from besttake.takes.take import Take
from besttake.types import U8

_KEY_COLUMNS = tuple(field.name for field in fields(TakeKey))


class Takes(Mapping[TakeKey, Take], Tabular):
    """The finished takes of a run by their key, in canonical order; a take is read from the disk when it is used."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows = {row.key: row for row in store.rows() if row.status == "done"}

    @property
    def rows(self) -> list[Row]:
        """What the table of takes says, without reading a take."""
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
    """The scores of a run's takes, shown as a table with a column for each scorer and window."""

    def _table(self) -> Table:
        rows = [(*astuple(key), *(take.scores[name] for name in self.names)) for key, take in self.items()]
        return Table(f"Scores of {len(rows)} takes", (*_KEY_COLUMNS, *map(str, self.names)), rows)


class Run:
    """A run directory, read only.

    Examples:
        >>> run = Run.open("runs/demo")                                        # doctest: +SKIP
        >>> run.result.policies[0].verdict.headline                            # doctest: +SKIP
        >>> {take.key: take.actions for take in run.takes.values()}            # doctest: +SKIP
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the run in directory ``path``; RunError when there is none."""
        directory = Path(path)
        if not any((directory / name).is_file() for name in ("run.json", "result.json")):
            raise RunError(f"{directory} is not a run (it has neither run.json nor result.json)")
        return cls(directory)

    @cached_property
    def takes(self) -> Takes:
        """The finished takes; RunError for a run without any, such as one made by `besttake.ingest`."""
        return Takes(self._store)

    @cached_property
    def scores(self) -> RunScores | None:
        """The scores of the takes; None where nothing was scored."""
        return RunScores.open(self.path)

    @cached_property
    def result(self) -> Result:
        """The result; RunError while the run is not finished."""
        return Result.load(self.path / "result.json")

    def films(self) -> Iterator[tuple[TakeKey, U8]]:
        """The scored frames (F, H, W, 3) of each finished take, one take at a time."""
        for key, take in self.takes.items():
            yield key, take.frames()

    @cached_property
    def _store(self) -> Store:
        return Store.open(self.path)

    def close(self) -> None:
        """Let go of the directory."""
        if "_store" in self.__dict__:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run.open({str(self.path)!r})"
