"""One turn: its verdict, what happened, its boxes side by side; and the tree of its trace."""

from collections.abc import Iterator, Sequence

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cardbox_cli.errors import NotFound
from cardbox_cli.execution.turn_page import Branch, summary, tree, view
from cardbox_cli.pictures.trace_picture import timeline
from cardbox_cli.serve.http.reading import Looking
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.routes.boxes import readable
from cardbox_cli.serve.page.templating import drawn, page
from cardbox_cli.serve.page.windows import ShownSlot, shown
from cardbox_cli.serve.page.wording import cut
from cardbox_cli.serve.project import Project
from cardbox_cli.store.views.batch_views import BatchViews
from cardbox_cli.store.views.box_views import BoxInShort, BoxViews
from cardbox_cli.store.views.turn_views import FAMILY, StoredTurn, TurnViews

routes = APIRouter(route_class=PageRoute)

# Cards of a box that stand beside each other: the last ones.
_SLOTS = 15
_DELIVERABLE = 2_000


class LastCards(msgspec.Struct, frozen=True):
    """The end of a box: from the place `first` on."""

    box: BoxInShort
    first: int
    slots: list[ShownSlot]


@routes.get("/turns/{turn_id:path}")
def turn(look: Looking, turn_id: str) -> HTMLResponse:
    """All of a turn."""
    with look.database.snapshot():
        stored = TurnViews(look.database, look.project_id).story(turn_id)
        members = BatchViews(look.database, look.project_id).members([turn_id])
        boxes = [
            ("context", stored.turn.context_box_id, _last_cards(look, stored.turn.context_box_id)),
            ("output", stored.turn.output_box_id, _last_cards(look, stored.turn.output_box_id)),
        ]
    return page(
        look,
        "turn.html",
        view="Turns",
        turn=view(stored),
        stored=stored.turn,
        leases=stored.leases,
        error=stored.record.error if stored.record else None,
        diagnosis=look.diagnoser.turn(turn_id),
        deliverable=_deliverable(stored),
        batch=members.get(turn_id),
        boxes=boxes,
    )


@routes.get("/trace")
def trace(look: Looking, turn: str) -> HTMLResponse:
    """The turns that gave each other work."""
    with look.database.snapshot():
        turns = TurnViews(look.database, look.project_id)
        found = turns.get(turn)
        known = turns.family(found)
        members = BatchViews(look.database, look.project_id).members([each.agent_turn_id for each in known])
    tops = tree([summary(each) for each in known], members)
    return page(
        look,
        "trace.html",
        view="Turns",
        turn_id=turn,
        trace_id=found.trace_id,
        lines=list(_lines(tops)),
        count=len(known),
        is_cut=len(known) >= FAMILY,
        drawing=drawn(timeline(tops)),
    )


def _lines(tops: Sequence[Branch]) -> Iterator[tuple[int, Branch]]:
    """All turns in the order of the tree, and how deep they stand. A deep tree is no deep recursion."""
    waiting = [(0, top) for top in reversed(tops)]
    while waiting:
        depth, branch = waiting.pop()
        yield depth, branch
        waiting += [(depth + 1, child) for child in reversed(branch.children)]


def _last_cards(look: Project, box_id: str | None) -> LastCards | None:
    if box_id is None:
        return None
    boxes = BoxViews(look.database, look.project_id)
    try:
        box = boxes.in_short(box_id)
    except NotFound:
        return None
    first = max(box.length - _SLOTS, 0)
    return LastCards(box, first, [shown(slot) for slot in boxes.window(box.box_id, first, _SLOTS)])


def _deliverable(stored: StoredTurn) -> dict[str, object] | None:
    if stored.deliverable is None:
        return None
    text, is_cut = cut(readable(stored.deliverable), _DELIVERABLE)
    return {"text": text, "is_cut": is_cut}
