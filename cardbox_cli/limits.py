"""Every limit that no setting changes and that a user may reach: value, unit, meaning.

`make docs/reference/settings.md` prints the table. Limits that can be set are variables of `settings.py`.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple


class Limit(NamedTuple):
    value: int
    unit: str
    help: str

    def __str__(self) -> str:
        return f"{self.value} {self.unit}"

    @property
    def duration(self) -> timedelta:
        """Return the limit, which is in seconds, as a duration."""
        return timedelta(seconds=self.value)


COMMAND_OUTPUT = Limit(64, "MiB", "Output of a worker's or tool's command; cbx stops it above that.")
RESULT_SIZE = Limit(16, "MiB", "Result of one tool call, printed by a command or reported.")
ANSWER_PARTS = Limit(1000, "count", "Cards, lines or content blocks in one answer of a model.")
CALLED_NAME = Limit(128, "characters", "Name of a tool that a model calls; providers accept no longer ones.")
CALL_SIZE = Limit(1, "MiB", "Arguments of a call that cbx itself executes, for example of a handler.")
QUOTED_SIZE = Limit(1_000_000, "characters", "Text of deliverables that one call's result quotes, in total.")
SEARCH_TEXT_SIZE = Limit(
    500, "characters", "Title or reason of an archived context, and the words of a search."
)
INPUT_SIZE = Limit(64, "MiB", "File or standard input that a command loads completely, for example `@FILE`.")
VALUE_SIZE = Limit(64, "MiB", "JSON value that must fit in memory: a line (without its lists), or a message.")
PIPE_SIZE = Limit(
    4096, "MiB", "Piped or compressed file of cards or conversations, copied before it is read."
)
TURN_LOGS = Limit(1, "MiB", "Stored stderr of all commands of a turn; cbx drops the oldest first.")
LOG_AGE = Limit(30, "days", "Age at which `cbx db gc` purges the stderr of a turn's commands.")
MAX_BOXES_SEARCHED = Limit(
    10_000, "boxes", "Most recently changed boxes that `card refs` and `db gc` search; `--latest` sets it."
)
NUMBER_GROWTH = Limit(
    1_000_000, "digits", "Growth of a value's numbers when they are stored, for example `1e999` written out."
)
FOLDER_FILES = Limit(200_000, "files", "Files in a folder of conversations, including its subfolders.")
YAML_SIZE = Limit(1, "MiB", "Recipe, profile, or another file that people write.")
RECURSION_DEPTH = Limit(20, "turns", "Depth of delegation: turns that start turns.")
POISON = Limit(3, "times", "Failures of an inbox row before `cbx why` calls it poison.")
LOCK_HELD = Limit(10, "s", "Time that another session holds a row of a turn before `cbx why` names it.")
FOREIGN_SILENCE = Limit(300, "s", "Time without news after which a worker of another system counts as dead.")
# Postgres has `infinity`, and years that a datetime cannot have. Reading replaces them by these (in SQL, the
# fragment `instant`), which leave a year for arithmetic.
EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)

LIMITS = (
    *(ANSWER_PARTS, CALLED_NAME, CALL_SIZE, QUOTED_SIZE, SEARCH_TEXT_SIZE),
    *(COMMAND_OUTPUT, RESULT_SIZE, INPUT_SIZE, VALUE_SIZE, PIPE_SIZE, TURN_LOGS, LOG_AGE),
    *(FOLDER_FILES, MAX_BOXES_SEARCHED, NUMBER_GROWTH, YAML_SIZE),
    *(RECURSION_DEPTH, POISON, LOCK_HELD, FOREIGN_SILENCE),
)
