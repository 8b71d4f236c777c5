"""Check what works on this machine, and what to install for the rest (`besttake doctor`).

Given demonstrations, a policy or an env, show instead whether they can be used together: what each is and can do, what
each means by its numbers and pictures, and what does not fit.
"""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from besttake import registry
from besttake.arms.base import runnable
from besttake.conventions import (
    Aspect,
    check_compatible,
    check_library,
    env_convention,
    library_convention,
    side_by_side,
)
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options, build
from besttake.demos.cameras import last_word
from besttake.demos.library import Library, check_retrieval
from besttake.demos.resolve import source_of
from besttake.errors import BestTakeError, ComponentError, one_line
from besttake.files import version
from besttake.registry import Uri
from besttake.reporting.table import Entry, Table, Tabular
from besttake.types import EnvSpec, PolicySpec, Start
from besttake.verbs.diagnose.setup import gripper_of, needs_rehearsal, rehearse

_SHOWN_TASKS = 3
_FEW_DEMOS, _FEW_FRAMES = 3, 10
_UNKNOWN = "not known: name it with `{}`"


@dataclass(frozen=True)
class Extra:
    """An optional dependency: its purpose, the modules that it needs, and the distribution whose version is shown."""

    name: str
    purpose: str
    modules: tuple[str, ...]
    distribution: str


EXTRAS = (
    Extra("vision", "encoders dinov2+siglip, dinov2, siglip", ("torch", "transformers"), "transformers"),
    Extra("lerobot", "policies pi0, pi0.5, SmolVLA, diffusion, ACT", ("lerobot",), "lerobot"),
    Extra("libero", "LIBERO and LIBERO-Occ", ("libero", "robosuite"), "hf-libero"),
    Extra("maniskill", "SimplerEnv-Bridge tasks in ManiSkill", ("mani_skill",), "mani-skill"),
    Extra("vla-eval", "benchmarks and model servers of vla-eval", ("vla_eval",), "vla-eval"),
    Extra("serve", "besttake serve, model servers", ("websockets", "msgpack"), "websockets"),
    Extra("hdf5", "demonstrations of LIBERO and robomimic", ("h5py",), "h5py"),
    Extra("gym", "Gymnasium environments", ("gymnasium",), "gymnasium"),
    Extra("ray", "workers on several machines", ("ray",), "ray"),
    Extra("trackio", "diagnose --track trackio", ("trackio",), "trackio"),
    Extra("wandb", "diagnose --track wandb", ("wandb",), "wandb"),
)


@dataclass(frozen=True)
class InstallCheck:
    """One thing that was checked: whether it works, details, and how to fix it."""

    group: str
    name: str
    works: bool
    detail: str
    mend: str = ""


@dataclass(frozen=True)
class Pairing:
    """Demonstrations, a policy and an environment side by side, as far as they were named.

    Attributes:
        demos: The demonstrations; empty if none were named. The same holds for the next two.
        policy: URI of the policy.
        env: URI of the environment.
        lines: What each is and can do.
        conventions: What each means by its numbers and pictures.
        problems: Why they cannot be used together, or why one cannot be loaded; empty if they can.
        notes: Remarks.
    """

    demos: str
    policy: str
    env: str
    lines: tuple[Aspect, ...]
    conventions: tuple[Aspect, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def named(self) -> tuple[str, ...]:
        """The names of the parts that were given: the columns of the table."""
        return tuple(name for name in (self.demos, self.policy, self.env) if name)

    def sides(self, line: Aspect) -> tuple[str, ...]:
        """Return the cells of a line for the parts that were given."""
        sides = zip((self.demos, self.policy, self.env), (line.data, line.policy, line.env), strict=True)
        return tuple(side for name, side in sides if name)

    def table(self) -> Table:
        """Return a table of the parts side by side, in which differences are marked."""
        kinds = (("demonstrations", self.demos), ("policy", self.policy), ("env", self.env))
        conventions = [line for line in self.conventions if {*self.sides(line)} - {"unknown", ""}]
        rows = []
        for line in (line for line in (*self.lines, *conventions) if any(self.sides(line))):
            mark, label = ("worse", f"{line.what} (DIFFERS)") if line.differs else ("", line.what)
            rows.append([Entry(label, mark), *(Entry(side, mark) for side in self.sides(line))])
        heading = "They do not fit" if self.problems else "They fit"
        return Table(heading, ("", *(kind for kind, name in kinds if name)), rows, [*self.problems, *self.notes])


@dataclass(frozen=True)
class DoctorResult(Tabular):
    """All checks, and the pairing if demonstrations, a policy or an environment were named."""

    checks: tuple[InstallCheck, ...]
    pairing: Pairing | None

    @property
    def healthy(self) -> bool:
        """Whether the base install works (extras may be missing) and the given parts fit together."""
        base = all(check.works for check in self.checks if check.group == "base")
        return base and (self.pairing is None or not self.pairing.problems)

    def _table(self) -> Table:
        if self.pairing is not None:
            return self.pairing.table()
        rows: list[Sequence[object]] = []
        for check in self.checks:
            mark = Entry("ok", "better") if check.works else Entry("no", "warn")
            rows.append((check.group, check.name, mark, check.detail if check.works else check.mend or check.detail))
        heading = f"BestTake {'works' if self.healthy else 'does not work'} on this machine"
        return Table(heading, ("", "what", "works", "found, or how to get it"), rows)


def doctor(
    policy: str | None = None, env: str | None = None, demos: str | None = None, *, trust_remote_code: bool = False
) -> DoctorResult:
    """Check what works on this machine, or whether a policy, an environment and demonstrations fit together.

    Without arguments, the base install is tried and every extra is looked for. With arguments, these are loaded
    instead: the environment is reset to its first start and renders a picture, and a few demonstrations are read.

    Args:
        policy: URI of a policy.
        env: URI of an environment.
        demos: A library directory, or demonstrations by URI or path.
        trust_remote_code: Allow the checkpoint, or an env from the hub, to run code that it contains.

    Returns:
        The checks, each with a remedy if it failed. ``healthy`` is True if the base install works and the given parts
        fit; ``pairing.problems`` says why they do not. A part that cannot be loaded is such a problem, not an error.

    Examples:
        >>> besttake.doctor("testbed:half", "testbed:pick").healthy  # doctest: +SKIP
    """
    if policy or env or demos:
        return DoctorResult(tuple(_base()), pair(policy, env, demos, trust_remote_code=trust_remote_code))
    checks = [*_base(), *(_extra(extra) for extra in EXTRAS), *_graphics()]
    return DoctorResult(tuple(checks), None)


def _base() -> Iterable[InstallCheck]:
    supported = sys.version_info >= (3, 11)
    yield InstallCheck(
        "base", "python", supported, platform.python_version(), "" if supported else "Python 3.11 or newer"
    )
    yield InstallCheck("base", "besttake", True, version())
    yield _attempt("testbed", _try_testbed, "reinstall besttake")
    yield _attempt("video (av)", lambda: str(import_module("av").__version__), "pip install av")


def _attempt(name: str, attempt: Callable[[], str], mend: str) -> InstallCheck:
    try:
        return InstallCheck("base", name, True, attempt())
    except Exception as error:
        return InstallCheck("base", name, False, one_line(error, 200), mend)


def _try_testbed() -> str:
    """Reset and observe the embedded testbed, which needs MuJoCo but no GL."""
    return f"tasks {', '.join(task.name for task in _try_env('testbed')[0].tasks)}"


def _extra(extra: Extra) -> InstallCheck:
    missing = [module for module in extra.modules if find_spec(module) is None]
    install = f"pip install 'besttake[{extra.name}]'"
    if missing:
        return InstallCheck("extras", extra.name, False, f"not installed ({extra.purpose})", install)
    return InstallCheck("extras", extra.name, True, f"{version(extra.distribution, 'installed')} ({extra.purpose})")


def _graphics() -> Iterable[InstallCheck]:
    for name, package in (("EGL", "libegl1"), ("OSMesa", "libosmesa6")):
        mend = f"apt-get install {package} (LIBERO renders with EGL or OSMesa)"
        yield _located(name, ctypes.util.find_library(name), mend)
    drivers = os.environ.get("VK_ICD_FILENAMES") or ", ".join(
        sorted(file.name for file in Path("/usr/share/vulkan/icd.d").glob("*.json"))
    )
    mend = "apt-get install mesa-vulkan-drivers (only to render ManiSkill; physics needs none)"
    yield _located("Vulkan", drivers, mend)
    yield _located("NVIDIA GPU", shutil.which("nvidia-smi"), "not needed for the testbed")


def _located(name: str, place: str | None, mend: str) -> InstallCheck:
    return InstallCheck("graphics", name, bool(place), place or "not found", "" if place else mend)


def pair(
    policy_uri: str | None, env_uri: str | None, demos: str | None = None, *, trust_remote_code: bool = False
) -> Pairing:
    """Load the given parts and check that they fit. Every part that loads is shown, and each problem has its line."""
    with tempfile.TemporaryDirectory(prefix="besttake-doctor-") as folder:
        return _pair(policy_uri, env_uri, demos, Path(folder), trust_remote_code)


def _pair(
    policy_uri: str | None, env_uri: str | None, demos: str | None, folder: Path, trust_remote_code: bool
) -> Pairing:
    problems: list[str] = []
    policy: PolicySpec | None = None
    env: EnvSpec | None = None
    library: Library | None = None
    size = ""
    with _collected(problems):
        loaded = registry.policy(policy_uri, trust_remote_code=trust_remote_code) if policy_uri else None
        policy = loaded.spec if loaded else None
    with _collected(problems):
        env, size = _try_env(env_uri, trust_remote_code) if env_uri else (None, "")
    with _collected(problems):
        library = _small_library(demos, env, folder) if demos else None
    if policy is not None and env is not None:
        with _collected(problems):
            check_compatible(policy, env)
            # Only a policy in the user's own code: a checkpoint would have to be loaded whole.
            in_python = policy_uri and Uri.parse(policy_uri).scheme == "python"
            if in_python and loaded and policy_uri and env_uri and needs_rehearsal(policy_uri, env_uri):
                rehearse(loaded, policy_uri, env_uri)
    if library is not None and env is not None:
        with _collected(problems):
            check_retrieval(library, env, RetrievalConfig(rule="frame"))
            check_library(library, env)
    conventions = (
        None if library is None else replace(library_convention(library), size=_picture_size(library)),
        None if policy is None else policy.convention,
        None if env is None else replace(env_convention(env), size=size),
    )
    left, middle = _library_side(library, policy) if library else {}, _policy_side(policy, env) if policy else {}
    right = _env_side(env) if env else {}
    names = {**middle, **right, **left}
    lines = tuple(Aspect(name, left.get(name, ""), middle.get(name, ""), right.get(name, "")) for name in names)
    notes = [*(policy.notes if policy else ()), *(env.notes if env else ())]
    notes += [*(library.head.notes if library else ()), *_demo_notes(library, env)]
    # The temporary library is deleted, so problems name the demonstrations that the user gave.
    reported = [problem if library is None else problem.replace(str(library.path), demos or "") for problem in problems]
    return Pairing(
        demos or "", policy_uri or "", env_uri or "", lines, side_by_side(*conventions),
        tuple(dict.fromkeys(reported)), tuple(notes),
    )  # fmt: skip


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Append a user's error to ``problems`` instead of raising it."""
    try:
        yield
    except BestTakeError as error:
        problems.append(str(error))


def _try_env(uri: str, trust_remote_code: bool = False) -> tuple[EnvSpec, str]:
    """Reset an env and render a picture; return the spec and the picture's size."""
    with registry.opened_env(uri, trust_remote_code=trust_remote_code) as env:
        spec = env.spec
        env.reset(Start(spec.tasks[0].name, spec.starts[0]))
        picture = env.observe((spec.score_camera,)).images[spec.score_camera]
        if picture.max() == picture.min():
            raise ComponentError(f"{uri}: its camera {spec.score_camera} draws one colour only; is OpenGL working?")
        return spec, f"{picture.shape[1]} x {picture.shape[0]}"


def _small_library(demos: str, env: EnvSpec | None, folder: Path) -> Library:
    """The library ``demos``; for any other source, one of its first few demonstrations, built in ``folder``."""
    if (Path(demos) / "library.json").is_file():
        return Library.open(demos)
    gripper = None if env is None else gripper_of({env.name: env})
    options = Options(first=_FEW_DEMOS, stride=_FEW_FRAMES, gripper_as=gripper)
    return build(source_of(demos), registry.encoder("hog"), folder / "library", options)


def _picture_size(library: Library) -> str:
    """The size of the pictures that a policy would be shown; empty if the source cannot show them."""
    camera = library.head.camera
    try:
        picture = library.show(0, 0, (camera,))[camera]
    except (BestTakeError, KeyError):
        return ""
    return f"{picture.shape[1]} x {picture.shape[0]}"


def _library_side(library: Library, policy: PolicySpec | None) -> dict[str, str]:
    head = library.head
    can_show = "" if policy is None or not policy.cameras else (
        f" (shows the policy's: {'yes' if library.can_show(policy.cameras) else 'NO'})"
    )  # fmt: skip
    return {
        "cameras": f"{last_word(head.camera)}{can_show}",
        "state": "none" if head.state_dim is None else str(head.state_dim),
        "action": "none" if head.action_dim is None else str(head.action_dim),
        "gripper": _UNKNOWN.format("gripper_dim") if head.gripper_dim is None else f"action {head.gripper_dim}",
        "end effector": _UNKNOWN.format("eef_dims") if head.eef_dims is None else f"state {head.eef_dims}",
        "tasks": _first_few(library.tasks),
        "events": f"{sum(len(demo.events) for demo in library.demos)} in {len(library.demos)} demonstrations",
    }


def _demo_notes(library: Library | None, env: EnvSpec | None) -> list[str]:
    """Reasons why valid demonstrations can be used only in part."""
    if library is None:
        return []
    notes = []
    if library.actions is None:
        notes.append("the demonstrations hold pictures alone: they can score takes, but nothing can be retrieved")
    tasks = env.tasks if env is not None and library.tasks else ()
    if tasks and all(library.demos_of(task.name, task.instruction)[1] == "all" for task in tasks):
        notes.append("none of the demonstrations that were looked at is of a task of the env, by name or instruction")
    return notes


def _policy_side(policy: PolicySpec, env: EnvSpec | None) -> dict[str, str]:
    def in_env(camera: str) -> str:
        return camera if env is None else f"{camera} ({'found' if camera in env.cameras else 'MISSING'})"

    return {
        "cameras": ", ".join(map(in_env, policy.cameras)) or "none: it reads the state only",
        "state": "any" if policy.state_dim is None else str(policy.state_dim),
        "action": str(policy.action_dim),
        "chunk": f"{policy.horizon} actions, {policy.replan} executed",
        "kind": policy.kind + ("" if policy.seeded else ", not seeded: its takes cannot be repeated"),
        "arms": ", ".join(runnable(policy, registry.schemes("arms"))[0]),
    }


def _env_side(env: EnvSpec) -> dict[str, str]:
    return {
        "cameras": ", ".join(env.cameras),
        "state": str(env.state_dim),
        "action": str(env.action_dim),
        "tasks": _first_few([task.name for task in env.tasks]),
        "starts": f"{len(env.starts)} per task, {len(env.tuning)} more for tuning",
        "score camera": env.score_camera,
        "gripper": _UNKNOWN.format("gripper_dim") if env.gripper_dim is None else f"action {env.gripper_dim}",
        "end effector": _UNKNOWN.format("eef_dims") if env.eef_dims is None else f"state {env.eef_dims}",
        "after success": "goes on (window full)" if env.goes_on else "stops (window common)",
    }


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_TASKS
    return ", ".join(names[:_SHOWN_TASKS]) + (f" and {more} more" if more > 0 else "")
