"""The values that flow through BestTake: small frozen dataclasses with array shapes in their docstrings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from besttake.conventions import UNKNOWN, Convention

Array = NDArray[Any]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

PolicyKind = Literal["flow", "tokens", "deterministic"]
Window = Literal["episode", "full", "common"]


@dataclass(frozen=True)
class Start:
    """One fixed initial state of a task: ``Start("pick", 7)``."""

    task: str
    index: int


@dataclass(frozen=True)
class Observation:
    """What a policy sees: ``images[camera]`` uint8 (H, W, 3), ``state`` float32 (state_dim,), the instruction."""

    images: Mapping[str, U8]
    state: F32
    instruction: str = ""


@dataclass(frozen=True)
class Step:
    """The outcome of one environment step. ``done`` means that the environment cannot go on."""

    success: bool
    done: bool


@dataclass(frozen=True)
class Warm:
    """How a sample is started (Eq. 6): ``a_init = alpha * chunk + (1 - alpha) * eps``.

    ``chunk`` is float32 (horizon, action_dim) in environment action space; the policy carries it into its own
    (normalised, padded) space. ``chunk=None`` is the arm `cooled`: ``a_init = (1 - alpha) * eps``. For a policy of
    kind ``tokens`` only ``chunk=None`` exists and multiplies the sampling temperature by ``1 - alpha``.
    ``time``: where between noise (0) and action (1) the flow goes on from a_init, a whole number of the policy's
    ``flow_steps``. With ``time = alpha`` a_init lies where training put it, on the straight path from eps to the chunk.
    """

    alpha: float
    chunk: F32 | None = None
    time: float = 0.0


Warms = Sequence[Warm | None] | None
"""How each row of a batch is started; None where no row is warm."""


@dataclass(frozen=True)
class TaskSpec:
    """One task of an env; tasks of one ``group`` (a LIBERO suite, a testbed task) form a cell with a policy."""

    name: str
    group: str
    instruction: str
    horizon: int


@dataclass(frozen=True)
class World:
    """Where a policy acts, as far as arms need to know; the dimensions are those of `EnvSpec`."""

    name: str
    score_camera: str
    action_dim: int
    state_dim: int
    gripper_dim: int | None = None
    eef_dims: tuple[int, ...] | None = None


@dataclass(frozen=True)
class EnvSpec:
    """What an env offers. Dimensions that are None are unknown, and never guessed.

    ``gripper_dim`` indexes the action (the command that opens and closes); ``eef_dims`` index the state (position
    of the end effector); ``gripper_open`` is the sign of the gripper command that opens.
    ``starts`` are the indexes to evaluate on, ``tuning`` indexes kept apart for choosing anything.
    ``goes_on``: stepping after success is possible, so the window ``full`` is.
    ``at_once``: how many of its simulators one worker holds at most, for simulators that weigh; None: any number.
    ``convention``: what its numbers and pictures mean, as far as it is known.
    """

    name: str
    tasks: tuple[TaskSpec, ...]
    starts: range
    action_dim: int
    state_dim: int
    cameras: tuple[str, ...]
    score_camera: str
    tuning: range = range(0)
    gripper_dim: int | None = None
    gripper_open: int = -1
    eef_dims: tuple[int, ...] | None = None
    goes_on: bool = True
    at_once: int | None = None
    fps: float = 10.0
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    convention: Convention = UNKNOWN

    @property
    def world(self) -> World:
        """What arms need to know of it."""
        return World(self.name, self.score_camera, self.action_dim, self.state_dim, self.gripper_dim, self.eef_dims)

    def task(self, name: str) -> TaskSpec:
        """The task called ``name``; KeyError when there is none."""
        return {task.name: task for task in self.tasks}[name]


@dataclass(frozen=True)
class PolicySpec:
    """What a policy offers.

    ``horizon`` actions come out of one sample and ``replan`` of them are executed. ``cameras`` names the images it
    reads (empty: none, so nothing is rendered for it). ``warm_start``: accepts `Warm` with a chunk; ``cools``:
    accepts `Warm` without one. ``flow_steps``: the equal steps that a sample takes from noise to action, where it can
    begin after any of them (`Warm.time`); 0: it cannot. ``small``: cheap to hold and to sample, so that every worker
    may have a copy of its own (made from the same URI) and nothing travels. ``seeded`` is False where randomness is out
    of our hands (a remote server): takes then differ from run to run, and the diagnosis says so. ``width``: the rows
    that one pass through it takes, others are filled up; 0: any number. ``prompted``: it cannot do without an
    instruction. ``convention``: what it was trained on, as far as its checkpoint tells.
    """

    name: str
    kind: PolicyKind
    horizon: int
    action_dim: int
    replan: int
    cameras: tuple[str, ...] = ()
    state_dim: int | None = None
    warm_start: bool = False
    cools: bool = False
    flow_steps: int = 0
    seeded: bool = True
    small: bool = False
    width: int = 0
    prompted: bool = False
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    convention: Convention = UNKNOWN


@dataclass(frozen=True)
class EncoderSpec:
    """What an encoder is. ``fingerprint`` covers weights and preprocessing and is part of every cache key.

    ``cheap``: to encode a frame again costs no more than to look its embedding up, so none is kept between runs.
    """

    name: str
    dim: int
    fingerprint: str
    notes: tuple[str, ...] = ()
    cheap: bool = False


@dataclass(frozen=True)
class Demo:
    """One demonstration. ``frames``: uint8 (F, H, W, 3) seen at steps ``frame_steps`` (F,), usually every step.

    ``states`` float32 (T, state_dim) and ``actions`` float32 (T, action_dim) are per step; a video-only demo has
    none (``None``), can score takes, and cannot be retrieved from.
    """

    id: str
    task: str
    frames: U8
    frame_steps: NDArray[np.int64]
    states: F32 | None
    actions: F32 | None
    instruction: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)
