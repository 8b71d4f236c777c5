"""Find LIBERO on this machine, import it without its prompt, downloads and log messages, and read its init files.

The files of initial states are pickles inside a zip, and are read without trusting them.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import io
import logging
import os
import pickle
import shutil
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from besttake.envs.base import choose_device, choose_gl, without_visible_gpus
from besttake.errors import ComponentError, MissingExtra, one_clear_error

ASSETS_VARIABLE = "BESTTAKE_LIBERO_ASSETS"
OCCLUDED_VARIABLE = "BESTTAKE_LIBERO_OCC"
# The parts of a pickled float64 array, by their names in numpy 1 and numpy 2. Nothing else may be called.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}


@dataclass(frozen=True)
class Paths:
    """Directories of an installed hf-libero: the package, task definitions and initial states."""

    package: Path
    bddl: Path
    init: Path


def locate() -> Paths:
    """Find hf-libero without importing it; the user's config, if there is one, says where its files are."""
    specs = {name: importlib.util.find_spec(name) for name in ("libero", "robosuite", "bddl")}
    for name, spec in specs.items():
        if spec is None:
            raise MissingExtra("hf-libero" if name == "libero" else name, "libero", "libero:…")
    libero = specs["libero"]
    assert libero is not None
    if not libero.submodule_search_locations:
        raise ComponentError(f"{libero.origin} hides hf-libero, which is also called `libero`: run from elsewhere")
    package = Path(next(iter(libero.submodule_search_locations))) / "libero"
    folders: dict[str, Any] = {"bddl_files": package / "bddl_files", "init_states": package / "init_files"}
    if (config := _user_config()) is not None:
        with suppress(OSError, yaml.YAMLError):
            folders |= yaml.safe_load(config.read_text()) or {}
    return Paths(package, Path(folders["bddl_files"]), Path(folders["init_states"]))


def find_assets(paths: Paths) -> Path | None:
    """The directory of meshes and textures: the user's or the package's; None if they must be downloaded."""
    if (chosen := os.environ.get(ASSETS_VARIABLE)) is not None:
        if not (Path(chosen) / "scenes").is_dir():
            raise ComponentError(f"{ASSETS_VARIABLE}={chosen}: no LIBERO assets there (`scenes` is missing)")
        return Path(chosen)
    bundled = paths.package / "assets"
    return bundled if bundled.is_dir() else None


def import_libero(paths: Paths) -> Any:
    """Set the environment variables that hf-libero reads, import it, and return its ``ControlEnv``."""
    choose_gl()
    choose_device()
    if _user_config() is None:
        _write_config(paths)
    logging.getLogger("robosuite_logs").addFilter(lambda record: record.levelno >= logging.ERROR)
    libero = importlib.import_module("libero.libero")
    assets = find_assets(paths)
    if assets is None:
        assets = Path(libero.get_assets_path())
        if not assets.is_dir():
            raise ComponentError(
                "LIBERO's assets are neither in its package nor available from the hub;"
                f" set {ASSETS_VARIABLE} to a directory that holds them"
            )
    setattr(libero, "_assets_path_cache", str(assets))  # noqa: B010 - the only way that hf-libero offers
    with without_visible_gpus():
        return importlib.import_module("libero.libero.envs.env_wrapper").ControlEnv


def _user_config() -> Path | None:
    config = Path(os.environ.get("LIBERO_CONFIG_PATH", "~/.libero")).expanduser() / "config.yaml"
    return config if config.is_file() else None


def _write_config(paths: Paths) -> None:
    directory = tempfile.mkdtemp(prefix="besttake-libero-")
    config = {"benchmark_root": paths.package, "bddl_files": paths.bddl, "init_states": paths.init}
    config |= {"datasets": paths.package.parent / "datasets", "assets": paths.package / "assets"}
    (Path(directory) / "config.yaml").write_text(yaml.safe_dump({key: str(value) for key, value in config.items()}))
    os.environ["LIBERO_CONFIG_PATH"] = directory
    owner = os.getpid()

    def remove() -> None:
        # A forked worker inherits this hook, but does not own the directory.
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, and only numpy arrays are allowed")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def load_init_states(path: Path) -> NDArray[np.float64]:
    """The initial states in a ``.pruned_init`` or ``.init`` file: float64 (starts, 1 + nq + nv)."""
    if not path.is_file():
        raise ComponentError(f"LIBERO initial states {path} do not exist; name another file or leave `init` out")
    if not zipfile.is_zipfile(path):
        raise ComponentError(f"{path}: not a LIBERO init file (not a zip archive)")
    # A hostile or damaged pickle can raise any exception.
    with one_clear_error(f"{path}: initial states cannot be read: {{}}"), zipfile.ZipFile(path) as archive:
        inner = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(inner) != 1:
            raise ComponentError(f"{path}: not a LIBERO init file (no data.pkl inside)")
        states = _ArraysOnly(io.BytesIO(archive.read(inner[0]))).load()
    if not isinstance(states, np.ndarray) or states.ndim != 2 or not np.issubdtype(states.dtype, np.floating):
        raise ComponentError(f"{path}: initial states are not a table of numbers")
    if not np.isfinite(states).all():
        raise ComponentError(f"{path}: initial states are not all finite")
    return np.ascontiguousarray(states, np.float64)
