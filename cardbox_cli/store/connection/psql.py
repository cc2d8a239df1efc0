"""The environment in which psql finds the database by itself, with no password on its command line."""

import os

from cardbox_cli.store.connection.target import Target


def psql_environment(target: Target) -> dict[str, str]:
    """This process's environment, changed so that a bare `psql` connects to `target`."""
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict

    known = pq.Conninfo.get_defaults()
    variables = {option.keyword.decode(): option.envvar.decode() for option in known if option.envvar}
    environment = dict(os.environ)
    if target.embedded:
        environment = {name: value for name, value in environment.items() if name not in variables.values()}
    conninfo = target.server().conninfo() if target.conninfo is None else target.conninfo
    for parameter, value in conninfo_to_dict(conninfo).items():
        if parameter in variables and value not in (None, ""):
            environment[variables[parameter]] = str(value)
    return environment
