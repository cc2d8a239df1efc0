"""What turns with one profile delivered: a look at inbox rows, profiles' boxes, the ends of turns and cards.

The rows are read as they are, another program's too; nothing is kept of them.
"""

from cardbox_cli.model.cards import Card, decode_card
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.store.connection.project_store import ProjectStore

_TABLES = ("state.agent_inbox", "state.agent_state_head", "state.agent_steps")
# How many inbox rows are looked at: experience is what was done lately.
_LATEST = 10_000


class ExperienceStore(ProjectStore):
    """The deliverables of one project's turns, as a layer's provider gives them."""

    def experience(self, profile_box_id: str, limit: int) -> list[Card]:
        """What turns with the same profile delivered that ended in success, the last enqueued first.

        The same profile is one of the same name in any case: importing a name again makes a new box. What
        counts is the profile that the turn ran with, whatever its agent has had since. Looks at the project's
        last 10,000 inbox rows. A deliverable that stands for one that the turn did not make is none. Raises
        SchemaMissing where the database has no turns.
        """
        for table in _TABLES:
            self.database.require(table)
        query = "kept_deliverables" if self.database.keeps_turns else "left_deliverables"
        rows = self._rows(query, profile_box_id=as_box_id(profile_box_id), latest=_LATEST, limit=limit)
        return [decode_card(row) for (row,) in rows]
