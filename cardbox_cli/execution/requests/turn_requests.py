"""What the model of a turn's next step is asked, from the turn's boxes, its profile and the project's tools.

Pure. The history is what the output box held when the turn was promoted, the context box, and what the turn
has written since. Tools come from the project alone, by the profile's leave: snapshots of earlier requests
never count.
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
from cardbox_cli.model.execution.result_fields import described_fields
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.identity import INTERNAL_TOOLS, HandlerTool, ProjectSettings, Tool, allowed_handlers
from cardbox_cli.model.ids import unique
from cardbox_cli.model.layers import KnowledgeScope, process_of
from cardbox_cli.providers.formats import encoder_of, sent
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.turn_contexts import ContextStore, ExperienceStore, StoredContext
from cardbox_cli.store.views.turn_views import TurnRow

# What the step is called that has not begun.
NEXT = "next"


class Source(msgspec.Struct, frozen=True):
    """A box and its places in order. `provenance` says which rule brought which card, where that is known."""

    box_id: str
    slots: Sequence[Slot]
    provenance: Provenance | None = None

    @property
    def entries(self) -> list[RequestEntry]:
        """All its places."""
        return list(entries_of(self.slots, self.box_id, self.provenance))

    @property
    def seen(self) -> list[RequestEntry]:
        """Its places without snapshots of requests: what a turn sees of it."""
        return [
            entry
            for entry in self.entries
            if entry.slot.card is None or not card_type(entry.slot.card.type).is_snapshot
        ]


def entries_of(slots: Iterable[Slot], box_id: str, provenance: Provenance | None) -> Iterator[RequestEntry]:
    """The places of a box, each with the rule that brought it, as far as that is known."""
    rule_of = provenance.rule_of if provenance is not None else lambda _: None
    return (RequestEntry(slot=slot, box_id=box_id, rule=rule_of(slot.position)) for slot in slots)


class TurnBoxes(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes of a turn. `output_start`: how many cards the output box held when the turn was promoted."""

    profile: Source
    context: Source
    output: Source
    output_start: int

    @property
    def history(self) -> list[RequestEntry]:
        """What the turn sees in order; an id may stand in it twice."""
        output = [msgspec.structs.replace(entry, rule=OUTPUT) for entry in self.output.seen]
        before = [entry for entry in output if entry.slot.position < self.output_start]
        return [*before, *self.context.seen, *output[len(before) :]]

    @property
    def entries(self) -> list[RequestEntry]:
        """All that a request of the turn is made of: the profile's box, then what the turn sees."""
        return [*self.profile.seen, *self.history]

    def at(self, output_cards: int, output_start: int) -> "TurnBoxes":
        """The boxes when the output box held so many cards."""
        output = msgspec.structs.replace(self.output, slots=self.output.slots[:output_cards])
        return msgspec.structs.replace(self, output=output, output_start=output_start)

    @property
    def own(self) -> list[Card]:
        """The cards that the turn has written, in order."""
        return present_cards(self.output.slots[self.output_start :])


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a step: all that it was made of and what of that is history, as it is composed, and as
    it is sent."""

    entries: list[RequestEntry]
    history: list[RequestEntry]
    request: Request
    body: bytes


def turn_request(
    boxes: TurnBoxes,
    tools: Iterable[Tool],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    format: str = DEFAULT,
    collector: ContextCollector = WITHOUT_PROVIDERS,
) -> TurnRequest:
    """The request for the turn's next step in a format. Raises what `request_of` raises."""
    definitions = tool_definitions(present_cards(boxes.profile.slots), tools)
    return request_with_tools(boxes, definitions, options, format=format, collector=collector)


def request_with_tools(
    boxes: TurnBoxes,
    tools: list[dict[str, Any]],
    options: ComposeOptions,
    *,
    format: str,
    collector: ContextCollector = WITHOUT_PROVIDERS,
) -> TurnRequest:
    """`turn_request` with the definitions of tools, such as those that an earlier request had."""
    own, entries = frozenset(card.card_id for card in boxes.own), boxes.entries
    composed = request_of(entries, options, encode=encoder_of(format), collector=collector, own=own)
    request = msgspec.structs.replace(composed, tools=tools)
    takes_all = process_of(request.process).takes_history
    return TurnRequest(
        entries=entries,
        history=[
            entry for entry in boxes.history if takes_all or entry.slot.card_id in own or is_packed(entry)
        ],
        request=request,
        body=sent(request, format),
    )


def tool_definitions(profile: Iterable[Card], tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools that the cards of a profile's box allow, as they are sent."""
    return [function_tool(tool) for tool in offered_tools(profile_of(profile), tools)]


def offered_tools(profile: Mapping[str, Any], tools: Iterable[Tool]) -> list[Tool]:
    """The tools that a profile allows: none where it says nothing, all registered ones where it says null.

    A handler is offered only where `allowed_internal_tools` names it, and then hides a tool of its name. Rows
    that other programs register for the handlers are no tools.
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
    """The definition of a tool, as a function.

    The keys stand in the order of jsonb, shorter ones first, so that what is stored of a request is what was
    sent, to the byte.
    """
    parameters = tool.parameters or {"type": "object", "properties": {}}
    described = {} if tool.description is None else {"description": tool.description}
    return {"type": "function", "function": {"name": tool.tool_name, "parameters": parameters, **described}}


def present_cards(slots: Iterable[Slot]) -> list[Card]:
    """The cards that a reader of these places sees, in order."""
    return [slot.card for slot in slots if slot.card is not None and slot.state == "present"]


# Reading what the next request of a turn is made of: its boxes and its tools.
#
# The worker, which sends requests, and whoever shows or proves them read it here, so that they get the same.
# Never writes; functions take part in the caller's snapshot.


# A box of more places is read by a cursor, which takes some messages more than a query.
_AT_ONCE = 1000


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request of a turn is made of. `config` is what the dispatch asked of the worker."""

    boxes: TurnBoxes
    tools: list[Tool]
    config: dict[str, Any]


def read_context(
    database: Database, project_id: str, agent_turn_id: str, *pointers: TurnRow | Step, handlers: Handlers
) -> TurnContext:
    """What the turn has now, in the boxes that the first of `pointers` names which names one.

    Raises NotFound for a box that is gone, as `source_of` does.
    """
    boxes = {
        "output": _first(each.output_box_id for each in pointers),
        "context": _first(each.context_box_id for each in pointers),
        "profile": _first(each.profile_box_id for each in pointers),
    }
    stored = ContextStore(database, project_id).read(agent_turn_id, boxes=boxes)
    return context_of(stored, project_id, boxes, handlers)


def context_of(
    stored: StoredContext, project_id: str, named: Mapping[str, str | None], handlers: Handlers
) -> TurnContext:
    """What a turn has whose boxes are these, as it was read. Raises NotFound for a box that is gone."""

    def source(name: str) -> Source:
        box_id = named[name]
        if box_id is None or name not in stored.boxes:
            raise _gone(project_id, name, box_id)
        return Source(box_id, stored.slots.get(name, []))

    output, context, profile_source = source("output"), source("context"), source("profile")
    start = stored.output_start
    boxes = TurnBoxes(
        profile=profile_source,
        # Which cards were packed for the turn decides what those see that take no history.
        context=msgspec.structs.replace(context, provenance=stored.provenance),
        output=output,
        # Behind all there are, in a turn that cbx has not met yet.
        output_start=len(output.slots) if start is None else start,
    )
    profile = profile_of(present_cards(profile_source.slots))
    tools = _with_handlers(handlers, stored.tools, profile, present_cards(context.slots))
    return TurnContext(
        boxes=boxes,
        tools=offered_tools(profile, tools),
        config=stored.config,
    )


def known_tools(
    database: Database,
    project_id: str,
    profile: Mapping[str, Any],
    context: Iterable[Card],
    handlers: Handlers,
) -> list[Tool]:
    """The tools of the project, and the handlers that a profile allows, of which `offered_tools` chooses.

    `context` are the cards that say what result is asked for.
    """
    registered = ToolStore(database, project_id).all() if "resource.tools" in database.tables else []
    return _with_handlers(handlers, registered, profile, context)


def offered_definitions(
    database: Database,
    project_id: str,
    profile: Sequence[Card],
    context: Iterable[Card],
    handlers: Handlers,
) -> list[dict[str, Any]]:
    """The tools that a worker would offer beside the cards of a profile's box, as they are sent."""
    tools = known_tools(database, project_id, profile_of(profile), context, handlers)
    return tool_definitions(profile, tools)


def _with_handlers(
    handlers: Handlers, registered: Sequence[Tool], profile: Mapping[str, Any], context: Iterable[Card]
) -> list[Tool]:
    return [*registered, *handlers.tools(allowed_handlers(profile), described_fields(context))]


def read_source(boxes: BoxStore, box_id: str) -> Source:
    """A box that exists, with the rules that brought its cards. Joins the transaction."""
    return Source(box_id, list(_slots(boxes, box_id)), boxes.provenance(box_id))


def read_entries(boxes: BoxStore, box_id: str) -> Iterator[RequestEntry]:
    """The places of a box, read as they are asked for, within the caller's snapshot. Raises NotFound."""
    return entries_of(_slots(boxes, box_id), box_id, boxes.provenance(box_id))


def _slots(boxes: BoxStore, box_id: str) -> Iterable[Slot]:
    """The places of a box; those of a long one as they are asked for, so that no answer is held whole."""
    return boxes.stream(box_id) if boxes.length(box_id) > _AT_ONCE else boxes.slots(box_id)


def _first(box_ids: Iterable[str | None]) -> str | None:
    return next((box_id for box_id in box_ids if box_id is not None), None)


def source_of(boxes: BoxStore, name: str, box_id: str | None) -> Source:
    """The box that a turn calls by this name.

    Raises NotFound where it names none, or one that is gone; its details have the name as `pointer`.
    """
    if box_id is None or not boxes.existing([box_id]):
        raise _gone(boxes.project_id, name, box_id)
    return Source(box_id, boxes.slots(box_id))


def _gone(project_id: str, name: str, box_id: str | None) -> NotFound:
    hint, details = "`cbx turn rebox` gives it one", {"pointer": name, "box_id": box_id}
    if box_id is None:
        return NotFound(f"the turn has no {name} box", hint=hint, details=details)
    what = f"no box {box_id!r} in project {project_id!r}: the turn's {name} box is gone"
    return NotFound(what, hint=hint, details=details)


# What a project brings to the composing of its requests: its one switch of sharing, and its own cards.
#
# What satisfies the protocols of `context/collector` reads where it is asked for alone; so does
# `store/views/experience`. How the cards then read is `context/layer_texts`' affair.


_KNOWLEDGE = [name for name, known in CARD_TYPES.items() if known.is_knowledge]


class StoredKnowledge:
    """What the cards of a project hold, as far as its `knowledge_scope` reaches.

    Where that is `boxes`, it reaches the boxes that are named for the search, and those that the recipe of a
    context box named: what it was packed from.
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
        """Why nothing is looked for, where the project wants that."""
        return "the project's knowledge_scope is none" if self._scope == "none" else None

    def knowledge(self, query: str, limit: int, boxes: Sequence[str] = ()) -> list[Card]:
        """What `cbx card search` finds for the words, newest first, among the types that are knowledge."""
        if self._scope == "none":
            return []
        with self._cards.database.snapshot():
            if self._scope == "boxes":
                return self._cards.found_in(self._reach(boxes), query, types=_KNOWLEDGE, limit=limit)
            return list(self._cards.newest(CardFilter(text=query, types=_KNOWLEDGE), limit=limit))

    def _reach(self, named: Sequence[str]) -> list[str]:
        packed = self._boxes.get_many(list(self._context_box_ids)).boxes
        return unique([*named, *(parent for box in packed for parent in box.parent_ids)])


def collector_for(
    database: Database, project_id: str, *context_box_ids: str, settings: ProjectSettings | None = None
) -> ContextCollector:
    """A collector that searches the project where it is asked to, for requests with these context boxes.

    `settings` are the project's, where the caller has read them.
    """
    known = settings or ProjectsStore(database).settings(project_id)
    knowledge = StoredKnowledge(database, project_id, known.knowledge_scope, context_box_ids=context_box_ids)
    return ContextCollector(knowledge=knowledge, experience=ExperienceStore(database, project_id))


def settled(options: ComposeOptions, settings: ProjectSettings) -> ComposeOptions:
    """The compose options, with the project's switch where the caller has none."""
    if options.share is not None:
        return options
    return msgspec.structs.replace(options, share=settings.enable_share_context)
