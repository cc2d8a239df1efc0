"""The commands of tools that `cbx worker run` is given by a file."""

from typing import Annotated, Any

import msgspec

from cardbox_cli.cli.parameters.command_environment import check_named, variables
from cardbox_cli.cli.parameters.inputs import read_text, source_name
from cardbox_cli.errors import InvalidInput
from cardbox_cli.execution.worker.commands.tool_commands import ToolCommand
from cardbox_cli.store.connection.target import Target

_EXAMPLE = "for example `lookup: {command: python3 lookup.py, timeout: 20, environment: [SHOP_KEY]}`"


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(pattern=r"\S")]
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    environment: list[str] = []


def read_tool_commands(path: str, target: Target) -> dict[str, ToolCommand]:
    """The commands of a --tools file, by tool. Raises InvalidInput naming the file and the entry."""
    environ = variables(target)
    return {name: _command(name, entry, environ) for name, entry in _entries(path).items()}


def _entries(path: str) -> dict[str, Any]:
    from cardbox_cli.model.handwritten.documents import refusal
    from cardbox_cli.model.handwritten.yaml_files import read_yaml

    document = read_yaml(read_text(path), source_name(path))
    if document.problems:
        raise refusal(InvalidInput, document.source, document.problems)
    if not isinstance(document.value, dict):
        raise InvalidInput(f"--tools: {document.source} must be a mapping of tools", hint=_EXAMPLE)
    return document.value


def _command(name: str, entry: Any, environ: dict[str, str]) -> ToolCommand:
    place = f"--tools: {name!r}"
    try:
        read = msgspec.convert({"command": entry} if isinstance(entry, str) else entry, _Entry)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"{place}: {exc}", hint=_EXAMPLE) from exc
    for variable in read.environment:
        check_named(place, variable, environ)
    return ToolCommand(
        command=read.command,
        timeout=read.timeout,
        environment={variable: environ[variable] for variable in read.environment},
        checks_arguments=True,
    )
