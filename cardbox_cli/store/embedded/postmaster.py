"""The server's process: whether it lives, starting it, stopping it, and why it did not start.

A pid file is a hint, never a proof: pids are recycled. Who holds the home's lock may remove a lock file
that names a living process which is not this server.
"""

import os
import re
import shlex
import signal
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.store.embedded.account import Account
from cardbox_cli.store.embedded.location import PORT, SOCKET_NAME, Location

_START_SECONDS = 30
_STOP_SECONDS = 60.0
# An empty lock file of this age was left by a crash; a younger one may be about to be written.
_EMPTY_SECONDS = 2.0
# Ends by itself: backends of a killed postmaster go away, another start of this server comes through, or was
# killed before it wrote who it is.
_PASSING = re.compile(r"pre-existing shared memory block|lock file \"|PID file \".*\" is empty")
_FATAL = re.compile(r"\b(FATAL|PANIC): ")
_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d \S+ \S+ \[\d+\] ")


@dataclass(frozen=True)
class Postmaster:
    """A living server process of a data folder. `ready` once it takes connections."""

    pid: int
    ready: bool


def running(data: Path) -> Postmaster | None:
    """The server of `data`, if its process lives."""
    lines = _lines(data / "postmaster.pid")
    pid = _pid(lines)
    if pid is None or not _serves(pid, [data]):
        return None
    return Postmaster(pid, ready=len(lines) > 7 and lines[7].strip() == "ready")


def has_crashed(data: Path) -> bool:
    """Whether the server of `data` ended without being stopped: then it has left its lock file."""
    return _pid(_lines(data / "postmaster.pid")) is not None and running(data) is None


def start(location: Location, account: Account) -> str | None:
    """Start the server, and wait until it is ready or has been recovering for a while.

    Returns None, or what is in the way when that passes by itself. Raises DatabaseUnavailable.
    """
    for lock in (location.data / "postmaster.pid", location.socket / f"{SOCKET_NAME}.lock"):
        if _is_stale(lock, location.data):
            lock.unlink(missing_ok=True)
    # No pipe and no file of ours: the server outlives us, and writes here until its log collector runs.
    began = time.time()
    with tempfile.TemporaryFile() as output:
        pg_ctl = [str(location.binaries / "pg_ctl"), "start", "--silent", "--wait"]
        done = account.run(
            [*pg_ctl, f"--timeout={_START_SECONDS}", "-o", _settings(location)],
            environment={"PGDATA": str(location.data)},
            stdout=output,
        )
        if done.returncode == 0 or running(location.data) is not None:
            return None
        output.seek(0)
        printed = output.read().decode(errors="replace").splitlines()
    reason = _reason(printed, newest_log(location.log), began)
    if _PASSING.search(reason):
        return reason
    raise failure(f"did not start: {reason}", location)


def stop(postmaster: Postmaster, location: Location) -> None:
    """Stop the server as `pg_ctl stop --mode=fast` does: sessions end, what was committed is kept."""
    deadline = time.monotonic() + _STOP_SECONDS
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(postmaster.pid)
        process.send_signal(signal.SIGINT)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                raise failure(f"did not stop within {_STOP_SECONDS:.0f} s", location)
            time.sleep(0.02)


def failure(what: str, location: Location) -> DatabaseUnavailable:
    """The error that says `what` of the server, and where its log is."""
    log = newest_log(location.log) or location.log
    return DatabaseUnavailable(f"the embedded Postgres {what}", hint=f"its log is {str(log)!r}")


def newest_log(folder: Path) -> Path | None:
    """The log file that was written last."""
    files = list(folder.glob("postgres-*.log")) if os.access(folder, os.R_OK | os.X_OK) else []
    return max(files, key=lambda file: file.stat().st_mtime, default=None)


def _settings(location: Location) -> str:
    """The server's options, quoted for the shell that pg_ctl starts it by.

    Given at each start, not written to a file: they change with cbx and with where the home lies.
    """
    socket_folder = str(location.socket).replace('"', '""')
    settings = {
        "listen_addresses": "",
        "port": PORT,
        "unix_socket_directories": f'"{socket_folder}"',
        "unix_socket_permissions": "0700",
        # logind removes a user's POSIX shared memory at logout, under the feet of a server left running.
        "dynamic_shared_memory_type": "mmap",
        # Our own role is called cbx, as is a schema of ours: unqualified names of others must not end there.
        "search_path": "public",
        "cluster_name": "cbx",
        # A file per weekday, begun anew each week.
        "logging_collector": "on",
        "log_directory": location.log.name,
        "log_filename": "postgres-%a.log",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_truncate_on_rotation": "on",
    }
    # pg_ctl itself would put the folder between double quotes, and the shell would read a $ in it.
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return shlex.join(["-D", str(location.data), *options])


def _is_stale(lock: Path, data: Path) -> bool:
    """Whether `lock` would keep the server from starting for nothing. Of a dead pid Postgres knows itself."""
    try:
        age = time.time() - lock.lstat().st_mtime
    except OSError:
        return False
    lines = _lines(lock)
    pid = _pid(lines)
    if pid is None:
        return age > _EMPTY_SECONDS
    return psutil.pid_exists(pid) and not _serves(pid, [data, *map(Path, lines[1:2])])


def _serves(pid: int, folders: Iterable[Path]) -> bool:
    """Whether the process `pid` is a Postgres server of one of the data `folders`."""
    try:
        process = psutil.Process(pid)
        if process.name() not in ("postgres", "postmaster") or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(_works_in(process, folder) for folder in folders)
    except psutil.NoSuchProcess:
        return False


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        is_owner = process.uids().effective == folder.stat().st_uid
        return is_owner and os.path.samefile(process.cwd(), folder)
    except psutil.AccessDenied:
        return True  # the right name and owner: to believe that it is not ours would need proof
    except OSError:
        return False


def _lines(file: Path) -> list[str]:
    try:
        is_file = stat.S_ISREG(file.lstat().st_mode)
        return file.read_text(encoding="utf-8", errors="replace").splitlines() if is_file else []
    except OSError:
        return []


def _pid(lines: list[str]) -> int | None:
    try:
        return abs(int(lines[0]))
    except (IndexError, ValueError):
        return None


def _reason(printed: list[str], log: Path | None, began: float) -> str:
    """The end of what the server printed: at its start, or in its log when it had come as far as that."""
    # A file system may count time more coarsely than we do.
    logged = _lines(log) if log and log.stat().st_mtime >= began - 1 else []
    lines = printed if any(map(_FATAL.search, printed)) or not logged else logged
    return "\n  ".join(_PREFIX.sub("", line) for line in lines[-5:])
