"""Train a testbed policy by a recipe: ``python -m bench.zoo.recipes FILE -o policy.safetensors`` (needs torch).

``flow:policy.safetensors`` loads it. docs/zoo.md lists what a recipe can say.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from besttake.config import bounded_yaml
from besttake.core.arithmetic import length
from besttake.errors import PlanError
from besttake.files import short_hash
from besttake.testbed import demonstrations, network, seeds, tasks
from besttake.testbed.demonstrations import Demonstration
from besttake.testbed.expert import Style
from besttake.types import F32, Array
from small_policies import fitting
from small_policies.testbed import write_weights

Part = Literal["hand", "gripper", "object", "goal", "task"]
Phase = Literal["before", "during", "after"]
Task = Literal["pick", "push", "drawer", "stack"]

STILL_METRES = 0.005
"""An object this close to its first (last) place has not moved yet (any more)."""

_HAND, _OBJECT, _GOAL = slice(0, 3), slice(4, 7), slice(7, 10)
_OBJECT_FROM_HAND, _GOAL_FROM_OBJECT = slice(10, 13), slice(13, 16)
_PARTS: dict[Part, tuple[slice, ...]] = {
    "hand": (_HAND, _OBJECT_FROM_HAND),
    "gripper": (slice(3, 4),),
    "object": (_OBJECT, _OBJECT_FROM_HAND, _GOAL_FROM_OBJECT),
    "goal": (_GOAL, _GOAL_FROM_OBJECT),
    "task": (slice(16, 20),),
}


class FlowRecipe(BaseModel):
    """How one policy is made. Every key but `name` may be left out; the defaults make a policy like `testbed:mid`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="Its name: small letters, digits, hyphens.")
    deficit: str = Field(default="", description="What is wrong with it, in a few words.")
    demos_per_task: Mapping[Style, int] = Field(
        default={"std": 40}, description="Demonstrations per task of each style, e.g. {std: 20, alt: 20}."
    )
    tasks: tuple[Task, ...] = Field(
        default=("pick", "push", "drawer", "stack"), min_length=1, description="Tasks that are demonstrated."
    )
    object_x: tuple[float, float] | None = Field(
        default=None, description="Only demonstrations whose object starts between these x, in metres."
    )
    object_y: tuple[float, float] | None = Field(default=None, description="The same for y.")
    keep: Mapping[Phase, float] = Field(
        default={},
        description="Share of the demonstrated steps to learn from, before, during and after the object moves.",
    )
    jitter: float = Field(default=0.0, ge=0, description="Sd of noise on the demonstrated motions (actions are -1..1).")
    hide: tuple[Part, ...] = Field(default=(), description="Parts of the state that it never sees.")
    hand_offset_mm: tuple[float, float, float] = Field(
        default=(0, 0, 0), description="Where it believes its hand to be, off from where it is."
    )
    perception_mm: float = Field(
        default=network.PERCEPTION_METRES * 1000, ge=0, description="Sd of the error with which it sees things."
    )
    learns_blurred: bool = Field(default=False, description="Whether it is trained on states seen with that error.")
    steps: int = Field(default=8_000, ge=1, description="Training steps.")
    width: int = Field(default=256, ge=1, description="Units per layer.")
    batch: int = Field(default=256, ge=1, description="Rows per training step.")
    rate: float = Field(default=1e-3, gt=0, description="Learning rate.")
    decay: float = Field(default=1e-4, ge=0, description="Weight decay.")
    seed: int = Field(default=0, ge=0, description="Seed of the training and of what is left out.")
    replan: int = Field(default=8, ge=1, le=network.HORIZON, description="Actions executed per chunk of 10.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not sum(self.demos_per_task.values()) > 0 or min(self.demos_per_task.values()) < 0:
            raise ValueError("`demos_per_task` needs a positive number of demonstrations")
        if any(not 0 <= value <= 1 for value in self.keep.values()):
            raise ValueError("`keep` holds shares between 0 and 1")
        return self


def read_recipe(path: Path) -> FlowRecipe:
    """The recipe in a YAML or JSON file."""
    try:
        return FlowRecipe.model_validate(bounded_yaml(path))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; name a recipe file") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = str(first["msg"]).removeprefix("Value error, ")
        raise PlanError(f"{path}: {f'`{where}`: ' if where else ''}{reason}; see docs/zoo.md") from error
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise PlanError(f"{path}: neither YAML nor JSON; recipes/zoo has examples") from error


def windows(recipe: FlowRecipe) -> tuple[F32, F32]:
    """States (M, 20) and the chunks (M, 10, 4) that follow them, as the recipe's policy learns from them."""
    rng = np.random.default_rng([recipe.seed, 2])
    states: list[Array] = []
    chunks: list[Array] = []
    for demo in _demonstrated(recipe):
        motion = rng.normal(0, recipe.jitter, (len(demo.actions), 3)) if recipe.jitter else 0.0
        noisy = demo.actions.copy()
        noisy[:, :3] = np.clip(noisy[:, :3] + motion, -1, 1)
        still = np.repeat(demo.actions[-1:] * np.array([0, 0, 0, 1], np.float32), network.HORIZON, axis=0)
        actions = np.concatenate([noisy, still])
        shares = np.array([recipe.keep.get(phase, 1.0) for phase in phases(demo.states)])
        for step in np.flatnonzero(rng.random(len(shares)) < shares):
            states.append(demo.states[step])
            chunks.append(actions[step : step + network.HORIZON])
    if not states:
        raise PlanError(f"recipe {recipe.name}: no demonstration is left to learn from; widen its region or `keep`")
    return np.array(states), np.array(chunks)


def phases(states: F32) -> list[Phase]:
    """For each state (T, 20) of a demonstration: before, during or after the object's movement."""
    where = states[:, _OBJECT]
    away = length(where - where[0]) > STILL_METRES
    short = length(where - where[-1]) > STILL_METRES
    moving = away & short
    if not moving.any():
        return ["before"] * len(states)
    first, last = np.flatnonzero(moving)[[0, -1]]
    return ["before" if t < first else "during" if t <= last else "after" for t in range(len(states))]


def view_of(recipe: FlowRecipe) -> dict[str, Array]:
    """What the policy sees of a state, as the arrays that ``flow:`` reads: map (20, 20), shift (20,), blur (6, 20)."""
    scale = network.SCALE.copy()
    for part in recipe.hide:
        for place in _PARTS[part]:
            scale[place] = 0
    offset = np.zeros(tasks.STATE_DIM, np.float32)
    offset[_HAND] = np.array(recipe.hand_offset_mm, np.float32) / 1000
    offset[_OBJECT_FROM_HAND] = -offset[_HAND]
    blur = network.perceive(np.zeros((6, tasks.STATE_DIM), np.float32), np.eye(6, dtype=np.float32))
    blur *= np.float32(recipe.perception_mm / 1000)
    return {"state_map": np.diag(scale), "state_shift": offset * scale, "state_blur": blur}


def _demonstrated(recipe: FlowRecipe) -> Iterator[Demonstration]:
    """The demonstrations that the recipe asks for, in a fixed order."""
    for task in recipe.tasks:
        for style, count in recipe.demos_per_task.items():
            made = demonstrations.demonstrations(task, seeds.TRAINING, style)
            yield from islice((demo for demo in made if _in_region(recipe, demo.states[0])), count)


def _in_region(recipe: FlowRecipe, first: F32) -> bool:
    x, y = first[_OBJECT][:2].tolist()
    sides: list[tuple[float, Any]] = [(x, recipe.object_x), (y, recipe.object_y)]
    return all(span is None or span[0] <= value <= span[1] for value, span in sides)


def train_recipe(recipe: FlowRecipe, out: Path) -> Path:
    """Train the policy of a recipe file and write it to ``out``, as ``flow:`` reads it."""
    began = time.perf_counter()
    states, chunks = windows(recipe)
    seen = view_of(recipe)
    mean, std = chunks.mean(axis=(0, 1)), chunks.std(axis=(0, 1))
    layers, loss = fitting.fit(
        states @ seen["state_map"],
        ((chunks - mean) / std).reshape(len(chunks), -1),
        width=recipe.width,
        steps=recipe.steps,
        batch=recipe.batch,
        rate=recipe.rate,
        decay=recipe.decay,
        seed=recipe.seed,
        blur=seen["state_blur"] @ seen["state_map"] if recipe.learns_blurred else None,
    )
    print(f"{recipe.name}: {len(states)} states, loss {loss:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    metadata = {
        "horizon": str(network.HORIZON),
        "replan": str(recipe.replan),
        "instructions": "[]",
        "recipe": recipe.model_dump_json(),
        "data": short_hash(states.tobytes(), chunks.tobytes()),
    }
    scale = {"action_mean": mean.astype(np.float32), "action_std": std.astype(np.float32)}
    return write_weights(out, {**scale, **seen, **layers}, metadata)


def main() -> None:
    """Train the policy of a recipe file."""
    parser = argparse.ArgumentParser(prog="python -m bench.zoo.recipes", description=__doc__)
    parser.add_argument("recipe", type=Path, help="a recipe (YAML or JSON)")
    parser.add_argument("-o", dest="out", type=Path, required=True, help="its weights file")
    asked = parser.parse_args()
    train_recipe(read_recipe(asked.recipe), asked.out)


if __name__ == "__main__":
    main()
