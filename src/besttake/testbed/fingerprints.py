"""Fingerprints of code and values, which identify a world, a demonstration or a weights file by what made it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Callable
from threading import Lock
from types import ModuleType
from typing import Any

# Python 3.11 counts the depth of its parser for all threads together, so that two at a time can raise SystemError.
_PARSER_LOCK = Lock()


def fingerprint(*values: Any, code: tuple[ModuleType | Callable[..., Any], ...] = ()) -> str:
    """A short hash of ``values`` (JSON) and of ``code`` without its comments and docstrings."""
    parts = [list(values), [without_comments(inspect.getsource(part)) for part in code]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def without_comments(source: str) -> str:
    """``source`` without docstrings, comment lines and blank lines, so that these may change."""
    lines = source.splitlines()
    with _PARSER_LOCK:
        tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
