"""The pictures of a report that the docs show: the first screen on a desktop, and the takes on a phone.

    python bench/screenshots.py RUN docs/images                         # report-desktop.png and report-phone.png
    python bench/screenshots.py RUN docs/images libero-object-report    # libero-object-report.png, the desktop alone

Needs chromium. The report is made afresh; the run stays as it is.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from besttake.reporting.html import make_html

HERE = Path(__file__).resolve().parent


def main() -> None:
    sys.path.insert(0, str(HERE.parent / "tests" / "reporting"))
    from browser import Browser

    run, out, *names = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    desktop = f"{names[0]}.png" if names else "report-desktop.png"
    with tempfile.TemporaryDirectory() as scratch, Browser(Path(scratch)) as browser:
        page = make_html(run, Path(scratch) / "report.html")
        browser.open(page, width=1280, height=900)
        browser.picture(Path(out) / desktop)
        if not names:
            browser.open(page, width=390, height=844)
            browser.run("document.getElementById('count').scrollIntoView({behavior: 'instant'})")
            browser.run("(() => { const t = document.getElementById('time'); t.value = Math.round(t.max * 0.45);"
                        " t.dispatchEvent(new Event('input')); })()")  # fmt: skip
            browser.run("new Promise(done => setTimeout(done, 500))")
            browser.picture(Path(out) / "report-phone.png")
        if browser.errors:
            raise SystemExit(f"the page complained: {browser.errors}")


if __name__ == "__main__":
    main()
