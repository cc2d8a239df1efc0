"""A command as a process group that never outlives us, be we killed by whatever signal.

A supervisor in the group reads from a pipe that we alone can write to: when we are gone it reads its end, and
kills the group. It is a shell, which starts in a millisecond on every system. What leaves the group, by a
session of its own, is found by a variable of its environment once the command is over; where we die first, it
is beyond us.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from uuid import uuid4

from cardbox_cli.settings import COMMAND_ID

# How often what was started meanwhile is looked for again.
_LOOKS = 5

# It ignores what may be sent to its group, and is nobody's child, so that a command that waits for all of its
# children does not wait for it.
_SUPERVISOR = """\
( trap '' HUP INT QUIT USR1 USR2 ALRM TERM
  { read -r over; kill -KILL 0; } < "/dev/fd/$2" > /dev/null 2>&1 & )
exec /bin/sh -c "$1"
"""


class SupervisedCommand(AbstractContextManager["SupervisedCommand"]):
    """A running `sh -c COMMAND` with pipes, in `environment` and no more. Raises OSError.

    When the context is left, the group dies, and what has left it.
    """

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        theirs, self._ours = os.pipe()
        self._id = uuid4().hex
        self._is_dead = False
        try:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "cbx", command, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, COMMAND_ID.name: self._id},
                start_new_session=True,
                pass_fds=[theirs],
            )
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(theirs)

    def __exit__(self, *_: object) -> None:
        if not self._is_dead:
            self.signal(signal.SIGKILL)
        _kill_marked(f"{COMMAND_ID.name}={self._id}".encode())
        os.close(self._ours)
        # The first process of a container gets all orphans, and nobody else buries them.
        if os.getpid() == 1:
            with suppress(ChildProcessError):
                os.waitpid(-self.process.pid, 0)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        # A group that has a member keeps its number, and one without has nobody left to hold a pipe. One
        # whose members have all become other users is beyond us.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
        self._is_dead = number == signal.SIGKILL


def _kill_marked(mark: bytes) -> None:
    """Kill what has the mark in the environment that it was started with, where the system shows that."""
    for _ in range(_LOOKS):
        found = [pid for pid in _processes() if mark in _environment(pid)]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return []
