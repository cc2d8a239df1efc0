"""Which database a command talks to: the one that is named, libpq's own settings, or the embedded server.

Owns the order of these three and what may be shown of the answer; opens no connection.
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

if TYPE_CHECKING:
    from cardbox_cli.store.embedded import EmbeddedServer


# Any of these says that the user has a server of their own in mind; PGUSER or PGSSLMODE alone do not.
_LIBPQ_VARIABLES = ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE")


def silent(_: str) -> None:
    """What announces to nobody."""


@dataclass(frozen=True)
class Target:
    """A database to connect to. `conninfo` is None for the embedded server of `home`.

    `named_by` says where the choice came from, for `cbx db status` and error messages. `stands_for` is the
    database itself where this is a replica of it, to be read.
    """

    conninfo: str | None
    named_by: str
    home: Path
    announce: Callable[[str], None] = silent
    stands_for: "Target | None" = None

    @property
    def embedded(self) -> bool:
        """Whether this is the server that comes with cbx."""
        return self.conninfo is None

    @property
    def is_ours_alone(self) -> bool:
        """Whether nobody else can write to it: not where root lends the embedded server an account, whose
        processes are its superusers, or serves the home of another user."""
        return self.embedded and os.geteuid() != 0

    @property
    def address(self) -> str:
        """Which database is meant, without any secret: the same whether it or a replica of it is asked."""
        if self.stands_for is not None:
            return self.stands_for.address
        if self.conninfo is None:
            return f"embedded {self.home}"
        named = {**_defaults(), **_parts(self.conninfo)}
        host = named.get("host") or named.get("hostaddr") or named.get("service") or "local"
        return f"{host}:{named.get('port') or 5432}/{named.get('dbname') or named.get('user')}"

    def server(self) -> "EmbeddedServer":
        """The embedded server of this target's home."""
        from cardbox_cli.store.embedded import EmbeddedServer

        return EmbeddedServer(self.home, announce=self.announce)


_SEEN = (
    "warning: ps shows the password in --database-url to everybody on this machine, and shells remember it:"
    " CBX_DATABASE_URL, the config file and ~/.pgpass keep it"
)


def find_target(
    url: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    announce: Callable[[str], None] = silent,
    configured: tuple[str, str] | None = None,
) -> Target:
    """The target that `url` (a URL or a libpq keyword string), else the environment, else `configured` names.

    That is an address and the place where it stands.
    """
    home = default_home(environ)
    _refuse_broken("--database-url", url)
    named = DATABASE_URL.text(environ)
    _refuse_broken(DATABASE_URL.name, named)
    if url is not None:
        if not url.strip():
            raise UsageError("--database-url is empty", hint="leave it out to use the embedded database")
        if has_password(url):
            announce(_SEEN)
        return Target(url, "--database-url", home, announce)
    if named:
        return Target(named, DATABASE_URL.name, home, announce)
    for variable in _LIBPQ_VARIABLES:
        if "://" in environ.get(variable, ""):
            raise UsageError(f"{variable} is an address", hint=f"{DATABASE_URL.name} takes one")
        if environ.get(variable):
            return Target("", variable, home, announce)
    _refuse_strange(environ)
    if configured is not None:
        address, place = configured
        _refuse_broken(place, address)
        return Target(address, place, home, announce)
    return Target(None, "embedded", home, announce)


def _refuse_strange(environ: Mapping[str, str]) -> None:
    """Whoever runs for a turn, or a run of a chat, works with its database or with none, never with whatever
    is usual here.

    Raises UsageError.
    """
    if HOME.text(environ):
        return
    hint = f"with --env {DATABASE_URL.name}, or --env {HOME.name} for the embedded one"
    if TURN_ID.text(environ):
        what = "this command runs for a turn, and its worker names no database"
        raise UsageError(what, hint=f"run the worker {hint}")
    if CHAT_RUN.text(environ):
        what = "this command runs for a run of a chat, which names no database"
        raise UsageError(what, hint=f"let the chat be run {hint}")


def find_read_target(
    database: Target,
    url: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    configured: tuple[str, str] | None = None,
    is_configured: bool = False,
) -> Target:
    """Where to read what `database` holds: `url`, else what the environment, else what `configured` names.

    That is an address and the place where it stands. A replica is of one database: what names it counts where
    the database is not named by something stronger, and is not the embedded one. `is_configured`: the same
    file names the database.
    """
    named, by_option = READ_URL.text(environ), database.named_by == "--database-url"
    if url is not None:
        address, place = url, "--read-url"
    elif named and not by_option:
        address, place = named, READ_URL.name
    elif configured is not None and (is_configured or database.embedded):
        address, place = configured
    else:
        return database
    _refuse_broken(place, address)
    if not address.strip():
        raise UsageError(f"{place} is empty", hint="leave it out to read the database itself")
    if database.embedded:
        what = f"{place} names a replica, and nothing names the database that it follows"
        raise UsageError(what, hint=f"name it with --database-url or {DATABASE_URL.name}")
    if url is not None and has_password(url):
        database.announce(_SEEN.replace("--database-url", place).replace(DATABASE_URL.name, READ_URL.name))
    return Target(address, place, database.home, database.announce, stands_for=database)


def find_listen_target(target: Target, *, environ: Mapping[str, str] = os.environ) -> Target:
    """Where to LISTEN for the notifications of `target`: what CBX_LISTEN_URL names, else `target` itself."""
    url = LISTEN_URL.text(environ)
    if not url:
        return target
    _refuse_broken(LISTEN_URL.name, url)
    try:
        _parts(url)
    except UsageError:
        hint = "name the same database as before the pooler, such as postgresql://USER@HOST:5432/DATABASE"
        raise UsageError("the connection string from CBX_LISTEN_URL is malformed", hint=hint) from None
    return Target(url, LISTEN_URL.name, target.home, target.announce)


def check_address(target: Target) -> None:
    """Raise UsageError, which repeats nothing of it, for an address that libpq would misread and print."""
    try:
        _parts(target.conninfo or "")
    except UsageError as exc:
        message = exc.message.replace("connection string", f"connection string from {target.named_by}")
        raise UsageError(message, hint=exc.hint) from None


def _refuse_broken(named_by: str, address: str | None) -> None:
    if address and _breaks_its_password(address):
        hint = "write @ as %40 and / as %2F in a password"
        raise UsageError(f"the connection string from {named_by} is malformed", hint=hint)


def _breaks_its_password(address: str) -> bool:
    """Whether a password is not percent-encoded: libpq would take a part of it for the host, and print it."""
    scheme, _, rest = address.partition("://")
    before_host, at, _ = rest.partition("?")[0].rpartition("@")
    return scheme in _SCHEMES and bool(at) and ("@" in before_host or "/" in before_host)


_SCHEMES = ("postgres", "postgresql")


_SECRETS = ("password", "sslpassword", "passfile", "oauth_client_secret")


def hide_password(conninfo: str) -> str:
    """`conninfo` as a libpq keyword string that can be shown: without the password."""
    from psycopg.conninfo import make_conninfo

    parts = _parts(conninfo)
    return make_conninfo("", **{name: value for name, value in parts.items() if name not in _SECRETS})


def has_password(conninfo: str) -> bool:
    """Whether `hide_password` leaves anything out."""
    return any(secret in _parts(conninfo) for secret in _SECRETS)


def _defaults() -> dict[str, str]:
    """What libpq takes from the environment, and its own defaults."""
    from psycopg.pq import Conninfo

    options = Conninfo.get_defaults()
    return {option.keyword.decode(): option.val.decode(errors="replace") for option in options if option.val}


def _parts(conninfo: str) -> dict[str, Any]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = dict(conninfo_to_dict(conninfo))
    except ProgrammingError:
        # The driver's message may quote the string, password and all.
        hint = "postgresql://USER@HOST:5432/DATABASE, or libpq keywords such as 'host=… dbname=…'"
        raise UsageError("the connection string is malformed", hint=hint) from None
    if not all(map(_is_port, str(parts.get("port") or "").split(","))):
        # Of postgresql://USER:PASSWORD, without a host, the password is the port.
        hint = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE has all parts of one"
        raise UsageError("the connection string is malformed: its port is no number up to 65535", hint=hint)
    nested = next((name for name in _NAMES if "://" in str(parts.get(name) or "")), None)
    if nested is not None:
        # It would be shown, with the password that it may have.
        hint = "give the address alone, without keywords before it"
        raise UsageError(f"the connection string is malformed: its {nested} is an address", hint=hint)
    return parts


_NAMES = ("dbname", "host", "user", "service")


def _is_port(text: str) -> bool:
    return not text or (len(text) <= 5 and text.isascii() and text.isdigit() and int(text) <= 65535)


def may_hold_password(line: str) -> bool:
    """Whether a command line names a password, or an address that may have one."""
    return _PASSWORD.search(line) is not None


_PASSWORD = re.compile(r"(?i)pass(word|wd)|postgres(ql)?://\S*[:@]")


# How psql finds the database by itself: no password is on its command line, nor in a named file.


_SERVICE = "cbx"


def psql_environment(target: Target) -> dict[str, str]:
    """This process's environment, changed so that a bare `psql` connects to `target`.

    What libpq has no variable for is in a service file, which children read from an open descriptor. Raises
    UsageError where the target has a service of its own beside that.
    """
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict

    known = pq.Conninfo.get_defaults()
    variables = {option.keyword.decode(): option.envvar.decode() for option in known if option.envvar}
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
            names = ", ".join(parameters)
            raise UsageError(
                f"psql cannot be given {names} beside a service", hint="write it into the service"
            )
        environment |= {"PGSERVICE": _SERVICE, "PGSERVICEFILE": _service_file(parameters)}
    return environment


def _service_file(parameters: Mapping[str, str]) -> str:
    """The path by which this process and its children read the parameters, as long as it lives."""
    odd = next((name for name, value in parameters.items() if "\n" in value or value != value.strip()), None)
    if odd is not None:
        raise UsageError(f"psql cannot be given a {odd} that has line breaks or begins or ends with a space")
    with tempfile.TemporaryFile("w", encoding="utf-8") as file:
        file.write("".join([f"[{_SERVICE}]\n", *(f"{name}={value}\n" for name, value in parameters.items())]))
        file.flush()
        descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, True)
    return f"/dev/fd/{descriptor}"
