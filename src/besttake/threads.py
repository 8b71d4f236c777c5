"""One thread for BLAS while takes are played and scored, and time limits for calls of foreign code."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from besttake.errors import RolloutError, failure

T = TypeVar("T")
PATIENCE, OTHER_WORK = 300.0, 10
"""Default seconds for an answer of a simulator, and the factor for any other work."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit numpy's and scipy's OpenBLAS to one thread. Torch keeps its own threads.

    The products here are small. Several threads make them slower, much slower while simulators keep the cores busy, and
    may change the last bit.
    """
    with ThreadpoolController().select(internal_api="openblas").limit(limits=1):
        yield


def call_limit(patience: float | None, *, first: bool) -> float:
    """Seconds that a call of a policy or an encoder may take; the ``first`` has longer, because it may compile."""
    if patience is None:
        return OTHER_WORK * PATIENCE
    return max(60.0, OTHER_WORK * patience) if first else patience


def no_answer(who: str, seconds: float) -> RolloutError:
    """The error that ends a run if ``who`` has been silent for too long."""
    return RolloutError(
        f"{who} gave no answer for {seconds:.0f} s; finished takes are safe: run the same command again, with more"
        " `patience` if it is slow"
    )


def outcome(call: Callable[..., T], *arguments: Any) -> T | Exception:
    """Return what ``call`` returns or raises."""
    try:
        return call(*arguments)
    except BaseException as error:
        return failure(error)


class PatientCaller:
    """Calls foreign code (``who``) with a time limit, in a new thread that is abandoned if it hangs."""

    def __init__(self, who: str, patience: float | None = None) -> None:
        self._who, self._patience, self._first = who, patience, True

    def __call__(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what ``call`` returns; raise what it raises, or RolloutError if it does not answer in time."""
        answers: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()
        seconds = call_limit(self._patience, first=self._first)
        threading.Thread(target=lambda: answers.put(outcome(call, *arguments)), name=self._who, daemon=True).start()
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise no_answer(self._who, seconds) from None
        self._first = False
        if isinstance(answer, Exception):
            raise answer
        return answer
