"""API routes for execution: agents, turns, the inbox, batches, chats, and events."""

from collections.abc import AsyncIterator
from time import monotonic

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from cardbox_cli.chat.chat_view import ChatView, read_chat_view
from cardbox_cli.diagnosis.diagnoser import ProblemAnswer, WhyAnswer, survey_answer, why_answer
from cardbox_cli.errors import CbxError
from cardbox_cli.execution.turn_summary import TurnSummary
from cardbox_cli.inspect.batches import BatchView
from cardbox_cli.inspect.turns import TurnView, read_turns, view_turn
from cardbox_cli.model import exact_json
from cardbox_cli.model.chats import Chat
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.model.identity import RosterEntry
from cardbox_cli.serve.addresses import Behind, BehindId, parse_position
from cardbox_cli.serve.api.responses import (
    BatchState,
    InboxState,
    Most,
    TurnEnd,
    TurnState,
    event_docs,
    json_response,
    page_response,
    value_docs,
)
from cardbox_cli.serve.change_feed import MAX_WAIT_SECONDS, ChangeFeed
from cardbox_cli.serve.http.errors import RequestRejected
from cardbox_cli.serve.http.project_access import ProjectRequest, Read
from cardbox_cli.serve.http.routing import LimitedStream, ReadingRoute
from cardbox_cli.store.execution.batch_store import BatchFilter
from cardbox_cli.store.roster import AgentFilter
from cardbox_cli.store.views.batch_views import BatchRow
from cardbox_cli.store.views.inbox_views import InboxFilter, InboxViews
from cardbox_cli.store.views.recent_changes import ProjectState
from cardbox_cli.store.views.turn_views import TurnFilter

turn_routes = APIRouter(tags=["turns"], route_class=ReadingRoute)


@turn_routes.get("/agents", responses=value_docs(list[RosterEntry]))
def agents(
    request: Request,
    read: Read,
    limit: Most = 50,
    worker_target: str | None = None,
    tag: str | None = None,
    behind: BehindId = None,
) -> Response:
    """List the agents by id, each with its head."""
    where = AgentFilter(worker_target=worker_target, tag=tag, behind=behind)
    entries = read.agents.list(where, limit=limit + 1)
    return page_response(request, entries, limit, key="agent_id", time=None)


@turn_routes.get("/agents/{agent_id}", responses=value_docs(RosterEntry))
def agent(request: Request, read: Read, agent_id: str) -> Response:
    """Return an agent with its head."""
    return json_response(request, read.agents.entry(agent_id))


@turn_routes.get("/agents/{agent_id}/why", responses=value_docs(WhyAnswer))
def why_agent(request: Request, read: Read, agent_id: str) -> Response:
    """Explain an agent's active turn, else its next or last one."""
    return json_response(request, why_answer(read.diagnoser.agent(agent_id), read.project_option))


@turn_routes.get("/turns", responses=value_docs(list[TurnSummary]))
def turns(
    request: Request,
    read: Read,
    limit: Most = 50,
    agent: str | None = None,
    status: TurnState | None = None,
    end: TurnEnd | None = None,
    replaced: bool = False,
    trace: str | None = None,
    behind: Behind = None,
) -> Response:
    """List the turns, newest first. `end` omits turns that a retry replaced, unless `replaced` is true."""
    where = TurnFilter(agent_id=agent, status=status, trace_id=trace, behind=parse_position(behind))
    rows = read_turns(read.turns, where, limit=limit + 1, end=end, with_replaced=replaced)
    return page_response(request, rows, limit, key="inbox_id")


@turn_routes.get("/turns/{turn_id}", responses=value_docs(TurnView))
def turn(request: Request, read: Read, turn_id: str) -> Response:
    """Return a turn with its state, rows, steps, calls, boxes, edges and timeline."""
    return json_response(request, view_turn(read.turns.read_all(read.turns.resolve(turn_id))))


@turn_routes.get("/turns/{turn_id}/why", responses=value_docs(WhyAnswer))
def why_turn(request: Request, read: Read, turn_id: str) -> Response:
    """Explain a turn: the verdict, the rows that prove it, who must act next, and the fix."""
    return json_response(request, why_answer(read.diagnoser.turn(turn_id), read.project_option))


@turn_routes.get("/why", responses=value_docs(list[ProblemAnswer]))
def why_all(request: Request, read: Read) -> Response:
    """List everything in the project that is not well."""
    return json_response(request, survey_answer(read.survey(), read.project_option))


@turn_routes.get("/inbox", responses=value_docs(list[InboxRow]))
def inbox(
    request: Request,
    read: Read,
    limit: Most = 50,
    agent: str | None = None,
    status: InboxState | None = None,
    type: str | None = None,
    behind: Behind = None,
) -> Response:
    """List the inbox rows, newest first."""
    where = InboxFilter(agent_id=agent, status=status, message_type=type, behind=parse_position(behind))
    rows = InboxViews(read.database, read.project_id).newest(where, limit=limit + 1)
    return page_response(request, rows, limit, key="inbox_id")


# --- batches, also those that another system manages

batch_routes = APIRouter(tags=["batches"], route_class=ReadingRoute)


@batch_routes.get("/batches", responses=value_docs(list[BatchRow]))
def batches(
    request: Request, read: Read, limit: Most = 50, status: BatchState | None = None, behind: Behind = None
) -> Response:
    """List the batches, newest first."""
    where = BatchFilter(status=status, behind=parse_position(behind))
    rows = read.batches.newest(where, limit=limit + 1)
    return page_response(request, rows, limit, key="batch_id")


@batch_routes.get("/batches/{batch_id}", responses=value_docs(BatchView))
def batch(request: Request, read: Read, batch_id: str) -> Response:
    """Return a batch with the results of its children, in the order of its tasks."""
    return json_response(request, read.batch_reader().read(batch_id))


# --- chats

chat_routes = APIRouter(tags=["chats"], route_class=ReadingRoute)


@chat_routes.get("/chats", responses=value_docs(list[Chat]))
def chats(request: Request, read: Read, limit: Most = 50, behind: BehindId = None) -> Response:
    """List the chats by key."""
    entries = read.chat_stores.chats.all(limit=limit + 1, behind=behind)
    return page_response(request, entries, limit, key="chat_key", time=None)


@chat_routes.get("/chats/{chat_key:path}", responses=value_docs(ChatView))
def chat(request: Request, read: Read, chat_key: str) -> Response:
    """Return a chat: its active context, the end of its transcript, its last runs."""
    return json_response(request, read_chat_view(read.chat_stores, chat_key))


# --- server-sent events of one project
#
# An event `head` holds the new state of an agent, `batch` that of a batch. The initial state is not sent:
# clients read it first.

event_routes = APIRouter(tags=["events"], route_class=ReadingRoute)


@event_routes.get("/events", response_class=StreamingResponse, responses=event_docs())
async def events(request: Request, project: str) -> StreamingResponse:
    """Stream changes of the project until the client disconnects, its token expires, or the server stops."""
    access = ProjectRequest(request, project)
    async with _feed(request).follow(access) as follower:
        first = await follower.read_state()
    news = _stream(access, first)
    return LimitedStream(request, news, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _stream(access: ProjectRequest, seen: ProjectState) -> AsyncIterator[str]:
    yield "retry: 3000\n\n"
    try:
        async for text in _news(access, seen):
            yield text
    except (CbxError, RequestRejected):
        # The response has begun, so it cannot report the error: the client reconnects and gets it then.
        return


async def _news(access: ProjectRequest, seen: ProjectState) -> AsyncIterator[str]:
    sent_at = monotonic()
    feed = _feed(access.request)
    async with feed.follow(access) as follower:
        while not feed.is_over and not await access.request.is_disconnected():
            before, seen = seen, await follower.read_state()
            for name, value in seen.changes_since(before):
                yield f"event: {name}\ndata: {exact_json.encode(value).decode('utf-8', 'replace')}\n\n"
                sent_at = monotonic()
            if monotonic() - sent_at >= MAX_WAIT_SECONDS:
                # Proxies close connections on which nothing is sent.
                yield ": nothing new\n\n"
                sent_at = monotonic()
            await follower.wait_for_change()


def _feed(request: Request) -> ChangeFeed:
    feed: ChangeFeed = request.app.state.feed
    return feed
