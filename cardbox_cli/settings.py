"""Every variable that cbx reads or sets, with name, type, default, bounds and help, and rules between values.

Owns the valid values, and the messages for invalid ones, which are the same for a variable, an option and
Python code. Knows nothing about the use of a value. `make docs/reference/settings.md` prints the table.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, NoReturn

from cardbox_cli.errors import UsageError

Kind = Literal["seconds", "count", "text", "folder", "file", "address", "command", "flag"]


class Variable(NamedTuple):
    """A variable. `default` is its value if it is not set. It is None for no value, or if cbx computes it.

    `lower` and `upper` bound a number, both included. `instead` lists variables of other programs that cbx
    reads, in this order, if this one is not set. `option` names an option that sets the value for one
    command, and takes precedence. `key` is the name in the user's config file, which is read last.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    lower: float = 0
    upper: float = 0
    instead: tuple[str, ...] = ()
    option: str | None = None
    empty_counts: bool = False
    key: str | None = None

    @property
    def unit(self) -> str | None:
        return "s" if self.kind == "seconds" else None

    @property
    def secret(self) -> bool:
        return self.kind == "address"

    def find(self, environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
        """Return the name and text of the first variable that is set, not empty, and not a blank command."""
        for name in (self.name, *self.instead):
            text = environ.get(name)
            if text is not None and (self.empty_counts or (text.strip() if self.kind == "command" else text)):
                return name, text
        return None

    def text(self, environ: Mapping[str, str] = os.environ) -> str:
        _, text = self.find(environ) or ("", "")
        return text

    def value(self, environ: Mapping[str, str] = os.environ) -> Any:
        """Return the value or the default. Numeric types give a number. Raises UsageError."""
        found = self.find(environ)
        if found is None:
            return self.default
        return self._number(*found) if self.kind in ("seconds", "count") else found[1]

    def check(self, value: Any, place: str) -> None:
        """Raise UsageError, which names `place`, if a number has the wrong type or is out of bounds."""
        kind = int if self.kind == "count" else (int, float)
        if not (isinstance(value, kind) and self.lower <= value <= self.upper):
            self._refuse(value, place)

    def format_value(self, value: float) -> str:
        """Format a number for people, such as "60 s"."""
        return f"{value:g} {self.unit or ''}".rstrip()

    def _number(self, place: str, text: str) -> float:
        try:
            number = int(text) if self.kind == "count" else float(text)
        except ValueError:
            self._refuse(text, place)
        self.check(number, place)
        return number

    def _refuse(self, value: Any, place: str) -> NoReturn:
        what = "a whole number" if self.kind == "count" else "a number of seconds"
        raise UsageError(
            f"{place} is {value!r}; it must be {what} from {self.lower:g} to {self.upper:.0f}",
            hint=f"correct the value, or omit it: the default is {self.default}",
        )


_DAY = 24 * 3600

PROJECT = Variable(
    "CBX_PROJECT",
    "text",
    "default",
    "The project (tenant) that a command works in.",
    option="--project",
    key="project",
)
DATABASE_URL = Variable(
    "CBX_DATABASE_URL",
    "address",
    None,
    "The database. Default: the one that libpq's variables such as PGHOST name, or the embedded one.",
    option="--database-url",
    key="database_url",
)
READ_URL = Variable(
    "CBX_READ_URL",
    "address",
    None,
    "A replica of the database, for commands that only read.",
    option="--read-url",
    key="read_url",
)
LISTEN_URL = Variable(
    "CBX_LISTEN_URL", "address", None, "A direct address to LISTEN on, if the database is behind a pooler."
)
NATS_URL = Variable("CBX_NATS_URL", "address", None, "The NATS servers for wakeups and events.")
HOME = Variable(
    "CBX_HOME",
    "folder",
    None,
    "The folder of the embedded server and of files of cbx. Default: cbx in XDG_DATA_HOME.",
)
DATA_HOME = Variable("XDG_DATA_HOME", "folder", "~/.local/share", "The folder of programs' data.")
CONFIG = Variable("CBX_CONFIG", "file", None, "The config file. Default: cbx/config.toml in XDG_CONFIG_HOME.")
CONFIG_HOME = Variable("XDG_CONFIG_HOME", "folder", "~/.config", "The folder of programs' settings.")
RUNTIME_DIR = Variable(
    "XDG_RUNTIME_DIR",
    "folder",
    None,
    "The folder of the server's socket, if the path of CBX_HOME is too long.",
)
SERVER_USER = Variable(
    "CBX_SERVER_USER", "text", None, "The account of root's embedded server. Default: postgres or nobody."
)
HANDOVERS = Variable("CBX_HANDOVERS", "folder", None, "A folder of recipes, searched after ./handovers.")
PRICES = Variable(
    "CBX_PRICES", "file", None, "A YAML file with the prices of tokens, for `cbx cost`.", option="--prices"
)
MODELS = Variable("CBX_MODELS", "file", None, "TOML with facts about models: it adds to what cbx knows.")
OWNER = Variable(
    "CBX_OWNER",
    "text",
    None,
    "The owner of claims made in a shell. Default: host and user.",
    option="--owner",
)

LEASE = Variable("CBX_LEASE", "seconds", 60, "How long a claim lasts without a heartbeat.", 1, _DAY)
HEARTBEAT = Variable(
    "CBX_HEARTBEAT", "seconds", 20, "How often a worker extends the leases of what it runs.", 0.1, _DAY
)
POLL = Variable("CBX_POLL", "seconds", 5, "How often a worker polls when no wakeup comes.", 0.05, 3600)
UNCLAIMED = Variable(
    "CBX_UNCLAIMED", "seconds", 30, "How long work may be due before its wakeup counts as lost.", 0.1, _DAY
)
MAX_ATTEMPTS = Variable(
    "CBX_MAX_ATTEMPTS", "count", 5, "Failed attempts after which an inbox row is dead.", 1, 1_000_000
)
BACKOFF = Variable(
    "CBX_BACKOFF", "seconds", 1, "The wait before the second attempt; it doubles each time.", 0.01, _DAY
)
BACKOFF_CAP = Variable("CBX_BACKOFF_CAP", "seconds", 60, "The longest wait between attempts.", 0.01, 7 * _DAY)
TOOL_WAIT = Variable(
    "CBX_TOOL_WAIT", "seconds", 300, "How long a turn waits for a tool that has no timeout.", 0.1, 365 * _DAY
)
BATCH_DEADLINE = Variable(
    "CBX_BATCH_DEADLINE",
    "seconds",
    900,
    "Time after which a batch without a deadline ends as a timeout.",
    0.1,
    365 * _DAY,
)
MAX_TASKS = Variable("CBX_MAX_TASKS", "count", 8, "Maximum number of tasks in a batch.", 1, 10_000)
MAX_STEPS = Variable(
    "CBX_MAX_STEPS", "count", 8, "Maximum number of model calls in a turn.", 1, 10_000, option="--max-steps"
)
MAX_TOOL_CALLS = Variable(
    "CBX_MAX_TOOL_CALLS", "count", 64, "Maximum number of tool calls in one answer.", 1, 10_000
)
TURN_TIME = Variable(
    "CBX_TURN_TIME",
    "seconds",
    _DAY,
    "How long a turn may run after a worker claims it, before it ends as a timeout.",
    1,
    30 * _DAY,
)
CHAT_WINDOW = Variable(
    "CBX_CHAT_WINDOW",
    "count",
    30,
    "Transcript entries that a chat's run sees if the chat has no context yet.",
    0,
    1000,
)
STDERR_KEPT = Variable(
    "CBX_STDERR_KEPT",
    "count",
    65_536,
    "How many of the last bytes of a command's stderr cbx stores. 0 for none.",
    0,
    524_288,
)

OUTPUT = Variable(
    "CBX_OUTPUT",
    "text",
    "table",
    "The output format. Commands without csv or tsv print a table instead.",
    option="--output",
    key="output",
)
PAGER = Variable(
    "CBX_PAGER",
    "command",
    None,
    "The pager for long output. Default: less, if installed. `cat` or empty for none.",
    instead=("PAGER",),
    empty_counts=True,
)
EDITOR = Variable("VISUAL", "command", "vi", "The editor for cards and boxes.", instead=("EDITOR",))
NO_COLOR = Variable("NO_COLOR", "flag", None, "Any value turns colours off.")
TERM = Variable("TERM", "text", None, "The terminal. A `dumb` one has no colours and no pager.")

# Variables that only workers set, for their commands.
AGENT = Variable("CBX_AGENT", "text", None, "The agent of the turn.")
TURN_ID = Variable("CBX_TURN_ID", "text", None, "The turn.")
TURN_EPOCH = Variable("CBX_TURN_EPOCH", "count", None, "The turn's epoch, which fences its writes.")
STEP = Variable("CBX_STEP", "text", None, "The step: one model call.")
CONTEXT_BOX = Variable("CBX_CONTEXT_BOX", "text", None, "The box that the turn reads.")
OUTPUT_BOX = Variable("CBX_OUTPUT_BOX", "text", None, "The box that the turn writes to.")
TOOL_NAME = Variable("CBX_TOOL_NAME", "text", None, "The tool. Only for the command of a tool.")
CHAT_KEY = Variable("CBX_CHAT_KEY", "text", None, "The chat. Only for the run of a chat.")
CHAT_RUN = Variable("CBX_CHAT_RUN", "text", None, "The run of the chat.")
CHAT_EPOCH = Variable("CBX_CHAT_EPOCH", "count", None, "The run's epoch, which fences its replies.")
COMMAND_ID = Variable(
    "CBX_COMMAND_ID", "text", None, "The command. Processes that have this value end with it."
)
TOOL_CALL_ID = Variable("CBX_TOOL_CALL_ID", "text", None, "The call. Only for the command of a tool.")

# Variables for tests of cbx, which `faults` parses.
TEST_FAULT = Variable("CBX_TEST_FAULT", "text", None, "The signal to send, and the point at which.")
TEST_FAULT_LOG = Variable("CBX_TEST_FAULT_LOG", "text", None, "The file for the points reached.")
TEST_CITUS_URL = Variable("CBX_TEST_CITUS_URL", "address", None, "A Citus cluster for the tests of sharding.")

_EXECUTION_VARIABLES = (
    *(LEASE, HEARTBEAT, POLL, UNCLAIMED),
    *(MAX_ATTEMPTS, BACKOFF, BACKOFF_CAP, TOOL_WAIT, MAX_STEPS, MAX_TOOL_CALLS, TURN_TIME, STDERR_KEPT),
    *(CHAT_WINDOW, BATCH_DEADLINE, MAX_TASKS),
)
EXECUTION_SETTINGS = {
    variable.name.removeprefix("CBX_").lower(): variable for variable in _EXECUTION_VARIABLES
}
LOCATION_SETTINGS = (
    *(PROJECT, DATABASE_URL, READ_URL, LISTEN_URL, NATS_URL, HOME, DATA_HOME),
    *(CONFIG, CONFIG_HOME, RUNTIME_DIR, SERVER_USER, HANDOVERS, PRICES, MODELS, OWNER),
)
TERMINAL_SETTINGS = (OUTPUT, PAGER, EDITOR, NO_COLOR, TERM)
SETTINGS = (*LOCATION_SETTINGS, *EXECUTION_SETTINGS.values(), *TERMINAL_SETTINGS)
CONFIG_FILE_SETTINGS = tuple(variable for variable in SETTINGS if variable.key is not None)
WORKER_VARIABLES = (
    *(AGENT, TURN_ID, TURN_EPOCH, STEP, CONTEXT_BOX, OUTPUT_BOX, COMMAND_ID, TOOL_NAME, TOOL_CALL_ID),
    *(CHAT_KEY, CHAT_RUN, CHAT_EPOCH),
)
TEST_VARIABLES = (TEST_FAULT, TEST_FAULT_LOG, TEST_CITUS_URL)


class SettingRule(NamedTuple):
    """Two dependent settings. If `less` times `factor` exceeds `more`, `otherwise` happens."""

    less: Variable
    factor: int
    more: Variable
    otherwise: str

    @property
    def rule(self) -> str:
        return f"{self.less.name} is at most {'half of ' if self.factor == 2 else ''}{self.more.name}"

    def check(self, values: Mapping[Variable, float], places: Mapping[Variable, str]) -> None:
        less, more = values[self.less], values[self.more]
        if less * self.factor > more:
            one, other = (_describe(each, values[each], places[each]) for each in (self.less, self.more))
            raise UsageError(
                f"{one} cannot be combined with {other}: {self.otherwise}",
                hint=f"{self.rule}: set {places[self.less]} to {more / self.factor:g} or less,"
                f" or {places[self.more]} to {less * self.factor:g} or more",
            )


def _describe(variable: Variable, value: float, place: str) -> str:
    by_default = " (the default)" if value == variable.default else ""
    return f"{place} of {variable.format_value(value)}{by_default}"


SETTING_RULES = (
    SettingRule(HEARTBEAT, 2, LEASE, "a worker would lose the turns that it runs"),
    SettingRule(BACKOFF, 1, BACKOFF_CAP, "the first wait would be longer than the longest"),
    SettingRule(POLL, 1, UNCLAIMED, "work would count as overlooked before a worker polls"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of execution, times in seconds. Raises UsageError for invalid values."""

    lease: float = LEASE.default
    heartbeat: float = HEARTBEAT.default
    poll: float = POLL.default
    unclaimed: float = UNCLAIMED.default
    max_attempts: int = MAX_ATTEMPTS.default
    backoff: float = BACKOFF.default
    backoff_cap: float = BACKOFF_CAP.default
    tool_wait: float = TOOL_WAIT.default
    max_steps: int = MAX_STEPS.default
    max_tool_calls: int = MAX_TOOL_CALLS.default
    turn_time: float = TURN_TIME.default
    stderr_kept: int = STDERR_KEPT.default
    chat_window: int = CHAT_WINDOW.default
    batch_deadline: float = BATCH_DEADLINE.default
    max_tasks: int = MAX_TASKS.default

    def __post_init__(self) -> None:
        _check({variable: getattr(self, field) for field, variable in EXECUTION_SETTINGS.items()}, _FIELDS)

    @property
    def lease_time(self) -> timedelta:
        return timedelta(seconds=self.lease)

    @property
    def unclaimed_time(self) -> timedelta:
        return timedelta(seconds=self.unclaimed)

    @property
    def labels(self) -> dict[str, str]:
        """Return a label by field, for messages: the variable and its value, as in "CBX_LEASE (60 s)"."""
        return {
            field: f"{variable.name} ({variable.format_value(getattr(self, field))})"
            for field, variable in EXECUTION_SETTINGS.items()
        }

    def delay(self, attempts: int, jitter: float) -> timedelta:
        """Return `backoff`, doubled `attempts` times, up to `backoff_cap`, times 0.75 + 0.25 * `jitter`."""
        grown = self.backoff * 2.0 ** min(attempts, 30)
        return timedelta(seconds=min(grown, self.backoff_cap) * (0.75 + 0.25 * jitter))


_FIELDS = {variable: field for field, variable in EXECUTION_SETTINGS.items()}


def read_settings(environ: Mapping[str, str] = os.environ, **options: float | None) -> Settings:
    """Return the settings. An option, named by its field, overrides the variable. Raises UsageError."""
    values: dict[Variable, Any] = {}
    places: dict[Variable, str] = {}
    for field, variable in EXECUTION_SETTINGS.items():
        option = options.get(field)
        values[variable] = variable.value(environ) if option is None else option
        places[variable] = variable.name if option is None else str(variable.option)
    _check(values, places)
    return Settings(**{field: values[variable] for field, variable in EXECUTION_SETTINGS.items()})


def _check(values: Mapping[Variable, Any], places: Mapping[Variable, str]) -> None:
    for variable, value in values.items():
        variable.check(value, places[variable])
    for pair in SETTING_RULES:
        pair.check(values, places)
