"""A second server that follows the first: made by its own programs, promoted, and ended with the test."""

import os
import time
from pathlib import Path

import psycopg

from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.embedded.account import account_for
from cardbox_cli.store.embedded.location import PORT

NAME = "standby"
# Seconds in which the standby has what the primary has.
_PATIENCE = 60.0
_WAIT = ("-w", "-t", "300")


class Standby:
    """A standby of `primary`, in `folder`, which its account can enter."""

    def __init__(self, primary: EmbeddedServer, folder: Path) -> None:
        self._primary = primary
        self._home = folder / "home"
        self._account = account_for(os.environ)
        self._data, self._socket = folder / "data", folder / "socket"
        for made in (self._data, self._socket):
            self._account.make_folder(made)
        source = f"{primary.conninfo('postgres')} application_name={NAME}"
        self._run("pg_basebackup", "-D", self._data, "-d", source, "-R", "-c", "fast")

    def start(self) -> None:
        settings = {"listen_addresses": "", "port": PORT, "unix_socket_directories": self._socket}
        words = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._run("pg_ctl", "start", *_WAIT, "-D", self._data, "-l", self._socket / "log", "-o", words)

    def target(self, name: str) -> Target:
        """A database of the primary, as the standby has it."""
        return Target(self.conninfo(name), "the test", self._home)

    def conninfo(self, name: str) -> str:
        """The address of a database of the standby."""
        parts = psycopg.conninfo.conninfo_to_dict(self._primary.conninfo(name))
        return psycopg.conninfo.make_conninfo("", **{**parts, "host": str(self._socket)})

    def either(self, name: str) -> str:
        """The address of a database of whichever of the two takes writes."""
        parts = psycopg.conninfo.conninfo_to_dict(self._primary.conninfo(name))
        hosts = f"{parts['host']},{self._socket}"
        given = {**parts, "host": hosts, "target_session_attrs": "read-write"}
        return psycopg.conninfo.make_conninfo("", **given)

    def catch_up(self) -> None:
        """Wait until it has replayed all that the primary has written until now."""
        with self._primary.connect() as primary, psycopg.connect(self.conninfo("postgres")) as standby:
            [written] = primary.execute("SELECT pg_current_wal_lsn()").fetchone() or [None]
            deadline = time.monotonic() + _PATIENCE
            while not _has_replayed(standby, str(written)):
                assert time.monotonic() < deadline, "the standby does not catch up"
                time.sleep(0.02)

    def promote(self) -> None:
        """Make it a primary."""
        self._run("pg_ctl", "promote", *_WAIT, "-D", self._data)

    def stop(self) -> None:
        """Stop it; harmless if it does not run."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", *_WAIT, "-m", "immediate", "-D", self._data)

    def _run(self, program: str, *words: object) -> None:
        # A server that is started keeps what it was given as its output.
        with open(os.devnull, "w+b") as nothing:
            done = self._account.run(
                [self._primary.program(program), *map(str, words)],
                stdout=nothing if program == "pg_ctl" else None,
            )
        assert done.returncode == 0, (program, done.stdout)


def _has_replayed(standby: psycopg.Connection[tuple[object, ...]], lsn: str) -> bool:
    row = standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [lsn]).fetchone()
    return row is not None and bool(row[0])
