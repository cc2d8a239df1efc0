"""Choice of the database: the option, the variables of cbx or libpq, the config file, or the embedded server.

Owns this order, and hides secrets in addresses. Opens no connection.
"""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cardbox_cli.errors import UsageError
from cardbox_cli.home import default_home
from cardbox_cli.settings import CHAT_RUN, DATABASE_URL, HOME, LISTEN_URL, READ_URL, TURN_ID
from cardbox_cli.text.command_lines import Comment

if TYPE_CHECKING:
    from cardbox_cli.store.embedded import EmbeddedServer


# Each of these variables names a server. PGUSER or PGSSLMODE alone do not.
_LIBPQ_VARIABLES = ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE")


def discard(_: str) -> None:
    """Discard an announcement."""


@dataclass(frozen=True)
class Target:
    """A database to connect to. `conninfo` is None for the embedded server of `home`.

    `named_by` is the source of the choice, for messages. `stands_for` is the primary of a replica.
    """

    conninfo: str | None
    named_by: str
    home: Path
    announce: Callable[[str], None] = discard
    stands_for: "Target | None" = None

    @property
    def embedded(self) -> bool:
        return self.conninfo is None

    @property
    def is_ours_alone(self) -> bool:
        """Return whether only this account can write to the database. False for root, whose embedded server
        runs as another account: all its processes can connect as superuser.
        """
        return self.embedded and os.geteuid() != 0

    @property
    def comment(self) -> tuple[Comment, ...]:
        """Return a comment for printed commands with host and database, or none for the default database."""
        named = self.stands_for or self
        return () if named.embedded else (Comment(f"database {named.address}"),)

    @property
    def address(self) -> str:
        """Return the address of the database without secrets. For a replica, it is the primary's address."""
        if self.stands_for is not None:
            return self.stands_for.address
        if self.conninfo is None:
            return f"embedded {self.home}"
        parts = {**_defaults(), **_parts(self.conninfo)}
        host = parts.get("host") or parts.get("hostaddr") or parts.get("service") or "local"
        return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user')}"

    def server(self) -> "EmbeddedServer":
        from cardbox_cli.store.embedded import EmbeddedServer

        return EmbeddedServer(self.home, announce=self.announce)


_PASSWORD_IN_PS = (
    "warning: every user of this machine can see the password in --database-url with ps, and shells save it:"
    " use CBX_DATABASE_URL, the config file or ~/.pgpass instead"
)


def find_target(
    url: str | None = None,
    *,
    announce: Callable[[str], None] = discard,
    configured: tuple[str, str] | None = None,
) -> Target:
    """Return the target of `url`, of the environment, of `configured`, or the embedded server, in this order.

    `url` is a URL or a libpq keyword string. `configured` is a pair of an address and its source.
    """
    home = default_home(os.environ)
    _refuse_malformed("--database-url", url)
    from_environment = DATABASE_URL.text()
    _refuse_malformed(DATABASE_URL.name, from_environment)
    if url is not None:
        if not url.strip():
            raise UsageError("--database-url is empty", hint="omit it to use the embedded database")
        if has_password(url):
            announce(_PASSWORD_IN_PS)
        return Target(url, "--database-url", home, announce)
    if from_environment:
        return Target(from_environment, DATABASE_URL.name, home, announce)
    for variable in _LIBPQ_VARIABLES:
        if "://" in os.environ.get(variable, ""):
            raise UsageError(f"{variable} is a URL", hint=f"set {DATABASE_URL.name} to the URL instead")
        if os.environ.get(variable):
            return Target("", variable, home, announce)
    _refuse_default_in_run()
    if configured is not None:
        address, place = configured
        _refuse_malformed(place, address)
        return Target(address, place, home, announce)
    return Target(None, "embedded", home, announce)


def _refuse_default_in_run() -> None:
    """Raise UsageError if a command of a turn or a chat's run would use the default database.

    Such a command may use only the database that its worker or chat passes to it.
    """
    if HOME.text():
        return
    hint = f"with --env {DATABASE_URL.name}, or --env {HOME.name} for the embedded database"
    if TURN_ID.text():
        what = "this command runs for a turn, but its worker passes it no database"
        raise UsageError(what, hint=f"run the worker {hint}")
    if CHAT_RUN.text():
        what = "this command runs for a chat, but the run passes it no database"
        raise UsageError(what, hint=f"run the chat {hint}")


def find_read_target(
    database: Target,
    url: str | None = None,
    *,
    configured: tuple[str, str] | None = None,
    is_configured: bool = False,
) -> Target:
    """Return the target for reads of `database`: `url`, the environment, `configured`, or `database` itself.

    `configured` is a pair of an address and its source. `is_configured` means that the same file names
    `database`. A replica belongs to one database. Therefore a setting of the replica is ignored if a stronger
    source names the database. Raises UsageError if a replica is named but the database is embedded.
    """
    named, by_option = READ_URL.text(), database.named_by == "--database-url"
    if url is not None:
        address, place = url, "--read-url"
    elif named and not by_option:
        address, place = named, READ_URL.name
    elif configured is not None and (is_configured or database.embedded):
        address, place = configured
    else:
        return database
    _refuse_malformed(place, address)
    if not address.strip():
        raise UsageError(f"{place} is empty", hint="omit it to read from the primary database")
    if database.embedded:
        what = f"{place} names a replica, but no option or variable names the database that it follows"
        raise UsageError(what, hint=f"pass the database as --database-url or {DATABASE_URL.name}")
    if url is not None and has_password(url):
        database.announce(
            _PASSWORD_IN_PS.replace("--database-url", place).replace(DATABASE_URL.name, READ_URL.name)
        )
    return Target(address, place, database.home, database.announce, stands_for=database)


def find_listen_target(target: Target, *, environ: Mapping[str, str] = os.environ) -> Target:
    """Return the target to LISTEN on for notifications of `target`: CBX_LISTEN_URL, or `target` itself."""
    url = LISTEN_URL.text(environ)
    if not url:
        return target
    _refuse_malformed(LISTEN_URL.name, url)
    try:
        _parts(url)
    except UsageError:
        hint = "set it to the server's own address, such as postgresql://USER@HOST:5432/DATABASE"
        raise UsageError("the connection string from CBX_LISTEN_URL is malformed", hint=hint) from None
    return Target(url, LISTEN_URL.name, target.home, target.announce)


def check_address(target: Target) -> None:
    """Raise UsageError, without quoting the address, if libpq would misread it and print its password."""
    try:
        _parts(target.conninfo or "")
    except UsageError as exc:
        message = exc.message.replace("connection string", f"connection string from {target.named_by}")
        raise UsageError(message, hint=exc.hint) from None


def _refuse_malformed(named_by: str, address: str | None) -> None:
    if address and _has_unencoded_password(address):
        hint = "percent-encode the password: @ is %40, / is %2F"
        raise UsageError(f"the connection string from {named_by} is malformed", hint=hint)


def _has_unencoded_password(address: str) -> bool:
    """Return whether the password is not percent-encoded. libpq would then print a part of it as the host."""
    scheme, _, rest = address.partition("://")
    before_host, at, _ = rest.partition("?")[0].rpartition("@")
    return scheme in _SCHEMES and bool(at) and ("@" in before_host or "/" in before_host)


_SCHEMES = ("postgres", "postgresql")


_SECRETS = ("password", "sslpassword", "passfile", "oauth_client_secret")


def hide_password(conninfo: str) -> str:
    """Return `conninfo` as a libpq keyword string without secrets, for display."""
    from psycopg.conninfo import make_conninfo

    parts = _parts(conninfo)
    return make_conninfo("", **{name: value for name, value in parts.items() if name not in _SECRETS})


def has_password(conninfo: str) -> bool:
    return any(secret in _parts(conninfo) for secret in _SECRETS)


def _defaults() -> dict[str, str]:
    """Return libpq's parameters from the environment and its own defaults."""
    from psycopg.pq import Conninfo

    options = Conninfo.get_defaults()
    return {option.keyword.decode(): option.val.decode(errors="replace") for option in options if option.val}


def _parts(conninfo: str) -> dict[str, Any]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = dict(conninfo_to_dict(conninfo))
    except ProgrammingError:
        # The driver's message may quote the string with its password.
        hint = "write it as postgresql://USER@HOST:5432/DATABASE"
        raise UsageError("the connection string is malformed", hint=hint) from None
    if not all(map(_is_port, str(parts.get("port") or "").split(","))):
        # Without a host, libpq parses the password in postgresql://USER:PASSWORD as the port.
        hint = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise UsageError(
            "the connection string is malformed: its port is not a number up to 65535", hint=hint
        )
    nested = next((name for name in _NAMES if "://" in str(parts.get(name) or "")), None)
    if nested is not None:
        # A message would show this URL, which may have a password.
        hint = "pass only the URL, without keywords before it"
        raise UsageError(f"the connection string is malformed: its {nested} is a URL", hint=hint)
    return parts


_NAMES = ("dbname", "host", "user", "service")


def _is_port(text: str) -> bool:
    return not text or (len(text) <= 5 and text.isascii() and text.isdigit() and int(text) <= 65535)


def may_hold_password(line: str) -> bool:
    """Return whether a command line contains a password, or an address that may contain one."""
    return _PASSWORD.search(line) is not None


_PASSWORD = re.compile(r"(?i)pass(word|wd)|postgres(ql)?://\S*[:@]")


# --- pass the database to psql without a password on its command line or in a named file


_SERVICE = "cbx"


def psql_environment(target: Target) -> dict[str, str]:
    """Return this process's environment, changed so that `psql` without arguments connects to `target`.

    Options that have no variable go into a service file, which children read from an open descriptor. Raises
    UsageError if `target` needs such a file and itself names a service.
    """
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict

    options = pq.Conninfo.get_defaults()
    variables = {option.keyword.decode(): option.envvar.decode() for option in options if option.envvar}
    environment = dict(os.environ)
    if target.embedded:
        environment = {name: value for name, value in environment.items() if name not in variables.values()}
    conninfo = target.server().conninfo() if target.conninfo is None else target.conninfo
    parameters = {
        name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value not in (None, "")
    }
    for name, variable in variables.items():
        if name in parameters:
            environment[variable] = parameters.pop(name)
    if parameters:
        if environment.get("PGSERVICE"):
            what = f"psql cannot combine {', '.join(parameters)} with a service"
            raise UsageError(what, hint="write these parameters into the service file")
        environment |= {"PGSERVICE": _SERVICE, "PGSERVICEFILE": _service_file(parameters)}
    return environment


def _service_file(parameters: Mapping[str, str]) -> str:
    """Return a path to the parameters that this process and its children can read while it runs."""
    odd = next((name for name, value in parameters.items() if "\n" in value or value != value.strip()), None)
    if odd is not None:
        raise UsageError(f"psql cannot use a {odd} with line breaks or surrounding spaces")
    with tempfile.TemporaryFile("w", encoding="utf-8") as file:
        file.write("".join([f"[{_SERVICE}]\n", *(f"{name}={value}\n" for name, value in parameters.items())]))
        file.flush()
        descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, True)
    return f"/dev/fd/{descriptor}"
