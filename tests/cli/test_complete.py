"""Tab completes URIs: bash itself is asked, with the script that the command line gives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from besttake import registry
from besttake.cli import complete

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``besttake`` and its completion script."""
    place = tmp_path_factory.mktemp("bin")
    command = place / "besttake"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m besttake "$@"\n')
    command.chmod(0o755)
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    made = subprocess.run(
        [command, "--show-completion", "bash"], capture_output=True, text=True, check=True, env=environment
    )
    (place / "completion.sh").write_text(made.stdout)
    return place


def tab(script: Path, *words: str) -> list[str]:
    """What bash offers after ``besttake WORDS``, cut into words as bash does it (at ``:`` and ``=`` as well)."""
    listed = " ".join(f"'{word}'" for word in ("besttake", *words))
    body = f"""
        PATH="{script}:$PATH"; source "{script}/completion.sh"
        COMP_WORDS=({listed}); COMP_CWORD={len(words)}
        _besttake_completion besttake; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", body], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_a_uri_across_its_colon(script: Path) -> None:
    assert "testbed:half" in tab(script, "diagnose", "--policy", "te")
    assert tab(script, "diagnose", "--policy", "testbed", ":", "ha") == ["half"]
    assert tab(script, "diagnose", "--policy", "testbed", ":") == ["half", "few", "alt", "mid", "strong"]
    assert tab(script, "diagnose", "--arms", "base,co") == ["base,cooled"]
    assert "diagnose" in tab(script, "di")


@pytest.mark.parametrize("key", ["policy", "env", "demos", "encoder", "scorer"])
def test_every_known_scheme_is_offered(key: str) -> None:
    family = {"policy": "policies"}.get(key, key if key == "demos" else f"{key}s")
    offered = complete.COMPLETERS[key]("")
    assert {uri.partition(":")[0] for uri in offered} == {*registry.schemes(family)}
