"""Reading the options of URIs: text in, typed values out, and one style of error for all families.

>>> read = Reader("libero:spatial")
>>> read.whole("size", "256")
256
>>> read.choice("convention", "odd", ("lerobot", "openpi"))
Traceback (most recent call last):
besttake.errors.ComponentError: libero:spatial: convention=odd is not one of lerobot, openpi
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from besttake.errors import ComponentError

_LONGEST = 200
_ALIAS = re.compile("[&*]")
"""An option that is longer, or has aliases, stays text, because YAML aliases can grow without bound."""

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True)
class Reader:
    """Reads the options of the component ``uri``, which begins every error message."""

    uri: str

    def whole(self, name: str, text: Any, least: int = 1, most: int | None = None) -> int:
        """Read a whole number from ``least`` to ``most``."""
        digits = str(text)
        if (
            not digits.isdecimal()
            or len(digits) > 18
            or int(digits) < least
            or (most is not None and int(digits) > most)
        ):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise self._wrong(name, text, f"a whole number {limits}")
        return int(digits)

    def optional_whole(self, name: str, text: Any, least: int = 1, most: int | None = None) -> int | None:
        """Read a whole number; None if the option is not given."""
        return None if text in (None, "") else self.whole(name, text, least, most)

    def number(self, name: str, text: Any, least: float | None = None) -> float:
        """Read a finite or infinite number of at least ``least``."""
        try:
            number = float(text)
        except (TypeError, ValueError):
            raise self._wrong(name, text, "a number") from None
        if least is not None and not number >= least:
            raise self._wrong(name, text, f"a number of at least {least:g}")
        return number

    def flag(self, name: str, text: Any) -> bool:
        """Read ``true`` or ``false``, also written as 1, 0, yes or no."""
        flag = value(text)
        if flag not in (True, False):
            raise self._wrong(name, text, "true or false")
        return bool(flag)

    def choice(self, name: str, text: str, known: Collection[Choice]) -> Choice:
        """Read one of the ``known`` words."""
        for word in known:
            if text == word:
                return word
        raise self._wrong(name, text, f"one of {', '.join(known)}")

    def indexes(self, name: str, text: str | None) -> tuple[int, ...]:
        """Read ``"0:3,7"`` as (0, 1, 2, 7); empty if the option is not given."""
        indexes: list[int] = []
        for part in names(text):
            if not re.fullmatch(r"\d{1,5}(:\d{1,5})?", part, re.ASCII):
                raise self._wrong(name, text, "a list of indexes such as 0:3,7")
            first, _, end = part.partition(":")
            indexes += range(int(first), int(end or int(first) + 1))
        return tuple(indexes)

    def mapping(self, name: str, text: str) -> dict[str, str]:
        """Read ``"observation/image:agentview,observation/wrist:wrist"`` as a dict; only keys may have colons."""
        pairs = [pair.rpartition(":") for pair in names(text)]
        if any(not key or not word for key, _, word in pairs):
            raise self._wrong(name, text, "a list of pairs such as image:agentview,image2:wrist")
        return {key: word for key, _, word in pairs}

    def only(self, options: Collection[str], known: Collection[str]) -> None:
        """ComponentError if an option is not ``known``."""
        if unknown := [name for name in options if name not in known]:
            raise ComponentError(f"{self.uri}: no option {', '.join(unknown)}; known: {', '.join(known) or 'none'}")

    def _wrong(self, name: str, text: Any, expected: str) -> ComponentError:
        return ComponentError(f"{self.uri}: {name}={text} is not {expected}")


def value(text: Any) -> Any:
    """``"3"`` -> 3, ``"true"`` -> True, ``"[1, 2]"`` -> [1, 2], ``"reach-v3"`` -> itself (YAML's rules)."""
    if not isinstance(text, str):
        return text
    try:
        return yaml.safe_load(text) if len(text) <= _LONGEST and not _ALIAS.search(text) else text
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def names(text: str | None) -> tuple[str, ...]:
    """``"a,b"`` -> ("a", "b"); empty if nothing is given."""
    return tuple(part for part in (text or "").split(",") if part)


def check_known(uri: str, factory: Callable[..., Any], options: Collection[str]) -> None:
    """ComponentError if ``factory`` has no parameter for one of ``options``."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return  # compiled code need not have a signature
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    Reader(uri).only(options, [each.name for each in parameters])
