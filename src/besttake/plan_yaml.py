"""YAML that anyone may have written, as plans are: bounded, without code, and read as people mean it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from besttake.errors import PlanError, one_line
from besttake.files import read_regular

_MOST_BYTES = 1 << 20


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 20:40 as a number of base 60 and 2001-02-03 as a date; here both stay text."""


_LEFT_TEXT = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_TEXT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))


def bounded_yaml(path: Path) -> Any:
    """The value of a YAML file that anyone may have written; raises whatever PyYAML's constructors do."""
    return yaml.load(read_regular(path, _MOST_BYTES).decode("utf-8"), Loader=_Loader)


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a plan file; PlanError where it has none that can be read."""
    try:
        loaded = bounded_yaml(path)
    except OSError as error:
        raise PlanError(f"{error.strerror}; name a plan file") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = f" at line {mark.line + 1}" if mark else ""
        reason = f" ({problem[:80]})" if problem else ""
        raise PlanError(f"not valid YAML{place}{reason}; docs/plan.md shows an example") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        # PyYAML's constructors let these escape, e.g. for `!!bool maybe` or an integer of 5000 digits.
        raise PlanError(f"it holds a value that cannot be read ({one_line(error, 100)}); see docs/plan.md") from error
    if not isinstance(loaded, dict):
        raise PlanError(f"a plan is a mapping of keys to values, this is a {type(loaded).__name__}")
    return {str(key).replace("-", "_"): value for key, value in loaded.items()}
