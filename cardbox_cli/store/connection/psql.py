"""The environment in which psql finds the database by itself, with no password on its command line."""

import os

from cardbox_cli.store.connection.target import Target

# libpq's name of a connection parameter -> the variable that psql reads it from.
# Source: PostgreSQL documentation, "Environment Variables" of libpq.
_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "passfile": "PGPASSFILE",
    "service": "PGSERVICE",
    "options": "PGOPTIONS",
    "application_name": "PGAPPNAME",
    "sslmode": "PGSSLMODE",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcrl": "PGSSLCRL",
    "channel_binding": "PGCHANNELBINDING",
    "gssencmode": "PGGSSENCMODE",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "client_encoding": "PGCLIENTENCODING",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "require_auth": "PGREQUIREAUTH",
}


def psql_environment(target: Target) -> dict[str, str]:
    """This process's environment, changed so that a bare `psql` connects to `target`."""
    from psycopg.conninfo import conninfo_to_dict

    environment = dict(os.environ)
    if target.embedded:
        environment = {name: value for name, value in environment.items() if name not in _VARIABLES.values()}
    conninfo = target.server().conninfo() if target.conninfo is None else target.conninfo
    for parameter, value in conninfo_to_dict(conninfo).items():
        if parameter in _VARIABLES and value not in (None, ""):
            environment[_VARIABLES[parameter]] = str(value)
    return environment
