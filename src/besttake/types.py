"""The values that BestTake passes around: small frozen dataclasses, with the shapes of their arrays."""

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
    """One fixed initial state of a task, such as ``Start("pick", 7)``."""

    task: str
    index: int


@dataclass(frozen=True)
class Observation:
    """What a policy sees at one step.

    Attributes:
        images: Images by camera, uint8 (H, W, 3).
        state: Robot state, float32 (state_dim,).
        instruction: What the robot is asked to do, in words.
    """

    images: Mapping[str, U8]
    state: F32
    instruction: str = ""


@dataclass(frozen=True)
class Step:
    """The outcome of one step: whether the task succeeded, and whether the environment cannot continue (``done``)."""

    success: bool
    done: bool


@dataclass(frozen=True)
class Warm:
    """How a sample is started: ``a_init = prior * chunk + noise * eps``. Eq. 6 is prior alpha and noise 1 - alpha.

    Attributes:
        noise: Factor of the policy's own noise, from 0 to 1. For a policy of kind ``tokens`` it multiplies the sampling
            temperature.
        prior: Weight of the chunk, from 0 to 1. With 0 the sample is the one without a chunk, to the bit.
        chunk: Actions, float32 (horizon, action_dim), in the action space of the environment. The policy converts them
            to its own (normalised, padded) space. None, the arm ``cooled``, is all that a policy of kind ``tokens``
            accepts.
    """

    noise: float = 1.0
    prior: float = 0.0
    chunk: F32 | None = None


Warms = Sequence[Warm | None] | None
"""How each row of a batch is started; None if all start from noise."""


@dataclass(frozen=True)
class TaskSpec:
    """One task of an environment. ``horizon`` is the most steps of an episode.

    Tasks of one ``group`` (a LIBERO suite, a testbed task) are measured together: with a policy they form a cell.
    """

    name: str
    group: str
    instruction: str
    horizon: int


@dataclass(frozen=True)
class WorldSpec:
    """What arms know about the environment; the dimensions are those of `EnvSpec`."""

    name: str
    score_camera: str
    action_dim: int
    state_dim: int
    gripper_dim: int | None = None
    eef_dims: tuple[int, ...] | None = None


@dataclass(frozen=True)
class EnvSpec:
    """What an environment offers. Dimensions that are None are unknown and never guessed.

    Attributes:
        name: Name of the environment.
        tasks: Its tasks.
        starts: Start indexes to evaluate on, the same for every task.
        action_dim: Numbers per action.
        state_dim: Numbers per state.
        cameras: Names of its cameras.
        score_camera: The camera whose frames are scored and stored.
        tuning: Start indexes that are reserved for choosing and training, and never evaluated on.
        gripper_dim: Index of the gripper command in the action.
        gripper_open: Sign of the command that opens the gripper: -1 or 1.
        eef_dims: Indexes of the end-effector position in the state.
        goes_on: Whether steps after success are possible, as the window ``full`` needs.
        at_once: How many simulators one worker may hold at once, for heavy ones; None means any number.
        fps: Steps per second.
        fingerprint: Changes whenever the environment behaves differently. A run is not continued with another one.
        notes: Remarks for the report.
        convention: What its numbers and images mean, as far as known; compared with policy and demonstrations.
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
    def world(self) -> WorldSpec:
        """What arms know about this environment."""
        return WorldSpec(self.name, self.score_camera, self.action_dim, self.state_dim, self.gripper_dim, self.eef_dims)

    def task(self, name: str) -> TaskSpec:
        """Return the task called ``name``, or raise KeyError if there is none."""
        return {task.name: task for task in self.tasks}[name]


@dataclass(frozen=True)
class PolicySpec:
    """What a policy is and what it supports.

    Attributes:
        name: Name of the policy.
        kind: ``"flow"`` (flow matching or diffusion, sampled from noise), ``"tokens"`` or ``"deterministic"``.
        horizon: Number of actions in a chunk.
        action_dim: Numbers per action.
        replan: How many actions of a chunk are executed before the next sample, from 1 to ``horizon``.
        cameras: Names of the cameras it reads. If empty, nothing is rendered for it.
        state_dim: Numbers per state; None if it accepts any.
        warm_start: Whether it accepts a `Warm` with a chunk, as the arms ``retrieve`` and ``shuffled`` need.
        cools: Whether it accepts a `Warm` without a chunk, as the arm ``cooled`` needs.
        seeded: False if its randomness cannot be controlled, as on a remote server. Takes then differ from run to run.
        small: Whether it is cheap enough that every worker may hold a copy, made from the same URI.
        width: Rows per forward pass, to which smaller batches are padded; 0 means any number.
        prompted: Whether it needs an instruction.
        turns_gripper: Whether its URI takes ``?gripper=``, which turns commands from 0 to 1 into those of an env.
        fingerprint: Changes whenever the policy behaves differently, such as with other weights.
        notes: Remarks for the report.
        convention: What the numbers and images it was trained on mean, as far as its checkpoint tells.
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
    seeded: bool = True
    small: bool = False
    width: int = 0
    prompted: bool = False
    turns_gripper: bool = False
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    convention: Convention = UNKNOWN


@dataclass(frozen=True)
class EncoderSpec:
    """What an encoder is.

    Attributes:
        name: Name of the encoder.
        dim: Numbers per embedding.
        fingerprint: Changes with weights and preprocessing; part of every cache key.
        notes: Remarks for the report.
        cheap: Whether encoding a frame again costs no more than reading its embedding from disk; none are then stored.
    """

    name: str
    dim: int
    fingerprint: str
    notes: tuple[str, ...] = ()
    cheap: bool = False


@dataclass(frozen=True)
class Demo:
    """One demonstration with T steps and F frames.

    A demonstration without states or actions, such as a video, can score takes but cannot be retrieved from.

    Attributes:
        id: Name of the demonstration, unique in its source.
        task: Name of the task.
        frames: Images of one camera, uint8 (F, H, W, 3).
        frame_steps: The step at which each frame was seen, int64 (F,); usually every step.
        states: Robot states, float32 (T, state_dim), or None.
        actions: Actions, float32 (T, action_dim), or None.
        instruction: What the robot was asked to do, in words.
        source: Where it comes from, for showing other cameras.
    """

    id: str
    task: str
    frames: U8
    frame_steps: NDArray[np.int64]
    states: F32 | None
    actions: F32 | None
    instruction: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)
