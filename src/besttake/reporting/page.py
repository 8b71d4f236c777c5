"""What every page shares: the template environment, numbers that carry their place in ``result.json``, safe JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from besttake.errors import RunError
from besttake.files import write_text
from besttake.reporting import numbers
from besttake.reporting.drawing import PAGE, Figure, marker


class Page:
    """Templates over one JSON document. Numbers are written by pointer, so that page and document cannot differ.

    A ``served`` page may ask the server that it came from; any other loads nothing.
    """

    def __init__(self, document: Mapping[str, Any], *, served: bool = False) -> None:
        self._document = document
        own = {"num": self.num, "est": self.est, "served": served, "may_load": partial(may_load, served=served)}
        self._given = {"document": document, **own}

    def save(self, out: str | Path, template: str, **context: Any) -> Path:
        """Write a template of this package whole or not at all, with the directories above it."""
        text = self.render(template, **context)
        try:
            return write_text(Path(out), text, parents=True)
        except OSError as error:
            raise RunError(f"{out}: cannot be written ({error.strerror}); choose another file") from error

    def render(self, template: str, **context: Any) -> str:
        """The text of a template of this package."""
        return _templates().get_template(template).render(**self._given, **context)

    def num(self, pointer: str, style: str = "plain") -> Markup:
        """The number at a JSON pointer; words where there is none."""
        value = self.at(pointer)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return _missing("")
        text = _STYLES[style](float(value))
        return Markup('<span class="num" data-path="{}" data-value="{}" data-style="{}">{}</span>').format(
            pointer, repr(value), style, text
        )

    def est(self, pointer: str, style: str = "plain") -> Markup:
        """The `Estimate` at a JSON pointer with its interval; its reason in words where it has no value."""
        estimate = self.at(pointer)
        if estimate is None or estimate.get("value") is None:
            return _missing((estimate or {}).get("reason") or "")
        value = self.num(f"{pointer}/value", style)
        low, high = estimate.get("low"), estimate.get("high")
        if low is None or high is None:
            return value
        digits, scale = (2, 1) if style == "plain" else (1, 100)
        span = Markup('<span class="ci" data-path="{}" data-low="{}" data-high="{}" data-style="{}">{}</span>').format(
            pointer, repr(low), repr(high), style, numbers.interval(low, high, scale=scale, digits=digits)
        )
        return value + Markup(" ") + span

    def at(self, pointer: str) -> Any:
        """The value at a JSON pointer (RFC 6901)."""
        value: Any = self._document
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if value is None:
                return None
            value = value[int(part)] if isinstance(value, list | tuple) else value.get(part)
        return value


@cache
def _templates() -> Environment:
    """The templates of this package, which are compiled once for all pages; so no page may leave anything in here."""
    env = Environment(
        loader=PackageLoader("besttake.reporting", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    env.globals.update(count=numbers.count, duration=numbers.duration, pointer=pointer, asset=asset, marker=marker)
    env.filters.update(script=script, sentence=numbers.sentence, code=code)
    return env


_STYLES: dict[str, Callable[[float], str]] = {
    "plain": lambda v: numbers.number(v, 2),
    "percent": numbers.percent,
    "points": numbers.points,
    "spread": numbers.spread,
    "count": lambda v: f"{round(v):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
    "fine": lambda v: numbers.number(v, 4),
}


def _missing(reason: str) -> Markup:
    return Markup('<span class="none">{}</span>').format(reason or "not measured")


def asset(name: str) -> Markup:
    """A style sheet or script of this package, as it is (ours, so not escaped)."""
    return Markup((files("besttake.reporting") / "templates" / name).read_text(encoding="utf-8"))


def may_load(*, served: bool = False) -> str:
    """The page's Content-Security-Policy: nothing from the network, and no script but those of this package.

    A ``served`` page may ask its own server for more.
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


def pointer(*parts: str | int) -> str:
    """A JSON pointer: ``pointer("a/b", 0)`` -> "/a~1b/0"."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def script(value: Any) -> Markup:
    """JSON for a ``<script type="application/json">``: nothing in it can end the element or open a comment.

    A dataclass becomes an object with its fields, bytes become base64.
    """
    text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def code(text: str) -> Markup:
    """Prose for the page: escaped, with what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else asdict(value)


def svg(figure: Figure | None) -> Markup:
    """A figure for the page (`besttake.reporting.drawing` escapes every text it draws)."""
    return Markup(figure.svg(PAGE, standalone=False)) if figure is not None else Markup("")
