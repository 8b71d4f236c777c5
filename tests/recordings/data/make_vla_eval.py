"""Makes ``vla_eval/``: three evaluations of a small benchmark by vla-eval itself, recorded and exported.

Run with a Python that has vla-eval 0.8: ``python make_vla_eval.py``. The benchmark is a ball that rolls to a goal over
bumps; the model server pushes it with noise of its own seed, so that outcomes differ between evaluations.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np
from vla_eval.api import run, serve_background
from vla_eval.benchmarks.base import StepBenchmark, StepResult
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.results.export import export_db
from vla_eval.specs import DimSpec

EPISODES = 8


class RollBenchmark(StepBenchmark):
    """Two tasks: a near goal and a far one. One episode of the far one raises, as simulators do."""

    def __init__(self) -> None:
        super().__init__()
        self.place = self.goal = self.slope = 0.0

    def get_tasks(self):
        return [{"name": "roll near", "goal": 2.0}, {"name": "roll far", "goal": 4.0}]

    def reset(self, task):
        start = np.random.default_rng(task["episode_idx"])
        self.place, self.goal, self.slope = 0.0, task["goal"], float(start.uniform(-0.25, 0.25))
        self.breaks = task["name"] == "roll far" and task["episode_idx"] == 5
        return self.place

    def step(self, action):
        self.place += float(action["actions"][0]) + self.slope
        if self.breaks and abs(self.place) > 1:
            raise RuntimeError("contact solver diverged: <nan> in qacc")
        return StepResult(self.place, float(self.place >= self.goal), self.place >= self.goal, {})

    def make_obs(self, raw_obs, task):
        return {"states": np.array([raw_obs], np.float32), "task_description": task["name"]}

    def get_step_result(self, step_result):
        return {"success": step_result.done}

    def get_metadata(self):
        return {"max_steps": 12}

    def get_action_spec(self):
        return {"actions": DimSpec("actions", 1, "raw")}

    def get_observation_spec(self):
        return {}


class Pusher(PredictModelServer):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)

    def predict(self, obs, ctx):
        return {"actions": self.random.normal(0.28, 0.35, 1).astype(np.float32)}

    def predict_batch(self, obs_batch, ctx_batch):
        return [self.predict(obs, ctx) for obs, ctx in zip(obs_batch, ctx_batch, strict=True)]

    def get_action_spec(self):
        return {"actions": DimSpec("actions", 1, "raw")}

    def get_observation_spec(self):
        return {}


def main() -> None:
    here = Path(__file__).parent
    sys.path.insert(0, str(here))
    out = here / "vla_eval"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for seed in range(3):
        config = {
            "benchmarks": [{"benchmark": "make_vla_eval:RollBenchmark", "name": "roll", "episodes_per_task": EPISODES}]
        }
        with tempfile.TemporaryDirectory() as scratch, serve_background(Pusher(seed)) as server:
            run(config, server_url=server.url, output_dir=scratch, docker=False, eval_id=f"seed{seed}")
            (recording,) = Path(scratch).glob("recording-*.sqlite")
            without_paths(recording)
            shutil.copyfile(recording, out / recording.name)
            (aggregate,) = export_db(recording, Path(scratch))
            (out / f"seed{seed}_aggregate.json").write_text(json.dumps(aggregate, indent=2, default=str))


def without_paths(recording: Path) -> None:
    """Keep the last line of each traceback: the others name files of the machine that made the recording."""
    with contextlib.closing(sqlite3.connect(recording)) as database:
        for row, detail in database.execute("select rowid, failure_detail from episode_results").fetchall():
            if detail:
                database.execute(
                    "update episode_results set failure_detail = ? where rowid = ?",
                    (detail.strip().splitlines()[-1], row),
                )
        database.commit()
        database.execute("vacuum")


if __name__ == "__main__":
    main()
