"""Compose the request of a turn's next step from its boxes, its profile and the project's tools.

The history is the content of the output box at the promotion, the context box, and the cards that the turn
has written since. The tools are the project's tools that the profile allows. Earlier requests do not matter.
Workers and the commands that show or verify requests use the same functions. This module never writes.
Functions read in the caller's snapshot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.composer import WITHOUT_PROVIDERS, ContextCollector
from cardbox_cli.context.request import (
    DEFAULT_OPTIONS,
    OUTPUT,
    ComposeOptions,
    Request,
    RequestEntry,
    is_packed,
    profile_of,
    request_of,
)
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.model.boxes import Provenance, Slot
from cardbox_cli.model.card_types import CARD_TYPES, card_type
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.result_fields import field_schemas
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.identity import INTERNAL_TOOLS, HandlerTool, ProjectSettings, Tool, allowed_handlers
from cardbox_cli.model.ids import unique
from cardbox_cli.model.layers import KnowledgeScope, find_process
from cardbox_cli.providers.formats import encoder_of, sent
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.turn_contexts import ContextStore, ExperienceStore, StoredContext
from cardbox_cli.store.views.turn_views import TurnRow

# The name of the step that has not begun.
NEXT = "next"


class BoxSource(msgspec.Struct, frozen=True):
    """A box and its slots in order. `provenance` maps cards to recipe rules, if known."""

    box_id: str
    slots: Sequence[Slot]
    provenance: Provenance | None = None

    @property
    def entries(self) -> list[RequestEntry]:
        return list(entries_of(self.slots, self.box_id, self.provenance))

    @property
    def visible_entries(self) -> list[RequestEntry]:
        """The entries without snapshots of requests, which a turn does not see."""
        return [
            entry
            for entry in self.entries
            if entry.slot.card is None or not card_type(entry.slot.card.type).is_snapshot
        ]


def entries_of(slots: Iterable[Slot], box_id: str, provenance: Provenance | None) -> Iterator[RequestEntry]:
    """Yield the entries of a box, each with the recipe rule that selected the card, if known."""
    rule_of = provenance.rule_of if provenance is not None else lambda _: None
    return (RequestEntry(slot=slot, box_id=box_id, rule=rule_of(slot.position)) for slot in slots)


class TurnBoxes(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes of a turn. `output_start` is the length of the output box at the promotion."""

    profile: BoxSource
    context: BoxSource
    output: BoxSource
    output_start: int

    @property
    def history(self) -> list[RequestEntry]:
        """The entries that the turn sees, in order. A card id may appear twice."""
        output = [msgspec.structs.replace(entry, rule=OUTPUT) for entry in self.output.visible_entries]
        before = [entry for entry in output if entry.slot.position < self.output_start]
        return [*before, *self.context.visible_entries, *output[len(before) :]]

    @property
    def entries(self) -> list[RequestEntry]:
        return [*self.profile.visible_entries, *self.history]

    def truncate(self, output_cards: int, output_start: int) -> "TurnBoxes":
        """Return the boxes at the time when the output box had `output_cards` cards."""
        output = msgspec.structs.replace(self.output, slots=self.output.slots[:output_cards])
        return msgspec.structs.replace(self, output=output, output_start=output_start)

    @property
    def own(self) -> list[Card]:
        """The cards that the turn has written, in order."""
        return present_cards(self.output.slots[self.output_start :])


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a step: all entries, the entries of the history, the composed request and its body."""

    entries: list[RequestEntry]
    history: list[RequestEntry]
    request: Request
    body: bytes


def compose_turn_request(
    boxes: TurnBoxes,
    tools: Iterable[Tool],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    format: str = DEFAULT,
    collector: ContextCollector = WITHOUT_PROVIDERS,
) -> TurnRequest:
    """Compose the request of the turn's next step in a format. Raises what `request_of` raises."""
    definitions = tool_definitions(present_cards(boxes.profile.slots), tools)
    return compose_with_tools(boxes, definitions, options, format=format, collector=collector)


def compose_with_tools(
    boxes: TurnBoxes,
    tools: list[dict[str, Any]],
    options: ComposeOptions,
    *,
    format: str,
    collector: ContextCollector = WITHOUT_PROVIDERS,
) -> TurnRequest:
    """Compose the request with these tool definitions, for example the definitions of an earlier request."""
    own, entries = frozenset(card.card_id for card in boxes.own), boxes.entries
    composed = request_of(entries, options, encode=encoder_of(format), collector=collector, own=own)
    request = msgspec.structs.replace(composed, tools=tools)
    takes_all = find_process(request.process).takes_history
    return TurnRequest(
        entries=entries,
        history=[
            entry for entry in boxes.history if takes_all or entry.slot.card_id in own or is_packed(entry)
        ],
        request=request,
        body=sent(request, format),
    )


def tool_definitions(profile: Iterable[Card], tools: Iterable[Tool]) -> list[dict[str, Any]]:
    return [function_tool(tool) for tool in offered_tools(profile_of(profile), tools)]


def offered_tools(profile: Mapping[str, Any], tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that a profile allows: none if `allowed_tools` is missing, and all if it is null.

    A handler is offered only if `allowed_internal_tools` names it. It hides a registered tool of the same
    name. Rows that other programs register for handlers are not offered.
    """
    known, allowed = list(tools), profile.get("allowed_tools", [])
    internal = allowed_handlers(profile)
    handlers = [tool for tool in known if isinstance(tool, HandlerTool) and tool.tool_name in internal]
    taken = INTERNAL_TOOLS.union(handler.tool_name for handler in handlers)
    registered = [
        tool
        for tool in known
        if not isinstance(tool, HandlerTool)
        and tool.tool_name not in taken
        and (allowed is None or (isinstance(allowed, list) and tool.tool_name in allowed))
    ]
    return [*registered, *handlers]


def function_tool(tool: Tool) -> dict[str, Any]:
    """Return the definition of a tool as a function.

    The keys are in the order of jsonb (shorter keys first), so that the stored and the sent request have
    equal bytes.
    """
    parameters = tool.parameters or {"type": "object", "properties": {}}
    described = {} if tool.description is None else {"description": tool.description}
    return {"type": "function", "function": {"name": tool.tool_name, "parameters": parameters, **described}}


def present_cards(slots: Iterable[Slot]) -> list[Card]:
    """Return the cards of these slots that are visible, in order."""
    return [slot.card for slot in slots if slot.card is not None and slot.state == "present"]


# The slots of a longer box are read with a cursor, which takes more round trips than a query.
_MAX_QUERY_LENGTH = 1000


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes and tools of a turn's next request, and the runtime config of its dispatch."""

    boxes: TurnBoxes
    tools: list[Tool]
    config: dict[str, Any]


def read_context(
    database: Database, project_id: str, agent_turn_id: str, *pointers: TurnRow | Step, handlers: Handlers
) -> TurnContext:
    """Read the present context of a turn. Each box comes from the first of `pointers` that names it.

    Raises NotFound for a missing box, as `source_of` does.
    """
    boxes: dict[str, str | None] = {}
    for name in ("output", "context", "profile"):
        box_ids = (getattr(each, f"{name}_box_id") for each in pointers)
        boxes[name] = next((box_id for box_id in box_ids if box_id is not None), None)
    stored = ContextStore(database, project_id).read(agent_turn_id, boxes=boxes)
    return context_of(stored, project_id, boxes, handlers)


def context_of(
    stored: StoredContext, project_id: str, named: Mapping[str, str | None], handlers: Handlers
) -> TurnContext:
    """Return the context of a turn with these boxes from `stored`. Raises NotFound for a missing box."""

    def source(name: str) -> BoxSource:
        box_id = named[name]
        if box_id is None or name not in stored.boxes:
            raise _missing_box(project_id, name, box_id)
        return BoxSource(box_id, stored.slots.get(name, []))

    output, context, profile_source = source("output"), source("context"), source("profile")
    start = stored.output_start
    boxes = TurnBoxes(
        profile=profile_source,
        # A process without history sees only the cards that were packed for the turn.
        context=msgspec.structs.replace(context, provenance=stored.provenance),
        output=output,
        # A turn that cbx has not recorded yet has written nothing.
        output_start=len(output.slots) if start is None else start,
    )
    profile = profile_of(present_cards(profile_source.slots))
    tools = _add_handlers(handlers, stored.tools, profile, present_cards(context.slots))
    return TurnContext(boxes=boxes, tools=offered_tools(profile, tools), config=stored.config)


def known_tools(
    database: Database,
    project_id: str,
    profile: Mapping[str, Any],
    context: Iterable[Card],
    handlers: Handlers,
) -> list[Tool]:
    """Return the project's tools and the handlers that a profile allows, as input of `offered_tools`.

    Cards of `context` may request result fields, which handlers may need for their schema.
    """
    registered = ToolStore(database, project_id).all() if "resource.tools" in database.tables else []
    return _add_handlers(handlers, registered, profile, context)


def offered_definitions(
    database: Database, project_id: str, profile: Sequence[Card], context: Iterable[Card], handlers: Handlers
) -> list[dict[str, Any]]:
    """Return the definitions of the tools that a worker would offer for these cards of a profile box."""
    tools = known_tools(database, project_id, profile_of(profile), context, handlers)
    return tool_definitions(profile, tools)


def _add_handlers(
    handlers: Handlers, registered: Sequence[Tool], profile: Mapping[str, Any], context: Iterable[Card]
) -> list[Tool]:
    return [*registered, *handlers.tools(allowed_handlers(profile), field_schemas(context))]


def read_source(boxes: BoxStore, box_id: str) -> BoxSource:
    """Read an existing box with the rules of its cards, in the caller's transaction."""
    return BoxSource(box_id, list(_slots(boxes, box_id)), boxes.provenance(box_id))


def read_entries(boxes: BoxStore, box_id: str) -> Iterator[RequestEntry]:
    """Read the entries of a box lazily, within the caller's snapshot. Raises NotFound."""
    return entries_of(_slots(boxes, box_id), box_id, boxes.provenance(box_id))


def _slots(boxes: BoxStore, box_id: str) -> Iterable[Slot]:
    """Read the slots of a box. The slots of a long box are read lazily, to save memory."""
    return boxes.stream(box_id) if boxes.length(box_id) > _MAX_QUERY_LENGTH else boxes.slots(box_id)


def source_of(boxes: BoxStore, name: str, box_id: str | None) -> BoxSource:
    """Read a box of a turn. `name` is its role, for example `context`.

    Raises NotFound if the turn has no such box, or the box is gone. The error's `pointer` detail is `name`.
    """
    if box_id is None or not boxes.filter_existing([box_id]):
        raise _missing_box(boxes.project_id, name, box_id)
    return BoxSource(box_id, boxes.slots(box_id))


def _missing_box(project_id: str, name: str, box_id: str | None) -> NotFound:
    hint, details = "set another with `cbx turn rebox`", {"pointer": name, "box_id": box_id}
    if box_id is None:
        return NotFound(f"the turn has no {name} box", hint=hint, details=details)
    what = f"no box {box_id!r} in project {project_id!r}: the turn's {name} box is gone"
    return NotFound(what, hint=hint, details=details)


_KNOWLEDGE = [name for name, known in CARD_TYPES.items() if known.is_knowledge]


class StoredKnowledge:
    """The knowledge in the cards of a project, within its `knowledge_scope`.

    The scope `boxes` has the boxes that a search names, and the boxes from which the context was packed.
    """

    def __init__(
        self,
        database: Database,
        project_id: str,
        scope: KnowledgeScope = "project",
        *,
        context_box_ids: Sequence[str] = (),
    ) -> None:
        self._cards = CardStore(database, project_id)
        self._boxes = BoxStore(database, project_id)
        self._scope = scope
        self._context_box_ids = context_box_ids

    @property
    def refusal(self) -> str | None:
        """The reason why the project allows no search, or None."""
        return "the project's knowledge_scope is none" if self._scope == "none" else None

    def knowledge(self, query: str, limit: int, boxes: Sequence[str] = ()) -> list[Card]:
        """Return the cards of knowledge types that `cbx card search` finds for a query, newest first."""
        if self._scope == "none":
            return []
        with self._cards.database.snapshot():
            if self._scope == "boxes":
                return self._cards.search_boxes(
                    self._searched_boxes(boxes), query, types=_KNOWLEDGE, limit=limit
                )
            return list(self._cards.newest(CardFilter(text=query, types=_KNOWLEDGE), limit=limit))

    def _searched_boxes(self, named: Sequence[str]) -> list[str]:
        packed = self._boxes.get_many(list(self._context_box_ids)).boxes
        return unique([*named, *(parent for box in packed for parent in box.parent_ids)])


def collector_for(
    database: Database, project_id: str, *context_box_ids: str, settings: ProjectSettings | None = None
) -> ContextCollector:
    """Return a collector that searches the project on request, for requests with these context boxes.

    `settings` are the project's settings, if the caller has read them.
    """
    known = settings or ProjectsStore(database).settings(project_id)
    knowledge = StoredKnowledge(database, project_id, known.knowledge_scope, context_box_ids=context_box_ids)
    return ContextCollector(knowledge=knowledge, experience=ExperienceStore(database, project_id))


def apply_share_default(options: ComposeOptions, settings: ProjectSettings) -> ComposeOptions:
    """Return the compose options. If the caller does not set sharing, use the project's default."""
    if options.share is not None:
        return options
    return msgspec.structs.replace(options, share=settings.enable_share_context)
