"""Values of URI options: text in, the thing meant out."""

from __future__ import annotations

from typing import Any

import yaml

from besttake.errors import ComponentError


def value(text: Any) -> Any:
    """``"3"`` -> 3, ``"true"`` -> True, ``"[1, 2]"`` -> [1, 2], ``"reach-v3"`` -> itself (YAML's rules)."""
    if not isinstance(text, str):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def flag(where: str, name: str, text: bool | str) -> bool:
    """A yes or a no."""
    told = value(text)
    if told not in (True, False, 0, 1):
        raise ComponentError(f"{where}: {name} is true or false, not {text!r}")
    return bool(told)


def whole(where: str, name: str, text: Any) -> int:
    """A positive whole number."""
    if not str(text).isdigit() or int(text) < 1:
        raise ComponentError(f"{where}: {name} must be a positive whole number, got {text!r}")
    return int(text)


def optional_whole(where: str, name: str, text: Any) -> int | None:
    """A whole number from zero on, or None where nothing was said."""
    if text is None or text == "":
        return None
    if not str(text).isdigit():
        raise ComponentError(f"{where}: {name} must be a whole number, got {text!r}")
    return int(text)


def dims(where: str, name: str, text: str | None) -> tuple[int, ...] | None:
    """``"0,1,2"`` -> (0, 1, 2); None where nothing was said."""
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ComponentError(f"{where}: {name} is a list of whole numbers with commas, got {text!r}") from None
