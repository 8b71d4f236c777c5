"""Build pages of sections with prose, tables and figures, each page in one HTML file.

A page loads nothing from the network and runs only the scripts of this package. Everything shown is escaped: parts are
`Markup`, made from plain text by the functions here, by `Table.section`, or by `svg`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from besttake.errors import RunError
from besttake.files import version, write_text
from besttake.reporting.drawing import PAGE, SERIES, Figure, marker


@dataclass(frozen=True)
class Section:
    """A section of a page; ``name`` is its anchor, ``nav`` its name in the navigation.

    ``style``: "wide", or "folded" under its heading.
    """

    name: str
    heading: str
    parts: Sequence[Markup]
    nav: str = ""
    style: str = ""


@dataclass(frozen=True)
class Page:
    """A page with its ``status`` above its ``heading``; ``scripts`` read ``data``, JSON by the id of an element.

    ``stamp`` is the version of a served page, which reloads when its server has another. ``asks``: the page's own
    scripts talk to its server.
    """

    title: str
    status: str
    heading: str
    sections: Sequence[Section]
    scripts: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    stamp: str = ""
    asks: bool = False

    def html(self) -> str:
        """Return the text of the page."""
        return template(
            "page.html.j2", page=self, version=version(), may_load=may_load(served=bool(self.stamp) or self.asks)
        )

    def save(self, out: str | Path) -> Path:
        """Write the page, complete or not at all; missing directories are made."""
        try:
            return write_text(Path(out), self.html(), parents=True)
        except OSError as error:
            raise RunError(f"{out}: cannot be written ({error.strerror}); choose another file") from error


def template(name: str, **context: Any) -> Markup:
    """Fill in a template of this package."""
    return Markup(_templates().get_template(name).render(**context))


def prose(text: str, style: str = "lead") -> Markup:
    """Make a paragraph; text in backticks becomes code."""
    return Markup('<p class="{}">{}</p>').format(style, code(text))


def title(text: str, name: str = "", level: int = 3) -> Markup:
    """Make a heading inside a section; ``name`` is its id."""
    anchor = Markup(' id="{}"').format(name) if name else ""
    return Markup("<h{0}{1}>{2}</h{0}>").format(level, anchor, text)


def bullets(lines: Iterable[str], style: str = "plain") -> Markup:
    """Make a list of sentences; empty if there are none."""
    items = Markup("").join(Markup("<li>{}</li>").format(code(line)) for line in lines)
    return Markup('<ul class="{}">{}</ul>').format(style, items) if items else Markup("")


def block(style: str, *parts: Markup) -> Markup:
    """Group parts in a block of the style sheet's class ``style``."""
    return Markup('<div class="{}">{}</div>').format(style, Markup("").join(parts))


def picture(figure: Figure | None, caption: str | Markup = "", *below: Markup) -> Markup:
    """Show a figure with its caption and what belongs below it; empty if there is neither."""
    if figure is None and not below:
        return Markup("")
    head = Markup("<figcaption>{}</figcaption>").format(caption) if caption else ""
    return Markup("<figure>{}{}{}</figure>").format(head, svg(figure), Markup("").join(below))


def key(series: int, name: str) -> Markup:
    """Show a name with the colour and the marker of its series."""
    return Markup('<span class="key s{} {}"></span>{}').format(series % SERIES, marker(series), name)


def svg(figure: Figure | None) -> Markup:
    """Draw a figure for the page (`besttake.reporting.drawing` escapes every text it draws)."""
    return Markup(figure.svg(PAGE, standalone=False)) if figure is not None else Markup("")


def code(text: str) -> Markup:
    """Escape prose for the page; text in backticks becomes code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def script(value: Any) -> Markup:
    """Write JSON for a ``<script type="application/json">``, which cannot end the element or open a comment.

    A dataclass becomes an object with its fields, bytes become base64.
    """
    text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def asset(name: str) -> Markup:
    """Return a style sheet or script of this package, unescaped."""
    return Markup((files("besttake.reporting") / "templates" / name).read_text(encoding="utf-8"))


def may_load(*, served: bool = False) -> str:
    """Return the page's Content-Security-Policy: nothing from the network, and only the scripts of this package.

    A ``served`` page may talk to its own server.
    """
    templates = files("besttake.reporting") / "templates"
    scripts = [file for file in templates.iterdir() if file.name.endswith(".js")]
    hashes = [hashlib.sha256(asset(file.name).encode()).digest() for file in sorted(scripts, key=lambda f: f.name)]
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    own = "; connect-src 'self'" if served else ""
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
        f" form-action 'none'{own}"
    )


@cache
def _templates() -> Environment:
    """Compile the templates of this package, once for all pages; so no page may store anything here."""
    env = Environment(
        loader=PackageLoader("besttake.reporting", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    env.globals.update(asset=asset)
    env.filters.update(script=script)
    return env


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else asdict(value)
