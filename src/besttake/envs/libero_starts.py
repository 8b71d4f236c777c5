"""LIBERO's fixed initial states, read without trusting the file: they are pickles inside a zip."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.errors import ComponentError

# What a pickled float64 array is made of, under numpy 1 and numpy 2 names. Nothing else may be called.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only numpy arrays are allowed")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def load_init_states(path: Path) -> NDArray[np.float64]:
    """The initial states in a ``.pruned_init`` or ``.init`` file: float64 (starts, 1 + nq + nv)."""
    if not path.is_file():
        raise ComponentError(f"LIBERO initial states {path} do not exist; name another file or leave `init` out")
    try:
        with zipfile.ZipFile(path) as archive:
            inner = [name for name in archive.namelist() if name.endswith("data.pkl")]
            if len(inner) != 1:
                raise ComponentError(f"{path}: not a LIBERO init file (no data.pkl inside)")
            states = _ArraysOnly(io.BytesIO(archive.read(inner[0]))).load()
    except ComponentError:
        raise
    except zipfile.BadZipFile as error:
        raise ComponentError(f"{path}: not a LIBERO init file (not a zip archive)") from error
    except Exception as error:
        # A hostile or damaged pickle can fail in any way at all.
        raise ComponentError(f"{path}: initial states cannot be read: {error}") from error
    if not isinstance(states, np.ndarray) or states.ndim != 2 or not np.issubdtype(states.dtype, np.floating):
        raise ComponentError(f"{path}: initial states are not a table of numbers")
    if not np.isfinite(states).all():
        raise ComponentError(f"{path}: initial states are not all finite")
    return np.ascontiguousarray(states, np.float64)
