"""The one builder of pages: a title, a status line and sections of prose, tables and figures, in one file.

A page loads nothing from the network and runs no script but those of this package. Everything shown is escaped: parts
are `Markup`, made by the functions here from plain text, by `Table.section`, or by `svg`.
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
    """A part of a page: its name in addresses, a heading, its parts, and what the navigation calls it.

    ``style``: "wide", or "folded" under its heading.
    """

    name: str
    heading: str
    parts: Sequence[Markup]
    nav: str = ""
    style: str = ""


@dataclass(frozen=True)
class Page:
    """A page: ``status`` stands above its ``heading``. ``scripts`` run on ``data``, JSON by the id of its element.

    ``stamp``: what a served page shows; it is loaded again when its server has another one. ``asks``: its own scripts
    talk to its server.
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
        """The text of the page."""
        return template(
            "page.html.j2", page=self, version=version(), may_load=may_load(served=bool(self.stamp) or self.asks)
        )

    def save(self, out: str | Path) -> Path:
        """Write the page whole or not at all, with the directories above it."""
        try:
            return write_text(Path(out), self.html(), parents=True)
        except OSError as error:
            raise RunError(f"{out}: cannot be written ({error.strerror}); choose another file") from error


def template(name: str, **context: Any) -> Markup:
    """A template of this package, filled in."""
    return Markup(_templates().get_template(name).render(**context))


def prose(text: str, style: str = "lead") -> Markup:
    """A paragraph, with what stands in backticks as code."""
    return Markup('<p class="{}">{}</p>').format(style, code(text))


def title(text: str, name: str = "", level: int = 3) -> Markup:
    """A heading inside a section."""
    own = Markup(' id="{}"').format(name) if name else ""
    return Markup("<h{0}{1}>{2}</h{0}>").format(level, own, text)


def bullets(lines: Iterable[str], style: str = "plain") -> Markup:
    """A list of sentences; none where there are none."""
    items = Markup("").join(Markup("<li>{}</li>").format(code(line)) for line in lines)
    return Markup('<ul class="{}">{}</ul>').format(style, items) if items else Markup("")


def block(style: str, *parts: Markup) -> Markup:
    """Parts laid out together, as the style sheet says for ``style``."""
    return Markup('<div class="{}">{}</div>').format(style, Markup("").join(parts))


def picture(figure: Figure | None, caption: str | Markup = "", *below: Markup, style: str = "") -> Markup:
    """A figure with its caption, and what belongs below it; nothing where there is none of it."""
    if figure is None and not below:
        return Markup("")
    head = Markup("<figcaption>{}</figcaption>").format(caption) if caption else ""
    own = Markup(' class="{}"').format(style) if style else ""
    return Markup("<figure{}>{}{}{}</figure>").format(own, head, svg(figure), Markup("").join(below))


def key(series: int, name: str) -> Markup:
    """A name with the colour and the marker of its series."""
    return Markup('<span class="key s{} {}"></span>{}').format(series % SERIES, marker(series), name)


def svg(figure: Figure | None) -> Markup:
    """A figure for the page (`besttake.reporting.drawing` escapes every text it draws)."""
    return Markup(figure.svg(PAGE, standalone=False)) if figure is not None else Markup("")


def code(text: str) -> Markup:
    """Prose for the page: escaped, with what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def script(value: Any) -> Markup:
    """JSON for a ``<script type="application/json">``: nothing in it can end the element or open a comment.

    A dataclass becomes an object with its fields, bytes become base64.
    """
    text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def asset(name: str) -> Markup:
    """A style sheet or script of this package, as it is (ours, so not escaped)."""
    return Markup((files("besttake.reporting") / "templates" / name).read_text(encoding="utf-8"))


def may_load(*, served: bool = False) -> str:
    """The page's Content-Security-Policy: nothing from the network, and no script but those of this package.

    A ``served`` page may ask its own server whether there is something new.
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
    """The templates of this package, which are compiled once for all pages; so no page may leave anything in here."""
    env = Environment(
        loader=PackageLoader("besttake.reporting", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    env.globals.update(asset=asset)
    env.filters.update(script=script)
    return env


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else asdict(value)
