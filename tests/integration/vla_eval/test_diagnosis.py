"""A whole diagnosis through servers that other people run, and what becomes of it when the server is killed."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from vla_eval.api import serve_background
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.specs import DimSpec

from besttake import registry
from besttake.config import Plan
from besttake.serving import serve
from besttake.takes.draws import Draw
from besttake.types import Observation
from besttake.verbs.diagnose.diagnosis import diagnose


class TestbedServer(PredictModelServer):
    """A policy of the testbed behind a vla-eval chunk buffer; ``after`` so many inferences it calls ``then``."""

    __test__ = False

    def __init__(self, after: int | None = None, then=None):
        super().__init__(chunk_size=10)
        self.policy = registry.policy("testbed:mid")
        self.count = itertools.count()
        self.after, self.then = after, then

    def predict(self, obs, ctx):
        number = next(self.count)
        if number == self.after:
            self.then()
        seen = Observation({}, np.asarray(obs["states"], np.float32), obs["task_description"])
        return {"actions": self.policy.sample([seen], [Draw(9, "served", number, 0)])[0]}

    def get_action_spec(self):
        return {"all": DimSpec("all", 4, "raw")}

    def get_observation_spec(self):
        return {}


def plan(policy: str) -> Plan:
    return Plan(policy=[policy], env=["testbed:push"], starts="3", seeds=2, arms=["base", "cooled"], probe_states=0)


@pytest.fixture
def options():
    return "?map=&state_dim=20&horizon=10&timeout=120"


def test_a_vla_eval_server_drives_a_whole_diagnosis(tmp_path, options):
    with serve_background(TestbedServer()) as server:
        result = diagnose(plan(f"vla-eval:{server.url}{options}"), tmp_path)
    (cell,) = result.cells
    assert any("no cooled arm" in note for note in result.notes)
    assert any("seeds have no effect" in note for note in result.notes)
    assert (cell.starts, cell.takes, cell.errors) == (3, 6, 0)


def test_an_openpi_server_drives_a_whole_diagnosis(tmp_path):
    with serve(registry.policy("testbed:mid"), "openpi") as server:
        result = diagnose(plan(f"openpi:{server.url}"), tmp_path)
    (cell,) = result.cells
    assert (cell.starts, cell.takes, cell.errors) == (3, 6, 0)


class Mortal:
    """A policy that calls ``then`` at its twelfth sample, for our own server."""

    def __init__(self, then):
        self.policy = registry.policy("testbed:mid")
        self.spec, self.count, self.then = self.policy.spec, itertools.count(), then

    def sample(self, observations, draws, warm=None):
        if next(self.count) == 12 and self.then:
            self.then()
        return self.policy.sample(observations, draws, warm)


@pytest.mark.parametrize("protocol", ["vla-eval", "openpi"])
def test_a_server_that_dies_in_the_middle_costs_its_takes_and_the_run_goes_on_when_it_is_back(
    tmp_path, options, protocol
):
    holder = {}

    def die():
        threading.Thread(target=holder["server"].close).start()
        raise RuntimeError("the machine was unplugged")

    def start(then, port=None):
        if protocol == "openpi":
            return serve(Mortal(then), "openpi", port=port or 0)
        after = 12 if then else None
        return serve_background(TestbedServer(after=after, then=then), **({"port": port} if port else {}))

    holder["server"] = start(die)
    port = holder["server"].port
    uri = f"{protocol}:{holder['server'].url}{options}"
    first = diagnose(plan(uri), tmp_path)
    with start(None, port):
        second = diagnose(plan(uri), tmp_path)
    assert first.cells[0].errors > 0
    assert (second.cells[0].takes, second.cells[0].errors) == (6, 0)
