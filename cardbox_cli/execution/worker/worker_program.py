"""What the commands of a worker get of its own environment: a short list, and what the operator names.

Never the address of the database or of NATS, or a provider's key, unless somebody names its variable.
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
from cardbox_cli.execution.worker.command_processes import Heard
from cardbox_cli.execution.worker.model_clients import Clients
from cardbox_cli.execution.worker.step_answers import AnswerMode, AnswerRules
from cardbox_cli.model.identity import Tool
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.settings import MAX_STEPS, MAX_TOOL_CALLS, STDERR_KEPT, TURN_TIME

PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")


def passed_on(names: Collection[str] = (), environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that are passed on, as far as they are set: those of the list, and those of `names`."""
    return {name: environ[name] for name in (*PASSED_ON, *names) if name in environ}


# Which command answers the calls of a tool: the worker's own, or the stored one where that is trusted.
#
# A stored command is a row that others can write: it is obeyed only where the operator says so. Pure.


class ToolCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command, how many seconds it may take (None: what the tool or the worker says), and what its
    environment has besides that of every command.

    `checks_arguments`: it gets only arguments that fit the tool's stored schema.
    """

    command: str
    timeout: float | None = None
    environment: Mapping[str, str] = {}
    checks_arguments: bool = False


class ToolCommands(msgspec.Struct, frozen=True):
    """The worker's own commands, by the names of tools, and whether stored ones are obeyed beside them."""

    own: Mapping[str, ToolCommand] = {}
    trusts_stored: bool = False

    def of(self, tool: Tool) -> ToolCommand | None:
        """What answers a call of the tool here; None where somebody has to report the result."""
        own = self.own.get(tool.tool_name)
        if own is not None or not self.trusts_stored or tool.command is None:
            return own
        return ToolCommand(command=tool.command)


def mismatch(value: Any, schema: Any, place: str = "the arguments") -> str | None:
    """Why a JSON value does not fit a schema: its types, enums, required and further properties.

    Other keywords of JSON Schema are the tool's own to check. None where it fits, and for what is no schema.
    """
    if not isinstance(schema, dict):
        return None
    kinds = schema.get("type")
    named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if named and not any(_is_of(value, kind) for kind in named):
        return f"{place}: not of type {' or '.join(map(str, named))}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"{place}: none of the values that the schema lists"
    if isinstance(value, dict):
        return _mismatch_of_object(value, schema, place)
    if isinstance(value, list):
        found = (mismatch(item, schema.get("items"), f"{place}[{i}]") for i, item in enumerate(value))
        return next((each for each in found if each), None)
    return None


def _mismatch_of_object(value: dict[str, Any], schema: dict[str, Any], place: str) -> str | None:
    properties = schema.get("properties")
    known: dict[str, Any] = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            return f"{place}: {name!r} is missing"
    for name, item in value.items():
        if name not in known and schema.get("additionalProperties") is False:
            return f"{place}: {name[:80]!r} is no property of the schema"
        found = mismatch(item, known.get(name), f"{place}.{name[:80]}")
        if found:
            return found
    return None


_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}


def _is_of(value: Any, kind: Any) -> bool:
    if kind in ("number", "integer"):
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        return is_number and (kind == "number" or _is_whole(value))
    return isinstance(value, _KINDS[kind]) if isinstance(kind, str) and kind in _KINDS else True


def _is_whole(value: float | Decimal) -> bool:
    # Of numbers of any size: a remainder of a large Decimal cannot be had.
    return value == value.to_integral_value() if isinstance(value, Decimal) else value % 1 == 0


# What a worker runs turns by: the model's command, the tools' commands, and their limits.
#
# Owns what the dispatch of a turn may change of them.


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What answers for the model: a command, the format that it reads, how requests are composed for it, and
    its limits, time in seconds: `timeout` for each call of it, `turn_time` for the run of a turn. The format
    may be one that nobody named.

    `answers` says how its output is read, `max_tool_calls` how many tools one answer may call, `tools` what
    answers these. `environment` is all that its commands get besides what the turn sets, `stderr_kept` how
    many bytes of each command's stderr are kept. `listen` is asked, for each call of the command, what shall
    hear what it prints as it comes. Where there are `clients`, they answer in the command's stead.
    """

    command: str
    format: str = DEFAULT
    format_named: bool = True
    options: ComposeOptions = DEFAULT_OPTIONS
    timeout: float = 600
    max_steps: int = MAX_STEPS.default
    stderr_kept: int = STDERR_KEPT.default
    environment: Mapping[str, str] = msgspec.field(default_factory=passed_on)
    answers: AnswerMode = "auto"
    max_tool_calls: int = MAX_TOOL_CALLS.default
    turn_time: float = TURN_TIME.default
    tools: ToolCommands = ToolCommands()
    clients: Clients | None = None
    listen: Callable[[], Heard] = lambda: lambda piece: None

    @property
    def answer_rules(self) -> AnswerRules:
        """How the output of its command is read."""
        return AnswerRules(mode=self.answers, format=self.format, most_calls=self.max_tool_calls)

    def for_turn(self, config: Mapping[str, Any]) -> "Program":
        """The program as the dispatch of a turn wants it: another model, timeout or number of steps."""
        known = {name: config[name] for name in _Config.__struct_fields__ if name in config}
        try:
            wanted = msgspec.convert(known, _Config)
        except msgspec.ValidationError as exc:
            raise InvalidInput(f"the turn's runtime_config is invalid: {exc}") from exc
        return msgspec.structs.replace(
            self,
            options=msgspec.structs.replace(self.options, model=wanted.model or self.options.model),
            timeout=wanted.timeout or self.timeout,
            max_steps=wanted.max_steps or self.max_steps,
        )


class _Config(msgspec.Struct):
    model: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_steps: Annotated[int, msgspec.Meta(ge=MAX_STEPS.lower, le=MAX_STEPS.upper)] | None = None


# Whether the program of a command line is there at all, asked before anything is run by it.


# What may stand between the words of a command line that fails where its first program is missing.
_HARMLESS = frozenset({"|", "&&", "<", ">", ">>", ">&", "<&", "<<"})
# A word that means itself: nothing in it is expanded or assigned, and it is no number of a redirection.
_PLAIN = re.compile(r"(?!\d+$)[\w./+@%,:-][\w./+@%,: -]*")


def missing_program(command: str, environment: Mapping[str, str]) -> str | None:
    """The first word of a command line where `sh` certainly finds no such program; else None.

    `environment` is all that it will have.

    Lists of commands, functions, and words that the shell would expand are left to it.
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
    marks = {word for word in words if not word.strip(";&|()<>\n`")}
    return words[0] if words and marks <= _HARMLESS and _PLAIN.fullmatch(words[0]) else None
