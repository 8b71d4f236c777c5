"""Train small policies for LIBERO on scripted demonstrations: ``python -m besttake.scripted_libero.train --out DIR``.

Needs LIBERO to make the demonstrations (once; they are kept in ``--demos FILE``) and torch to learn from them. The
policies are files for ``flow:FILE.safetensors``. What they see (`besttake.envs.libero`, ``state=objects``) is ground
truth with a few millimetres of error: they stand in for policies that look, and say nothing about vision.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from besttake.envs import libero
from besttake.policies.flow import TIME_FEATURES
from besttake.scripted_libero.windows import Episodes, collect
from besttake.testbed.network import FREQUENCIES
from besttake.types import F32, Array

TASKS = "0,2,4,6,7"
"""Alphabet soup, salad dressing, ketchup, butter, milk: a can, two bottles, a box, a carton."""
SUITE, PER_TASK, SHAKES = "object", 72, (0.0, 0.2)

_EEF, _ITEM, _PLACE = slice(0, 3), slice(8, 11), slice(15, 18)


@dataclass(frozen=True)
class Recipe:
    """How one policy is made: from how many demonstrations, how long, how wide, and how well it sees."""

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
        Recipe("few", 2, 4_000),
        Recipe("half", 72, 2_000, width=96, perception_metres=0.008),
        Recipe("blurry", 72, 6_000, perception_metres=0.018),
    )
}


def train(recipe: Recipe, episodes: Episodes, out: Path) -> Path:
    """Fit the network and write ``NAME.safetensors``."""
    from safetensors.numpy import save_file

    began = time.perf_counter()
    arrays, loss = fit(recipe, episodes)
    metadata = {
        "horizon": str(recipe.horizon),
        "replan": str(recipe.replan),
        "instructions": json.dumps(episodes.instructions),
        "recipe": json.dumps(asdict(recipe)),
        "episodes": episodes.fingerprint(),
    }
    path = out / f"{recipe.name}.safetensors"
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path, metadata)
    path.chmod(0o644)
    took, size = time.perf_counter() - began, path.stat().st_size / 1e3
    print(f"{recipe.name}: loss {loss:.4f}, {took:.0f} s, {size:.0f} kB", flush=True)
    return path


def inputs(states: F32) -> tuple[F32, F32]:
    """``state_map`` (18, 27) and ``state_shift`` (27,): the state and who is where from whom, of unit size."""
    relative = np.zeros((18, 9), np.float32)
    for column, (to, frm) in enumerate(((_ITEM, _EEF), (_PLACE, _EEF), (_PLACE, _ITEM))):
        relative[to, 3 * column : 3 * column + 3] = np.eye(3)
        relative[frm, 3 * column : 3 * column + 3] = -np.eye(3)
    linear = np.concatenate([np.eye(18, dtype=np.float32), relative], axis=1)
    seen = states @ linear
    scale = 1 / np.maximum(seen.std(axis=0), 0.01)
    return (linear * scale).astype(np.float32), (-seen.mean(axis=0) * scale).astype(np.float32)


def blur(metres: float) -> F32:
    """``state_blur`` (6, 18): the thing and its goal are seen ``metres`` off, each by itself."""
    matrix = np.zeros((6, 18), np.float32)
    matrix[:3, _ITEM] = matrix[3:, _PLACE] = metres * np.eye(3)
    return matrix


def fit(recipe: Recipe, episodes: Episodes) -> tuple[dict[str, Array], float]:
    """Flow matching on a straight path from noise to chunk; the arrays of the moving average and the last loss."""
    import torch

    torch.manual_seed(recipe.seed)
    torch.set_num_threads(1)
    states, chunks, tasks = episodes.windows(recipe.horizon, recipe.demos_per_task)
    mean, std = chunks.mean(axis=(0, 1)), np.maximum(chunks.std(axis=(0, 1)), 0.02)
    linear, shift = inputs(states)
    targets = torch.tensor(((chunks - mean) / std).reshape(len(chunks), -1))
    told = np.eye(len(episodes.instructions), dtype=np.float32)[tasks]
    context = torch.tensor(np.concatenate([states @ linear + shift, told], axis=1))
    unsure = torch.tensor(blur(recipe.perception_metres) @ linear)
    unsure = torch.nn.functional.pad(unsure, (0, told.shape[1]))
    frequencies = torch.tensor(FREQUENCIES)
    sizes = [targets.shape[1] + context.shape[1] + TIME_FEATURES, *[recipe.width] * 3, targets.shape[1]]
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    weights = [p for layer in layers for p in layer.parameters()]
    average = [p.detach().clone() for p in weights]
    optimiser = torch.optim.AdamW(weights, recipe.rate, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.steps)
    smooth = 1.0
    for step in range(recipe.steps):
        rows = torch.randint(len(targets), (recipe.batch,))
        goal, seen = targets[rows], context[rows] + torch.randn(recipe.batch, len(unsure)) @ unsure
        noise, when = torch.randn_like(goal), torch.rand(recipe.batch, 1)
        angle = when * frequencies
        hidden = torch.cat([(1 - when) * noise + when * goal, seen, angle.sin(), angle.cos()], 1)
        for layer in layers[:-1]:
            hidden = torch.nn.functional.silu(layer(hidden))
        loss = ((layers[-1](hidden) - (goal - noise)) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        smooth = 0.99 * smooth + 0.01 * loss.item()
        keep = min(0.995, step / (step + 10))
        with torch.no_grad():
            for old, new in zip(average, weights, strict=True):
                old.mul_(keep).add_(new, alpha=1 - keep)
    arrays: dict[str, Any] = {
        "state_map": linear,
        "state_shift": shift,
        "state_blur": blur(recipe.perception_metres),
        "action_mean": mean.astype(np.float32),
        "action_std": std.astype(np.float32),
    }
    for index, (weight, offset) in enumerate(zip(average[::2], average[1::2], strict=True)):
        arrays[f"w{index}"] = weight.numpy().T.astype(np.float16)
        arrays[f"b{index}"] = offset.numpy().astype(np.float16)
    return arrays, smooth


def main() -> None:
    """Make the demonstrations unless they are there, then train the named policies, or all."""
    parser = argparse.ArgumentParser(prog="python -m besttake.scripted_libero.train", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(RECIPES)}; all when none is named")
    parser.add_argument("--out", type=Path, required=True, help="directory for the weights")
    parser.add_argument("--demos", type=Path, help="file of demonstrations (default: OUT/demos.npz)")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in RECIPES]:
        parser.error(f"no policy {', '.join(unknown)}; known: {', '.join(RECIPES)}")
    demos = asked.demos or asked.out / "demos.npz"
    if not demos.is_file():
        began = time.perf_counter()
        env = libero.make(SUITE, task=TASKS, state="objects")
        made = collect(env, PER_TASK, SHAKES)
        made.save(demos)
        env.close()
        print(f"{len(made.lengths)} demonstrations, {time.perf_counter() - began:.0f} s", flush=True)
    episodes = Episodes.load(demos)
    for name in asked.names or RECIPES:
        train(RECIPES[name], episodes, asked.out)


if __name__ == "__main__":
    main()
