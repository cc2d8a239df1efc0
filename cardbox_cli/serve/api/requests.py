"""The request that a box makes, or a turn or a chat sends, and what requests cost."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cardbox_cli.context.cost.account import account_of
from cardbox_cli.context.cost.answer import CostAnswer, cost_answer, costs_of
from cardbox_cli.context.formats import body_of, provider_of
from cardbox_cli.context.inspection.explain import Explanation, explain
from cardbox_cli.context.lint.check import lint
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.context.providers.registry import providers
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.serve.api.answers import encoded
from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.costs import series_of
from cardbox_cli.serve.reading import Read
from cardbox_cli.serve.requests import Asked, Requests

routes = APIRouter(tags=["requests"])

Named = Annotated[str | None, Query(min_length=1, max_length=400)]


class RenderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its body as it is sent, where each message of it comes from, and what the lint finds."""

    name: str
    format: str
    step_id: str | None
    body: Any
    explanation: Explanation
    findings: list[LintFinding]
    notes: list[str]


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
    _named(box=box, turn=turn, chat=chat)
    formats = [each.name for each in providers()]
    if format is not None and format not in formats:
        raise InvalidInput(f"there is no format {format!r}: there are {', '.join(formats)}")
    shown = _shown(Requests(read), box=box, turn=turn, chat=chat, at=at, format=format)
    answer = RenderAnswer(
        name=shown.name,
        format=shown.format,
        step_id=shown.step_id,
        body=body_of(shown.request, shown.format),
        explanation=explain(shown.request),
        findings=lint(shown.entries, shown.request, provider_of(shown.format), awaited=shown.awaited),
        notes=shown.notes,
    )
    return encoded(request, answer)


def _shown(
    requests: Requests,
    box: str | None,
    turn: str | None,
    chat: str | None,
    at: str | None,
    format: str | None,
) -> Asked:
    recorded = requests.recorded(turn, chat)
    if recorded is not None:
        return requests.of_step(recorded, at, format)
    if at is not None:
        raise UsageError("at names a step of a turn or a chat, and a box has none")
    return requests.of_box(box or "", format)


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
    kind, name = _named(box=box, turn=turn, agent=agent, chat=chat)
    series, subject = series_of(read, kind, name)
    costs = costs_of(account_of(series), chat=subject)
    return encoded(request, cost_answer(kind, name, costs, top=top, project_option=read.project_option))


def _named(**given: str | None) -> tuple[str, str]:
    """The one thing that is named, and what it is. Raises UsageError."""
    named = [(kind, name) for kind, name in given.items() if name is not None]
    if len(named) != 1:
        raise UsageError(f"name one of {', '.join(given)}")
    return named[0]
