"""The workers of one run: started when they are first needed, kept until its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self

from besttake.takes.pool import LocalPool, Pool


class Workers:
    """``count`` workers as processes of this machine (``on="local"``) or on Ray."""

    def __init__(self, count: int, on: Literal["local", "ray"] = "local") -> None:
        self.count, self.on = count, on
        self._pool: Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def pool(self) -> Pool:
        """The pool, started by the first call."""
        if self._pool is None:
            if self.on == "ray":
                from besttake.takes.ray import RayPool

                self._pool = RayPool(self.count)
            else:
                self._pool = LocalPool(self.count)
        return self._pool

    @property
    def running(self) -> LocalPool | None:
        """The pool if its processes run on this machine already, else None."""
        return self._pool if isinstance(self._pool, LocalPool) else None

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`map` by worker processes of this machine, started if need be; in this process where they are on Ray."""
        pool = self.pool() if self.on == "local" else None
        return pool.map(function, items) if isinstance(pool, LocalPool) else map(function, items)

    def map_if_running(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """`map` by the worker processes if they run already, else in this process."""
        return self.running.map(function, items) if self.running is not None else map(function, items)
