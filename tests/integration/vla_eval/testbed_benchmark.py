"""The testbed as a vla-eval benchmark, so that vla-eval's own orchestrator can run it."""

from __future__ import annotations

from vla_eval.benchmarks.base import StepBenchmark, StepResult
from vla_eval.specs import DimSpec

from besttake import registry
from besttake.types import Start


class TestbedBenchmark(StepBenchmark):
    """Episodes are the first evaluation starts of one task."""

    __test__ = False

    def __init__(self, task: str = "push") -> None:
        super().__init__()
        self.name = task
        self.env = registry.env(f"testbed:{task}")

    def get_tasks(self):
        return [{"name": self.name}]

    def reset(self, task):
        self.env.reset(Start(self.name, self.env.spec.starts[task["episode_idx"]]))
        return self.env.observe(("wrist",))

    def step(self, action):
        result = self.env.step(action["actions"])
        return StepResult(self.env.observe(("wrist",)), float(result.success), result.success, {})

    def make_obs(self, raw_obs, task):
        return {"images": dict(raw_obs.images), "states": raw_obs.state, "task_description": self.name}

    def get_step_result(self, step_result):
        return {"success": step_result.done}

    def get_metadata(self):
        return {"max_steps": self.env.spec.tasks[0].horizon}

    def get_action_spec(self):
        return {"actions": DimSpec("actions", self.env.spec.action_dim, "raw")}

    def get_observation_spec(self):
        return {}
