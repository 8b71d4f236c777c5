"""The real Ray, on two nodes, plays the same takes as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")

from besttake.takes.ray import Parcel, own_modules  # noqa: E402

PLAN = {
    "policy": "python:large_half:make", "env": "testbed:drawer", "starts": 4, "seeds": 2, "arms": "base,retrieve",
    "demos_per_task": 6, "probe_states": 0, "check_states": 0, "rule": "frame", "workers": 1,
}  # fmt: skip
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[3])
from besttake.config import Plan
from besttake.progress import Reporter
from besttake.verbs.diagnose import diagnose

class Notes(Reporter):
    def __init__(self):
        super().__init__(shown=False)
    def note(self, text):
        print("NOTE", text, flush=True)

result = diagnose(Plan.model_validate(json.loads(sys.argv[1])), sys.argv[2], progress=Notes())
print("DIGEST", result.digest, result.cost.errors, flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["BESTTAKE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    # A lost node is noticed in seconds; a busy machine has time to start Ray, whose workers are not the last in line.
    os.environ.update(
        RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0", RAY_raylet_start_wait_time_s="120",
        RAY_health_check_period_ms="1000", RAY_health_check_failure_threshold="5",
    )  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of two cores; the second one can be taken away."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    made.add_node(num_cpus=2)
    yield made
    made.shutdown()


def started(out: Path, address: str | None, modules: Path, **changes: Any) -> subprocess.Popen[str]:
    env = {**os.environ, **({"RAY_ADDRESS": address} if address else {})}
    plan = json.dumps({**PLAN, **changes})
    command = [sys.executable, "-c", SCRIPT, plan, str(out), str(modules)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Its digest and its notes."""
    try:
        shown, _ = process.communicate(timeout=400)
    except BaseException:
        process.kill()
        raise
    assert process.returncode == 0, shown
    lines = shown.splitlines()
    digest, errors = next(line.split()[1:] for line in lines if line.startswith("DIGEST"))
    assert errors == "0"
    return digest, [line[5:] for line in lines if line.startswith("NOTE")]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that only the driver has in its path, with the user's policy."""
    place = tmp_path_factory.mktemp("modules")
    source = Path(__file__).parents[2] / "verbs" / "large_half.py"
    (place / "large_half.py").write_text(source.read_text())
    return place


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> str:
    return ended(started(tmp_path_factory.mktemp("local") / "run", None, modules))[0]


def test_replicas_on_two_nodes_play_the_same_bits(local: str, tmp_path: Path, cluster: Any, modules: Path) -> None:
    digest, notes = ended(started(tmp_path / "run", cluster.address, modules, on="ray"))
    assert digest == local
    assert any("2 replicas on 2 nodes" in note for note in notes)


def replicas_of(raylet: int) -> list[int]:
    """The replicas among the processes that this node of the test's own cluster started."""
    pids = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and (place / "cmdline").read_bytes().startswith(b"ray::RayReplica"):
                pids.append(int(place.name))
        except OSError:  # it has ended
            continue
    return pids


def test_a_killed_replica_and_a_lost_node_cost_no_take(local: str, tmp_path: Path, cluster: Any, modules: Path) -> None:
    process = started(tmp_path / "run", cluster.address, modules, on="ray", batch=2)
    victims: list[int] = []

    def hurt() -> None:
        while process.poll() is None and not any((tmp_path / "run" / "takes").glob("*/*.take")):
            time.sleep(0.05)
        away = next(node for node in cluster.list_all_nodes() if not node.head)
        for pid in replicas_of(cluster.head_node.all_processes["raylet"][0].process.pid):
            os.kill(pid, signal.SIGKILL)
            victims.append(pid)
        cluster.remove_node(away, allow_graceful=False)

    killer = threading.Thread(target=hurt, daemon=True)
    killer.start()
    digest, notes = ended(process)
    killer.join(timeout=60)
    assert victims
    assert digest == local
    assert any("died and is replaced; its takes are played again" in note for note in notes)


def test_a_directory_goes_to_a_node_that_lacks_it(tmp_path: Path) -> None:
    (tmp_path / "library" / "parts").mkdir(parents=True)
    (tmp_path / "library" / "library.json").write_text("{}")
    (tmp_path / "library" / "parts" / "a.bin").write_bytes(b"\0\1")
    (tmp_path / "secret").write_text("not of the library")
    (tmp_path / "library" / "link").symlink_to(tmp_path / "secret")
    store: list[bytes] = []
    parcel = Parcel.of(tmp_path / "library", lambda data: store.append(data) or len(store) - 1)
    assert parcel.here(tmp_path / "library", store.__getitem__, tmp_path / "home") == tmp_path / "library"
    for _ in range(2):
        place = parcel.here(tmp_path / "elsewhere", store.__getitem__, tmp_path / "home")
        assert (place / "parts" / "a.bin").read_bytes() == b"\0\1"
        assert not (place / "link").exists()
    assert b"not of the library" not in store
    assert [path.name for path in (tmp_path / "home").iterdir()] == [parcel.name]


def test_modules_of_the_user_go_along_and_installed_ones_do_not(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(modules))
    uris = ["python:large_half:make?x=1", "python:numpy:zeros", "testbed:half", "python:no_such_module:make"]
    assert own_modules(uris) == [modules / "large_half.py"]
