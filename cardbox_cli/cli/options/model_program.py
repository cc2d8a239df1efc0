"""The model command: its options, its environment and its tools."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from typer import Option

from cardbox_cli.cli.options.input_files import read_mapping
from cardbox_cli.cli.options.value_types import FILE, REQUEST_FORMAT, OneOf, Seconds
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.execution.worker.worker_program import INHERITED_VARIABLES, command_environment
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.settings import DATABASE_URL, HOME, MAX_STEPS, Settings
from cardbox_cli.text.error_messages import conflict_message, invalid_message, unknown_message

if TYPE_CHECKING:
    from cardbox_cli.context.request import ComposeOptions
    from cardbox_cli.execution.worker.step_answers import AnswerMode
    from cardbox_cli.execution.worker.worker_program import Program, ToolCommand
    from cardbox_cli.store.connection.target import Target


# The same modes as in `execution/worker/step_answers`, which is imported only when needed.
ANSWER_MODES = ("auto", "response", "text", "cards")

_ANSWERS, _ENVIRONMENT = "Requests and answers", "Environment and tools"

Exec = Annotated[
    str,
    Option("--exec", metavar="CMD", help="Your model command: reads a request on stdin, prints the answer."),
]
RequestFormat = Annotated[
    str | None,
    Option(
        "--format",
        click_type=REQUEST_FORMAT,
        rich_help_panel=_ANSWERS,
        help=f"The format of requests, as in `cbx render`. Default: {DEFAULT}.",
    ),
]
CommandTimeout = Annotated[
    float, Option("--timeout", click_type=Seconds(min=0.1), help="Time limit of one call of the command.")
]
MaxSteps = Annotated[
    int | None,
    Option(
        "--max-steps",
        metavar="N",
        help=f"{MAX_STEPS.help} Default: {MAX_STEPS.name}, or {MAX_STEPS.default}.",
    ),
]
AnswersRead = Annotated[
    str,
    Option(
        "--answers",
        click_type=OneOf(lambda: ANSWER_MODES, what="mode"),
        rich_help_panel=_ANSWERS,
        help="The form of the output: a provider's response (response), text, or JSON lines of cards. auto "
        "detects a response, and treats other output as text.",
    ),
]
Variables = Annotated[
    list[str] | None,
    Option(
        "--env",
        metavar="NAME",
        rich_help_panel=_ENVIRONMENT,
        help="Pass this environment variable to the command, for example OPENAI_API_KEY. Repeatable. By "
        f"default, only {', '.join(INHERITED_VARIABLES)} are passed.",
    ),
]
ToolsFile = Annotated[
    str | None,
    Option(
        "--tools",
        click_type=FILE,
        rich_help_panel=_ENVIRONMENT,
        help="A YAML file with commands of tools. They override stored commands.",
    ),
]
TrustStored = Annotated[
    bool,
    Option(
        "--trust-stored-commands",
        rich_help_panel=_ENVIRONMENT,
        help="Allow tool commands stored in the database (always allowed on your own embedded server).",
    ),
]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXAMPLE = "for example `lookup: {command: python3 lookup.py, timeout: 20, environment: [SHOP_KEY]}`"


def check_command(command: str, option: str = "--exec") -> None:
    if not command.strip():
        raise UsageError(f"{option} is empty", hint=f"for example {option} 'python3 client.py'")


def one_command(exec_: str | None, serve: str | None, restart_after: int | None) -> tuple[str, str]:
    """Return the name and command of the one given option. Raises UsageError unless exactly one is given."""
    if exec_ is not None and serve is not None:
        raise UsageError(conflict_message("--exec", "--serve"), hint="remove one of them")
    if restart_after is not None and serve is None:
        raise UsageError("--restart-after requires --serve", hint="add --serve, or remove --restart-after")
    if serve is not None:
        check_command(serve, "--serve")
        return "--serve", serve
    if exec_ is None:
        raise UsageError(
            "no model command given",
            hint="pass --exec 'python3 client.py', or --serve CMD for a long-running client",
        )
    check_command(exec_)
    return "--exec", exec_


@contextmanager
def keep_running(program: "Program", restart_after: int | None) -> "Iterator[Program]":
    """Yield the program with long-running clients of its command, which end with the context."""
    from cardbox_cli.execution.worker.command_output import bytes_to_read
    from cardbox_cli.execution.worker.model_clients import ModelClients

    clients = ModelClients(
        program.command,
        program.environment,
        requests=restart_after,
        keep_stderr=bytes_to_read(program.stderr_kept),
    )
    with closing(clients):
        yield msgspec.structs.replace(program, clients=clients)


def make_program(
    command: str,
    target: "Target",
    settings: Settings,
    *,
    option: str = "--exec",
    format: str | None,
    answers: str,
    options: "ComposeOptions",
    timeout: float,
    environment: Mapping[str, str],
    tools: str | None,
    trusts_stored: bool,
) -> "Program":
    """Return the program of these options. `option` names the command in messages.

    Raises UsageError for an unknown program, and InvalidInput for the file of --tools.
    """
    from cardbox_cli.execution.worker.worker_program import Program, ToolCommands, missing_program

    program = Program(
        command=command,
        format=format or DEFAULT,
        format_named=format is not None,
        options=options,
        timeout=timeout,
        max_steps=settings.max_steps,
        stderr_kept=settings.stderr_kept,
        environment=environment,
        answers=cast("AnswerMode", answers),
        max_tool_calls=settings.max_tool_calls,
        turn_time=settings.turn_time,
        tools=ToolCommands(
            {} if tools is None else read_tool_commands(tools, target),
            trusts_stored=target.is_ours_alone or trusts_stored,
        ),
    )
    missing = missing_program(program.command, program.environment)
    if missing is not None:
        raise UsageError(f"{option}: {unknown_message('program', missing)}", hint="check the name and PATH")
    return program


def environment_of(names: Sequence[str], target: "Target") -> dict[str, str]:
    """Return the environment of all commands: the usual variables and those in `names`.

    The database's address and CBX_HOME are those of this process. Raises UsageError for an unset variable.
    """
    environ = {**os.environ, **_places(target)}
    for name in names:
        _check_named("--env", name, environ)
    return command_environment(names, environ)


def _places(target: "Target") -> dict[str, str]:
    if target.conninfo:
        return {DATABASE_URL.name: target.conninfo}
    return {HOME.name: str(target.home)} if target.embedded else {}


def _check_named(option: str, name: str, environ: Iterable[str]) -> None:
    if not _NAME.fullmatch(name):
        hint = "pass only the name: the value comes from the environment, where `ps` does not show it"
        key, equals, _ = name.partition("=")
        # The value may be a secret.
        visible = key[:80] + ("=…" if equals else "")
        raise UsageError(f"{option}: {invalid_message('variable name', visible)}", hint=hint)
    if name not in environ:
        raise UsageError(f"{option}: {name} is not set", hint="export the variable, or remove the option")


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(pattern=r"\S")]
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    environment: list[str] = []


def read_tool_commands(path: str, target: "Target") -> "dict[str, ToolCommand]":
    """Return the commands of a --tools file by tool. Raises InvalidInput, which names file and entry."""
    environ = {**os.environ, **_places(target)}
    entries = read_mapping(path, items="tools", hint=_EXAMPLE, option="--tools")
    return {name: _command(name, entry, environ) for name, entry in entries.items()}


def _command(name: str, entry: Any, environ: dict[str, str]) -> "ToolCommand":
    from cardbox_cli.execution.worker.worker_program import ToolCommand

    place = f"--tools: {name!r}"
    try:
        read = msgspec.convert({"command": entry} if isinstance(entry, str) else entry, _Entry)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"{place}: {exc}", hint=_EXAMPLE) from exc
    for variable in read.environment:
        _check_named(place, variable, environ)
    return ToolCommand(
        command=read.command,
        timeout=read.timeout,
        environment={variable: environ[variable] for variable in read.environment},
        checks_arguments=True,
    )
