"""The pictures of a report that the README shows: the first screen on a desktop, the takes on a phone.

    python bench/screenshots.py RUN docs/images

Needs chromium; writes ``report-desktop.png`` and ``report-phone.png``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from besttake.reporting.html import make_html

HERE = Path(__file__).resolve().parent


def main() -> None:
    sys.path.insert(0, str(HERE.parent / "tests" / "report"))
    from browser import Browser

    page, out = make_html(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        browser.open(page, width=1280, height=900)
        browser.picture(out / "report-desktop.png")
        browser.open(page, width=390, height=844)
        browser.run("document.getElementById('takes').scrollIntoView({behavior: 'instant'})")
        browser.run("(() => { const t = document.getElementById('time'); t.value = Math.round(t.max * 0.45);"
                    " t.dispatchEvent(new Event('input')); })()")  # fmt: skip
        browser.run("new Promise(done => setTimeout(done, 500))")
        browser.picture(out / "report-phone.png")
        if browser.errors:
            raise SystemExit(f"the page complained: {browser.errors}")


if __name__ == "__main__":
    main()
