"""The request that a box makes, or a turn or a chat sends, and what requests cost."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cardbox_cli.context.cost.answer import CostAnswer
from cardbox_cli.serve.api.answers import encoded
from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.costs import costed
from cardbox_cli.serve.http.reading import Read
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.requests import RenderAnswer, rendered

routes = APIRouter(tags=["requests"], route_class=ReadingRoute)

Named = Annotated[str | None, Query(min_length=1, max_length=400)]


@routes.get("/render", responses=answers(RenderAnswer))
def render(
    request: Request,
    read: Read,
    box: Named = None,
    turn: Named = None,
    chat: Named = None,
    at: Annotated[str | None, Query(description="A step: its number or id, or next.")] = None,
    format: Annotated[str | None, Query(description="Default: as it was sent, else the model's.")] = None,
) -> Response:
    """The exact request of a box, or of a step of a turn or a chat: its last one, or the next."""
    answer = rendered(read, box=box, turn=turn, chat=chat, at=at, format=format)
    return encoded(request, answer, narrower="ask for a smaller box, or use `cbx render`")


@routes.get("/cost", responses=answers(CostAnswer))
def cost(
    request: Request,
    read: Read,
    box: Named = None,
    turn: Named = None,
    agent: Named = None,
    chat: Named = None,
    top: Annotated[int, Query(ge=1, le=1000, description="So many cards at most.")] = 20,
) -> Response:
    """What the requests of a box, a turn, an agent or a chat cost together, and what of that is waste."""
    return encoded(request, costed(read, box=box, turn=turn, agent=agent, chat=chat, top=top))
