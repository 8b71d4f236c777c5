"""Makes ``vla_eval_0_1/``: two shards of one evaluation and the file merged of them, by vla-eval 0.1.0's own code.

Run with a Python that has vla-eval 0.1.0: ``python make_vla_eval_0_1.py``. Its collector gathers the episodes of each
shard, as its orchestrator does (work item i goes to shard i modulo 2), and its ``merge_shards`` merges them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from vla_eval.results.collector import ResultCollector
from vla_eval.results.merge import load_shard_files, merge_shards

SHARDS, EPISODES, TASKS = 2, 6, ("roll far", "roll near")


def main() -> None:
    out = Path(__file__).parent / "vla_eval_0_1"
    out.mkdir(exist_ok=True)
    chance = random.Random(5)
    items = [(task, episode) for task in TASKS for episode in range(EPISODES)]
    paths = []
    for shard in range(SHARDS):
        collector = ResultCollector("roll", "sync", {"success": "mean"})
        for task, episode in items[shard::SHARDS]:
            won = chance.random() < (0.35 if task == "roll far" else 0.75)
            steps = chance.randrange(20, 60) if won else 60
            elapsed = round(steps * 0.05 + chance.random(), 3)
            collector.record(
                task, {"metrics": {"success": won}, "steps": steps, "elapsed_sec": elapsed, "episode_id": episode}
            )
        output = {**collector.get_benchmark_result(config={"benchmark": "roll"})}
        output["server_info"] = {"model_server": "Pusher"}
        output["shard"] = {"id": shard, "total": SHARDS}
        paths.append(out / f"roll_shard{shard}of{SHARDS}.json")
        paths[-1].write_text(json.dumps(output, indent=2, default=str))
    (out / "roll_merged.json").write_text(json.dumps(merge_shards(load_shard_files(paths)), indent=2, default=str))


if __name__ == "__main__":
    main()
