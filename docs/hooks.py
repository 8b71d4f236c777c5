"""Hooks of the documentation site: links that leave docs/ lead to the repository; the commands document themselves."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from typer.main import get_command

from besttake.cli.main import app, plain_metavar, without_range

COMMANDS = "<!-- every command, made by docs/hooks.py -->"
_LINK = re.compile(r"(\]\(|src=\")((?:\.\./)+[^)\s\"]+)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Point links that leave docs/ at the repository, and fill in the reference of the command line."""
    place = posixpath.dirname(page.file.src_uri)

    def outside(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", place, match[2]))
        if target.startswith("docs/"):
            return match[0]
        kind = "blob" if "." in posixpath.basename(target) or target == "LICENSE" else "tree"
        return f"{match[1]}{config.repo_url}/{kind}/main/{target}"

    text = _LINK.sub(outside, markdown)
    return text.replace(COMMANDS, "\n".join(_commands("besttake", get_command(app)))) if COMMANDS in text else text


def on_post_page(output: str, **_: Any) -> str:
    """Keep the link to the repository, but let no reader's browser ask its host for stars: the site loads only itself."""
    return output.replace(' data-md-component="source"', "")


def _commands(name: str, command: Any) -> list[str]:
    """A command as Markdown, then those below it."""
    context = command.make_context(name, [], resilient_parsing=True)
    if hasattr(command, "list_commands"):
        lines = [] if name == "besttake" else [f"## {name}", "", _prose(command.help), ""]
        below = {child: command.get_command(context, child) for child in command.list_commands(context)}
        return lines + [
            line for child, one in below.items() if not one.hidden for line in _commands(f"{name} {child}", one)
        ]
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {name}", "", "```", f"{name} {usage}", "```", "", _prose(command.help), ""]
    rows = [record for option in command.params if (record := option.get_help_record(context))]
    if rows:
        lines += ["| option | meaning |", "| --- | --- |"]
        for flags, text in rows:
            meaning = _cell(without_range(text)).replace("<", "&lt;")
            lines.append(f"| `{' '.join(plain_metavar(flags).split())}` | {meaning} |")
    return [*lines, ""]


def _prose(text: str | None) -> str:
    """Help as Markdown: paragraphs with indented lines are examples and keep their lines."""
    parts = []
    for part in (text or "").split("\n\n"):
        kept = part.replace("\b\n", "")
        parts.append(f"```\n{kept}\n```" if part.startswith("\b") or "\n  " in kept or kept.startswith("  ") else kept)
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    """Text for a cell of a table: one line, and no bar that would end the cell."""
    return " ".join(text.split()).replace("|", "\\|")
