"""The requests that the recorded steps of a turn or chat have sent, and the next request of a turn.

`step_snapshots.py` restores and verifies a request. This module never writes. Methods read in the caller's
snapshot.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence

import msgspec

from cardbox_cli.context.composer import ContextCollector
from cardbox_cli.context.request import OUTPUT, ComposeOptions, Request, RequestEntry
from cardbox_cli.errors import AmbiguousId, NotFound
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.execution.queue.messages import is_report
from cardbox_cli.execution.requests.step_snapshots import (
    StepSnapshot,
    Verification,
    read_snapshot,
    restore_request,
    verify,
)
from cardbox_cli.execution.requests.turn_requests import (
    NEXT,
    BoxSource,
    TurnBoxes,
    TurnContext,
    compose_turn_request,
    read_context,
    source_of,
)
from cardbox_cli.execution.tool_calls import end_status_of_last_calls, pending_calls
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.turns import ACTIVE, ENDED, OPEN, QUEUED, SUSPENDED, Step
from cardbox_cli.model.ids import matches_short_id, short_id, unique
from cardbox_cli.providers.registry import provider_for
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.head_store import HeadStore
from cardbox_cli.store.execution.inbox_store import InboxStore
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.roster import AgentStore
from cardbox_cli.store.views.turn_views import TurnFilter, TurnRow, TurnViews
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.error_messages import ambiguous_message


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a step as its request box stores it, or the next request if `step` is None.

    `awaited` lists calls without a result. `notes` explain how this request differs from the sent request.
    """

    step: Step | None
    format: str
    entries: list[RequestEntry]
    request: Request
    awaited: list[str]
    notes: list[str]


class RecordedRequests(ABC):
    """The requests of the steps of one turn or chat.

    `name` is the id of the turn or chat, `noun` is its type, and `shows` is the command that lists its steps.
    `is_over` is True if it will send no more requests.
    """

    noun: str
    name: str
    shows: str
    is_over: bool

    def __init__(self, database: Database, project_id: str, steps: Sequence[Step]) -> None:
        self._database = database
        self._project_id = project_id
        self._boxes = BoxStore(database, project_id)
        self._steps = steps

    @property
    @abstractmethod
    def context_box_ids(self) -> list[str]:
        """The context boxes of the next request."""

    @abstractmethod
    def boxes_of(self, step: Step) -> TurnBoxes:
        """Return the boxes of a step in their present state. Raises NotFound."""

    @abstractmethod
    def _box_ids_of(self, step: Step) -> tuple[str | None, str | None, str | None]:
        """Return the ids of a step's profile, context and output box."""

    def _output_start(self) -> int:
        """Return the position of the turn's first own card in its output box, if a step has no snapshot."""
        return 0

    @abstractmethod
    def _compose(
        self, options: ComposeOptions, format: str | None, collector: ContextCollector
    ) -> StepRequest:
        """Compose the next request."""

    def request(
        self, at: str | None, options: ComposeOptions, format: str | None, collector: ContextCollector
    ) -> StepRequest:
        """Return the request of the step `at`: an id or its beginning, a number from 1, or `next`.

        If `at` is None, return the next request, or the last stored one if none will follow. `format`
        defaults to the format of the step, of the last step, or of the model's provider. Raises NotFound,
        AmbiguousId.
        """
        step = self._step(at)
        if step is None:
            return self._compose(options, format, collector)
        snapshot = read_snapshot(step.metadata)
        profile = self._profile(step)
        format = format or format_of(snapshot, [] if profile is None else profile.visible_entries, options)
        rules, own, box = self._rules(step), self._own(step, snapshot), self._request_box(step)
        restored = restore_request(box, profile, snapshot, format, options, rules=rules, own=own)
        notes = [f"the layer {left.layer} is left out: {left.reason}" for left in restored.lost]
        if profile is None:
            notes.append("the profile box is gone, so the parameters of the request are unknown")
        return StepRequest(
            step=step,
            format=format,
            entries=restored.entries,
            request=restored.request,
            awaited=[],
            notes=notes,
        )

    def recorded_step_ids(self, step_id: str | None) -> list[str]:
        """Return the ids of the steps that have a request box. If `step_id` is given, it is the last one."""
        ids = [step.step_id for step in self._steps if step.request_box_id is not None]
        return ids[: ids.index(step_id) + 1] if step_id in ids else ids

    def verify(
        self, at: str | None, options: ComposeOptions, format: str | None
    ) -> tuple[Step, Verification]:
        """Verify the request of the step `at`, and return the step and the outcome.

        If `at` is None, verify the last step with a request box. `format` is used only if the step has no
        snapshot. `options` only matter for the texts of layers. Raises what `request` raises, and NotFound
        if the step has no request box.
        """
        step = self._step(at) if at is not None else self._last_with_snapshot()
        if step is None:
            hint = f"{self.shows} lists its steps; a step can be verified once it has begun"
            if self.is_over:
                hint = f"it has ended and will send none; run {self.shows} for details"
            raise NotFound(f"{self.noun} {self.name!r} has no snapshot of a request", hint=hint)
        boxes = self.boxes_of(step)
        snapshot = read_snapshot(step.metadata)
        format = format or format_of(snapshot, boxes.profile.visible_entries, options)
        layers = ComposeOptions(asked=options.asked)
        return step, verify(self._request_box(step), boxes, snapshot, format, layers)

    def _last_format(self, options: ComposeOptions, entries: Sequence[RequestEntry]) -> str:
        """Return the format of the last step that has a snapshot, or else of the model's provider."""
        snapshots = (read_snapshot(step.metadata) for step in reversed(self._steps))
        return format_of(next(filter(None, snapshots), None), entries, options)

    def _find_step(self, at: str) -> Step:
        return find_step(self._steps, at, f"{self.noun} {self.name!r}", self.shows)

    def _step(self, at: str | None) -> Step | None:
        if at == NEXT:
            return None
        if at is None:
            return self._last_with_snapshot() if self.is_over else None
        step = self._find_step(at)
        if step.request_box_id is None:
            raise NotFound(
                f"step {step.step_id!r} has no snapshot of a request",
                hint=f"compose the next request with --at {NEXT}",
            )
        return step

    def _last_with_snapshot(self) -> Step | None:
        return next((step for step in reversed(self._steps) if step.request_box_id is not None), None)

    def _request_box(self, step: Step) -> BoxSource:
        return source_of(self._boxes, "request", step.request_box_id)

    def _profile(self, step: Step) -> BoxSource | None:
        box_id, _, _ = self._box_ids_of(step)
        if box_id is None or not self._boxes.filter_existing([box_id]):
            return None
        return source_of(self._boxes, "profile", box_id)

    def _own(self, step: Step, snapshot: StepSnapshot | None) -> frozenset[str]:
        """Return the ids of the cards that the turn or chat wrote. The set is empty without an output box."""
        output_id = self._box_ids_of(step)[2] or ""
        written = self._boxes.id_lists([output_id]).get(output_id, [])
        start = self._output_start() if snapshot is None else snapshot.output_start
        return frozenset(written[start:])

    def _rules(self, step: Step) -> dict[str, str | None]:
        """Return the recipe rule that selected each card of a step's request, for boxes that still exist."""
        _, context, output = self._box_ids_of(step)
        context_id, output_id = context or "", output or ""
        lists = self._boxes.id_lists([context_id, output_id])
        packed = self._boxes.provenance(context_id) if context_id in lists else None
        rules: dict[str, str | None] = dict.fromkeys(lists.get(output_id, ()), OUTPUT)
        for position, card_id in enumerate(lists.get(context_id, ())):
            rules.setdefault(card_id, None if packed is None else packed.rule_of(position))
        return rules


def format_of(snapshot: StepSnapshot | None, entries: Sequence[RequestEntry], options: ComposeOptions) -> str:
    """Return the format of a snapshot, or the format of the model's provider if there is no snapshot."""
    return provider_for(entries, options.model) if snapshot is None else snapshot.format


def find_step(steps: Sequence[Step], at: str, whose: str, shows: str) -> Step:
    """Return the step `at`: a number, an id, or 4 or more characters of it. Raises NotFound, AmbiguousId."""
    ids = [step.step_id for step in steps]
    numbers = [str(number) for number in range(1, len(ids) + 1)]
    if at in numbers:
        return steps[numbers.index(at)]
    partial_matches = [
        each for each in ids if matches_short_id(at, each) or matches_short_id(at, each.removeprefix("step_"))
    ]
    matches = [at] if at in ids else partial_matches
    if len(matches) > 1:
        raise AmbiguousId(
            ambiguous_message(at, "step", matches[:5], more=len(matches) > 5),
            hint="type more characters of the id, or the number of the step",
            details={"candidates": matches[:5]},
        )
    if not matches:
        raise NotFound(f"{whose} has no step {at!r}", hint=f"{shows} lists its steps")
    return steps[ids.index(matches[0])]


def turn_of_agent(turns: TurnViews, agent_id: str) -> TurnRow:
    """Return an agent's active turn, else its oldest queued turn, else its last turn. Raises NotFound."""
    head = HeadStore(turns.database, turns.project_id).get(agent_id)
    if head is not None and head.active_agent_turn_id is not None:
        return turns.get(head.active_agent_turn_id)
    queued = list(turns.newest(TurnFilter(agent_id=agent_id, status=QUEUED)))
    matches = queued[-1:] or list(turns.newest(TurnFilter(agent_id=agent_id), limit=1))
    if not matches:
        raise no_turn_error(turns, agent_id)
    return matches[0]


def no_turn_error(turns: TurnViews, agent_id: str, when: str = "") -> NotFound:
    """Return the error for an unknown agent or one without a turn. `when` ends the second message."""
    roster = AgentStore(turns.database, turns.project_id)
    if roster.is_absent(agent_id):
        return roster.not_found(agent_id)
    return NotFound(
        f"agent {agent_id!r} has no turn{when} in project {turns.project_id!r}",
        hint="`cbx agent list` shows the agents; `cbx turn list` shows the turns",
    )


class TurnRequests(RecordedRequests):
    """The requests of one turn. Its next request includes results that are reported and not applied yet."""

    noun = "turn"

    def __init__(self, database: Database, project_id: str, turn: TurnRow, handlers: Handlers) -> None:
        self._handlers = handlers
        self.turn = turn
        self._turns = TurnStore(database, project_id)
        super().__init__(database, project_id, self._turns.steps(turn.agent_turn_id))
        self.name = turn.agent_turn_id
        self.shows = f"`cbx turn show {quote_argument(short_id(turn.agent_turn_id))}`"
        self.is_over = turn.status == ENDED

    @property
    def context_box_ids(self) -> list[str]:
        return [self.turn.context_box_id or ""]

    def boxes_of(self, step: Step) -> TurnBoxes:
        """Return the boxes of a step. The turn's own box replaces a box that the step does not name."""
        return self._context(step, self.turn).boxes

    def _context(self, *pointers: TurnRow | Step) -> TurnContext:
        turn_id = self.turn.agent_turn_id
        return read_context(self._database, self._project_id, turn_id, *pointers, handlers=self._handlers)

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

    def _compose(
        self, options: ComposeOptions, format: str | None, collector: ContextCollector
    ) -> StepRequest:
        turn = self.turn
        context = self._context(turn)
        boxes, awaited = self._apply_reports(context.boxes)
        model = context.config.get("model")
        options = msgspec.structs.replace(
            options, model=options.model or (model if isinstance(model, str) else None)
        )
        if format is None:
            format = self._last_format(options, boxes.entries)
        asked = compose_turn_request(boxes, context.tools, options, format=format, collector=collector)
        end = end_status_of_last_calls(boxes.own) if turn.status in ACTIVE and not awaited else None
        return StepRequest(
            step=None,
            format=format,
            entries=asked.entries,
            request=asked.request,
            awaited=awaited,
            notes=[
                "as cbx would compose it",
                *(f"waits for {call_id}: its result is missing" for call_id in awaited),
                *([f"a result ends the turn ({end}), so no worker will send it"] if end else []),
            ],
        )

    def _apply_reports(self, boxes: TurnBoxes) -> tuple[TurnBoxes, list[str]]:
        """Return the boxes as if all reports were applied, and the calls that still wait for a report."""
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
        """Return the reported results of these calls, in the order in which they will be applied."""
        rows = [
            row
            for row in InboxStore(self._database, self._project_id).list_by_turn(self.turn.agent_turn_id)
            if is_report(row) and row.status in OPEN and row.correlation_id in waiting
        ]
        pointers = [(row.correlation_id or "", row.pointer("tool_result_card_id") or "") for row in rows]
        store = CardStore(self._database, self._project_id)
        cards = {card.card_id: card for card in store.get_many([card_id for _, card_id in pointers]).cards}
        reported: dict[str, Card] = {}
        for call_id, card_id in pointers:
            if card_id in cards:
                reported.setdefault(call_id, cards[card_id])
        return reported
