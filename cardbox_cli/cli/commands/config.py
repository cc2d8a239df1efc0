"""`cbx config`: every setting, the value in force, and where it comes from. Needs no database."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import typer

from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.tree import verb
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.settings import (
    DATABASE_URL,
    HOME,
    LISTEN_URL,
    NATS_URL,
    PROJECT,
    SETTINGS,
    Variable,
    settings_from,
)

DEFAULT = "default"


class InForce(NamedTuple):
    """A setting as it is now. `value` is None where there is none, or none that can be shown."""

    variable: Variable
    value: Any
    source: str
    refused: UsageError | None = None


@verb(
    examples="cbx config\n"
    "cbx config CBX_LEASE\n"
    "cbx config -o json | jq -r '.[] | select(.source != \"default\") | .name'",
    pages=True,
)
def command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this one's value, such as CBX_LEASE or lease.")
    ] = None,
) -> None:
    """Show the value of every setting: of its option, else its variable, else its default. Hides passwords.

    Exits 2 where a value cannot be, as the commands that need it do.
    """
    if name is not None:
        shown = _in_force(_named(name))
        _refuse([shown])
        output.emit(_described(shown), table=lambda: output.say(_text(shown)), ids=[shown.variable.name])
        return
    every = [_in_force(variable) for variable in SETTINGS]
    output.emit_items(
        map(_described, every), table=lambda: _print(every), item_id=lambda described: described["name"]
    )
    _refuse(every)
    settings_from()


def _named(typed: str) -> Variable:
    wanted = typed.upper().replace("-", "_")
    for variable in SETTINGS:
        if wanted in (variable.name, variable.name.removeprefix("CBX_")):
            return variable
    raise NotFound(f"there is no setting {typed!r}", hint="`cbx config` lists them")


def _in_force(variable: Variable) -> InForce:
    found = variable.found()
    source = found[0] if found else DEFAULT
    try:
        value, source = _SPECIAL[variable](source) if variable in _SPECIAL else (variable.value(), source)
    except UsageError as exc:
        return InForce(variable, None if variable.secret else variable.text(), source, exc)
    return InForce(variable, value, source)


def _project(source: str) -> tuple[str, str]:
    return session().project_id, PROJECT.option if PROJECT.option in session().given else source


def _database(source: str) -> tuple[str | None, str]:
    from cardbox_cli.store.connection.target import hide_password

    target = session().target()
    if target.conninfo is None:
        return None, source
    return hide_password(target.conninfo) or "libpq's environment", target.named_by


def _listen(source: str) -> tuple[str | None, str]:
    from cardbox_cli.store.connection.target import find_listen_target, hide_password

    if source == DEFAULT:
        return None, source
    return hide_password(find_listen_target(session().target()).conninfo or ""), source


def _nats(source: str) -> tuple[str | None, str]:
    if source == DEFAULT:
        return None, source
    from cardbox_cli.execution.notifications.nats import parse_servers

    return ", ".join(server.address for server in parse_servers(NATS_URL.text())), source


def _home(source: str) -> tuple[str, str]:
    import os

    from cardbox_cli.home import default_home

    return str(default_home(os.environ)), source


# Those whose value takes more than a look at their variable; by the variable that sets it, or DEFAULT.
_SPECIAL: dict[Variable, Callable[[str], tuple[Any, str]]] = {
    PROJECT: _project,
    DATABASE_URL: _database,
    LISTEN_URL: _listen,
    NATS_URL: _nats,
    HOME: _home,
}


def _refuse(shown: Iterable[InForce]) -> None:
    for each in shown:
        if each.refused is not None:
            raise each.refused


def _described(shown: InForce) -> dict[str, Any]:
    variable = shown.variable
    return {
        "name": variable.name,
        "value": shown.value,
        "unit": variable.unit,
        "source": shown.source,
        "default": variable.default,
        "kind": variable.kind,
        "lower": variable.lower or None,
        "upper": variable.upper or None,
        "option": variable.option,
        "secret": variable.secret,
        "help": variable.help,
    }


def _text(shown: InForce) -> str:
    if shown.value is None:
        return ""
    return f"{shown.value:g}" if isinstance(shown.value, float) else str(shown.value)


def _print(every: list[InForce]) -> None:
    rows = [
        [each.variable.name, _text(each) or "-", each.variable.unit or "", each.source, each.variable.help]
        for each in every
    ]
    output.print_table(["NAME", "VALUE", "UNIT", "SOURCE", "HELP"], rows, whole=True)
