"""The stages that make the takes: train the policies, play the plan with each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import besttake
from bench.zoo.recipes import read_recipe
from besttake.config import load_plan
from besttake.testbed import policy

ROOT = Path(__file__).parent.parent.parent
RECIPES = ROOT / "recipes" / "zoo"
PLAN = ROOT / "recipes" / "zoo-plan.yaml"
SHIPPED = {
    "half": "trained for half as long on a network half as wide",
    "few": "eight demonstrations per task",
    "alt": "another style of demonstrator, high and slow",
    "mid": "none; the recipe that the others change",
    "strong": "none; 160 demonstrations per task",
}


def deficits() -> dict[str, str]:
    """The policies of the zoo by name, the shipped ones first, and what is wrong with each."""
    assert tuple(SHIPPED) == policy.NAMES
    return {**SHIPPED, **{recipe.name: recipe.deficit for recipe in map(read_recipe, sorted(RECIPES.glob("*.yaml")))}}


def uri_of(directory: Path, name: str) -> str:
    """The policy ``name`` of the zoo, shipped or trained into ``directory``."""
    return f"testbed:{name}" if name in SHIPPED else f"flow:{directory / 'policies' / name}.safetensors"


def train(directory: Path) -> None:
    """The weights of every recipe, each in a process of its own."""
    for name in deficits():
        out = directory / "policies" / f"{name}.safetensors"
        if name in SHIPPED or out.is_file():
            continue
        command = ["-m", "bench.zoo.recipes", str(RECIPES / f"{name}.yaml"), "-o", str(out)]
        subprocess.run([sys.executable, *command], check=True)


def roll(directory: Path) -> None:
    """One run per policy; a run that was interrupted goes on."""
    for name in deficits():
        run = directory / "runs" / name
        if (run / "result.json").is_file():
            continue
        print(f"== {name}", flush=True)
        besttake.diagnose(load_plan(PLAN, {"policy": uri_of(directory, name)}), out=run, progress=True)
