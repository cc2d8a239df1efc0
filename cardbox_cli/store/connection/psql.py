"""How psql finds the database by itself: no password is on its command line, nor in a named file."""

import os
import tempfile
from collections.abc import Mapping

from cardbox_cli.errors import UsageError
from cardbox_cli.store.connection.target import Target

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
