"""How ``--help`` looks: commands and options in named groups, whole sentences, and plain names of values.

typer keeps the group of an option or a command as its ``rich_help_panel``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

WORDS = "https://github.com/besttake/besttake/blob/main/docs/concepts.md#words"
_VALUES = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT", "path": "PATH", "bool": ""}


class Command(TyperCommand):
    """A command whose help has its options in groups."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments by their plain names: ``RUN``, where typer writes ``{RUN}``."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then each group of options."""
        _write_parameters(self, ctx, formatter)


class Group(TyperGroup):
    """Commands in groups, each with its whole first sentence."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The groups of commands, then the options."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        records = [(_group(command, "Commands"), (name, _first_sentence(command))) for name, command in commands]
        _write(formatter, records)
        _write_parameters(self, ctx, formatter)


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    records = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            argument = parameter.param_type_name == "argument"
            name, text = (record[0].partition(" <")[0] if argument else plain(record[0])), without_range(record[1])
            records.append((_group(parameter, "Arguments" if argument else "Options"), (name, text)))
    _write(formatter, records)


def _write(formatter: Any, records: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """A section for each group, in the order in which the groups first come up; "Options" last."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for group, record in records:
        groups.setdefault(group, []).append(record)
    for group in sorted(groups, key="Options".__eq__):
        with formatter.section(group):
            formatter.write_dl(groups[group], col_max=28)


def _group(thing: Any, default: str) -> str:
    own = getattr(thing, "rich_help_panel", None)
    return own if isinstance(own, str) else default


def plain(record: str) -> str:
    """``--seeds <int range>`` -> ``--seeds N``."""
    return re.sub(r"<(?:list\[)?([\w ]+)\]?>", lambda match: _VALUES.get(match[1], match[1].upper()), record)


def without_range(text: str) -> str:
    """``[default: 8; x>=1]`` -> ``[default: 8]``: the error for a number out of range names the range."""
    return re.sub(r"(?:\s*\[|; )[-\d.]*(?:<=?)?x[<>]=?[-\d.]+\]", lambda match: "]" if match[0][0] == ";" else "", text)


def _first_sentence(command: Any) -> str:
    """What a command is for: the beginning of its help, its first sentence."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.?])\s", paragraph)[0].removesuffix(".")
