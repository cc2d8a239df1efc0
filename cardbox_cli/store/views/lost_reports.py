"""Which calls of suspended turns wait although their result is there. Reads only."""

from datetime import timedelta

import msgspec

from cardbox_cli.store.connection.project_store import ProjectStore


class LostReport(msgspec.Struct, frozen=True):
    """A call that may wait in vain. Its result is `card_id`, or the end of turn `child_turn_id`."""

    agent_id: str
    agent_turn_id: str
    tool_call_id: str
    card_id: str | None
    child_turn_id: str | None


class LostReportStore(ProjectStore):
    """The lost reports of one project."""

    def find(self, agent_turn_id: str | None, *, age: timedelta) -> list[LostReport]:
        """Calls that this suspended turn (None: any) may wait for in vain.

        Their results are stored for so long, or no agent is at the turns that were to answer them.
        """
        return [LostReport(*row) for row in self._rows("lost_reports", agent_turn_id=agent_turn_id, age=age)]
