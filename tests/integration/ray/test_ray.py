"""The real Ray plays the same takes as one replica here, on this machine, on two nodes, and when parts are lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray")

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / "takes"), str(TESTS / "integration" / "ray")]

import shared_gpu  # noqa: E402
import toy  # noqa: E402

from besttake.errors import RolloutError  # noqa: E402
from besttake.takes.jobs import Job  # noqa: E402
from besttake.takes.key import TakeKey  # noqa: E402
from besttake.takes.manifest import Manifest  # noqa: E402
from besttake.takes.ray import Assignment, Cluster, Replicas, own_modules  # noqa: E402
from besttake.takes.store import Store  # noqa: E402
from besttake.takes.take import Take  # noqa: E402

PLAN = {
    "policy": "python:large_half:make", "env": "testbed:drawer", "starts": 4, "seeds": 2, "arms": "base,retrieve",
    "demos_per_task": 6, "probe_states": 0, "check_states": 0, "rule": "frame", "workers": 1,
}  # fmt: skip
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[3])
from besttake.config import Plan
from besttake.progress import Reporter
from besttake.verbs.diagnose.diagnosis import diagnose

class Notes(Reporter):
    def __init__(self):
        super().__init__(shown=False)
    def note(self, text):
        print("NOTE", text, flush=True)

result = diagnose(Plan.model_validate(json.loads(sys.argv[1])), sys.argv[2], progress=Notes())
print("DIGEST", result.digest, result.cost.errors, flush=True)
wanted = {"policy", "group", "starts", "takes", "verdict", "path"}
cells = [cell.model_dump(include=wanted, mode="json") for cell in (*result.cells, *result.policies)]
print("DECIDED", json.dumps(cells), flush=True)
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
    digest, notes, _ = with_decisions(process)
    return digest, notes


def with_decisions(process: subprocess.Popen[str]) -> tuple[str, list[str], str]:
    """Its digest, its notes and what it decided."""
    try:
        shown, _ = process.communicate(timeout=400)
    except BaseException:
        process.kill()
        raise
    assert process.returncode == 0, shown
    return read(shown.splitlines())


def read(lines: list[str]) -> tuple[str, list[str], str]:
    """The digest, the notes and what was decided, of what SCRIPT prints."""
    digest, errors = next(line.split()[1:] for line in lines if line.startswith("DIGEST"))
    assert errors == "0"
    decided = next(line for line in lines if line.startswith("DECIDED"))
    return digest, [line[5:] for line in lines if line.startswith("NOTE")], decided


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that only the driver has in its path, with the user's policy."""
    place = tmp_path_factory.mktemp("modules")
    for name in ("large_half.py", "costly_eye.py"):
        (place / name).write_text((TESTS / "verbs" / name).read_text())
    return place


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> str:
    return ended(started(tmp_path_factory.mktemp("local") / "run", None, modules))[0]


WAITS = """
import time
from pathlib import Path

def make():
    large, until = Large(), time.monotonic() + 300
    plain = large.sample

    def sample(observations, draws, warm=None):
        while draws[0].task != "rehearsal" and not Path({gate!r}).exists() and time.monotonic() < until:
            time.sleep(0.05)
        return plain(observations, draws, warm)

    large.sample = sample
    return large
"""


class Together:
    """A diagnosis whose policy acts once replicas on two nodes are there: one alone may play all takes before."""

    def __init__(self, place: Path, address: str, modules: Path, **changes: Any) -> None:
        self._gate, own = place / "both are there", place / "modules"
        own.mkdir()
        policy = (modules / "large_half.py").read_text() + WAITS.format(gate=str(self._gate))
        (own / "large_half.py").write_text(policy)
        self.process = started(place / "run", address, own, on="ray", **changes)

    def ended(self) -> tuple[str, list[str]]:
        """Its digest and its notes."""
        lines = []
        with self.process as process:
            for line in process.stdout or ():
                lines.append(line)
                if line.startswith("NOTE 2 replicas on 2 nodes"):
                    self._gate.touch()
        assert self.process.returncode == 0, lines
        assert self._gate.exists(), lines
        return read(lines)[:2]


def test_two_replicas_on_this_machine_play_as_one(local: str, tmp_path: Path, modules: Path) -> None:
    own = {"encoder": f"python:costly_eye:make?log={tmp_path / 'log'}", "stride": 20}
    two = ended(started(tmp_path / "two", None, modules, replicas=2, **own))
    assert two[1][-1:] == ["2 replicas on 1 node, 2 workers"]
    assert ended(started(tmp_path / "one", None, modules, **own))[0] == two[0]


def test_replicas_on_two_nodes_play_the_same_bits(local: str, tmp_path: Path, cluster: Any, modules: Path) -> None:
    assert Together(tmp_path, cluster.address, modules).ended()[0] == local


def replicas_of(raylet: int) -> list[int]:
    """The replicas among the processes that this node of the test's own cluster started."""
    pids = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and (place / "cmdline").read_bytes().startswith(b"ray::Replica"):
                pids.append(int(place.name))
        except OSError:  # it has ended
            continue
    return pids


@contextmanager
def joined(nodes: Any, *modules: Path) -> Iterator[Cluster]:
    """This process as the driver of a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.address)
        with closing(Cluster(modules)) as made:
            yield made


def toy_jobs(env: str = "python:toy:make", starts: int = 12) -> list[Job]:
    keys = [TakeKey("p", env, "walk", start, "base", seed) for start in range(starts) for seed in range(2)]
    return [Job(key, 12, (), "eye", 5, True) for key in keys]


def test_a_take_that_kills_its_replica_is_given_up_and_the_others_are_played(tmp_path: Path, cluster: Any) -> None:
    with (
        joined(cluster, TESTS / "takes" / "toy.py", Path(shared_gpu.__file__)) as driver,
        Replicas(driver, 1, 1, 0.0, None, lambda note: None) as replicas,
        Store.write(tmp_path / "run", Manifest()) as store,
    ):
        replicas.play(
            Assignment(shared_gpu.Deadly(), toy.make().spec, shared_gpu.draw, 2), toy_jobs(starts=3)[1:], store
        )
        errors = {(row.key.start, row.key.seed): row.error for row in store.rows()}
        assert errors.pop((0, 1)) == "the replica died or hung 3 times on this take"
        assert set(errors.values()) == {None}
        with pytest.raises(RolloutError, match="replica 1: FileNotFoundError: no weights here"):
            replicas.play(Assignment(toy.Recipe(missing=True), toy.make().spec, shared_gpu.draw, 4), toy_jobs(), store)


def test_a_killed_replica_and_a_lost_node_cost_no_take(local: str, tmp_path: Path, cluster: Any, modules: Path) -> None:
    run = Together(tmp_path, cluster.address, modules, batch=2)
    victims: list[int] = []

    def hurt() -> None:
        while run.process.poll() is None and not any((tmp_path / "run" / "takes").glob("*/*.take")):
            time.sleep(0.05)
        away = next(node for node in cluster.list_all_nodes() if not node.head)
        for pid in replicas_of(cluster.head_node.all_processes["raylet"][0].process.pid):
            os.kill(pid, signal.SIGKILL)
            victims.append(pid)
        cluster.remove_node(away, allow_graceful=False)

    killer = threading.Thread(target=hurt, daemon=True)
    killer.start()
    digest, notes = run.ended()
    killer.join(timeout=60)
    assert victims
    assert digest == local
    assert any("died and is replaced; its takes are played again" in note for note in notes)


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[Any]:
    """A node that is told it has two GPUs."""
    from ray.cluster_utils import Cluster as Nodes

    made = Nodes(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 2})
    yield made
    made.shutdown()


def test_four_replicas_share_two_gpus_at_the_same_time(tmp_path: Path, two_gpus: Any) -> None:
    notes: list[str] = []
    keys = [TakeKey("p", "python:shared_gpu:world", "walk", start, "base", 0) for start in range(1000)]
    with joined(two_gpus, Path(shared_gpu.__file__)) as driver:
        layout = driver.layout(None, None, 0.5)
        assert (layout.replicas, layout.workers, layout.room) == (4, 2, 4)
        made = Replicas(driver, layout.replicas, 1, layout.gpus, None, notes.append)
        with made as replicas, Store.write(tmp_path / "run", Manifest()) as store:

            def played(count: int) -> list[Take]:
                work = [Job(keys.pop(), shared_gpu.STEPS, (), "eye", 4, True) for _ in range(count)]
                assignment = Assignment(shared_gpu.Recipe(time.time()), shared_gpu.World.spec, shared_gpu.draw, 4)
                asked, _ = {job.key for job in work}, replicas.play(assignment, work, store)
                return [store.load(row) for row in store.rows() if row.key in asked]

            end = time.monotonic() + 300
            while "4 replicas on 1 node, 4 workers" not in notes and time.monotonic() < end:
                played(8)
            takes = played(64)
    replicas = {int(take.actions[0][1]): take for take in takes}
    assert sorted(take.actions[0][0] for take in replicas.values()) == [0, 0, 1, 1]
    for take in takes:
        mine, _, _, count = take.actions[0]
        assert count == 1, "it sees no GPU but its own"
        np.testing.assert_array_equal(take.states[:, 0], mine)
        np.testing.assert_array_equal(take.states[:, 1], mine)
    spans = [sorted(row[2] for take in takes if take.actions[0][1] == pid for row in take.actions) for pid in replicas]
    assert max(span[0] for span in spans) < min(span[-1] for span in spans), "all four at the same time"


def test_a_run_until_decided_on_ray_decides_as_one_here_though_a_replica_is_killed(
    tmp_path: Path, two_gpus: Any, modules: Path
) -> None:
    until = {"env": "testbed:push", "until": "decided", "budget": 96, "starts": 500, "stride": 20}
    one, _, decided_here = with_decisions(started(tmp_path / "one", None, modules, **until))
    process = started(tmp_path / "two", two_gpus.address, modules, **until, on="ray", gpus_per_replica=0.5)
    victims: list[int] = []

    def hurt() -> None:
        while process.poll() is None and len(list((tmp_path / "two" / "takes").glob("*/*.take"))) < 50:
            time.sleep(0.05)
        for pid in replicas_of(two_gpus.head_node.all_processes["raylet"][0].process.pid)[:1]:
            os.kill(pid, signal.SIGKILL)
            victims.append(pid)

    killer = threading.Thread(target=hurt, daemon=True)
    killer.start()
    digest, notes, decided_there = with_decisions(process)
    killer.join(timeout=60)
    assert victims
    assert (digest, decided_there) == (one, decided_here)
    assert any("died and is replaced; its takes are played again" in note for note in notes)


def test_modules_of_the_user_go_along_and_installed_ones_do_not(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(modules))
    uris = ["python:large_half:make?x=1", "python:numpy:zeros", "testbed:half", "python:no_such_module:make"]
    assert own_modules(uris) == [modules / "large_half.py"]
