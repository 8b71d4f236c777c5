"""How long a large report takes: 5 policies x 4 tasks x 40 starts x 3 seeds x 4 arms, and its size and memory.

    python bench/report.py [DIRECTORY]

The run is synthetic (`tests/reporting/synthetic.py`) and is made first, which is not counted. The report is made in a
process of its own; its memory is that process's peak. Prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILD = """
import json, resource, sys, time
before = time.process_time(), time.perf_counter()
from besttake.reporting.html import make_html
imported = time.perf_counter()
path = make_html(sys.argv[1])
after = time.process_time(), time.perf_counter()
print(json.dumps({
    "seconds": round(after[1] - before[1], 2), "of which imports": round(imported - before[1], 2),
    "cpu seconds": round(after[0] - before[0], 2),
    "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    "page MB": round(path.stat().st_size / 1e6, 2),
}))
"""


def main() -> None:
    sys.path.insert(0, str(HERE.parent / "tests" / "report"))
    import synthetic

    with tempfile.TemporaryDirectory() as scratch:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "run"
        if not run.exists():
            names = tuple(f"policy {i}" for i in range(5))
            tasks = ("pick", "push", "drawer", "stack")
            synthetic.build(run, synthetic.Shape(policies=names, tasks=tasks, starts=40, frames=17))
        done = subprocess.run([sys.executable, "-c", CHILD, str(run)], check=True, capture_output=True, text=True)
        print(json.dumps({"takes": 5 * 4 * 40 * 3 * 4, **json.loads(done.stdout)}, indent=1))


if __name__ == "__main__":
    main()
