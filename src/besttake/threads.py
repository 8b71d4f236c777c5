"""One BLAS thread for numpy while takes are made and scored.

The products here are small: splitting them over threads makes them slower, many times slower where the simulators
keep the cores busy, and may change the last bit. Torch keeps its own threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit numpy's and scipy's OpenBLAS to one thread."""
    with ThreadpoolController().select(internal_api="openblas").limit(limits=1):
        yield
