"""Reading what the next request of a turn is made of: its boxes and its tools.

The worker, which sends requests, and whoever shows or proves them read it here, so that they get the same.
Never writes; functions take part in the caller's snapshot.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cardbox_cli.context.request import profile_of
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.handlers import handler_tools
from cardbox_cli.execution.requests.request import Source, TurnBoxes, offered_tools, present_cards
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.turns import Head, Step
from cardbox_cli.model.identity import Tool, allowed_handlers
from cardbox_cli.model.result_fields import described_fields
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.inbox import InboxStore
from cardbox_cli.store.execution.turns import TurnStore
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.turns import TurnRow


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request of a turn is made of. `config` is what the dispatch asked of the worker."""

    boxes: TurnBoxes
    tools: list[Tool]
    config: dict[str, Any]


def read_context(
    database: Database, project_id: str, agent_turn_id: str, *pointers: Head | TurnRow | Step
) -> TurnContext:
    """What the turn has now, in the boxes that the first of `pointers` names which names one.

    Raises NotFound for a box that is gone, as `source_of` does.
    """
    boxes = BoxStore(database, project_id)
    output = source_of(boxes, "output", _first(each.output_box_id for each in pointers))
    context = source_of(boxes, "context", _first(each.context_box_id for each in pointers))
    turn_boxes = TurnBoxes(
        profile=source_of(boxes, "profile", _first(each.profile_box_id for each in pointers)),
        # Which cards were packed for the turn decides what those see that take no history.
        context=msgspec.structs.replace(context, provenance=boxes.provenance(context.box_id)),
        output=output,
        output_start=_output_start(TurnStore(database, project_id), agent_turn_id, output),
    )
    profile = profile_of(present_cards(turn_boxes.profile.slots))
    row = InboxStore(database, project_id).turn_row(agent_turn_id)
    return TurnContext(
        boxes=turn_boxes,
        tools=offered_tools(
            profile, known_tools(database, project_id, profile, present_cards(context.slots))
        ),
        config={} if row is None else row.runtime_config,
    )


def known_tools(
    database: Database, project_id: str, profile: Mapping[str, Any], context: Iterable[Card]
) -> list[Tool]:
    """The tools of the project, and the handlers that a profile allows, of which `offered_tools` chooses.

    `context` are the cards that say what result is asked for.
    """
    registered = ToolStore(database, project_id).all() if "resource.tools" in database.tables else []
    return [*registered, *handler_tools(allowed_handlers(profile), described_fields(context))]


def read_source(boxes: BoxStore, box_id: str) -> Source:
    """A box that exists, with the rules that brought its cards."""
    return Source(box_id, boxes.slots(box_id), boxes.provenance(box_id))


def _first(box_ids: Iterable[str | None]) -> str | None:
    return next((box_id for box_id in box_ids if box_id is not None), None)


def source_of(boxes: BoxStore, name: str, box_id: str | None) -> Source:
    """The box that a turn calls by this name.

    Raises NotFound where it names none, or one that is gone; its details have the name as `pointer`.
    """
    hint, details = "`cbx turn rebox` gives it one", {"pointer": name, "box_id": box_id}
    if box_id is None:
        raise NotFound(f"the turn has no {name} box", hint=hint, details=details)
    if not boxes.existing([box_id]):
        what = f"no box {box_id!r} in project {boxes.project_id!r}: the turn's {name} box is gone"
        raise NotFound(what, hint=hint, details=details)
    return Source(box_id, boxes.slots(box_id))


def _output_start(turns: TurnStore, agent_turn_id: str, output: Source) -> int:
    """Where the turn's own cards begin: behind all there are, in a turn that cbx has not met yet."""
    record = turns.record(agent_turn_id)
    start = None if record is None else record.output_start
    return len(output.slots) if start is None else start
