"""The requests of a turn's steps, and the next one as it would be, with the results that are reported.

What they are made of is `source.py`'s. Never writes; methods take part in the caller's snapshot.
"""

from collections.abc import Container

import msgspec

from cardbox_cli.context.composer import ContextCollector
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.queue.messages import is_report
from cardbox_cli.execution.requests.recorded import RecordedRequests, StepRequest
from cardbox_cli.execution.requests.request import TurnBoxes, turn_request
from cardbox_cli.execution.requests.source import read_context
from cardbox_cli.execution.tool_calls import ended_by_last_calls, pending_calls
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.standing import ENDED
from cardbox_cli.model.execution.turns import ACTIVE, OPEN, QUEUED, SUSPENDED, Step
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.text.command_lines import argument
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.heads import HeadStore
from cardbox_cli.store.execution.inbox import InboxStore
from cardbox_cli.store.execution.turns import TurnStore
from cardbox_cli.store.roster import RosterStore
from cardbox_cli.store.views.turns import TurnFilter, TurnRow, TurnViews


def turn_of_agent(turns: TurnViews, agent_id: str) -> TurnRow:
    """The turn that an agent is at, else its oldest queued one, else its last. Raises NotFound."""
    head = HeadStore(turns.database, turns.project_id).get(agent_id)
    if head is not None and head.active_agent_turn_id is not None:
        return turns.get(head.active_agent_turn_id)
    queued = list(turns.newest(TurnFilter(agent_id=agent_id, status=QUEUED)))
    found = queued[-1:] or list(turns.newest(TurnFilter(agent_id=agent_id), limit=1))
    if not found:
        raise no_turn(turns, agent_id)
    return found[0]


def no_turn(turns: TurnViews, agent_id: str, when: str = "") -> NotFound:
    """That an agent has no turn, or none at some time; or, where the roster may be read, that there is no
    such agent."""
    roster = RosterStore(turns.database, turns.project_id)
    if roster.is_absent(agent_id):
        return roster.absent(agent_id)
    return NotFound(
        f"agent {agent_id!r} has no turn{when} in project {turns.project_id!r}",
        hint="`cbx agent list` shows the agents, `cbx turn list` the turns",
    )


class TurnRequests(RecordedRequests):
    """The requests of one turn: those of its steps by their snapshots, and the next as it would be."""

    noun = "turn"

    def __init__(self, database: Database, project_id: str, turn: TurnRow) -> None:
        self.turn = turn
        self._turns = TurnStore(database, project_id)
        super().__init__(database, project_id, self._turns.steps(turn.agent_turn_id))
        self.name = turn.agent_turn_id
        self.shows = f"`cbx turn show {argument(short_id(turn.agent_turn_id))}`"
        self.is_over = turn.status == ENDED

    @property
    def context_box_ids(self) -> list[str]:
        """The turn's context box."""
        return [self.turn.context_box_id or ""]

    def boxes_of(self, step: Step) -> TurnBoxes:
        """The boxes of a step, or else of its turn."""
        turn = self.turn
        return read_context(self._database, self._project_id, turn.agent_turn_id, step, turn).boxes

    def _box_ids_of(self, step: Step) -> tuple[str | None, str | None, str | None]:
        turn = self.turn
        return (
            step.profile_box_id or turn.profile_box_id,
            step.context_box_id or turn.context_box_id,
            step.output_box_id or turn.output_box_id,
        )

    def _output_start(self) -> int:
        record = self._turns.record(self.turn.agent_turn_id)
        return 0 if record is None else record.output_start or 0

    def _composed(
        self, options: ComposeOptions, format: str | None, collector: ContextCollector
    ) -> StepRequest:
        turn = self.turn
        context = read_context(self._database, self._project_id, turn.agent_turn_id, turn)
        boxes, awaited = self._with_reports(context.boxes)
        model = context.config.get("model")
        options = msgspec.structs.replace(
            options, model=options.model or (model if isinstance(model, str) else None)
        )
        if format is None:
            format = self._last_format(options, boxes.entries)
        asked = turn_request(boxes, context.tools, options, format=format, collector=collector)
        end = ended_by_last_calls(boxes.own) if turn.status in ACTIVE and not awaited else None
        return StepRequest(
            step=None,
            format=format,
            entries=asked.entries,
            request=asked.request,
            awaited=awaited,
            notes=[
                "as cbx would compose it",
                *(f"waits for {call_id}: its result is not in it yet" for call_id in awaited),
                *([f"a result ends the turn ({end}): no worker will send it"] if end else []),
            ],
        )

    def _with_reports(self, boxes: TurnBoxes) -> tuple[TurnBoxes, list[str]]:
        """The boxes of an active turn once what is reported is applied, and the calls that wait even then."""
        if self.turn.status not in ACTIVE:
            return boxes, []
        turn_id = self.turn.agent_turn_id
        waiting = [tool.tool_call_id for tool in self._turns.waiting_tools(turn_id) if tool.is_open]
        reports = self._reported(waiting) if self.turn.status == SUSPENDED else {}
        slots = list(boxes.output.slots)
        held = {slot.card_id for slot in slots}
        for card in reports.values():
            if card.card_id not in held:
                slots.append(Slot(len(slots), card.card_id, card, "present"))
        boxes = msgspec.structs.replace(boxes, output=msgspec.structs.replace(boxes.output, slots=slots))
        pending = [call.tool_call_id for call in pending_calls(boxes.own)]
        return boxes, unique([*pending, *(call_id for call_id in waiting if call_id not in reports)])

    def _reported(self, waiting: Container[str]) -> dict[str, Card]:
        """The results that reports bring for these calls, in the order in which they are to be applied."""
        rows = [
            row
            for row in InboxStore(self._database, self._project_id).of_turn(self.turn.agent_turn_id)
            if is_report(row) and row.status in OPEN and row.correlation_id in waiting
        ]
        pointers = [(row.correlation_id or "", row.pointer("tool_result_card_id") or "") for row in rows]
        found = CardStore(self._database, self._project_id).get_many([card_id for _, card_id in pointers])
        cards = {card.card_id: card for card in found.cards}
        reported: dict[str, Card] = {}
        for call_id, card_id in pointers:
            if card_id in cards:
                reported.setdefault(call_id, cards[card_id])
        return reported
