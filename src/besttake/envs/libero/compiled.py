"""The physics steps of a LIBERO control step (`controller.run`), compiled by numba, which robosuite installs.

Compiled code calls MuJoCo's C functions by address, so their declarations are checked first. Before it is used,
`faithful` compares its results with the interpreted steps, bit for bit, since the two may use different BLAS libraries
(numba that of scipy, numpy its own). Compiled code is cached for the next process in a folder to which nobody else can
write. An error inside MuJoCo (out of memory) ends the process with its message, as in a C program.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from besttake.envs.libero import controller
from besttake.envs.libero.controller import RobotArm, arm_of
from besttake.errors import ComponentError, one_line
from besttake.files import cache_dir, short_hash, versions

Run = Callable[[Any, Any, RobotArm, int, bool], None]
DECLARED = {
    "mj_step1": "void mj_step1(const mjModel * m, mjData * d)",
    "mj_step2": "void mj_step2(const mjModel * m, mjData * d)",
    "mj_jacSite": "void mj_jacSite(const mjModel * m, const mjData * d, mjtNum * jacp, mjtNum * jacr, int site)",
    "mj_fullM": "void mj_fullM(const mjModel * m, mjtNum * dst, const mjtNum * M)",
}
_ROUNDS, _STEPS = 12, 25
_log = logging.getLogger(__name__)
# The runner for scenes of a number of degrees of freedom, on which the shapes of the controller's products depend.
_runners: dict[int, Run] = {}


def _external(name: str, *, pointers: int, number: bool = False) -> Any:
    """A C function for compiled code, which refers to it as ``besttake_NAME``."""
    kinds = [numba.types.uintp] * pointers + [numba.types.intc] * number
    return numba.types.ExternalFunction(f"besttake_{name}", numba.types.void(*kinds))


# Every module of BestTake can be imported without the libraries that it needs to run.
with suppress(ImportError):
    import llvmlite.binding
    import numba
    from numba.core import config

    _control = numba.njit(controller.control)
    _step1, _step2 = _external("mj_step1", pointers=2), _external("mj_step2", pointers=2)
    _jac_site = _external("mj_jacSite", pointers=4, number=True)
    _full_masses = _external("mj_fullM", pointers=3)


def _run(model: int, data: int, arm: RobotArm, count: int, begun: bool) -> None:
    # The same as `controller.run`, but with addresses.
    for number in range(count):
        if number > 0 or not begun:
            _step1(model, data)
        _jac_site(model, data, arm.jac_pos.ctypes.data, arm.jac_ori.ctypes.data, arm.site)
        _full_masses(model, arm.masses.ctypes.data, arm.qM.ctypes.data)
        _control(arm)
        _step2(model, data)


def runner(env: Any) -> Run:
    """The compiled steps for a robosuite environment, or the interpreted ones if those are not available."""
    size = env.sim.model._model.nv
    if size not in _runners:
        try:
            run = _compiled()
            problem = "" if faithful(run, env) else "the last bits differ"
        except Exception as error:
            problem = one_line(error, 200)
        if problem:
            _log.info("LIBERO's physics steps are interpreted, not compiled: %s", problem)
        _runners[size] = controller.run if problem else run
    return _runners[size]


def faithful(run: Run, env: Any) -> bool:
    """Whether ``run`` gives the same bits as the interpreted steps, from random poses around the current one."""
    model, rng = env.sim.model._model, np.random.default_rng(0)
    datas = mujoco.MjData(model), mujoco.MjData(model)
    arms = [arm_of(env, data) for data in datas]
    for _ in range(_ROUNDS):
        turns, kicks = rng.normal(0, 0.2, len(arms[0].rest)), rng.normal(0, 0.5, len(arms[0].rest))
        aim, gains, grip = rng.normal(0, 0.1, 3), rng.uniform(10, 200, (4, 3)), rng.uniform(-1, 1, 2)
        rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        results = []
        for execute, data, arm in zip((controller.run, run), datas, arms, strict=True):
            mujoco.mj_resetData(model, data)
            data.qpos[:] = env.sim.data.qpos
            arm.joint_pos[:] += turns
            arm.joint_vel[:] = kicks
            mujoco.mj_step1(model, data)
            arm.goal_pos[:], arm.goal_ori[:], arm.gains[:] = arm.eef_pos + aim, rotation, gains
            arm.rest[:], arm.grip[:], arm.closing[:] = arm.joint_pos - turns, grip, -grip / 20
            execute(model, data, arm, _STEPS, True)
            results.append([values.tobytes() for values in (data.qpos, data.qvel, data.qacc, data.ctrl, arm.grip)])
        if results[0] != results[1]:
            return False
    return True


@functools.cache
def _compiled() -> Run:
    from mujoco.introspect.functions import FUNCTIONS

    libraries = sorted(Path(mujoco.__file__).parent.glob("libmujoco.*"))
    if not libraries:
        raise ComponentError("there is no libmujoco in mujoco's package")
    library = ctypes.CDLL(str(libraries[0]))
    for name, declared in DECLARED.items():
        if str(FUNCTIONS[name]) != declared:
            raise ComponentError(f"mujoco {mujoco.__version__} declares {FUNCTIONS[name]}")
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        llvmlite.binding.add_symbol(f"besttake_{name}", address)
    with _numba_cache(_own_folder()) as has_cache:
        compiled = numba.njit(nogil=True, cache=has_cache)(_run)

    def run(model: Any, data: Any, arm: RobotArm, count: int, begun: bool) -> None:
        compiled(model._address, data._address, arm, count, begun)

    return run


@contextmanager
def _numba_cache(folder: Path | None) -> Iterator[bool]:
    """Have numba cache the functions that are decorated in this block in ``folder``, if there is one."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        yield folder is not None
    finally:
        config.CACHE_DIR = before


def _own_folder() -> Path | None:
    """The cache directory of compiled code, named by a hash of sources and versions; None if others may write there."""
    sources = [Path(file).read_bytes() for file in (__file__, controller.__file__)]
    libraries = versions("numba", "llvmlite", "numpy", "scipy", "robosuite", "mujoco")
    folder = cache_dir() / "compiled" / short_hash(libraries, *sources)
    try:
        for parent in (*reversed(folder.parents), folder):  # with `parents=True` only the last one would get the mode
            parent.mkdir(mode=0o700, exist_ok=True)
        if only_ours(folder):
            return folder
        _log.info("compiled code is not kept in %s: others can write there", folder)
        return None
    except OSError:
        return None


def only_ours(folder: Path) -> bool:
    """Whether only this user and root can put a file into ``folder``, or another folder in its place."""
    if not hasattr(os, "getuid"):
        return False
    for directory in (folder.resolve(), *folder.resolve().parents):
        status = directory.stat()
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky directory such as /tmp, nobody can rename a folder of another user.
        is_sticky = status.st_mode & stat.S_ISVTX and directory != folder.resolve()
        if status.st_uid not in (0, os.getuid()) or (others_write and not is_sticky):
            return False
    return True
