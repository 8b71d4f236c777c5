"""Envs from the hub in BestTake: ``hub:ORG/REPO``, ``hub:ORG/REPO@REVISION:FILE.py``, by LeRobot's `make_env` (EnvHub).

The repository's code is run, so it is loaded only with ``--trust-remote-code``. What it makes is a Gymnasium env, and
the options are those of ``gym:``; ``suite`` and ``index`` choose one where the repository makes several.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium

from besttake.envs import gym
from besttake.errors import ComponentError, need, one_clear_error
from besttake.files import short_hash


def make(rest: str, *, trust_remote_code: bool = False, suite: str = "", index: str = "", **others: Any) -> gym.GymEnv:
    """The env ``hub:rest``; ``others`` are the options of ``gym:``."""
    uri = f"hub:{rest}"
    if not rest:
        raise ComponentError("hub: names no repository; write hub:ORG/REPO or hub:ORG/REPO:FILE.py")
    if trust_remote_code is not True:
        raise ComponentError(f"{uri} runs code from its repository: read it, then allow `trust_remote_code`")
    envs = need("lerobot.envs", uri, "lerobot")
    with one_clear_error(f"{uri}: {{}}"):
        revision = _revision(rest)

        def build(**_: Any) -> Any:
            made = envs.make_env(rest, n_envs=1, use_async_envs=False, trust_remote_code=True)
            return _Plain(_chosen(uri, made, suite, index))

        first = build()
        horizon, words = first.horizon, first.words
        first.close()
    name = re.sub(r"[^\w.-]+", "_", rest + suite + index)
    gymnasium.registry.pop(f"besttake_hub/{name}", None)  # of an env that was opened before
    gymnasium.register(f"besttake_hub/{name}", entry_point=build)
    known = {"horizon": horizon, "instruction": words, "task": suite or rest.partition("/")[2]}
    made = gym.make(f"besttake_hub/{name}", **{**{key: value for key, value in known.items() if value}, **others})
    chosen = "&".join(f"{key}={value}" for key, value in (("suite", suite), ("index", index)) if value)
    made.spec = replace(
        made.spec, name=f"{uri}?{chosen}" if chosen else uri, fingerprint=short_hash(made.spec.fingerprint, revision)
    )
    return made


def _revision(rest: str) -> str:
    """Return the commit of the repository, so that no run goes on with another."""
    from huggingface_hub import hf_hub_download

    head, _, file = rest.partition(":")
    repository, _, revision = head.partition("@")
    return Path(hf_hub_download(repository, file or "env.py", revision=revision or None)).parts[-2 - file.count("/")]


def _chosen(uri: str, made: dict[str, dict[int, Any]], suite: str, index: str) -> Any:
    """Choose one of the envs that LeRobot made, and close the others."""
    each = {(name, str(number)): env for name, own in made.items() for number, env in own.items()}
    fits = [key for key in each if suite in ("", key[0]) and index in ("", key[1])]
    for key, env in each.items():
        if [key] != fits:
            env.close()
    if len(fits) != 1:
        have = ", ".join(f"suite={name}&index={number}" for name, number in each)
        raise ComponentError(f"{uri}: {'several envs' if fits else 'no such env'}; choose one of: {have}")
    vector = each[fits[0]]
    if not getattr(vector, "envs", None):
        raise ComponentError(f"{uri}: a {type(vector).__name__}, of which no single env can be had")
    return vector.envs[0]


class _Plain(gymnasium.Env):  # type: ignore[misc]
    """Hides the specs of an env's wrappers, which `gymnasium.make` would compare with its own."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.render_mode = env.metadata, getattr(env, "render_mode", None)
        limit = getattr(env.spec, "max_episode_steps", None) if env.spec is not None else None
        self.horizon = limit or getattr(env.unwrapped, "_max_episode_steps", None)
        self.words = str(getattr(env.unwrapped, "task_description", ""))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """As the env."""
        return self._env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """As the env."""
        return self._env.step(action)

    def render(self) -> Any:
        """As the env."""
        return self._env.render()

    def close(self) -> None:
        """As the env."""
        self._env.close()
