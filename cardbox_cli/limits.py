"""Every bound that nobody sets, and that somebody may meet: value, unit, what it is of.

`make docs/settings.md` prints the table. What can be set is a variable of `settings.py`.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple


class Limit(NamedTuple):
    """A bound that nobody sets, and that somebody may meet."""

    value: int
    unit: str
    help: str

    def __str__(self) -> str:
        return f"{self.value} {self.unit}"

    @property
    def time(self) -> timedelta:
        """As a length of time, of one that is in seconds."""
        return timedelta(seconds=self.value)


COMMAND_OUTPUT = Limit(64, "MiB", "What the command of a worker or tool may print before it is stopped.")
RESULT_SIZE = Limit(16, "MiB", "The result of one tool call, printed by a command or reported.")
ANSWER_PARTS = Limit(1000, "count", "Cards, lines or blocks of content that one answer of a model may have.")
CALLED_NAME = Limit(
    128, "characters", "The name of a tool that a model calls; providers allow no longer ones."
)
CALL_SIZE = Limit(1, "MiB", "The arguments of a call that cbx itself answers, such as of a handler.")
JOINED_SIZE = Limit(1_000_000, "characters", "What a call's result quotes of deliverables, in all.")
WORDS_SIZE = Limit(500, "characters", "A title or reason of an archived context, and words to find one by.")
INPUT_SIZE = Limit(64, "MiB", "A file or standard input that a command reads whole, such as `@FILE`.")
VALUE_SIZE = Limit(64, "MiB", "A JSON value that must be held: a line (its lists aside), or a message.")
PIPE_SIZE = Limit(4096, "MiB", "A pipe or a packed file of cards or conversations, copied before it is read.")
TURN_LOGS = Limit(1, "MiB", "What is kept of the stderr of all commands of a turn; the oldest goes first.")
LOG_AGE = Limit(30, "days", "How old the stderr of a turn's commands is when `cbx db gc` purges it.")
BOXES_LOOKED_INTO = Limit(
    10_000,
    "boxes",
    "Where `card refs` and `db gc` look, those that changed last; `--latest` sets it.",
)
NUMBER_GROWTH = Limit(
    1_000_000,
    "digits",
    "What the numbers of one value grow by in all, written out as `1e999` is when stored.",
)
FOLDER_FILES = Limit(200_000, "files", "What a folder of conversations may hold, in its folders too.")
YAML_SIZE = Limit(1, "MiB", "A recipe, a profile, or another file that people write.")
RECURSION_DEPTH = Limit(20, "turns", "How deep turns may ask for turns.")
POISON = Limit(3, "times", "How often an inbox row fails before `cbx why` calls it poison.")
LOCK_HELD = Limit(10, "s", "How long another session holds a row of a turn before `cbx why` names it.")
FOREIGN_SILENCE = Limit(
    300, "s", "How long workers of other systems, which send no heartbeats, are believed."
)
# Postgres has `infinity`, and years that a datetime cannot have. Reading turns them into these (in SQL: the
# fragment `instant`), which leave a year for arithmetic.
EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)

LIMITS = (
    *(ANSWER_PARTS, CALLED_NAME, CALL_SIZE, JOINED_SIZE, WORDS_SIZE),
    *(COMMAND_OUTPUT, RESULT_SIZE, INPUT_SIZE, VALUE_SIZE, PIPE_SIZE, TURN_LOGS, LOG_AGE),
    *(
        FOLDER_FILES,
        BOXES_LOOKED_INTO,
        NUMBER_GROWTH,
        YAML_SIZE,
        RECURSION_DEPTH,
        POISON,
        LOCK_HELD,
        FOREIGN_SILENCE,
    ),
)
