"""What works on this machine, and what to install for the rest (`besttake doctor`).

With a policy and an env it also shows whether they can be used together: cameras, state, action, and what each can do.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from besttake import registry
from besttake.arms import chosen
from besttake.compatibility import check_compatible
from besttake.errors import BestTakeError, one_line
from besttake.files import version
from besttake.reporting.notebook import Table, Tabular
from besttake.types import EnvSpec, PolicySpec, Start

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
_IMPORT_SECONDS = 180
_MOST_TASKS = 6


@dataclass(frozen=True)
class Extra:
    """An extra: what it is for, the modules it brings, and the distribution that tells its version."""

    name: str
    purpose: str
    modules: tuple[str, ...]
    distribution: str
    imports: bool = True


EXTRAS = (
    Extra("vision", "encoders dinov2+siglip, dinov2, siglip, hf", ("torch", "transformers"), "transformers"),
    Extra("timm", "encoders of timm", ("torch", "timm"), "timm"),
    Extra("efficientnet", "an encoder without a hub", ("efficientnet_lite_pytorch",), "efficientnet-lite-pytorch"),
    Extra("lerobot", "policies pi0, pi0.5, SmolVLA, diffusion, ACT", ("lerobot",), "lerobot"),
    # The first import of libero asks questions on standard input, so it is looked for and not imported.
    Extra("libero", "LIBERO and LIBERO-Occ", ("libero", "robosuite"), "hf-libero", imports=False),
    Extra("maniskill", "SimplerEnv-Bridge tasks in ManiSkill", ("mani_skill",), "mani-skill", imports=False),
    Extra("vla-eval", "benchmarks and model servers of vla-eval", ("vla_eval",), "vla-eval"),
    Extra("serve", "besttake serve, model servers", ("websockets", "msgpack"), "websockets"),
    Extra("hdf5", "demonstrations of LIBERO and robomimic", ("h5py",), "h5py"),
    Extra("gym", "Gymnasium environments", ("gymnasium",), "gymnasium"),
    Extra("ray", "workers on several machines", ("ray",), "ray"),
)


@dataclass(frozen=True)
class Check:
    """One thing that was checked: whether it works, in detail, and what mends it."""

    group: str
    name: str
    works: bool
    detail: str
    mend: str = ""


@dataclass(frozen=True)
class Pairing:
    """A policy and an env side by side: ``lines`` of (what, the policy's side, the env's side).

    ``problem`` says why they cannot be used together, or why one cannot be built; empty where all is well.
    """

    policy: str
    env: str
    lines: tuple[tuple[str, str, str], ...]
    problem: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DoctorResult(Tabular):
    """All checks, and the pairing where a policy or an env was named."""

    checks: tuple[Check, ...]
    pairing: Pairing | None

    @property
    def healthy(self) -> bool:
        """Whether the base install works (extras may be missing) and the named parts fit."""
        base = all(check.works for check in self.checks if check.group == "base")
        return base and (self.pairing is None or not self.pairing.problem)

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self), indent=1)

    def _table(self) -> Table:
        rows = [(c.group, c.name, "ok" if c.works else "no", c.detail, c.mend) for c in self.checks]
        heading = f"BestTake {'works' if self.healthy else 'does not work'} on this machine"
        notes: list[str] = []
        if self.pairing is not None:
            rows += [("pairing", what, "", _sides(policy, env), "") for what, policy, env in self.pairing.lines]
            notes = [text for text in (self.pairing.problem, *self.pairing.notes) if text]
        return Table(heading, ("group", "what", "works", "detail", "remedy"), rows, notes, most_rows=None)


def doctor(policy: str | None = None, env: str | None = None) -> DoctorResult:
    """Look at this machine; with ``policy`` and/or ``env`` (URIs), build them and show how they fit."""
    checks = [*_base(), *(_extra(extra) for extra in EXTRAS), *_graphics(), *_tools()]
    return DoctorResult(tuple(checks), _pairing(policy, env) if policy or env else None)


def _base() -> Iterable[Check]:
    supported = sys.version_info >= (3, 11)
    yield Check("base", "python", supported, platform.python_version(), "" if supported else "Python 3.11 or newer")
    yield Check("base", "besttake", True, version())
    yield _tried("testbed", _try_testbed, "reinstall besttake")
    yield _tried("encoder pixels", _try_pixels, "reinstall besttake")
    yield _tried("video (av)", lambda: str(import_module("av").__version__), "pip install av")


def _tried(name: str, attempt: Callable[[], str], mend: str) -> Check:
    try:
        return Check("base", name, True, attempt())
    except Exception as error:
        return Check("base", name, False, one_line(error, 200), mend)


def _try_testbed() -> str:
    """Reset and look at the embedded world: it needs MuJoCo to work, and no GL."""
    env = registry.env("testbed")
    env.reset(Start(env.spec.tasks[0].name, env.spec.starts[0]))
    env.observe((env.spec.score_camera,))
    env.close()
    return f"tasks {', '.join(task.name for task in env.spec.tasks)}"


def _try_pixels() -> str:
    registry.encoder("pixels")
    return "fitted to a library when one is built"


def _extra(extra: Extra) -> Check:
    missing = [module for module in extra.modules if find_spec(module) is None]
    install = f"pip install 'besttake[{extra.name}]'"
    if missing:
        return Check("extras", extra.name, False, f"not installed ({extra.purpose})", install)
    known = version(extra.distribution, "installed")
    problem = _import_problem(extra.modules) if extra.imports else ""
    if problem:
        return Check("extras", extra.name, False, f"{known}, but importing it fails: {problem}", install)
    return Check("extras", extra.name, True, f"{known} ({extra.purpose})")


def _import_problem(modules: tuple[str, ...]) -> str:
    """Import in a process of its own, so that a crash or a slow library cannot take us along. Empty when it works."""
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {_IMPORT_SECONDS} s"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _graphics() -> Iterable[Check]:
    for name, package in (("EGL", "libegl1"), ("OSMesa", "libosmesa6")):
        mend = f"apt-get install {package} (LIBERO renders with EGL or OSMesa)"
        yield _located("graphics", name, ctypes.util.find_library(name), mend)
    named = os.environ.get("VK_ICD_FILENAMES", "")
    places = [Path(p) for p in named.split(":") if p] or sorted(Path("/usr/share/vulkan/icd.d").glob("*.json"))
    drivers = ", ".join(place.name for place in places if place.is_file())
    mend = "apt-get install mesa-vulkan-drivers (only to render ManiSkill; physics needs none)"
    yield _located("graphics", "Vulkan", drivers, mend)


def _tools() -> Iterable[Check]:
    browser = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    yield _located("tools", "chromium", browser, "any browser opens a report; only BestTake's own tests need chromium")
    yield _located("tools", "NVIDIA GPU", shutil.which("nvidia-smi"), "not needed for the testbed")
    yield Check("tools", "cores", True, str(len(os.sched_getaffinity(0))))


def _located(group: str, name: str, place: str | None, mend: str) -> Check:
    return Check(group, name, True, place) if place else Check(group, name, False, "not found", mend)


def _pairing(policy_uri: str | None, env_uri: str | None) -> Pairing:
    policy: PolicySpec | None = None
    env: EnvSpec | None = None
    problem = ""
    try:
        if policy_uri:
            policy = registry.policy(policy_uri).spec
        if env_uri:
            env = registry.env(env_uri).spec
        if policy is not None and env is not None:
            check_compatible(policy, env)
    except BestTakeError as error:
        problem = str(error)
    left, right = _policy_side(policy, env) if policy else {}, _env_side(env) if env else {}
    lines = tuple((what, left.get(what, ""), right.get(what, "")) for what in {**left, **right})
    notes = (*(policy.notes if policy else ()), *(env.notes if env else ()))
    return Pairing(policy_uri or "", env_uri or "", lines, problem, notes)


def _policy_side(policy: PolicySpec, env: EnvSpec | None) -> dict[str, str]:
    def seen(camera: str) -> str:
        return camera if env is None else f"{camera} ({'found' if camera in env.cameras else 'MISSING'})"

    return {
        "cameras": ", ".join(map(seen, policy.cameras)) or "none: it reads the state only",
        "state": "any" if policy.state_dim is None else str(policy.state_dim),
        "action": str(policy.action_dim),
        "chunk": f"{policy.horizon} actions, {policy.replan} executed",
        "kind": policy.kind + ("" if policy.seeded else ", not seeded: its takes cannot be repeated"),
        "arms": ", ".join(chosen.runnable(policy, registry.schemes("arms"))[0]),
    }


def _env_side(env: EnvSpec) -> dict[str, str]:
    names, more = [task.name for task in env.tasks[:_MOST_TASKS]], len(env.tasks) - _MOST_TASKS
    unknown = "not known: name it with `{}`"
    return {
        "cameras": ", ".join(env.cameras),
        "state": str(env.state_dim),
        "action": str(env.action_dim),
        "tasks": ", ".join(names) + (f" and {more} more" if more > 0 else ""),
        "starts": f"{len(env.starts)} per task, {len(env.tuning)} more for tuning",
        "score camera": env.score_camera,
        "gripper": unknown.format("gripper_dim") if env.gripper_dim is None else f"action {env.gripper_dim}",
        "end effector": unknown.format("eef_dims") if env.eef_dims is None else f"state {env.eef_dims}",
        "after success": "goes on (window full)" if env.goes_on else "stops (window common)",
    }


def _sides(policy: str, env: str) -> str:
    return "; ".join(f"{name}: {side}" for name, side in (("policy", policy), ("env", env)) if side)
