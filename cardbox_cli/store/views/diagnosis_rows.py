"""Rows for a diagnosis of a set of turns, with one query per type of row.

Read-only. The caller opens the snapshot, but reads database locks outside of it. Draws no conclusions.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from cardbox_cli.model.card_types import PROFILE
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution import situations as facts
from cardbox_cli.model.execution import turns as model
from cardbox_cli.model.execution.batches import Batch
from cardbox_cli.model.execution.turns import LogTail
from cardbox_cli.model.identity import ARCHIVED
from cardbox_cli.process_identity import is_dead
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.queries import decode_rows
from cardbox_cli.store.connection.tables import BATCHES, ESSENTIAL, EXECUTION, FOREIGN_BATCHES, OWN_EXECUTION
from cardbox_cli.store.execution.turn_store import LogStore
from cardbox_cli.store.execution.worker_store import mark_dead_processes
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.batch_views import ForeignBatch
from cardbox_cli.store.views.turn_views import TurnViews

# Maximum number of dead rows, unended turns and dispatches that a diagnosis of a project examines.
MAX_ROWS = 10_000
# Number of newest inbox rows that are searched for an unknown status, because no index finds it.
_MAX_ROWS_SEARCHED = 2000

_Value = TypeVar("_Value")


class DiagnosisStore(ProjectStore):
    """The rows of one project for a diagnosis."""

    @property
    def keeps_turns(self) -> bool:
        """Return whether tables for leases, workers and records exist, even if our role may not read them."""
        return {*self.database.tables, *self.database.closed_tables}.issuperset(OWN_EXECUTION)

    @property
    def closed(self) -> tuple[str, ...]:
        """Return the tables for leases, workers and records that our role may not read."""
        return tuple(table for table in OWN_EXECUTION if table in self.database.closed_tables)

    def limit_lock_waits(self) -> None:
        """Let reads in this transaction fail soon, instead of waiting for a locked table."""
        self._value("why_lock_timeout")

    def places(self, turns: Collection[str]) -> dict[str, str]:
        """Return the agent of each of these turns, by turn. Leaves out a turn that no row mentions."""
        agents = dict(self._rows("why_places", turns=list(turns)))
        return agents | dict(self._own("cbx.turns", "why_places_recorded", turns=list(turns)))

    def agent(self, agent_id: str) -> tuple[bool, str | None]:
        """Return whether the agent is known, and its active turn, or else its next one, or else its last one.

        The turn is "" if the agent is not idle but its head has no turn.
        """
        row = self._row("why_turn_of_agent", agent_id=agent_id)
        known = row is not None or bool(self.heads([agent_id])) or bool(self.worker_targets([agent_id]))
        return known, None if row is None else row[0]

    def resolve(self, wanted: str) -> str:
        """Return the full id for the id of a turn, or a unique part of one. Raises NotFound, AmbiguousId."""
        return wanted if self.places([wanted]) else TurnViews(self.database, self.project_id).resolve(wanted)

    def suspects(self, patience: timedelta) -> list[facts.TurnPlace]:
        """Return every turn that may have a problem. Skips turns that are done or wait behind an active turn.

        An agent that is busy without a turn gives a place without a turn. Reads partial indexes of open rows.
        To find lost turns, it examines up to `MAX_ROWS` dead rows, dispatches and unended turns each. It also
        searches the newest rows for unknown statuses.
        """
        places = dict[facts.TurnPlace, None]()
        for query in ("why_active", "why_open", "why_next"):
            places |= _unique_places(self._rows(query))
        places |= _unique_places(self._rows("why_queued_without_box", limit=MAX_ROWS))
        places |= _unique_places(self._rows("why_strange", limit=_MAX_ROWS_SEARCHED))
        places |= self._queued_without_cards()
        places |= self._turns_with_stuck_batches(patience)
        lost = dict[facts.TurnPlace, None]()
        for query in ("why_dead", "why_bare_edges"):
            lost |= _unique_places(self._rows(query, limit=MAX_ROWS))
        lost |= _unique_places(self._rows("why_dropped", limit=_MAX_ROWS_SEARCHED))
        lost |= _unique_places(self._own("cbx.turns", "why_unended", limit=MAX_ROWS))
        turns = [place.agent_turn_id for place in lost]
        ended = {turn for (turn,) in self._own("cbx.turns", "why_ended", turns=turns)}
        lost = {place: None for place in lost if place.agent_turn_id not in ended}
        return list(lost | places | _unique_places(self._own("cbx.leases", "why_orphans")))

    def _turns_with_stuck_batches(self, patience: timedelta) -> dict[facts.TurnPlace, None]:
        """Return the turns that wait for a batch that does not progress, or that another system must end."""
        now = {"now": self.database.now(), "age": patience, "limit": MAX_ROWS}
        places = _unique_places(self._batch_rows("why_batches_amiss", **now))
        return places | _unique_places(self._foreign("why_foreign_batches_running", limit=MAX_ROWS))

    def _queued_without_cards(self) -> dict[facts.TurnPlace, None]:
        """Return the next queued turns whose context or profile lacks a card."""
        rows = self._rows("why_queued_boxes", limit=_MAX_ROWS_SEARCHED)
        lost = self.lost_cards(sorted({box_id for _, _, box_id in rows}))
        return _unique_places((turn, agent) for turn, agent, box_id in rows if box_id.lower() in lost)

    def counts(self) -> tuple[int, int]:
        """Return the number of agents with an active turn, and the number of queued turns."""
        row = self._row("why_active_count")
        assert row is not None
        return row[0], row[1]

    def heads(self, agents: Collection[str]) -> dict[str, model.Head]:
        """Return the heads of agents, by agent."""
        return {head.agent_id: head for head in self._all(model.Head, "why_heads", agents=list(agents))}

    def rows(self, turns: Collection[str], agents: Collection[str]) -> dict[str, list[model.InboxRow]]:
        """Return the inbox rows of turns, oldest first, by turn."""
        rows = self._all(model.InboxRow, "why_rows", turns=list(turns), agents=list(agents))
        rows.sort(key=lambda row: (row.created_at is not None, row.created_at, row.inbox_id))
        return _grouped(rows, "turn_id")

    def queue_lengths(self, agents: Collection[str]) -> dict[str, int]:
        """Return the number of queued turns by agent. Leaves out agents without queued turns."""
        return dict(self._rows("why_queues", agents=list(agents)))

    def steps(self, turns: Collection[str]) -> dict[str, list[model.Step]]:
        """Return the steps of turns in order, by turn."""
        return _grouped(self._all(model.Step, "why_steps", turns=list(turns)), "agent_turn_id")

    def waiting_tools(
        self, turns: Collection[str], agents: Collection[str]
    ) -> dict[str, list[model.WaitingTool]]:
        """Return the calls that turns wait or waited for, at all their epochs, by turn."""
        tools = self._all(model.WaitingTool, "why_waiting", turns=list(turns), agents=list(agents))
        return _grouped(tools, "agent_turn_id")

    def requests(self, turns: Collection[str]) -> dict[str, list[model.Edge]]:
        """Return the edges by which turns were dispatched, by turn."""
        return _grouped(self._all(model.Edge, "why_edges", turns=list(turns)), "target_agent_turn_id")

    def records(self, turns: Collection[str]) -> dict[str, model.TurnRecord]:
        """Return the records of turns, by turn."""
        rows = self._own("cbx.turns", "records_of_turns", turn_ids=list(turns))
        return {record.agent_turn_id: record for record in decode_rows(model.TurnRecord, rows)}

    def audit(self, turns: Collection[str]) -> dict[str, model.AuditEntry]:
        """Return the last action on each turn from outside its run, by turn."""
        rows = self._own("cbx.audit", "why_audit", turns=list(turns))
        return {entry.agent_turn_id or "": entry for entry in decode_rows(model.AuditEntry, rows)}

    def leases(self, agents: Collection[str]) -> dict[str, list[model.Lease]]:
        """Return the leases of agents' rows, by agent."""
        rows = self._own("cbx.leases", "why_leases", agents=list(agents))
        return _grouped(decode_rows(model.Lease, rows), "agent_id")

    def worker_targets(self, agents: Collection[str]) -> dict[str, str]:
        """Return the worker targets of the agents on the roster. The target is "" if an agent has none."""
        rows = self._rows("why_roster", agents=list(agents))
        return {agent_id: (target or "").strip() for agent_id, target in rows}

    def workers(self, targets: Collection[str]) -> dict[str, list[model.WorkerEntry]]:
        """Return the announced workers of targets, by target."""
        rows = self._own("cbx.workers", "why_workers", targets=list(targets))
        return _grouped(mark_dead_processes(decode_rows(model.WorkerEntry, rows)), "worker_target")

    def setups(self, agents: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return the current name and worker target of each agent's profile, by agent."""
        if "resource.profiles" not in self.database.tables:
            return {}
        rows = self._rows("why_setups", agents=list(agents))
        return {agent_id: (name, target) for agent_id, name, target in rows}

    def live_workers(self, now: datetime) -> list[facts.LiveWorker]:
        """Return the live workers of all projects."""
        if "cbx.workers" not in self.database.tables:
            return []
        rows = self.database.rows("why_live_workers", now=now)
        return [facts.LiveWorker(*row) for row in rows if not is_dead(row[0])]

    def archived(self) -> str | None:
        """Return the project's id if it is archived, otherwise None."""
        if "public.projects" not in self.database.tables:
            return None
        project = ProjectsStore(self.database).find(self.project_id)
        return self.project_id if project is not None and project.status == ARCHIVED else None

    def step_pace(self, agent_id: str, profile_box_id: str | None) -> facts.DurationEstimate | None:
        """Return the duration of recent steps, without waits, of agents with this profile, or None."""
        row = self._row("why_step_pace", agent_id=agent_id, profile_box_id=profile_box_id)
        return None if row is None or row[1] is None else facts.DurationEstimate(*row)

    def call_paces(self, agent_id: str, tools: Collection[str]) -> dict[str, facts.DurationEstimate]:
        """Return how long the agent waited for recent answered calls of these tools, by tool."""
        rows = self._rows("why_call_paces", agent_id=agent_id, tools=list(tools))
        return {tool: facts.DurationEstimate(ended, seconds) for tool, ended, seconds in rows}

    def loads(self, workers: Collection[str]) -> dict[str, int]:
        """Return the number of valid leases of each of these workers in all projects."""
        return dict(self._own("cbx.leases", "why_loads", workers=list(workers)))

    def existing_boxes(self, boxes: Collection[str]) -> frozenset[str]:
        return frozenset(self._column("existing_boxes", box_ids=list(boxes)))

    def lost_cards(self, boxes: Collection[str]) -> dict[str, list[facts.LostCard]]:
        """Return the references of these boxes to cards that are not visible, by box."""
        lost = [facts.LostCard(*row) for row in self._rows("why_lost_cards", boxes=list(boxes))]
        return _grouped(lost, "box_id")

    def profile_names(self, boxes: Collection[str]) -> dict[str, str | None]:
        """Return the name of the visible profile in each of these boxes. Leaves out boxes without one."""
        lists = BoxStore(self.database, self.project_id).id_lists(list(boxes))
        all_ids = [card_id for card_ids in lists.values() for card_id in card_ids]
        cards = CardStore(self.database, self.project_id).get_many(all_ids).cards if all_ids else []
        names = {card.card_id: _profile_name(card) for card in cards if card.type == PROFILE}
        profiles = {
            box_id: [each for each in card_ids if each in names] for box_id, card_ids in lists.items()
        }
        return {box_id: names[card_ids[0]] for box_id, card_ids in profiles.items() if card_ids}

    def incomplete_allowed(self) -> bool:
        """Return whether the project lets a turn run although its context lacks cards."""
        return ProjectsStore(self.database).settings(self.project_id).allow_incomplete_context

    def stored_commands(self) -> frozenset[str]:
        if "resource.tools" not in self.database.tables:
            return frozenset()
        tools = ToolStore(self.database, self.project_id).all()
        return frozenset(tool.tool_name for tool in tools if tool.command is not None)

    def results(self, turns: Collection[str], calls: Collection[str]) -> dict[str, list[facts.ResultCard]]:
        """Return the results of calls that turns wait for, by turn."""
        results = dict[str, list[facts.ResultCard]]()
        for turn, *card in self._rows("why_results", turns=list(turns), calls=list(calls)):
            results.setdefault(turn, []).append(facts.ResultCard(*card))
        return results

    def waits_for(self, turns: Collection[str]) -> list[facts.TurnPlace]:
        """Return the turns that must answer calls of these turns, or that occupy their agents."""
        places = [facts.TurnPlace(*row) for row in self._rows("why_waits_for", turns=list(turns))]
        children = self._foreign_children(turns)
        return places + [facts.TurnPlace(child.agent_turn_id, child.agent_id) for child in children]

    def deliverables(self, turns: Collection[str]) -> dict[str, list[facts.DeliverableFacts]]:
        """Return the deliverables that turns wrote, oldest first, by turn."""
        rows = self._rows("why_delivered", turns=list(turns))
        return _grouped([facts.DeliverableFacts(*row) for row in rows], "agent_turn_id")

    def last_turn_ends(self, agents: Collection[str]) -> dict[str, datetime]:
        """Return the time at which each agent last ended a turn, in any program."""
        return dict(self._rows("why_freed", agents=list(agents)))

    def arguments(
        self, turns: Collection[str], calls: Collection[str], length: int
    ) -> dict[str, dict[str, str]]:
        """Return the arguments of tool calls, by turn and call: the first `length` characters of the JSON."""
        arguments = dict[str, dict[str, str]]()
        parameters = {"turns": list(turns), "calls": list(calls), "length": length}
        for turn, call, text in self._rows("why_arguments", **parameters) if calls else ():
            arguments.setdefault(turn, {})[call] = text
        return arguments

    def children(self, turns: Collection[str]) -> dict[str, list[facts.ChildTurn]]:
        """Return the turns that these turns dispatched, without their ends, by parent."""
        children = [facts.ChildTurn(*row) for row in self._rows("why_children", turns=list(turns))]
        return _grouped([*children, *self._foreign_children(turns)], "source_turn_id")

    def _foreign_children(self, turns: Collection[str]) -> list[facts.ChildTurn]:
        rows = self._foreign("why_foreign_children", turns=list(turns))
        return [facts.ChildTurn(turn, agent, source, call, True) for turn, agent, source, call in rows]

    def batches(self, turns: Collection[str]) -> list[facts.BatchFacts]:
        """Return the batches of these turns, also another system's, without the ends of their children."""
        own, foreign = BATCHES[0], FOREIGN_BATCHES[0]
        own_batches = decode_rows(Batch, self._batch_rows("why_batches", turns=list(turns)))
        foreign_batches = decode_rows(ForeignBatch, self._foreign("why_foreign_batches", turns=list(turns)))
        ids = [batch.batch_id for batch in own_batches], [batch.batch_id for batch in foreign_batches]
        tasks = self._batch_rows("why_batch_tasks", batches=ids[0]) if ids[0] else []
        tasks += self._foreign("why_foreign_batch_tasks", batches=ids[1]) if ids[1] else []
        by_batch = _grouped([facts.TaskFacts(*row) for row in tasks], "batch_id")
        return [_facts_of(each, own, by_batch) for each in own_batches] + [
            _facts_of(each, foreign, by_batch) for each in foreign_batches
        ]

    def _batch_rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return rows of batches and turns of cbx, or [] if the database lacks these tables."""
        has_tables = self.database.tables.issuperset((*BATCHES, *OWN_EXECUTION))
        return self._rows(query, **parameters) if has_tables else []

    def _foreign(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return rows of another system's batch manager, or [] if the database lacks its tables."""
        return self._rows(query, **parameters) if self.database.tables.issuperset(FOREIGN_BATCHES) else []

    def calls(self, keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], facts.AwaitedCall]:
        """Return the state of calls, by (agent, turn, tool call)."""
        agents, turns, calls = zip(*keys, strict=True) if keys else ((), (), ())
        rows = self._rows("why_calls", agents=list(agents), turns=list(turns), calls=list(calls))
        return {row[:3]: facts.AwaitedCall(*row) for row in rows}

    def sharers(self, boxes: Collection[str]) -> dict[str, list[facts.BoxWriter]]:
        """Return the active turns that write to these boxes, by box."""
        return _grouped(
            [facts.BoxWriter(*row) for row in self._rows("why_sharers", boxes=list(boxes))], "box_id"
        )

    def locks_are_here(self) -> bool:
        """Return whether this is a primary, where locks on rows can be examined."""
        return bool(self._value("why_primary"))

    def read_only_by(self) -> str | None:
        """Return the setting that makes all new transactions on this primary read-only, or None."""
        source: str | None = self._value("why_read_only")
        return source

    def row_locks(
        self, agents: Collection[str], turns: Collection[str], rows: Collection[str], boxes: Collection[str]
    ) -> list[facts.HeldLock]:
        """Return the sessions that hold locks on rows of these agents, turns, messages and boxes.

        Raises Conflict instead of waiting.
        """
        parameters = {"agents": list(agents), "inbox_ids": list(rows), "boxes": list(boxes)}
        with self.database.rolled_back():
            self.limit_lock_waits()
            locks = self._rows("why_row_locks", **parameters)
            locks += self._own("cbx.turns", "why_record_locks", turns=list(turns))
        return [facts.HeldLock(*row) for row in locks]

    def table_locks(self) -> list[facts.HeldLock]:
        """Return the sessions that have or await a lock against writes on a table of turns. Never waits."""
        tables = [*EXECUTION, *ESSENTIAL, *OWN_EXECUTION]
        return [facts.HeldLock(*row) for row in self._rows("why_table_locks", tables=tables)]

    def failure_logs(self, turns: Collection[str]) -> dict[str, LogTail]:
        """Return the log that may explain the failure of a turn, by turn."""
        if not turns or not LogStore(self.database, self.project_id).readable:
            return {}
        logs = self._all(LogTail, "why_failure_logs", turns=list(turns))
        return {log.agent_turn_id: log for log in logs}

    def sessions(self, pids: Collection[int]) -> dict[int, facts.DatabaseSession]:
        """Return the activity of these sessions, and of all sessions that wait for a lock."""
        rows = self._rows("why_sessions", pids=list(pids), now=self.database.now())
        return {row[0]: facts.DatabaseSession(*row) for row in rows}

    def _own(self, table: str, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._rows(query, **parameters) if table in self.database.tables else []


def _unique_places(rows: Iterable[tuple[Any, ...]]) -> dict[facts.TurnPlace, None]:
    return dict.fromkeys(facts.TurnPlace(*row) for row in rows)


def _profile_name(card: Card) -> str | None:
    data = getattr(card.content, "data", None)
    name = data.get("name") if isinstance(data, dict) else None
    return name if isinstance(name, str) else None


def _grouped(values: Iterable[_Value], key: str) -> dict[str, list[_Value]]:
    groups = dict[str, list[_Value]]()
    for value in values:
        groups.setdefault(getattr(value, key) or "", []).append(value)
    return groups


def _facts_of(
    batch: Batch | ForeignBatch, table: str, tasks: dict[str, list[facts.TaskFacts]]
) -> facts.BatchFacts:
    return facts.BatchFacts(
        batch_id=batch.batch_id,
        table=table,
        source_turn_id=batch.parent_turn_id or "",
        tool_call_id=batch.parent_tool_call_id or "",
        status=batch.status,
        deadline_at=batch.deadline_at,
        ended_at=batch.ended_at if isinstance(batch, Batch) else batch.updated_at,
        tasks=tuple(tasks.get(batch.batch_id, ())),
    )
