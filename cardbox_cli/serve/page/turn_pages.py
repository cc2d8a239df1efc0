"""Pages about execution: problems, agents, turns, traces, batches and chats."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from cardbox_cli.chat.chat_view import read_chat_view
from cardbox_cli.chat.memory_explanation import explain_memory
from cardbox_cli.diagnosis.verdict import Diagnosis
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.turn_summary import TurnSummary, summary
from cardbox_cli.inspect.batches import BatchResult, BatchView
from cardbox_cli.inspect.turns import Branch, build_trees, read_trace, read_turns, view_turn
from cardbox_cli.model.execution.batches import TASK_OPEN
from cardbox_cli.model.execution.turns import END_STATUSES, TURN_STATUSES
from cardbox_cli.model.identity import RosterEntry
from cardbox_cli.orchestration.batch_progress import TaskProgress
from cardbox_cli.pictures.page_elements import box, svg
from cardbox_cli.pictures.trace_picture import draw_timeline
from cardbox_cli.serve.addresses import PAGE_SIZE, Behind, next_position, parse_position
from cardbox_cli.serve.http.project_access import PageRead
from cardbox_cli.serve.page.box_pages import ShownSlot, make_row, readable_text
from cardbox_cli.serve.page.links import check_choice
from cardbox_cli.serve.page.templating import PageRoute, cut, drawing_markup, page
from cardbox_cli.serve.project_view import ProjectView
from cardbox_cli.store.execution.batch_store import BatchFilter
from cardbox_cli.store.projects import is_known
from cardbox_cli.store.roster import AgentFilter
from cardbox_cli.store.views.box_views import BoxSummary, BoxViews
from cardbox_cli.store.views.turn_views import MAX_FAMILY, TurnFilter

routes = APIRouter(route_class=PageRoute)

# The maximum numbers of turns shown for each rule, and of agents with problems from other pages.
_MAX_SIMILAR, _MAX_PROBLEMS = 15, 50
# The number of agents on a page.
_AGENTS = 200


@routes.get("")
def start(
    read: PageRead, status: str | None = None, end: str | None = None, behind: Behind = None
) -> HTMLResponse:
    status = check_choice(status, TURN_STATUSES, "status")
    end = check_choice(end, END_STATUSES, "end")
    survey = read.survey()
    turns, older = _turns(read, TurnFilter(status=status, behind=parse_position(behind)), end)
    return page(
        read,
        "start.html",
        view="Turns",
        survey=survey,
        problems=_group_by_rule(survey.problems),
        shown=_MAX_SIMILAR,
        turns=turns,
        status=end or status,
        troubled={each.turn: each.verdict for each in survey.problems if each.turn},
        older=older and read.links.start(status=status, end=end, behind=older),
    )


class _ProblemGroup(msgspec.Struct, frozen=True):
    """Problems with the same verdict and rule."""

    verdict: str
    rule: str | None
    proves: str
    diagnoses: list[Diagnosis]


def _group_by_rule(problems: Iterable[Diagnosis]) -> list[_ProblemGroup]:
    """Group problems with the same verdict and rule, in the order of the first of each group."""
    groups: dict[tuple[str, str | None, str], list[Diagnosis]] = {}
    for each in problems:
        groups.setdefault((each.verdict, each.rule, each.proves), []).append(each)
    return [_ProblemGroup(*key, diagnoses) for key, diagnoses in groups.items()]


@routes.get("/agents")
def agents(read: PageRead, behind: str | None = None) -> HTMLResponse:
    """List the agents: first all with problems, also those of later pages, then those with an active turn."""
    survey = read.diagnoser.survey()
    problems = {each.agent: each for each in reversed(survey.problems)}
    roster = read.agents
    page_entries = list(roster.list(AgentFilter(behind=behind), limit=_AGENTS + 1))
    known = {each.agent_id for each in page_entries[:_AGENTS]}
    others = [name for name in problems if name not in known and roster.find(name) is not None]
    entries = [*page_entries[:_AGENTS], *map(roster.entry, others[:_MAX_PROBLEMS] if behind is None else ())]
    rows = [(each, problems.get(each.agent_id)) for each in entries]
    return page(
        read,
        "agents.html",
        view="Agents",
        agents=sorted(rows, key=_urgency),
        has_project=bool(rows) or is_known(read.database, read.project_id),
        older=read.links.agents(behind=page_entries[_AGENTS - 1].agent_id)
        if len(page_entries) > _AGENTS
        else None,
    )


def _urgency(row: tuple[RosterEntry, Diagnosis | None]) -> tuple[int, str]:
    entry, diagnosis = row
    is_active = entry.head is not None and entry.head.active_agent_turn_id is not None
    return (0 if diagnosis is not None else 1 if is_active else 2), entry.agent_id


@routes.get("/agents/{agent_id:path}")
def agent(read: PageRead, agent_id: str, behind: Behind = None) -> HTMLResponse:
    entry = read.agents.entry(agent_id)
    turns, older = _turns(read, TurnFilter(agent_id=agent_id, behind=parse_position(behind)))
    return page(
        read,
        "agent.html",
        view="Agents",
        agent=entry,
        diagnosis=read.diagnoser.agent(agent_id),
        turns=turns,
        older=older and read.links.agent(agent_id, behind=older),
    )


def _turns(
    read: ProjectView, where: TurnFilter, end: str | None = None
) -> tuple[list[TurnSummary], str | None]:
    """Return a page of turns, newest first, and the position of the next page.

    With `end`, turns that another turn replaces are left out.
    """
    rows = list(read_turns(read.turns, where, limit=PAGE_SIZE + 1, end=end))
    return rows[:PAGE_SIZE], next_position(rows, "inbox_id")


# The number of last cards shown of each box of a turn.
_SLOTS = 15
_DELIVERABLE = 2_000


class LastCards(msgspec.Struct, frozen=True):
    """The end of a box, from the position `first` on."""

    box: BoxSummary
    first: int
    slots: list[ShownSlot]


@routes.get("/turns/{turn_id:path}")
def turn(read: PageRead, turn_id: str) -> HTMLResponse:
    stored = read.turns.read_all(read.turns.resolve(turn_id))
    turn_id = stored.turn.agent_turn_id
    box_ids = {"context": stored.turn.context_box_id, "output": stored.turn.output_box_id}
    deliverable = None
    if stored.deliverable is not None:
        text, is_cut = cut(readable_text(stored.deliverable), _DELIVERABLE)
        deliverable = {"text": text, "is_cut": is_cut}
    return page(
        read,
        "turn.html",
        view="Turns",
        turn=view_turn(stored),
        stored=stored.turn,
        leases=stored.leases,
        error=stored.record.error if stored.record else None,
        diagnosis=read.diagnoser.turn(turn_id),
        deliverable=deliverable,
        batch=read.batches.members([turn_id]).get(turn_id),
        boxes=[(name, box_id, _last_cards(read, box_id)) for name, box_id in box_ids.items()],
    )


@routes.get("/trace")
def trace(read: PageRead, turn: str) -> HTMLResponse:
    tree = read_trace(read.turns, turn)
    return page(
        read,
        "trace.html",
        view="Turns",
        turn_id=turn,
        trace_id=tree.trace_id,
        lines=list(_lines(tree.turns)),
        count=len(tree.agent_turn_ids),
        is_cut=tree.is_cut,
        drawing=drawing_markup(draw_timeline(tree.turns)),
    )


def _lines(tops: Sequence[Branch]) -> Iterator[tuple[int, Branch]]:
    """Yield all turns in the order of the tree, with their depth, without recursion."""
    waiting = [(0, top) for top in reversed(tops)]
    while waiting:
        depth, branch = waiting.pop()
        yield depth, branch
        waiting += [(depth + 1, child) for child in reversed(branch.children)]


def _last_cards(read: ProjectView, box_id: str | None) -> LastCards | None:
    if box_id is None:
        return None
    boxes = BoxViews(read.database, read.project_id)
    try:
        box = boxes.summary(box_id)
    except NotFound:
        return None
    first = max(box.length - _SLOTS, 0)
    return LastCards(box, first, [make_row(slot) for slot in boxes.window(box.box_id, first, _SLOTS)])


@routes.get("/batches")
def batches(read: PageRead, behind: Behind = None) -> HTMLResponse:
    rows = list(read.batches.newest(BatchFilter(behind=parse_position(behind)), limit=PAGE_SIZE + 1))
    older = next_position(rows, "batch_id")
    return page(
        read,
        "batches.html",
        view="Batches",
        batches=rows[:PAGE_SIZE],
        older=older and read.links.batches(behind=older),
    )


@routes.get("/batches/{batch_id:path}")
def batch(read: PageRead, batch_id: str) -> HTMLResponse:
    reader = read.batch_reader()
    view = reader.read(batch_id)
    progress = reader.progress(view)
    below = _branches_below(read, [each.agent_turn_id for each in view.results if each.agent_turn_id])
    tasks = [_task(each, progress.get(each.task_index), below) for each in view.results]
    return page(
        read,
        "batch.html",
        view="Batches",
        batch=view,
        tasks=tasks,
        ended=sum(each.status not in TASK_OPEN for each in view.results),
        bar=drawing_markup(_bar(view)),
    )


def _task(
    result: BatchResult, progress: TaskProgress | None, below: dict[str, list[Branch]]
) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(result),
        "state": result.status if progress is None else progress.state,
        **{name: getattr(progress, name, None) for name in ("steps", "agent_id", "since")},
        "below": below.get(result.agent_turn_id or "", []),
    }


def _branches_below(read: ProjectView, turn_ids: Sequence[str]) -> dict[str, list[Branch]]:
    """Return the turns that each of these turns requested, as trees, by turn."""
    turns = read.turns
    first = next(iter(turns.get_many(turn_ids[:1])), None)
    if first is None:
        return {}
    family = turns.family(first)
    branches = build_trees([summary(each) for each in family]) if len(family) < MAX_FAMILY else []
    parents = set(turn_ids)
    children: dict[str, list[Branch]] = {}
    while branches:
        children |= {each.agent_turn_id: each.children for each in branches if each.agent_turn_id in parents}
        branches = [child for each in branches for child in each.children]
    return children


def _bar(batch: BatchView) -> Any:
    """Draw the progress of a batch: succeeded, failed and running tasks."""
    counts = {"done": 0, "fails": 0, "runs": 0}
    for each in batch.results:
        kind = "done" if each.status == "success" else "runs" if each.status == "dispatched" else "fails"
        counts[kind] += each.status != "pending"
    parts, x = [box(0, 0, 100, 3, "track", f"{batch.task_count} tasks")], 0.0
    for kind, number in counts.items():
        wide = 100 * number / (batch.task_count or 1)
        parts.append(box(x, 0, wide, 3, kind, f"{number} {_KINDS[kind]}"))
        x += wide
    text = ", ".join(f"{number} {_KINDS[kind]}" for kind, number in counts.items() if number) or "none begun"
    bar = svg(f"Of {batch.task_count}: {text}", 100, 3, *parts)
    bar.set("class", "bar")
    return bar


_KINDS = {"done": "succeeded", "fails": "did not succeed", "runs": "running"}


# The maximum number of chats in the list, and the number of transcript entries shown at first.
_CHATS, _ENTRIES = 200, 50


@routes.get("/chats")
def chats(read: PageRead) -> HTMLResponse:
    rows = list(read.chat_stores.chats.all(limit=_CHATS + 1))
    return page(read, "chats.html", view="Chats", chats=rows[:_CHATS], is_cut=len(rows) > _CHATS)


@routes.get("/chat")
def chat(read: PageRead, key: str, most: Annotated[int, Query(ge=1, le=1000)] = _ENTRIES) -> HTMLResponse:
    """Show a chat: its transcript, the model's context, and its last runs."""
    stores = read.chat_stores
    head = stores.chats.get(key)
    entries = stores.chats.entries(head, max(head.entries - most, 0))
    has_more = len(entries) < head.entries and most < 1000
    return page(
        read,
        "chat.html",
        view="Chats",
        chat=read_chat_view(stores, key),
        why=explain_memory(stores, key, project_option=read.project_option),
        entries=entries,
        earlier=read.links.chat(key, most=min(most * 4, 1000)) if has_more else None,
    )
