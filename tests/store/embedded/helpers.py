"""What the tests of the embedded server do to it and ask it: from this process, and from others."""

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from cardbox_cli.store.embedded import EmbeddedServer

REPOSITORY = Path(__file__).parents[3]
AS_ROOT = os.geteuid() == 0
only_as_root = pytest.mark.skipif(not AS_ROOT, reason="only root lends the server an account")

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from cardbox_cli.store.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), announce=lambda said: print("announced:", said, flush=True))
"""


def spawn(home: Path, code: str, **ends: int) -> subprocess.Popen[str]:
    """A Python in a session of its own that runs `code`, where `server` is the server of `home`."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(home)],
        text=True,
        start_new_session=True,
        cwd=REPOSITORY,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **ends},
    )


def run(home: Path, code: str) -> str:
    """What `code` prints in a process of its own."""
    with spawn(home, code) as child:
        output, _ = child.communicate(timeout=120)
    assert child.returncode == 0, output
    return output


def value(server: EmbeddedServer, query: str) -> Any:
    """The one value that `query` selects."""
    with server.connect() as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def keep_row(server: EmbeddedServer) -> None:
    """Commit a row that must not be lost."""
    with server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (42)")


def has_kept_row(server: EmbeddedServer) -> bool:
    return value(server, "SELECT array_agg(n) FROM kept") == [42]


def psql(server: EmbeddedServer, query: str) -> str:
    """What the server's own psql, given the URL, answers to `query`."""
    command = [server.program("psql"), "-XAtc", query, server.url()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def servers_of(server: EmbeddedServer) -> list[int]:
    """The pids of all processes that serve this server's data: of one server, exactly one."""
    data = server.status().data
    # With their names asked for here, processes that end meanwhile are passed over.
    postgres = [each for each in psutil.process_iter(["name"]) if each.info["name"] == "postgres"]
    pids = {process.pid for process in postgres}
    return [p.pid for p in postgres if _works_in(p, data) and p.ppid() not in pids]


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder)
    except (psutil.Error, OSError):
        return False


def is_gone(pid: int) -> bool:
    """Whether the process has ended, were it still to be collected by its parent."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def leftovers(server: EmbeddedServer) -> list[Path]:
    """Unfinished files and folders of this home."""
    place = server.status().data.parent
    return [*place.glob("*.new*"), *server.home.glob("*.new*"), *place.parent.glob(f"{place.name}.new*")]


def give_to_owner_of(folder: Path, file: Path) -> None:
    os.chown(file, folder.stat().st_uid, folder.stat().st_gid)


class OrdinaryUser:
    """Runs code as an ordinary user: ourselves, or as root the account nobody.

    Skips the test where nobody can reach no Python with our packages, as when they lie in root's home.
    """

    def __init__(self, folder: Path) -> None:
        entry = pwd.getpwnam("nobody") if AS_ROOT else pwd.getpwuid(os.geteuid())
        self.uid = entry.pw_uid
        self.folder = folder
        self._identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if AS_ROOT else {}
        give = (entry.pw_uid, entry.pw_gid)
        os.chown(folder, *give)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        pythons = filter(self._can_use, (sys.executable, f"/usr/bin/{version}"))
        self._python = next(pythons, None) or pytest.skip("nobody can reach no Python with our packages")

    def make_folder(self, name: str) -> Path:
        """A new folder of this user."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        give_to_owner_of(self.folder, folder)
        return folder

    def run(self, home: Path, code: str, **environ: str) -> str:
        """What `code` prints, where `server` is the server of `home`."""
        done = self._run(self._python, PRELUDE + code, str(home), environ)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def _can_use(self, python: str) -> bool:
        try:
            return self._run(python, "import psycopg, psutil, cardbox_cli", "", {}).returncode == 0
        except OSError:
            return False

    def _run(
        self, python: str, code: str, home: str, environ: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        packages = Path(psycopg.__file__).parents[1]
        usual = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{REPOSITORY}:{packages}", "HOME": "/"}
        return subprocess.run(
            [python, "-c", code, home],
            env={**usual, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd="/",
            **self._identity,
        )
