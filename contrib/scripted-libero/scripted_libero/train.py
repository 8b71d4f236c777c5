"""Train small policies for LIBERO: ``python -m scripted_libero.train --out DIR``.

It needs LIBERO to make the demonstrations (once; they are kept in ``--demos FILE``) and torch to learn from them. The
policies are files for ``flow:FILE.safetensors``. They see ground truth (``libero:SUITE?state=objects``) with a few
millimetres of error: they stand in for policies with cameras, and say nothing about vision.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from besttake.envs.libero import env as libero
from besttake.types import F32, Array
from scripted_libero.windows import Episodes, collect
from small_policies import fitting
from small_policies.testbed import parse_names, write_weights

TASKS = "0,2,4,6,7"
"""Alphabet soup, salad dressing, ketchup, butter, milk: a can, two bottles, a box, a carton."""
SUITE, PER_TASK, SHAKES = "object", 72, (0.0, 0.2)

_EEF, _ITEM, _PLACE = slice(0, 3), slice(8, 11), slice(15, 18)


@dataclass(frozen=True)
class FlowRecipe:
    """How one policy is made: demonstrations per task, training steps, width, and how badly it sees."""

    name: str
    demos_per_task: int
    steps: int
    width: int = 192
    perception_metres: float = 0.004
    horizon: int = 16
    replan: int = 8
    batch: int = 256
    rate: float = 1e-3
    decay: float = 1e-4
    seed: int = 0


RECIPES = {
    recipe.name: recipe
    for recipe in (
        FlowRecipe("few", 2, 4_000),
        FlowRecipe("half", 72, 2_000, width=96, perception_metres=0.008),
        FlowRecipe("blurry", 72, 6_000, perception_metres=0.018),
    )
}


def train(recipe: FlowRecipe, episodes: Episodes, out: Path) -> Path:
    """Fit the network and write ``NAME.safetensors``."""
    began = time.perf_counter()
    arrays, loss = fit(recipe, episodes)
    metadata = {
        "horizon": str(recipe.horizon),
        "replan": str(recipe.replan),
        "instructions": json.dumps(episodes.instructions),
        "recipe": json.dumps(asdict(recipe)),
        "episodes": episodes.fingerprint(),
    }
    print(f"{recipe.name}: loss {loss:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    return write_weights(out / f"{recipe.name}.safetensors", arrays, metadata)


def inputs(states: F32) -> tuple[F32, F32]:
    """``state_map`` (18, 27) and ``state_shift`` (27,): the state and its offsets (hand, item, place) at unit scale."""
    relative = np.zeros((18, 9), np.float32)
    for column, (end, origin) in enumerate(((_ITEM, _EEF), (_PLACE, _EEF), (_PLACE, _ITEM))):
        relative[end, 3 * column : 3 * column + 3] = np.eye(3)
        relative[origin, 3 * column : 3 * column + 3] = -np.eye(3)
    linear = np.concatenate([np.eye(18, dtype=np.float32), relative], axis=1)
    features = states @ linear
    scale = 1 / np.maximum(features.std(axis=0), 0.01)
    return (linear * scale).astype(np.float32), (-features.mean(axis=0) * scale).astype(np.float32)


def blur(metres: float) -> F32:
    """``state_blur`` (6, 18): item and place are each seen with an error of ``metres`` per axis."""
    matrix = np.zeros((6, 18), np.float32)
    matrix[:3, _ITEM] = matrix[3:, _PLACE] = metres * np.eye(3)
    return matrix


def fit(recipe: FlowRecipe, episodes: Episodes) -> tuple[dict[str, Array], float]:
    """All arrays of the policy's file, and the last loss."""
    states, chunks, tasks = episodes.windows(recipe.horizon, recipe.demos_per_task)
    mean, std = chunks.mean(axis=(0, 1)), np.maximum(chunks.std(axis=(0, 1)), 0.02)
    linear, shift = inputs(states)
    instruction = np.eye(len(episodes.instructions), dtype=np.float32)[tasks]
    context = np.concatenate([states @ linear + shift, instruction], axis=1)
    input_blur = np.pad(blur(recipe.perception_metres) @ linear, ((0, 0), (0, instruction.shape[1])))
    layers, loss = fitting.fit(
        context,
        ((chunks - mean) / std).reshape(len(chunks), -1),
        width=recipe.width,
        steps=recipe.steps,
        batch=recipe.batch,
        rate=recipe.rate,
        decay=recipe.decay,
        seed=recipe.seed,
        blur=input_blur,
    )
    arrays: dict[str, Array] = {
        "state_map": linear,
        "state_shift": shift,
        "state_blur": blur(recipe.perception_metres),
        "action_mean": mean.astype(np.float32),
        "action_std": std.astype(np.float32),
    }
    return {**arrays, **layers}, loss


def main() -> None:
    """Make the demonstrations if their file is missing, then train the named policies, or all."""
    parser = argparse.ArgumentParser(prog="python -m scripted_libero.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory for the weights")
    parser.add_argument("--demos", type=Path, help="file of demonstrations (default: OUT/demos.npz)")
    args = parse_names(parser, RECIPES)
    demos = args.demos or args.out / "demos.npz"
    if not demos.is_file():
        began = time.perf_counter()
        env = libero.make(SUITE, task=TASKS, state="objects")
        made = collect(env, PER_TASK, SHAKES)
        made.save(demos)
        env.close()
        print(f"{len(made.lengths)} demonstrations, {time.perf_counter() - began:.0f} s", flush=True)
    episodes = Episodes.load(demos)
    for name in args.names:
        train(RECIPES[name], episodes, args.out)


if __name__ == "__main__":
    main()
