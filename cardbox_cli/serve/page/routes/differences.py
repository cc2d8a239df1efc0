"""Where two requests part: two steps of a turn or a chat."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cardbox_cli.context.diff import Piece, diff, piece_name
from cardbox_cli.execution.requests.request import NEXT
from cardbox_cli.model.diff.texts import abridged, text_diff
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.serve.page.asked import About, wanted
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.look import Looking
from cardbox_cli.serve.page.routes.requests import step_name
from cardbox_cli.serve.page.templating import page
from cardbox_cli.serve.page.windows import INSIDE, PREVIEW
from cardbox_cli.serve.page.wording import joined
from cardbox_cli.serve.requests import Requests

routes = APIRouter(route_class=PageRoute)

# New messages that are shown, and characters of two pieces that are compared word by word.
_NEW, _COMPARED = 200, 20_000


@routes.get("/diff")
def difference(
    look: Looking,
    a: str | None = None,
    b: str | None = None,
    turn: str | None = None,
    chat: str | None = None,
) -> HTMLResponse:
    """What the second step says that the first does not, and what a cache loses by it."""
    about = About(look.links, turn=turn, chat=chat)
    with look.database.snapshot():
        requests = Requests(look)
        recorded = requests.recorded(turn, chat)
        assert recorded is not None
        one = requests.of_step(recorded, wanted(a, "first step"))
        other = requests.of_step(recorded, wanted(b, "second step"), one.format)
        steps = recorded.sent_before(None)
    found = diff(one.request, other.request, provider_of(one.format))
    parting = None if found.continues else found.difference
    named = [(each, step_name(steps, each)) for each in steps]
    return page(
        look,
        "diff.html",
        view=about.view,
        about=about,
        a=one.name,
        b=other.name,
        asked_a=one.step_id or NEXT,
        asked_b=other.step_id or NEXT,
        steps=named if recorded.is_over else [*named, (NEXT, NEXT)],
        notes=[f"the layer {each} is compared by its hash" for each in {*found.a_lost, *found.b_lost}],
        found=found,
        pieces=[] if parting is None else abridged(text_diff(_said(parting.a), _said(parting.b))),
        place_a=_place(parting.a) if parting else "",
        place_b=_place(parting.b) if parting else "",
        new=[
            {"piece": each, "preview": one_line(each.text, PREVIEW), "text": each.text[:INSIDE]}
            for each in found.new[:_NEW]
        ],
    )


def _said(piece: Piece | None) -> str:
    return "" if piece is None else piece.text[:_COMPARED]


def _place(piece: Piece | None) -> str:
    """What differs, in words."""
    if piece is None:
        return "nothing"
    cards = ", ".join(f"card {short_id(each)}" for each in piece.card_ids[:8])
    return joined([piece_name(piece.section, piece.number), piece.role, piece.layer, cards])
