"""Every command, option and argument that users can type, compared with `command_tree.txt`.

`python -m tests.cli.test_command_tree --write` writes the file again. A line that a change removes from it is a
command, an option or an argument that users lose.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from cardbox_cli.cli.command_table import root

FILE = Path(__file__).with_name("command_tree.txt")
# Stands for the options that every command takes; the first line of the file lists them.
COMMON = "common options"


def command_tree() -> str:
    """Return a line for each command, followed by a line for each of its parameters."""
    top = root()
    common = {name(parameter) for parameter in top.params if parameter.name != "version"}
    lines = [f"{COMMON}: {', '.join(sorted(common))}"]
    for path, command in walk(top, "cbx"):
        own = [(name(parameter), traits(parameter)) for parameter in command.params]
        lines.append(f"{path}{f' ({COMMON})' if common <= dict(own).keys() else ''}")
        lines += [f"    {each} {marks}".rstrip() for each, marks in own if each not in common]
    return "\n".join([*lines, ""])


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all commands below it, each with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            child = command.get_command(context, verb)
            assert child is not None
            yield from walk(child, f"{path} {verb}")


def name(parameter: click.Parameter) -> str:
    """Return all names of an option. The name of an argument is never typed."""
    if isinstance(parameter, click.Option):
        return " ".join([*sorted(parameter.opts), *sorted(parameter.secondary_opts)])
    return "argument"


def traits(parameter: click.Parameter) -> str:
    """Return what decides how a parameter is typed: flag, required, repeatable."""
    found = {
        "flag": getattr(parameter, "is_flag", False),
        "required": parameter.required,
        "repeatable": parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs != 1,
    }
    return f"({', '.join(each for each, is_so in found.items() if is_so)})" if any(found.values()) else ""


def test_no_command_option_or_argument_is_lost() -> None:
    assert command_tree() == FILE.read_text(encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        FILE.write_text(command_tree(), encoding="utf-8")
    else:
        sys.stdout.write(command_tree())
