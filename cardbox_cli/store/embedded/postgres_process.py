"""The server's process: finding it, starting it, stopping it, and the reason if it did not start.

A pid file is only a hint, because pids are reused. The holder of the home's lock may remove a lock file that
names a running process, if this process is not the server.
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
from cardbox_cli.store.embedded.account import ServerAccount
from cardbox_cli.store.embedded.location import PORT, SOCKET_NAME, Location

_START_TIMEOUT_SECONDS = 30
_STOP_TIMEOUT_SECONDS = 60.0
# An empty lock file of this age was left by a crash. A process may still be writing a younger one.
_MAX_EMPTY_SECONDS = 2.0
# Temporary obstacles: backends of a killed postmaster are ending, another start of this server is running, or
# a start was killed before it wrote its pid.
_TEMPORARY = re.compile(r"pre-existing shared memory block|lock file \"|PID file \".*\" is empty")
_FATAL = re.compile(r"\b(FATAL|PANIC): ")
_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d \S+ \S+ \[\d+\] ")


@dataclass(frozen=True)
class Postmaster:
    """A running server process of a data folder. `ready` is True once it accepts connections."""

    pid: int
    ready: bool


def find_postmaster(data: Path) -> Postmaster | None:
    lines = _lines(data / "postmaster.pid")
    pid = _pid(lines)
    if pid is None or not _serves(pid, [data]):
        return None
    return Postmaster(pid, ready=len(lines) > 7 and lines[7].strip() == "ready")


def has_crashed(data: Path) -> bool:
    """Return whether the server of `data` ended without a stop, and therefore left its lock file."""
    return _pid(_lines(data / "postmaster.pid")) is not None and find_postmaster(data) is None


def start(location: Location, account: ServerAccount) -> str | None:
    """Start the server. Waits until it is ready, or until the timeout while it recovers.

    Returns None, or the reason of a temporary failure. Raises DatabaseUnavailable for other failures.
    """
    for lock in (location.data / "postmaster.pid", location.socket / f"{SOCKET_NAME}.lock"):
        if _is_stale(lock, location.data):
            lock.unlink(missing_ok=True)
    # An unnamed file, not a pipe: the server outlives us, and writes here until it has its log collector.
    began = time.time()
    with tempfile.TemporaryFile() as output:
        pg_ctl = [str(location.binaries / "pg_ctl"), "start", "--silent", "--wait"]
        done = account.run(
            [*pg_ctl, f"--timeout={_START_TIMEOUT_SECONDS}", "-o", _settings(location)],
            environment={"PGDATA": str(location.data)},
            stdout=output,
        )
        if done.returncode == 0 or find_postmaster(location.data) is not None:
            return None
        output.seek(0)
        printed = output.read().decode(errors="replace").splitlines()
    reason = _reason(printed, newest_log(location.log), began)
    if _TEMPORARY.search(reason):
        return reason
    raise server_error(f"did not start: {reason}", location)


def stop(postmaster: Postmaster, location: Location) -> None:
    """Stop the server as `pg_ctl stop --mode=fast` does: sessions end, committed data is safe."""
    deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(postmaster.pid)
        process.send_signal(signal.SIGINT)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                raise server_error(f"did not stop within {_STOP_TIMEOUT_SECONDS:.0f} s", location)
            time.sleep(0.02)


def server_error(what: str, location: Location) -> DatabaseUnavailable:
    """Return an error about the server. `what` is the predicate of its message. The hint names the log."""
    log = newest_log(location.log) or location.log
    return DatabaseUnavailable(f"the embedded Postgres {what}", hint=f"its log is {str(log)!r}")


def newest_log(folder: Path) -> Path | None:
    files = list(folder.glob("postgres-*.log")) if os.access(folder, os.R_OK | os.X_OK) else []
    return max(files, key=lambda file: file.stat().st_mtime, default=None)


def _settings(location: Location) -> str:
    """Return the server's options, quoted for the shell that pg_ctl starts.

    Each start passes them, instead of a file, because they change with the version of cbx and with the home.
    """
    socket_folder = str(location.socket).replace('"', '""')
    settings = {
        "listen_addresses": "",
        "port": PORT,
        "unix_socket_directories": f'"{socket_folder}"',
        "unix_socket_permissions": "0700",
        # logind removes a user's POSIX shared memory at logout, which would break a running server.
        "dynamic_shared_memory_type": "mmap",
        # The role and a schema of cbx have the same name, so by default Postgres would search that schema for
        # unqualified names of other programs.
        "search_path": "public",
        "cluster_name": "cbx",
        # One file per weekday, overwritten each week.
        "logging_collector": "on",
        "log_directory": location.log.name,
        "log_filename": "postgres-%a.log",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_truncate_on_rotation": "on",
    }
    # pg_ctl would put the folder between double quotes, and the shell would expand a $ in it.
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return shlex.join(["-D", str(location.data), *options])


def _is_stale(lock: Path, data: Path) -> bool:
    """Return whether `lock` blocks the start although its server does not run. Postgres detects dead pids."""
    try:
        age = time.time() - lock.lstat().st_mtime
    except OSError:
        return False
    lines = _lines(lock)
    pid = _pid(lines)
    if pid is None:
        return age > _MAX_EMPTY_SECONDS
    return psutil.pid_exists(pid) and not _serves(pid, [data, *map(Path, lines[1:2])])


def _serves(pid: int, folders: Iterable[Path]) -> bool:
    """Return whether the process `pid` is a Postgres server of one of the data `folders`."""
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
        return True  # the name and the owner match: assume that it is ours
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
    """Return the last lines with the reason, from the output of the start or from the server's log."""
    # The clock of a file system may be coarser than ours.
    logged = _lines(log) if log and log.stat().st_mtime >= began - 1 else []
    lines = printed if any(map(_FATAL.search, printed)) or not logged else logged
    return "\n  ".join(_PREFIX.sub("", line) for line in lines[-5:])
