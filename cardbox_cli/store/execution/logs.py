"""What the commands of turns wrote on stderr, in Postgres.

A database without the table keeps nothing, and reports that when somebody asks for the logs of a turn.
"""

import msgspec

from cardbox_cli.limits import TURN_LOGS
from cardbox_cli.model.execution.logs import CommandLog, LogTail
from cardbox_cli.store.connection.project_store import ProjectStore

_TABLE = "cbx.logs"


class LogStore(ProjectStore):
    """The logs of one project's turns, in the order in which their commands ended."""

    @property
    def readable(self) -> bool:
        """Whether the database has a place for them that this role may read."""
        return _TABLE in self.database.tables and bool(self.database.value("logs_are_readable"))

    @property
    def writable(self) -> bool:
        """Whether the database has a place for them that this role may write to."""
        return _TABLE in self.database.tables and bool(self.database.value("logs_are_writable"))

    def add(self, log: CommandLog) -> None:
        """Keep a log, once; of the turn's others the oldest go where all are more than may be kept."""
        self._run("insert_log", **msgspec.structs.asdict(log))
        self._run("trim_logs", agent_turn_id=log.agent_turn_id, limit=TURN_LOGS.value << 20)

    def require(self) -> None:
        """Raise SchemaMissing where the database has no place for logs."""
        self._require(_TABLE)

    def of_turn(self, agent_turn_id: str, *, step_id: str | None = None) -> list[CommandLog]:
        """The logs of a turn, or of one of its steps. Raises SchemaMissing where none can be kept."""
        self.require()
        return self._all(CommandLog, "logs_of_turn", agent_turn_id=agent_turn_id, step_id=step_id)

    def tails(self, agent_turn_id: str) -> list[LogTail]:
        """The ends of a turn's logs; none where none are kept, or nobody shows them to this role."""
        if not self.readable:
            return []
        return self._all(LogTail, "log_tails", agent_turn_id=agent_turn_id)
