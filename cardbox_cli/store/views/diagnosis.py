"""What a diagnosis reads: everything about a set of turns, each kind of row in one query for all of them.

Reads only. The caller opens the snapshot; database locks are looked up outside it. Judges nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from cardbox_cli.model.execution import diagnosis as facts
from cardbox_cli.model.execution import turns as model
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.rows import all_decoded
from cardbox_cli.store.connection.tables import ESSENTIAL, EXECUTION
from cardbox_cli.store.views.turns import TurnViews

# How many dead rows, unended turns and requests a look at a whole project takes in.
LOOKED_AT = 10_000

_Value = TypeVar("_Value")


class DiagnosisStore(ProjectStore):
    """The rows of one project, as a diagnosis wants them."""

    def be_impatient(self) -> None:
        """Let the reads of this transaction fail soon where a table is locked."""
        self._value("why_lock_timeout")

    def places(self, turns: Collection[str]) -> dict[str, str]:
        """The agent of each of these turns that any row tells of."""
        found = dict(self._rows("why_places", turns=list(turns)))
        if self.database.keeps_turns:
            found |= dict(self._rows("why_places_recorded", turns=list(turns)))
        return found

    def agent(self, agent_id: str) -> tuple[bool, str | None]:
        """Whether the agent is known, and the turn that it is at, else its next one, else its last one."""
        row = self._row("why_turn_of_agent", agent_id=agent_id)
        known = row is not None or bool(self.heads([agent_id])) or bool(self.worker_targets([agent_id]))
        return known, None if row is None else row[0]

    def resolve(self, wanted: str) -> str:
        """The full id of a turn, or of a unique beginning or end. Raises NotFound, AmbiguousId."""
        return wanted if self.places([wanted]) else TurnViews(self.database, self.project_id).resolve(wanted)

    def suspects(self) -> list[facts.Place]:
        """Every turn that something may be wrong with; none that waits behind an active one or is done.

        Follows partial indexes over what is open; of what is lost, up to `LOOKED_AT` of each kind count, the
        newest of dead rows and of requests.
        """
        found = dict[str, str]()
        for query in ("why_active", "why_open", "why_next"):
            found |= dict(self._rows(query))
        found |= dict(self._rows("why_queued_without_box", limit=LOOKED_AT))
        lost = dict[str, str]()
        for query in ("why_dead", "why_bare_edges"):
            lost |= dict(self._rows(query, limit=LOOKED_AT))
        if self.database.keeps_turns:
            lost |= dict(self._rows("why_unended", limit=LOOKED_AT))
            for (ended,) in self._rows("why_ended", turns=list(lost)):
                del lost[ended]
            found |= dict(self._rows("why_orphans"))
        return [facts.Place(*place) for place in (lost | found).items()]

    def counts(self) -> tuple[int, int]:
        """How many agents are at a turn, and how many turns are queued."""
        row = self._row("why_active_count")
        assert row is not None
        return row[0], row[1]

    def heads(self, agents: Collection[str]) -> dict[str, model.Head]:
        """The heads of agents."""
        return {head.agent_id: head for head in self._all(model.Head, "why_heads", agents=list(agents))}

    def rows(self, turns: Collection[str], agents: Collection[str]) -> dict[str, list[model.InboxRow]]:
        """The inbox rows of turns, the oldest first."""
        rows = self._all(model.InboxRow, "why_rows", turns=list(turns), agents=list(agents))
        rows.sort(key=lambda row: (row.created_at is not None, row.created_at, row.inbox_id))
        return _grouped(rows, "turn_id")

    def queue_lengths(self, agents: Collection[str]) -> dict[str, int]:
        """How many turns are queued for agents, where any is."""
        return dict(self._rows("why_queues", agents=list(agents)))

    def steps(self, turns: Collection[str]) -> dict[str, list[model.Step]]:
        """The steps of turns in order."""
        return _grouped(self._all(model.Step, "why_steps", turns=list(turns)), "agent_turn_id")

    def waiting_tools(
        self, turns: Collection[str], agents: Collection[str]
    ) -> dict[str, list[model.WaitingTool]]:
        """The calls that turns wait or waited for, of all their epochs."""
        tools = self._all(model.WaitingTool, "why_waiting", turns=list(turns), agents=list(agents))
        return _grouped(tools, "agent_turn_id")

    def requests(self, turns: Collection[str]) -> dict[str, list[model.Edge]]:
        """The edges by which turns were asked for."""
        return _grouped(self._all(model.Edge, "why_edges", turns=list(turns)), "target_agent_turn_id")

    def records(self, turns: Collection[str]) -> dict[str, model.TurnRecord]:
        """What cbx keeps of turns."""
        records = all_decoded(model.TurnRecord, self._own("why_records", turns=list(turns)))
        return {record.agent_turn_id: record for record in records}

    def audit(self, turns: Collection[str]) -> dict[str, model.AuditEntry]:
        """The last thing that was done to turns from outside their runs."""
        rows = self._own("why_audit", turns=list(turns))
        return {entry.agent_turn_id or "": entry for entry in all_decoded(model.AuditEntry, rows)}

    def leases(self, agents: Collection[str]) -> dict[str, list[model.Lease]]:
        """The leases of agents' rows, by agent."""
        return _grouped(all_decoded(model.Lease, self._own("why_leases", agents=list(agents))), "agent_id")

    def worker_targets(self, agents: Collection[str]) -> dict[str, str]:
        """Which workers serve the agents that are on the roster; "" for nobody."""
        rows = self._rows("why_roster", agents=list(agents))
        return {agent_id: (target or "").strip() for agent_id, target in rows}

    def workers(self, targets: Collection[str]) -> dict[str, list[model.WorkerEntry]]:
        """The workers that announced themselves for targets, by target."""
        workers = all_decoded(model.WorkerEntry, self._own("why_workers", targets=list(targets)))
        return _grouped(workers, "worker_target")

    def loads(self, workers: Collection[str]) -> dict[str, int]:
        """How many leases each of these workers has that are not over, in whatever project."""
        return dict(self._own("why_loads", workers=list(workers)))

    def existing_boxes(self, boxes: Collection[str]) -> frozenset[str]:
        """Which of these boxes exist."""
        return frozenset(self._column("why_boxes", boxes=list(boxes)))

    def lost_cards(self, boxes: Collection[str]) -> dict[str, list[facts.LostCard]]:
        """The references of boxes that lead to no card that is seen."""
        lost = [facts.LostCard(*row) for row in self._rows("why_lost_cards", boxes=list(boxes))]
        return _grouped(lost, "box_id")

    def results(self, turns: Collection[str], calls: Collection[str]) -> dict[str, list[facts.ResultCard]]:
        """The results of calls that turns wait for, by turn."""
        found = dict[str, list[facts.ResultCard]]()
        for turn, *card in self._rows("why_results", turns=list(turns), calls=list(calls)):
            found.setdefault(turn, []).append(facts.ResultCard(*card))
        return found

    def arguments(
        self, turns: Collection[str], calls: Collection[str], length: int
    ) -> dict[str, dict[str, str]]:
        """What turns call tools with, by turn and call: the first `length` characters of the JSON."""
        found = dict[str, dict[str, str]]()
        if calls:
            for turn, call, text in self._rows(
                "why_arguments", turns=list(turns), calls=list(calls), length=length
            ):
                found.setdefault(turn, {})[call] = text
        return found

    def children(self, turns: Collection[str]) -> dict[str, list[facts.Child]]:
        """The turns that turns asked for."""
        rows = self._rows("why_children", turns=list(turns))
        ends = dict(self._own("why_ends", turns=[row[0] for row in rows]))
        children = [facts.Child(*(*row, ends.get(row[0]))) for row in rows]
        return _grouped(children, "source_turn_id")

    def calls(self, wanted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], facts.AwaitedCall]:
        """The state of calls, given as (agent, turn, tool call), by the same."""
        agents, turns, calls = zip(*wanted, strict=True) if wanted else ((), (), ())
        rows = self._rows("why_calls", agents=list(agents), turns=list(turns), calls=list(calls))
        return {row[:3]: facts.AwaitedCall(*row) for row in rows}

    def sharers(self, boxes: Collection[str]) -> dict[str, list[facts.Sharer]]:
        """The active turns that write to boxes, by box."""
        return _grouped(
            [facts.Sharer(*row) for row in self._rows("why_sharers", boxes=list(boxes))], "box_id"
        )

    def locks_are_here(self) -> bool:
        """Whether this is a primary, where the locks are."""
        return bool(self._value("why_primary"))

    def row_locks(
        self, agents: Collection[str], inbox_ids: Collection[str], boxes: Collection[str]
    ) -> list[facts.Lock]:
        """Who holds these rows."""
        rows = self._rows("why_row_locks", agents=list(agents), inbox_ids=list(inbox_ids), boxes=list(boxes))
        return [facts.Lock(*row) for row in rows]

    def table_locks(self) -> list[facts.Lock]:
        """Who keeps everybody from writing to a table that turns need. Waits for no lock itself."""
        tables = [*EXECUTION, *ESSENTIAL]
        return [facts.Lock(*row) for row in self._rows("why_table_locks", tables=tables)]

    def _own(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._rows(query, **parameters) if self.database.keeps_turns else []


def _grouped(values: Iterable[_Value], key: str) -> dict[str, list[_Value]]:
    groups = dict[str, list[_Value]]()
    for value in values:
        groups.setdefault(getattr(value, key) or "", []).append(value)
    return groups
