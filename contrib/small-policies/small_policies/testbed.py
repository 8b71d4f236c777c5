"""Train the testbed's policies: ``python -m small_policies.testbed [names] [--out DIR]``. Only this needs torch.

Each shipped policy is a recipe below. The weights carry the fingerprint of everything that made them; a test compares
it. ``python -m bench.zoo.recipes`` of the repository trains policies by recipes of your own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from besttake.files import short_hash, write_bytes
from besttake.testbed import demonstrations, expert, fingerprints, network, scene, seeds, tasks
from besttake.testbed.expert import Style
from besttake.testbed.policy import WEIGHTS
from besttake.types import F32, Array
from small_policies import fitting


@dataclass(frozen=True)
class Recipe:
    """How one policy is made: whose demonstrations, how many, and how long on how wide a network."""

    name: str
    style: Style
    demos_per_task: int
    steps: int
    width: int
    seed: int = 0
    batch: int = 256
    rate: float = 1e-3
    decay: float = 1e-4


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("half", "std", 40, 4_000, 128),
        Recipe("few", "std", 8, 8_000, 256),
        Recipe("alt", "alt", 40, 8_000, 256),
        Recipe("mid", "std", 40, 8_000, 256),
        Recipe("strong", "std", 160, 12_000, 320),
    )
}


def fingerprint(recipe: Recipe) -> str:
    """A hash of all that decides the weights: scenes, starts, recipe, and the code of world, expert and training."""
    code = (tasks, expert, demonstrations._act, _windows, _fit, fitting.fit)
    scenes = [scene.xml(task) for task in tasks.TASKS]
    return fingerprints.fingerprint(scenes, seeds.TRAINING.start, seeds.TRAINING.stop, asdict(recipe), code=code)


def train(recipe: Recipe, out: Path = WEIGHTS) -> Path:
    """Make the demonstrations, fit the network, write ``NAME.safetensors``."""
    states, chunks = _windows(recipe)
    metadata = {"fingerprint": fingerprint(recipe), "recipe": json.dumps(asdict(recipe))}
    metadata["data"] = short_hash(states.tobytes(), chunks.tobytes())
    began = time.perf_counter()
    arrays, loss = _fit(recipe, states, chunks)
    print(f"{recipe.name}: {len(states)} states, loss {loss:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    return write_weights(out / f"{recipe.name}.safetensors", arrays, metadata)


def write_weights(path: Path, arrays: Mapping[str, Array], metadata: dict[str, str]) -> Path:
    """Write a file that `besttake.testbed.network.Weights` reads."""
    from safetensors.numpy import save

    return write_bytes(path, save({k: np.ascontiguousarray(a) for k, a in arrays.items()}, metadata), parents=True)


def _windows(recipe: Recipe) -> tuple[F32, F32]:
    """States (M, 20) and the chunks (M, 10, 4) that follow them; a demonstration ends in standing still."""
    states: list[Array] = []
    chunks: list[Array] = []
    for task in tasks.TASKS:
        made = demonstrations.demonstrations(task, seeds.TRAINING, recipe.style)
        for demo in islice(made, recipe.demos_per_task):
            still = np.repeat(demo.actions[-1:] * np.array([0, 0, 0, 1], np.float32), network.HORIZON, axis=0)
            actions = np.concatenate([demo.actions, still])
            states.extend(demo.states)
            chunks.extend(actions[t : t + network.HORIZON] for t in range(len(demo.actions)))
    return np.array(states), np.array(chunks)


def _fit(recipe: Recipe, states: F32, chunks: F32) -> tuple[dict[str, Array], float]:
    mean, std = chunks.mean(axis=(0, 1)), chunks.std(axis=(0, 1))
    targets = ((chunks - mean) / std).reshape(len(chunks), -1)
    layers, loss = fitting.fit(
        states * network.SCALE,
        targets,
        width=recipe.width,
        steps=recipe.steps,
        batch=recipe.batch,
        rate=recipe.rate,
        decay=recipe.decay,
        seed=recipe.seed,
    )
    return {"action_mean": mean.astype(np.float32), "action_std": std.astype(np.float32), **layers}, loss


def main() -> None:
    """Train the named policies, or all."""
    parser = argparse.ArgumentParser(prog="python -m small_policies.testbed", description=__doc__)
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="directory for the weights")
    asked = parse_names(parser, RECIPES)
    for name in asked.names:
        train(RECIPES[name], asked.out)


def parse_names(parser: argparse.ArgumentParser, known: Collection[str]) -> argparse.Namespace:
    """The arguments of a training command, with ``names`` of recipes: all that are ``known`` when none is named."""
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)}; all when none is named")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"no policy {', '.join(unknown)}; known: {', '.join(known)}")
    asked.names = asked.names or list(known)
    return asked


if __name__ == "__main__":
    main()
