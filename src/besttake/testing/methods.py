"""Check the contracts of arms and scorers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake import registry
from besttake.arms import BASE
from besttake.arms.base import Arm, TakeState, unmet
from besttake.arms.sampler import arm_sampler
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options, build
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.encoders.hog import Hog
from besttake.errors import ContractError
from besttake.policies.base import Policy
from besttake.scorers.apply import apply_scorers, cut, embed, needs_demos
from besttake.scorers.base import Footage, Scorer, ScorerSpec
from besttake.takes.draws import Draw
from besttake.takes.scores import SCORERS
from besttake.testing.components import check, check_close
from besttake.types import F32, F64, U8, Demo, EnvSpec, Start

_TAKES = 4
_WORLD = "testbed:pick"


def check_arm(arm: Arm, *, policy: str = "testbed:half") -> tuple[str, ...]:
    """Check that ``arm`` keeps the contract of `Arm`, and return the names of the properties that hold.

    These are: its spec makes sense; a chunk is finite and has the right shape; the same take gives the same chunk,
    alone and among takes of this and other arms; and, unless its spec says ``history``, earlier steps do not matter.

    Args:
        arm: The arm to check.
        policy: URI of the policy to run on the testbed. It must support what the arm needs.

    Raises:
        ContractError: A property is violated, or ``policy`` cannot run the arm.
    """
    model, spec, name = registry.policy(policy), arm.spec, arm.spec.name
    if not name or spec.control == name:
        raise ContractError(f"{name or 'an arm'}: it needs a name, and a control other than itself")
    if reason := unmet(model.spec, spec.needs):
        raise ContractError(f"{name}: check it with another policy, {reason}")
    world, takes = _takes(model, name, score_camera=spec.score_camera)
    library = open_or_build(_WORLD, options=Options(max_demos=2)) if spec.library else None

    def chunks(requests: Sequence[TakeState]) -> F32:
        return _chunks(arm, model, world, library, requests)

    takes = _with_memory(takes, chunks)
    batch = chunks(_copies(takes))
    held = ["spec", "shape"]
    check_close(batch, chunks(_copies(takes)), 0.0, f"{name}: the same take, another chunk")
    held.append("repeat")
    singles = np.concatenate([chunks([take]) for take in _copies(takes)])
    check_close(batch, singles, 0.0, f"{name}: a take alone differs from the take among others")
    mixed = [request for take in _copies(takes) for request in (take, replace(take, arm=BASE, memory=[]))]
    check_close(batch, chunks(mixed)[::2], 0.0, f"{name}: a take depends on takes of other arms")
    held.append("batch")
    if not spec.history:
        fresh = [replace(take, states=take.states[-1:], actions=[], memory=[]) for take in takes]
        check_close(batch, chunks(fresh), 0.0, f"{name}: it reads the take's history, but its spec has no history")
        held.append("history")
    return tuple(held)


def _chunks(arm: Arm, policy: Policy, world: EnvSpec, library: Library | None, requests: Sequence[TakeState]) -> F32:
    encoder = None if library is None else library.encoder()
    sampler = arm_sampler(policy, world.world, RetrievalConfig(), library, encoder)
    sampler.arms[arm.spec.name] = arm
    chunks = []
    for chunk in sampler.chunks(requests):
        if isinstance(chunk, Exception):
            raise ContractError(f"{arm.spec.name}: {type(chunk).__name__}: {chunk}") from chunk
        if not np.isfinite(chunk).all():
            raise ContractError(f"{arm.spec.name}: it gave actions that are not finite")
        chunks.append(chunk)
    return np.stack(chunks)


def _with_memory(takes: Sequence[TakeState], chunks: Callable[[Sequence[TakeState]], F32]) -> list[TakeState]:
    """The takes with the memory of their arm from two earlier replans, the first at step 0."""
    remembered = []
    for take in takes:
        memory: list[Any] = []
        for replan, step in enumerate((0, take.step // 2)):
            observation = replace(take.observation, state=take.states[step])
            past = replace(
                take, draw=take.draw.at(replan), observation=observation, step=step, states=take.states[: step + 1],
                actions=take.actions[:step], memory=memory,
            )  # fmt: skip
            chunks([past])
        remembered.append(replace(take, draw=take.draw.at(2), memory=memory))
    return remembered


def _copies(takes: Sequence[TakeState]) -> list[TakeState]:
    """Copies of the takes with their own memories, which an arm may change."""
    return [replace(take, memory=deepcopy(take.memory)) for take in takes]


def _takes(policy: Policy, arm: str, *, score_camera: bool) -> tuple[EnvSpec, list[TakeState]]:
    """The spec of the testbed and takes at different steps, with or without pictures of the score camera."""
    env = registry.env(_WORLD)
    try:
        spec, task = env.spec, env.spec.tasks[0].name
        cameras = tuple(dict.fromkeys((*policy.spec.cameras, *([spec.score_camera] if score_camera else []))))
        takes = []
        for index in range(_TAKES):
            env.reset(Start(task, spec.starts[index % len(spec.starts)]))
            draw, states, actions = Draw(3, task, index, 0, chunk=index), [env.observe(()).state], []
            for _ in range(4 * index):
                actions.append(0.3 * draw.normal((spec.action_dim,), "extra"))
                env.step(actions[-1])
                states.append(env.observe(()).state)
            takes.append(TakeState(task, arm, draw, env.observe(cameras), len(actions), states, actions))
        return spec, takes
    finally:
        env.close()


_TASK = "check"


def check_scorer(scorer: Scorer, *, atol: float = 0.0) -> tuple[str, ...]:
    """Check that ``scorer`` keeps the contract of `Scorer`, and return the names of the properties that hold.

    It scores made-up takes against made-up demonstrations. The properties are: scores are finite or NaN, and
    probabilities if its spec says so; the same takes get the same scores, in any order; and a score depends neither on
    other takes (unless ``compares``), nor on what follows its window (unless ``length``), nor on the order of the
    demonstrations.

    Args:
        scorer: The scorer to check.
        atol: Largest difference that the batch may make to a score; 0 asks for the same bits.

    Raises:
        ContractError: A property is violated.
    """
    name, spec = scorer.spec.name, scorer.spec
    taken = name in SCORERS and spec.fingerprint != registry.scorer(name).spec.fingerprint
    check(not taken, f"{name}: this is the name of a scorer of BestTake; give yours another")
    check(spec.fingerprint, f"{name}: the spec has no fingerprint, which tells whether stored scores are still valid")
    with tempfile.TemporaryDirectory() as directory:
        first, reordered = (build(_SquareDemos(turn), Hog(), Path(directory) / f"{turn}") for turn in (False, True))
        takes = _footage(first)

        def scores(takes: Sequence[Footage], library: Library = first) -> F64:
            (scored,) = apply_scorers([scorer], [takes], library.view(_TASK))
            return np.array([np.asarray(take.scores[name].values, np.float64) for take in scored])

        held = _check_scores(spec, takes, scores, atol)
        if needs_demos(scorer):
            fault = f"{name}: a score depends on the order of the demonstrations"
            _check_same(scores(takes), scores(takes, reordered), max(atol, 1e-9), fault)
            held.append("files")
    return tuple(held)


def _check_scores(
    spec: ScorerSpec, takes: list[Footage], scores: Callable[[Sequence[Footage]], F64], atol: float
) -> list[str]:
    """Check the scores of ``takes``, and return the names of the properties that hold."""
    whole = scores(takes)
    check(not np.isinf(whole).any(), f"{spec.name}: a score is infinite; give NaN where there is none")
    check(not np.isnan(whole[:, :-1]).all(), f"{spec.name}: no take got a score")
    outside = spec.probability and np.any((whole < -1e-6) | (whole > 1 + 1e-6))
    check(not outside, f"{spec.name}: a score is no probability (0 to 1), though the spec says so")
    _check_same(whole, scores(takes), 0.0, f"{spec.name}: the same takes, other scores")
    _check_same(whole[::-1], scores(takes[::-1]), atol, f"{spec.name}: a score depends on the order of the takes")
    twins = scores([takes[0], takes[1], takes[0]])
    _check_same(twins[:1], twins[2:], atol, f"{spec.name}: the same take twice, two scores")
    held = ["spec", "scores", "repeat", "order", "twin"]
    if not spec.compares:
        alone = np.concatenate([scores([take]) for take in takes])
        _check_same(whole, alone, atol, f"{spec.name}: a take alone has another score (set compares=True in its spec)")
        held.append("batch")
    if not spec.length:
        short = scores([cut(take, 0) for take in takes])
        fault = f"{spec.name}: a score depends on what follows its window (set length=True in its spec)"
        _check_same(whole[:, :1], short[:, :1], max(atol, 1e-9), fault)
        held.append("length")
    return held


def _check_same(a: F64, b: F64, atol: float, fault: str) -> None:
    check(np.array_equal(np.isnan(a), np.isnan(b)), f"{fault} (one of them is NaN)")
    check_close(np.nan_to_num(a), np.nan_to_num(b), atol, fault)


def _footage(library: Library) -> list[Footage]:
    """Four takes of different lengths, each with three windows: its first 5 frames, all frames and none."""
    rng = np.random.default_rng(3)
    films = [_film(rng, length) for length in (9, 12, 7, 10)]
    embedded = embed(library.encoder(), films)
    return [
        Footage(
            steps=2 * np.arange(len(film), dtype=np.int32),
            windows=tuple(np.arange(len(film)) < count for count in (5, len(film), 0)),
            ends=(9, 2 * len(film) - 1, 0),
            frames=film,
            embeddings=vectors,
            actions=rng.normal(0, 0.3, (2 * len(film) - 1, 7)).astype(np.float32),
            states=rng.normal(0, 0.3, (2 * len(film), 8)).astype(np.float32),
            instruction="pick up the cube",
            camera="front",
        )
        for film, vectors in zip(films, embedded, strict=True)
    ]


def _film(rng: np.random.Generator, length: int) -> U8:
    """Frames (length, 32, 32, 3) of a square that moves at random over noise."""
    frames = rng.integers(0, 60, (length, 32, 32, 3), np.uint8)
    places = np.clip(12 + np.cumsum(rng.normal(0, 2, (length, 2)), axis=0), 0, 24).astype(int)
    for frame, (x, y) in zip(frames, places, strict=True):
        frame[y : y + 8, x : x + 8] = 220
    return frames


class _SquareDemos:
    """A source of four demonstrations with pictures, states and actions."""

    def __init__(self, backwards: bool = False) -> None:
        self._backwards = backwards

    name, fingerprint, camera, fps = "squares", "1", "front", 10.0
    gripper_dim, gripper_open, eef_dims = 6, -1, (0, 1, 2)

    def __iter__(self) -> Iterator[Demo]:
        rng, demos = np.random.default_rng(4), []
        for number in range(4):
            length = 10 + number
            states, actions = _walk(rng, length, 8), _walk(rng, length, 7)
            film = _film(rng, length)
            demos.append(Demo(f"{number}", _TASK, film, np.arange(length), states, actions, "pick up the cube"))
        return iter(demos[::-1] if self._backwards else demos)


def _walk(rng: np.random.Generator, length: int, dim: int) -> F32:
    return rng.normal(0, 0.3, (length, dim)).astype(np.float32)
