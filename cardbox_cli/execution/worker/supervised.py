"""A command as a process group that never outlives us, be we killed by whatever signal.

A supervisor in the group reads from a pipe that we alone can write to: when we are gone it reads its end, and
kills the group. It is a shell, which starts in a millisecond on every system. What leaves the group, by a
session of its own, is beyond it.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress

# It ignores what may be sent to its group, and is nobody's child, so that a command that waits for all of its
# children does not wait for it. A line instead of the end of the pipe lets it go.
_SUPERVISOR = """\
( trap '' HUP INT QUIT USR1 USR2 ALRM TERM
  { read -r over || kill -KILL 0; } < "/dev/fd/$2" > /dev/null 2>&1 & )
exec /bin/sh -c "$1"
"""


class SupervisedCommand(AbstractContextManager["SupervisedCommand"]):
    """A running `sh -c COMMAND` with pipes, in our environment and `environment`. Raises OSError.

    Where the context is left by an exception, the group dies.
    """

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        theirs, self._ours = os.pipe()
        try:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "cbx", command, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **environment},
                start_new_session=True,
                pass_fds=[theirs],
            )
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(theirs)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._release()
        os.close(self._ours)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        # A group that has a member keeps its number, and one without has nobody left to hold a pipe. One
        # whose members have all become other users is beyond us.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _release(self) -> None:
        """Let the supervisor go: the command has ended, and what it left running goes on."""
        # It may be dead with its group.
        with suppress(BrokenPipeError):
            os.write(self._ours, b"\n")
        # The first process of a container gets all orphans, and nobody else buries them.
        if os.getpid() == 1:
            with suppress(ChildProcessError):
                os.waitpid(-self.process.pid, 0)
