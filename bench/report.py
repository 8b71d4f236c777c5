"""The report of a large run: 5 policies x 4 tasks x 84 starts x 3 seeds x 4 arms, 20,160 takes.

    python bench/report.py [DIRECTORY]

The run is synthetic (`tests/reporting/synthetic.py`), with films that are large enough to fill what a page may hold;
making it is not counted. The report is made in a process of its own; its memory is that process's peak. Then Chromium
opens the file five times, each time in a new profile. Prints one JSON object; exits with 1 where the page has 15 MB or
more, or the fastest load takes 2 seconds or more (the others tell how busy the machine was).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HELPERS = Path(__file__).resolve().parent.parent / "tests" / "reporting"
POLICIES, TASKS, STARTS, SEEDS, ARMS = 5, ("pick", "push", "drawer", "stack"), 84, 3, 4
TIMES = 5
MOST_MB, MOST_SECONDS = 15.0, 2.0
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
NAVIGATION = "performance.getEntriesByType('navigation')[0]"
LOADED = f"(n => n.loadEventEnd && [n.domContentLoadedEventEnd, n.loadEventEnd])({NAVIGATION})"
PAINTED = "performance.getEntriesByName('first-contentful-paint').map(p => p.startTime)[0]"


def main() -> None:
    sys.path.insert(0, str(HELPERS))
    import synthetic

    with tempfile.TemporaryDirectory() as scratch:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "run"
        if not run.exists():
            names = tuple(f"policy {i}" for i in range(POLICIES))
            synthetic.build(run, synthetic.Shape(names, TASKS, STARTS, SEEDS, side=96, frames=40, alike=True))
        done = subprocess.run([sys.executable, "-c", CHILD, str(run)], check=True, capture_output=True, text=True)
        made = json.loads(done.stdout)
        loads = [_load(run / "report.html") for _ in range(TIMES)]
    takes = POLICIES * len(TASKS) * STARTS * SEEDS * ARMS
    seconds = {name: [load[name] for load in loads] for name in loads[0]}
    print(json.dumps({"takes": takes, **made, **seconds, "load average": os.getloadavg()[0]}, indent=1))
    if made["page MB"] >= MOST_MB or min(seconds["load event, s"]) >= MOST_SECONDS:
        raise SystemExit(f"the page should stay under {MOST_MB:g} MB and open in under {MOST_SECONDS:g} s")


def _load(page: Path) -> dict[str, float]:
    """How long a browser that has never seen the page takes: first paint, content parsed, load event."""
    from browser import Browser

    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        browser.open(page, width=1400)
        browser.wait(LOADED)
        parsed, loaded = browser.run(LOADED)
        painted = browser.run(PAINTED) or 0.0
        if browser.errors:
            raise SystemExit(f"the page complained: {browser.errors}")
    named = {"first paint, s": painted, "content, s": parsed, "load event, s": loaded}
    return {name: round(value / 1000, 2) for name, value in named.items()}


if __name__ == "__main__":
    main()
