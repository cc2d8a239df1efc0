"""`cbx config`: every setting, its value and its source. Needs no database."""

from typing import Annotated, Any, NamedTuple

from typer import Argument

from cardbox_cli import settings
from cardbox_cli.cli.config_file import config_path
from cardbox_cli.cli.options.value_types import SETTING
from cardbox_cli.cli.project_database import database_target, replica_target
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.home import default_home
from cardbox_cli.store.connection.target import find_listen_target, hide_password
from cardbox_cli.text.error_messages import unknown_message

DEFAULT = "default"


class EffectiveSetting(NamedTuple):
    """A setting and its value. `value` is None if it is not set or not valid."""

    variable: settings.Variable
    value: Any
    source: str
    refused: UsageError | None = None

    @property
    def text(self) -> str:
        if self.value is None:
            return ""
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


@verb(
    "config",
    "cbx config",
    "cbx config CBX_LEASE",
    "mkdir -p ~/.config/cbx && echo 'project = \"demo\"' > ~/.config/cbx/config.toml",
    "cbx config -o json | jq -r '.[] | select(.source != \"default\") | .name'",
    pages=True,
)
def show_config(
    name: Annotated[
        str | None,
        Argument(click_type=SETTING, help="Show only this setting, for example CBX_LEASE or lease."),
    ] = None,
) -> None:
    """Show the value of every setting and its source: option, variable, config file or default.

    Passwords are hidden. Exit 2 if a value is invalid. The config file is TOML: the strings project,
    database_url, read_url and output, and a table columns with a key for each list, for example
    "card list" = "id,created,preview".
    """
    if name is not None:
        one = _effective_setting(_find_variable(name))
        if one.refused is not None:
            raise one.refused
        output.emit(_setting_json(one), table=lambda: output.print_text(one.text), ids=[one.variable.name])
        return
    every = [*map(_effective_setting, settings.SETTINGS), *_configured_columns()]
    output.emit_items(
        map(_setting_json, every),
        table=lambda: print_table(_SETTING_COLUMNS, every),
        item_id=lambda setting: setting["name"],
    )
    for each in every:
        if each.refused is not None:
            raise each.refused
    settings.read_settings()


def _find_variable(given: str) -> settings.Variable:
    name = given.upper().replace("-", "_")
    for variable in settings.SETTINGS:
        if name in (variable.name, variable.name.removeprefix("CBX_")):
            return variable
    raise NotFound(
        unknown_message("setting", given, [each.name for each in settings.SETTINGS]),
        hint="list the settings with `cbx config`",
    )


def _configured_columns() -> list[EffectiveSetting]:
    config = session().config
    return [
        EffectiveSetting(
            settings.Variable(f"columns.{command}", "text", None, f"The columns of `cbx {command}`."),
            *configured,
        )
        for command, configured in (config.columns if config else {}).items()
    ]


def _effective_setting(variable: settings.Variable) -> EffectiveSetting:
    override, configured = variable.find(), session().configured(variable)
    source = override[0] if override else configured.place if configured else DEFAULT
    try:
        return EffectiveSetting(variable, *_look_up(variable, source))
    except UsageError as exc:
        return EffectiveSetting(variable, None if variable.secret else variable.text(), source, exc)


def _look_up(variable: settings.Variable, source: str) -> tuple[Any, str]:
    """Return the value and its source: an option, else `source`."""
    if variable is settings.PROJECT:
        return session().project_id, variable.option if variable.option in session().given else source
    if variable is settings.HOME:
        return str(default_home()), source
    if variable is settings.CONFIG:
        return str(config_path()), source
    if variable is settings.NATS_URL and source != DEFAULT:
        from cardbox_cli.execution.notifications.nats import parse_servers

        return ", ".join(server.address for server in parse_servers(variable.text())), source
    if variable is settings.READ_URL:
        target = replica_target(database_target())
        if target.stands_for is None:
            # A replica of another database does not count.
            return None, DEFAULT
        return hide_password(target.conninfo or ""), target.named_by
    if variable is settings.DATABASE_URL or (variable is settings.LISTEN_URL and source != DEFAULT):
        target = database_target()
        if variable is settings.LISTEN_URL:
            target = find_listen_target(target)
        if target.conninfo is not None:
            return hide_password(target.conninfo) or "libpq's environment", target.named_by
    configured = session().configured(variable)
    return (configured.value if configured and source == configured.place else variable.value()), source


def _setting_json(setting: EffectiveSetting) -> dict[str, Any]:
    variable = setting.variable
    return {
        "name": variable.name,
        "value": setting.value,
        "unit": variable.unit,
        "source": setting.source,
        "default": variable.default,
        "kind": variable.kind,
        "lower": variable.lower or None,
        "upper": variable.upper or None,
        "option": variable.option,
        "secret": variable.secret,
        "help": variable.help,
    }


_SETTING_COLUMNS = (
    Column("NAME", lambda each: each.variable.name),
    Column("VALUE", lambda each: each.text or NOTHING),
    Column("UNIT", lambda each: each.variable.unit or "", spare=1),
    Column("SOURCE", lambda each: each.source),
    Column("HELP", lambda each: each.variable.help),
)
