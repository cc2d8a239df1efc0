"""The identity of a process in a name: another process on the same machine sees at once that it is dead.

A name ends with the location of its process and the time at which it started. The location is a digest of
the kernel's boot and of the namespaces of process ids and of time. Other hosts and containers, even with the
same host name, have other locations: for them only the heartbeat decides.
"""

import hashlib
import os
import socket
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
# The states of a process that has ended, and whose parent has not asked for its exit code.
_ENDED = ("Z", "X", "x")


def make_owner_name() -> str:
    """Return a unique name of this process: host, process id, a random part, and its identity."""
    import uuid6

    name = f"{socket.gethostname()}-{os.getpid()}-{uuid6.uuid7().hex[-8:]}"
    started, here = _start_time(os.getpid()), _location()
    return f"{name}-{here}-{started:x}" if started is not None and here is not None else name


def is_dead(owner: str) -> bool:
    """Return whether a process of this machine has this name and does not exist any more.

    False if this cannot be decided: for another machine or container, or a name of another form.
    """
    parts = owner.rsplit("-", 4)
    if len(parts) != 5 or parts[3] != _location():
        return False
    try:
        pid, started = int(parts[1]), int(parts[4], 16)
    except ValueError:
        return False
    try:
        return _start_time(pid) != started if _exists(pid) else True
    except PermissionError:
        return False


def _exists(pid: int) -> bool:
    """Return whether a process has this id. Raises PermissionError if this account cannot see it."""
    if pid <= 0:
        return False
    if (_PROC / str(pid)).exists():
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    raise PermissionError(pid)


def _start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since the boot; None if it has ended, or without /proc."""
    try:
        # The name of the program is in parentheses, and may contain anything.
        facts = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if facts[0] in _ENDED else int(facts[19])
    except (FileNotFoundError, ProcessLookupError, IndexError, ValueError):
        return None


@cache
def _location() -> str | None:
    """Return a digest of the boot and of the namespaces of this process; None if the system has none."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        pids = os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return None
    try:
        time = os.readlink(_PROC / "self/ns/time")
    except OSError:
        time = ""
    return hashlib.sha256(f"{boot} {pids} {time}".encode()).hexdigest()[:8]
