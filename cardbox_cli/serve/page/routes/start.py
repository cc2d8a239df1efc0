"""What goes on in a project: what is not well, its turns, its agents."""

from collections.abc import Iterable

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cardbox_cli.diagnosis.verdict import Diagnosis
from cardbox_cli.execution.turn_page import TurnSummary, summary
from cardbox_cli.model.execution.turns import TURN_STATUSES
from cardbox_cli.model.identity import RosterEntry
from cardbox_cli.serve.http.reading import Looking
from cardbox_cli.serve.listing import LINES, Behind, following, mark_of
from cardbox_cli.serve.page.asked import known
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.templating import page
from cardbox_cli.serve.project import Project
from cardbox_cli.store.projects import is_known
from cardbox_cli.store.roster import AgentFilter, RosterStore
from cardbox_cli.store.views.turn_views import TurnFilter, TurnViews

routes = APIRouter(route_class=PageRoute)

# Of each rule the turns that are shown, and agents that are not well but beyond the page.
_ALIKE, _MOST_PROBLEMS = 15, 50
# Agents of a page.
_AGENTS = 200


@routes.get("")
def start(look: Looking, status: str | None = None, behind: Behind = None) -> HTMLResponse:
    """What is not well, and the newest turns."""
    status = known(status, TURN_STATUSES, "state")
    survey = look.survey()
    with look.database.snapshot():
        turns, older = _turns(look, TurnFilter(status=status, behind=mark_of(behind)))
    return page(
        look,
        "start.html",
        view="Turns",
        survey=survey,
        problems=_by_rule(survey.problems),
        shown=_ALIKE,
        turns=turns,
        status=status,
        older=older and look.links.start(status=status, behind=older),
    )


class _Alike(msgspec.Struct, frozen=True):
    """What is not well in the same way."""

    verdict: str
    rule: str | None
    proves: str
    found: list[Diagnosis]


def _by_rule(problems: Iterable[Diagnosis]) -> list[_Alike]:
    """Problems that say the same, together; the order of the first of each stays."""
    groups: dict[tuple[str, str | None, str], list[Diagnosis]] = {}
    for each in problems:
        groups.setdefault((each.verdict, each.rule, each.proves), []).append(each)
    return [_Alike(*told, found) for told, found in groups.items()]


@routes.get("/agents")
def agents(look: Looking, behind: str | None = None) -> HTMLResponse:
    """The agents: those that are not well first, wherever they stand in the list, then those at a turn."""
    survey = look.diagnoser.survey()
    problems = {each.agent: each for each in reversed(survey.problems)}
    roster = RosterStore(look.database, look.project_id)
    listed = list(roster.list(AgentFilter(behind=behind), limit=_AGENTS + 1))
    known = {each.agent_id for each in listed[:_AGENTS]}
    others = [name for name in problems if name not in known and roster.find(name) is not None]
    entries = [*listed[:_AGENTS], *map(roster.entry, others[:_MOST_PROBLEMS] if behind is None else ())]
    rows = [(each, problems.get(each.agent_id)) for each in entries]
    return page(
        look,
        "agents.html",
        view="Agents",
        agents=sorted(rows, key=_urgency),
        has_project=bool(rows) or is_known(look.database, look.project_id),
        older=look.links.agents(behind=listed[_AGENTS - 1].agent_id) if len(listed) > _AGENTS else None,
    )


def _urgency(row: tuple[RosterEntry, Diagnosis | None]) -> tuple[int, str]:
    entry, diagnosis = row
    is_active = entry.head is not None and entry.head.active_agent_turn_id is not None
    return (0 if diagnosis is not None else 1 if is_active else 2), entry.agent_id


@routes.get("/agents/{agent_id:path}")
def agent(look: Looking, agent_id: str, behind: Behind = None) -> HTMLResponse:
    """An agent, the verdict on it, and its turns."""
    with look.database.snapshot():
        entry = RosterStore(look.database, look.project_id).entry(agent_id)
        turns, older = _turns(look, TurnFilter(agent_id=agent_id, behind=mark_of(behind)))
    return page(
        look,
        "agent.html",
        view="Agents",
        agent=entry,
        diagnosis=look.diagnoser.agent(agent_id),
        turns=turns,
        older=older and look.links.agent(agent_id, behind=older),
    )


def _turns(look: Project, where: TurnFilter) -> tuple[list[TurnSummary], str | None]:
    """A page of turns, newest first, and where the next one begins."""
    found = list(TurnViews(look.database, look.project_id).newest(where, limit=LINES + 1))
    return [summary(turn) for turn in found[:LINES]], following(found, "inbox_id")
