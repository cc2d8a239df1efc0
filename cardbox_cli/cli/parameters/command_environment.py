"""What commands that are run get of the environment: a few variables, and those that are named."""

import os
import re
from collections.abc import Iterable

from cardbox_cli.errors import UsageError
from cardbox_cli.execution.worker.commands.environment import passed_on
from cardbox_cli.settings import DATABASE_URL, HOME
from cardbox_cli.store.connection.target import Target

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment_of(names: Iterable[str], target: Target) -> dict[str, str]:
    """The environment of all commands: the usual variables, and those that `names` names.

    The database's address is the one that this worker uses, whatever it has it from, and so is its home.
    Raises UsageError for one that is not set.
    """
    named = list(names)
    environ = variables(target)
    for name in named:
        check_named("--env", name, environ)
    return passed_on(named, environ)


def variables(target: Target) -> dict[str, str]:
    """What commands can be given: all that this process has, and the place of its database."""
    return {**os.environ, **_places(target)}


def _places(target: Target) -> dict[str, str]:
    if target.conninfo:
        return {DATABASE_URL.name: target.conninfo}
    return {HOME.name: str(target.home)} if target.embedded else {}


def check_named(option: str, name: str, environ: Iterable[str]) -> None:
    """Raise UsageError unless `name`, which `option` was given, is that of a variable which is set."""
    if not _NAME.fullmatch(name):
        hint = "name it alone: its value comes from the environment, where `ps` does not show it"
        shown = name.partition("=")[0][:80]
        raise UsageError(f"{option}: {shown!r} is not a variable's name alone", hint=hint)
    if name not in environ:
        raise UsageError(f"{option}: {name} is not set", hint="set it, or leave the option out")
