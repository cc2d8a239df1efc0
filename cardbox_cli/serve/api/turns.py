"""Agents, turns, the inbox, and why a turn stands where it stands."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cardbox_cli.diagnosis.diagnoser import ProblemAnswer, WhyAnswer, survey_answer, why_answer
from cardbox_cli.execution.turn_page import TurnSummary, TurnView, summary, view
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.model.identity import RosterEntry
from cardbox_cli.serve.api.answers import encoded
from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.api.lists import InboxState, Most, TurnState, paged
from cardbox_cli.serve.http.reading import Read
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.listing import Behind, BehindId, mark_of
from cardbox_cli.store.roster import AgentFilter, RosterStore
from cardbox_cli.store.views.inbox_views import InboxFilter, InboxViews
from cardbox_cli.store.views.turn_views import TurnFilter, TurnViews

routes = APIRouter(tags=["turns"], route_class=ReadingRoute)


@routes.get("/agents", responses=answers(list[RosterEntry]))
def agents(
    request: Request,
    read: Read,
    limit: Most = 50,
    worker_target: str | None = None,
    tag: str | None = None,
    behind: BehindId = None,
) -> Response:
    """The agents by id, each with what it does now."""
    where = AgentFilter(worker_target=worker_target, tag=tag, behind=behind)
    found = RosterStore(read.database, read.project_id).list(where, limit=limit + 1)
    return paged(request, found, limit, key="agent_id", time=None)


@routes.get("/agents/{agent_id}", responses=answers(RosterEntry))
def agent(request: Request, read: Read, agent_id: str) -> Response:
    """An agent: who it is, and what it does now."""
    return encoded(request, RosterStore(read.database, read.project_id).entry(agent_id))


@routes.get("/agents/{agent_id}/why", responses=answers(WhyAnswer))
def why_agent(request: Request, read: Read, agent_id: str) -> Response:
    """How the turn stands that an agent is at, else its next or last one."""
    return encoded(request, why_answer(read.diagnoser.agent(agent_id), read.project_option))


@routes.get("/turns", responses=answers(list[TurnSummary]))
def turns(
    request: Request,
    read: Read,
    limit: Most = 50,
    agent: str | None = None,
    status: TurnState | None = None,
    trace: str | None = None,
    behind: Behind = None,
) -> Response:
    """Turns, newest first."""
    where = TurnFilter(agent_id=agent, status=status, trace_id=trace, behind=mark_of(behind))
    found = TurnViews(read.database, read.project_id).newest(where, limit=limit + 1)
    return paged(request, map(summary, found), limit, key="inbox_id")


@routes.get("/turns/{turn_id}", responses=answers(TurnView))
def turn(request: Request, read: Read, turn_id: str) -> Response:
    """All of a turn: its state, rows, steps, calls, boxes, edges, and what happened when."""
    return encoded(request, view(TurnViews(read.database, read.project_id).story(turn_id)))


@routes.get("/turns/{turn_id}/why", responses=answers(WhyAnswer))
def why_turn(request: Request, read: Read, turn_id: str) -> Response:
    """How a turn stands: what proves it, who must act next and by when, and the command that helps."""
    return encoded(request, why_answer(read.diagnoser.turn(turn_id), read.project_option))


@routes.get("/why", responses=answers(list[ProblemAnswer]))
def why_all(request: Request, read: Read) -> Response:
    """All that is not well in the project."""
    return encoded(request, survey_answer(read.survey(), read.project_option))


@routes.get("/inbox", responses=answers(list[InboxRow]))
def inbox(
    request: Request,
    read: Read,
    limit: Most = 50,
    agent: str | None = None,
    status: InboxState | None = None,
    type: str | None = None,
    behind: Behind = None,
) -> Response:
    """Rows of the inbox, newest first."""
    where = InboxFilter(agent_id=agent, status=status, message_type=type, behind=mark_of(behind))
    found = InboxViews(read.database, read.project_id).newest(where, limit=limit + 1)
    return paged(request, found, limit, key="inbox_id")
