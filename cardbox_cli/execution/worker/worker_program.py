"""The program of a worker: the commands of the model and the tools, their environment and their limits.

Commands get only a short list of the worker's environment variables. They get the address of the database or
a provider's key only if the operator names the variable. The database may store commands of tools, which any
program with access can write. The worker runs them only if the operator trusts them.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from cardbox_cli.context.request import DEFAULT_OPTIONS, ComposeOptions
from cardbox_cli.errors import InvalidInput
from cardbox_cli.execution.worker.command_processes import OutputHandler
from cardbox_cli.execution.worker.model_clients import ModelClients
from cardbox_cli.execution.worker.step_answers import AnswerMode
from cardbox_cli.model.identity import Tool
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.settings import MAX_STEPS, MAX_TOOL_CALLS, STDERR_KEPT, TURN_TIME

INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")


def command_environment(
    names: Collection[str] = (), environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables that commands get: the default ones and `names`, if they are set."""
    return {name: environ[name] for name in (*INHERITED_VARIABLES, *names) if name in environ}


class ToolCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The command of a tool, its time limit in seconds, and its additional environment variables.

    If `timeout` is None, the limit of the tool or the worker applies. With `checks_arguments`, the command
    runs only if the arguments match the tool's stored schema.
    """

    command: str
    timeout: float | None = None
    environment: Mapping[str, str] = {}
    checks_arguments: bool = False


class ToolCommands(msgspec.Struct, frozen=True):
    """The worker's own commands by tool name, and whether it also runs commands from the database."""

    own: Mapping[str, ToolCommand] = {}
    trusts_stored: bool = False

    def find(self, tool: Tool) -> ToolCommand | None:
        """Return the command that answers calls of the tool, or None if a report must answer them."""
        own = self.own.get(tool.tool_name)
        if own is not None or not self.trusts_stored or tool.command is None:
            return own
        return ToolCommand(command=tool.command)


def schema_mismatch(value: Any, schema: Any, path: str = "the arguments") -> str | None:
    """Return a sentence if a JSON value does not match a schema, or None. An invalid schema allows any value.

    Checks only types, enums, required and additional properties. The tool must check all other keywords.
    """
    if not isinstance(schema, dict):
        return None
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    if names and not any(_has_type(value, name) for name in names):
        return f"{path}: not of type {' or '.join(map(str, names))}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"{path}: not one of the values in the schema"
    if isinstance(value, dict):
        return _object_mismatch(value, schema, path)
    if isinstance(value, list):
        faults = (schema_mismatch(item, schema.get("items"), f"{path}[{i}]") for i, item in enumerate(value))
        return next(filter(None, faults), None)
    return None


def _object_mismatch(value: dict[str, Any], schema: dict[str, Any], path: str) -> str | None:
    properties = schema.get("properties")
    known: dict[str, Any] = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            return f"{path}: {name!r} is missing"
    for name, item in value.items():
        if name not in known and schema.get("additionalProperties") is False:
            return f"{path}: {name[:80]!r} is not a property of the schema"
        if fault := schema_mismatch(item, known.get(name), f"{path}.{name[:80]}"):
            return fault
    return None


_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def _has_type(value: Any, type_name: Any) -> bool:
    if type_name in ("number", "integer"):
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        return is_number and (type_name == "number" or _is_whole(value))
    return not isinstance(type_name, str) or isinstance(value, _TYPES.get(type_name, object))


def _is_whole(value: float | Decimal) -> bool:
    # `%` fails for a large Decimal.
    return value == value.to_integral_value() if isinstance(value, Decimal) else value % 1 == 0


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The model's command with its request format, compose options and limits.

    `timeout` limits each run of the command, and `turn_time` limits a turn, in seconds. `format_named` is
    False if the format is only a default. `answers` is the mode for reading the output. `max_tool_calls`
    limits the calls in one answer. `environment` is the environment of all commands, without the variables of
    the turn. `stderr_kept` is the number of stderr bytes to store per command. `listen` is called for each
    run, and returns a function that gets the output as it arrives. If given, `clients` replace the command.
    """

    command: str
    format: str = DEFAULT
    format_named: bool = True
    options: ComposeOptions = DEFAULT_OPTIONS
    timeout: float = 600
    max_steps: int = MAX_STEPS.default
    stderr_kept: int = STDERR_KEPT.default
    environment: Mapping[str, str] = msgspec.field(default_factory=command_environment)
    answers: AnswerMode = "auto"
    max_tool_calls: int = MAX_TOOL_CALLS.default
    turn_time: float = TURN_TIME.default
    tools: ToolCommands = ToolCommands()
    clients: ModelClients | None = None
    listen: Callable[[], OutputHandler] = lambda: lambda piece: None

    def configure(self, config: Mapping[str, Any]) -> "Program":
        """Return the program with the model, timeout and step limit that a turn's runtime config sets."""
        known = {name: config[name] for name in _Config.__struct_fields__ if name in config}
        try:
            limits = msgspec.convert(known, _Config)
        except msgspec.ValidationError as exc:
            raise InvalidInput(f"the turn's runtime_config is invalid: {exc}") from exc
        return msgspec.structs.replace(
            self,
            options=msgspec.structs.replace(self.options, model=limits.model or self.options.model),
            timeout=limits.timeout or self.timeout,
            max_steps=limits.max_steps or self.max_steps,
        )


class _Config(msgspec.Struct):
    model: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_steps: Annotated[int, msgspec.Meta(ge=MAX_STEPS.lower, le=MAX_STEPS.upper)] | None = None


# A command line with only these operators fails if its first program is missing.
_SAFE_OPERATORS = frozenset({"|", "&&", "<", ">", ">>", ">&", "<&", "<<"})
# A word that the shell neither expands nor assigns, and that is not the number of a redirection.
_LITERAL_WORD = re.compile(r"(?!\d+$)[\w./+@%,:-][\w./+@%,: -]*")


def missing_program(command: str, environment: Mapping[str, str]) -> str | None:
    """Return the first word of a command line if `sh` certainly cannot find that program, or None.

    `environment` is the whole environment of `sh`. Lists of commands, functions, and words that the shell
    would expand are not checked.
    """
    word = _first_word(command)
    if word is None:
        return None
    if "/" in word:
        return None if os.path.isfile(word) and os.access(word, os.X_OK) else word
    known = subprocess.run(
        ["/bin/sh", "-c", 'command -v "$1"', "cbx", word],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return None if known.returncode == 0 else word


def _first_word(command: str) -> str | None:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()<>\n`")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    operators = {word for word in words if not word.strip(";&|()<>\n`")}
    return words[0] if words and operators <= _SAFE_OPERATORS and _LITERAL_WORD.fullmatch(words[0]) else None
