"""Where LIBERO lives on this machine, and how to import it without its prompt, its downloads by surprise, its noise."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import logging
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from besttake.envs.gl import choose_gl
from besttake.errors import ComponentError, MissingExtra

ASSETS_VARIABLE = "BESTTAKE_LIBERO_ASSETS"
OCCLUDED_VARIABLE = "BESTTAKE_LIBERO_OCC"


@dataclass(frozen=True)
class Paths:
    """Directories of an installed hf-libero: the package, task definitions and initial states."""

    package: Path
    bddl: Path
    init: Path


def locate() -> Paths:
    """Find hf-libero without importing it; a config of the user's, if there is one, says where its files are."""
    specs = {name: importlib.util.find_spec(name) for name in ("libero", "robosuite", "bddl")}
    for name, spec in specs.items():
        if spec is None:
            raise MissingExtra("hf-libero" if name == "libero" else name, "libero", "libero:…")
    libero = specs["libero"]
    assert libero is not None
    if not libero.submodule_search_locations:
        raise ComponentError(f"{libero.origin} hides hf-libero, which is also called `libero`: run from elsewhere")
    package = Path(next(iter(libero.submodule_search_locations))) / "libero"
    config = _user_config()
    places: dict[str, str] = {}
    if config is not None:
        with suppress(OSError, yaml.YAMLError):
            places = dict(yaml.safe_load(config.read_text()) or {})
    return Paths(
        package=package,
        bddl=Path(places.get("bddl_files", package / "bddl_files")),
        init=Path(places.get("init_states", package / "init_files")),
    )


def find_assets(paths: Paths) -> Path | None:
    """The directory of meshes and textures: the user's, the package's, or None where the hub must be asked."""
    named = os.environ.get(ASSETS_VARIABLE)
    if named is not None:
        if not (Path(named) / "scenes").is_dir():
            raise ComponentError(f"{ASSETS_VARIABLE}={named}: no LIBERO assets there (a `scenes` directory is missing)")
        return Path(named)
    bundled = paths.package / "assets"
    return bundled if bundled.is_dir() else None


def import_libero(paths: Paths) -> Any:
    """Import hf-libero and give its ``ControlEnv``; the environment variables it reads are settled first."""
    choose_gl()
    if _user_config() is None:
        _write_config(paths)
    logging.getLogger("robosuite_logs").addFilter(lambda record: record.levelno >= logging.ERROR)
    libero = importlib.import_module("libero.libero")
    assets = find_assets(paths)
    if assets is None:
        assets = Path(libero.get_assets_path())
        if not assets.is_dir():
            raise ComponentError(
                "LIBERO's assets are neither in its package nor on the hub from here; "
                f"set {ASSETS_VARIABLE} to a directory that holds them"
            )
    setattr(libero, "_assets_path_cache", str(assets))  # noqa: B010 - the only way that hf-libero offers
    return importlib.import_module("libero.libero.envs.env_wrapper").ControlEnv


def _user_config() -> Path | None:
    directory = Path(os.environ.get("LIBERO_CONFIG_PATH", "~/.libero")).expanduser()
    config = directory / "config.yaml"
    return config if config.is_file() else None


def _write_config(paths: Paths) -> None:
    directory = tempfile.mkdtemp(prefix="besttake-libero-")
    config = {
        "benchmark_root": paths.package,
        "bddl_files": paths.bddl,
        "init_states": paths.init,
        "datasets": paths.package.parent / "datasets",
        "assets": paths.package / "assets",
    }
    (Path(directory) / "config.yaml").write_text(yaml.safe_dump({key: str(value) for key, value in config.items()}))
    os.environ["LIBERO_CONFIG_PATH"] = directory
    owner = os.getpid()

    def remove() -> None:
        # A forked worker inherits this hook, but not the directory.
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
