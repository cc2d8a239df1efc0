"""What the commands of turns wrote on stderr, as values: whole, and as turns show the ends of it."""

from collections.abc import Sequence
from datetime import datetime

import msgspec


class _Log(msgspec.Struct, frozen=True, kw_only=True):
    log_id: str
    agent_turn_id: str
    step_id: str
    tool_call_id: str | None
    tool_name: str | None
    turn_epoch: int
    worker_id: str
    exit_code: int | None
    stderr_bytes: int
    started_at: datetime
    ended_at: datetime

    @property
    def failed(self) -> bool:
        """Whether the command did not come to a good end."""
        return self.exit_code != 0

    @property
    def whose(self) -> str:
        """Which command it was."""
        return "the command of the model" if self.tool_name is None else f"tool {self.tool_name!r}"

    @property
    def outcome(self) -> str:
        """How the command ended."""
        if self.exit_code is None:
            return "was stopped"
        if self.exit_code < 0:
            return f"was killed by signal {-self.exit_code}"
        return f"ended with exit code {self.exit_code}"


class CommandLog(_Log, frozen=True, kw_only=True):
    """What one command wrote on stderr: the end of its `stderr_bytes` bytes, without secrets.

    `tool_call_id` and `tool_name` are None for the command that answers for the model. `exit_code` is
    negative where a signal ended the command, None where cbx did.
    """

    stderr: str


class LogTail(_Log, frozen=True, kw_only=True):
    """The same with the last characters of its text alone."""

    stderr_tail: str


def of_failure(logs: Sequence[LogTail], last_step_id: str | None) -> LogTail | None:
    """The log that may say why a turn failed: of its last command that failed, or whose answer was none."""
    log = next((log for log in reversed(logs) if log.failed or log.tool_name is None), None)
    return log if log is not None and (log.failed or log.step_id == last_step_id) else None


def last_lines(text: str, most: int = 10) -> list[str]:
    """The last lines of a text that say something, at most so many."""
    return [line for line in text.rstrip().split("\n") if line.strip()][-most:]
