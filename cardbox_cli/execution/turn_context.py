"""Reading what the requests of a turn are made of: its boxes, its tools, and what its steps kept.

The worker, which sends requests, and whoever shows or proves them read it here, so that they get the same.
Never writes; methods take part in the caller's snapshot.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from cardbox_cli.context.collector import ContextCollector
from cardbox_cli.context.request import Entry, Request, Wishes, profile_of
from cardbox_cli.errors import AmbiguousId, NotFound
from cardbox_cli.execution.recorded import LOST, Verified, read_kept, recorded, verify
from cardbox_cli.execution.turn_request import (
    DEFAULT_FORMAT,
    NEXT,
    OUTPUT,
    Source,
    TurnBoxes,
    offered_tools,
    present_cards,
    turn_request,
)
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.ids import fits, short_id
from cardbox_cli.model.turns import QUEUED, Head, Step
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.database import Database
from cardbox_cli.store.heads import HeadStore
from cardbox_cli.store.inbox import InboxStore
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.turn_views import ENDED, TurnFilter, TurnRow, TurnViews
from cardbox_cli.store.turns import TurnStore


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request of a turn is made of. `config` is what the dispatch asked of the worker."""

    boxes: TurnBoxes
    tools: list[Tool]
    config: dict[str, Any]


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a step as its box has it, or where `step` is None as cbx would compose the next one.

    `entries` are what it is made of, `notes` say in words how far it is what was sent.
    """

    step: Step | None
    format: str
    entries: list[Entry]
    request: Request
    notes: list[str]


def read_context(
    database: Database, project_id: str, agent_turn_id: str, *pointers: Head | TurnRow | Step
) -> TurnContext:
    """What the turn has now, in the boxes that the first of `pointers` names which names one.

    Raises NotFound for a box that is gone.
    """
    boxes = BoxStore(database, project_id)
    output = _source(boxes, "output", _first(each.output_box_id for each in pointers))
    turn_boxes = TurnBoxes(
        profile=_source(boxes, "profile", _first(each.profile_box_id for each in pointers)),
        context=_source(boxes, "context", _first(each.context_box_id for each in pointers)),
        output=output,
        output_start=_output_start(TurnStore(database, project_id), agent_turn_id, output),
    )
    profile = profile_of(present_cards(turn_boxes.profile.slots))
    row = InboxStore(database, project_id).turn_row(agent_turn_id)
    return TurnContext(
        boxes=turn_boxes,
        tools=offered_tools(profile, ToolStore(database, project_id).all()),
        config={} if row is None else row.runtime_config,
    )


def read_source(boxes: BoxStore, box_id: str) -> Source:
    """A box that exists, with the rules that brought its cards."""
    return Source(box_id, boxes.slots(box_id), boxes.provenance(box_id))


def _first(box_ids: Iterable[str | None]) -> str | None:
    return next((box_id for box_id in box_ids if box_id is not None), None)


def _source(boxes: BoxStore, name: str, box_id: str | None) -> Source:
    if box_id is None:
        raise NotFound(f"the turn has no {name} box", hint="`cbx turn rebox` gives it one")
    boxes.require(box_id)
    return Source(box_id, boxes.slots(box_id))


def _output_start(turns: TurnStore, agent_turn_id: str, output: Source) -> int:
    """Where the turn's own cards begin: behind all there are, in a turn that cbx has not met yet."""
    record = turns.record(agent_turn_id)
    start = None if record is None else record.output_start
    return len(output.slots) if start is None else start


def turn_of_agent(turns: TurnViews, agent_id: str) -> TurnRow:
    """The turn that an agent is at, else its oldest queued one, else its last. Raises NotFound."""
    head = HeadStore(turns.database, turns.project_id).get(agent_id)
    if head is not None and head.active_agent_turn_id is not None:
        return turns.get(head.active_agent_turn_id)
    queued = list(turns.newest(TurnFilter(agent_id=agent_id, status=QUEUED)))
    found = queued[-1:] or list(turns.newest(TurnFilter(agent_id=agent_id), limit=1))
    if not found:
        raise NotFound(
            f"agent {agent_id!r} has no turn in project {turns.project_id!r}",
            hint="`cbx agent list` shows the agents, `cbx turn list` the turns",
        )
    return found[0]


class TurnRequests:
    """The requests of one turn: those of its steps as they were recorded, and the next as it would be."""

    def __init__(self, database: Database, project_id: str, turn: TurnRow) -> None:
        self.turn = turn
        self._database = database
        self._project_id = project_id
        self._boxes = BoxStore(database, project_id)
        self._steps = TurnStore(database, project_id).steps(turn.agent_turn_id)

    def request(
        self, at: str | None, wishes: Wishes, format: str | None, collector: ContextCollector
    ) -> StepRequest:
        """The request of the step that `at` names: an id or a piece of one, a number from 1, or `next`.

        None is the next one, of a turn that has ended the last that was recorded. `format` is one of FORMATS;
        None is the one that the step was sent in. Raises NotFound, and AmbiguousId.
        """
        step = self._step(at)
        if step is None:
            return self._composed(wishes, format or DEFAULT_FORMAT, collector)
        kept = read_kept(step.metadata)
        format = format or (kept.format if kept is not None else DEFAULT_FORMAT)
        profile = self._profile(step)
        found = recorded(self._request_box(step), profile, kept, format, wishes, self._rules(step))
        notes = [f"the layer {name} is left out: {LOST}" for name in found.lost]
        if profile is None:
            notes.append("the profile's box is gone: the parameters of the request are not known")
        return StepRequest(
            step=step, format=format, entries=found.entries, request=found.request, notes=notes
        )

    def verified(self, at: str | None, wishes: Wishes, format: str | None) -> tuple[Step, Verified]:
        """A recorded step, the last without `at`, and whether the cards still make its request.

        `format` is for steps that do not tell theirs; of `wishes` the texts of layers count. Raises as
        `request` does, also for a turn that recorded none.
        """
        step = self._step(at) if at is not None else self._last_recorded()
        if step is None:
            raise NotFound(
                f"turn {self.turn.agent_turn_id!r} has recorded no request",
                hint="`cbx turn show` lists its steps; one is verified once a worker has begun it",
            )
        context = read_context(self._database, self._project_id, self.turn.agent_turn_id, step, self.turn)
        kept = read_kept(step.metadata)
        return step, verify(
            self._request_box(step), context.boxes, kept, format or DEFAULT_FORMAT, Wishes(asked=wishes.asked)
        )

    def _composed(self, wishes: Wishes, format: str, collector: ContextCollector) -> StepRequest:
        turn = self.turn
        context = read_context(self._database, self._project_id, turn.agent_turn_id, turn)
        packed = context.boxes.context
        boxes = msgspec.structs.replace(
            context.boxes,
            context=msgspec.structs.replace(packed, provenance=self._boxes.provenance(packed.box_id)),
        )
        model = context.config.get("model")
        wishes = msgspec.structs.replace(
            wishes, model=wishes.model or (model if isinstance(model, str) else None)
        )
        asked = turn_request(boxes, context.tools, wishes, format=format, collector=collector)
        return StepRequest(
            step=None,
            format=format,
            entries=asked.entries,
            request=asked.request,
            notes=["as cbx would compose it"],
        )

    def _step(self, at: str | None) -> Step | None:
        if at == NEXT:
            return None
        if at is None:
            return self._last_recorded() if self.turn.status == ENDED else None
        step = self._named(at)
        if step.request_box_id is None:
            raise NotFound(
                f"step {step.step_id!r} has recorded no request",
                hint=f"--at {NEXT} composes the next one",
            )
        return step

    def _last_recorded(self) -> Step | None:
        return next((step for step in reversed(self._steps) if step.request_box_id is not None), None)

    def _named(self, at: str) -> Step:
        ids = [step.step_id for step in self._steps]
        numbers = [str(number) for number in range(1, len(ids) + 1)]
        if at in numbers:
            return self._steps[numbers.index(at)]
        alike = [each for each in ids if fits(at, each) or fits(at, each.removeprefix("step_"))]
        fitting = [at] if at in ids else alike
        if len(fitting) > 1:
            raise AmbiguousId(
                f"{at!r} fits several steps: {', '.join(fitting[:5])}",
                hint="type more characters of the id, or its number",
                details={"candidates": fitting[:5]},
            )
        if not fitting:
            raise NotFound(
                f"turn {self.turn.agent_turn_id!r} has no step {at!r}",
                hint=f"`cbx turn show {short_id(self.turn.agent_turn_id)}` lists its steps",
            )
        return self._steps[ids.index(fitting[0])]

    def _request_box(self, step: Step) -> Source:
        return _source(self._boxes, "request", step.request_box_id)

    def _profile(self, step: Step) -> Source | None:
        box_id = step.profile_box_id or self.turn.profile_box_id
        if box_id is None or not self._boxes.existing([box_id]):
            return None
        return _source(self._boxes, "profile", box_id)

    def _rules(self, step: Step) -> dict[str, str | None]:
        """What brought the cards of a step's request, as far as its boxes are there to tell."""
        context_id = step.context_box_id or self.turn.context_box_id or ""
        output_id = step.output_box_id or self.turn.output_box_id or ""
        lists = self._boxes.id_lists([context_id, output_id])
        packed = self._boxes.provenance(context_id) if context_id in lists else None
        rules: dict[str, str | None] = dict.fromkeys(lists.get(output_id, ()), OUTPUT)
        for position, card_id in enumerate(lists.get(context_id, ())):
            rules.setdefault(card_id, None if packed is None else packed.rule_of(position))
        return rules
