"""The pictures of a report that the docs show: the first screen on a desktop and on a phone.

    python docs/images/make.py RUN docs/images                        # report-desktop.png and report-phone.png

Needs chromium. The report is made afresh; the run stays as it is.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from besttake.reporting.html import make_html

SIZES = {"desktop": "1280,900", "phone": "390,844"}
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def main() -> None:
    """Make both pictures."""
    run, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        page = make_html(run, Path(scratch) / "report.html")
        for name, size in SIZES.items():
            picture = Path(out).resolve() / f"report-{name}.png"
            own = (f"--user-data-dir={scratch}/{name}", f"--window-size={size}", f"--screenshot={picture}")
            subprocess.run(["chromium", *FLAGS, "--hide-scrollbars", *own, page.resolve().as_uri()], check=True)


if __name__ == "__main__":
    main()
