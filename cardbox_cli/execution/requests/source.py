"""Reading what the next request of a turn is made of: its boxes and its tools.

The worker, which sends requests, and whoever shows or proves them read it here, so that they get the same.
Never writes; functions take part in the caller's snapshot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.request import RequestEntry, profile_of
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.execution.requests.request import (
    Source,
    TurnBoxes,
    entries_of,
    offered_tools,
    present_cards,
    tool_definitions,
)
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.result_fields import described_fields
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.identity import Tool, allowed_handlers
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.contexts import ContextStore, StoredContext
from cardbox_cli.store.views.turns import TurnRow

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
