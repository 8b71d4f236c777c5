"""What Tab offers: schemes and names of components (`registry.schemes`), tasks, arms, and words in bash.

Nothing heavy is loaded: names behind a scheme are offered where they are a plain list of this package.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module

import typer

from besttake import registry

_NAMES = {
    ("policies", "testbed"): "besttake.testbed.policy:NAMES",
    ("envs", "testbed"): "besttake.testbed.tasks:TASKS",
    ("demos", "testbed"): "besttake.testbed.tasks:TASKS",
    ("envs", "libero"): "besttake.envs.libero.env:SUITES",
    ("envs", "libero-occ"): "besttake.envs.libero.env:SUITES",
}
"""Where the names behind a scheme are listed."""
_ALONE = {("envs", "testbed"), ("demos", "testbed")}
"""Schemes with names that are a URI without one, too."""
_SHELL = "_BESTTAKE_COMPLETE"


def uris(family: str) -> Callable[[str], list[str]]:
    """What completes a URI of ``family``: its scheme first, then the names that are known behind it."""

    def complete(incomplete: str) -> list[str]:
        if incomplete.startswith("python:"):
            return []
        scheme, colon, _ = incomplete.partition(":")
        if colon:
            return [f"{scheme}:{name}" for name in _names(family, scheme)]
        return [uri for known in registry.schemes(family) for uri in _of_scheme(family, known)]

    return complete


def arms(incomplete: str) -> list[str]:
    """Arms with commas between them; those that are there already are not offered again."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{arm}" for arm in registry.schemes("arms") if arm not in before.split(",")]


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tasks of the envs that were named before, where they can be told without opening an env."""
    named = [registry.Uri.parse(uri) for uri in ctx.params.get("env") or ("testbed",)]
    return [name for uri in named if uri.scheme == "testbed" for name in _names("envs", "testbed")]


COMPLETERS: dict[str, Callable[..., list[str]]] = {
    "policy": uris("policies"),
    "env": uris("envs"),
    "demos": uris("demos"),
    "encoder": uris("encoders"),
    "scorer": uris("scorers"),
    "arms": arms,
    "task": tasks,
}
"""By the key of a plan."""


def in_bash(run: Callable[[], object]) -> object:
    """``run``, which prints completions, as bash needs it: bash cuts words at ``:`` and ``=``, so they are joined for
    the command, and what stands before the last cut is taken off each answer."""
    if os.environ.get(_SHELL) != "complete_bash":
        return run()
    words, position = _joined(os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ.get("COMP_CWORD", "0")))
    os.environ.update(COMP_WORDS=shlex.join(words), COMP_CWORD=str(position))
    word = words[position] if position < len(words) else ""
    value = word.partition("=")[2] if word.startswith("-") else word
    known = value[: max(value.rfind(":"), value.rfind("=")) + 1]
    answers = io.StringIO()
    try:
        with redirect_stdout(answers):
            return run()
    finally:
        for line in answers.getvalue().splitlines():
            print(line.removeprefix(known), file=sys.stdout)


def _joined(words: list[str], position: int) -> tuple[list[str], int]:
    """The words that the user typed, and which of them is at ``position`` of bash's."""
    typed: list[str] = []
    at = len(words)
    for i, word in enumerate(words):
        cut = word and not word.strip(":=")
        if typed and i and (cut or (words[i - 1] and not words[i - 1].strip(":="))):
            typed[-1] += word
        else:
            typed.append(word)
        if i == position:
            at = len(typed) - 1
    return typed, min(at, len(typed))


def _names(family: str, scheme: str) -> tuple[str, ...]:
    place = _NAMES.get((family, scheme))
    if place is None:
        return ()
    module, _, name = place.partition(":")
    return tuple(getattr(import_module(module), name))


def _of_scheme(family: str, scheme: str) -> list[str]:
    """The URIs of a scheme; a lone ``scheme:`` where what follows is up to the user."""
    alone = family in ("encoders", "arms", "scorers") or (family, scheme) in _ALONE
    named = [f"{scheme}:{name}" for name in _names(family, scheme)]
    return [*([scheme] if alone else []), *named] or [f"{scheme}:"]
