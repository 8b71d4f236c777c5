"""`besttake library build` of data by their bare path."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "demos"))

import writers


def test_a_bare_path_is_built_and_the_command_says_what_it_took_it_for(besttake, tmp_path):
    root = writers.ipec_libero(tmp_path / "v21", [writers.episode(i, length=12, side=32) for i in range(2)])
    done = besttake("library", "build", root, "-o", tmp_path / "one", "--encoder", "hog", "--gripper-as=-1,1")
    assert "note: a LeRobotDataset v2.1 of 2 episodes" in done.stdout
    assert "1 (open) and 0 (closed) of the data are -1 and 1 in" in " ".join(done.stdout.split())
    done = besttake("library", "build", "--demos", root, "-o", tmp_path / "two", "--encoder", "hog", "--json")
    assert json.loads(done.stdout)["demos"] == 2
    done = besttake("library", "build", "-o", tmp_path / "three", check=False)
    assert done.returncode == 2
    assert "name the demonstrations once" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
