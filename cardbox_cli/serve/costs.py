"""The requests whose costs are asked for: of a turn, of an agent's or a chat's last ones, of a box."""

from collections.abc import Sequence

from cardbox_cli.chat.runs.recorded_runs import sent_by_chat
from cardbox_cli.context.cost.account import Sent, account_of, conversation
from cardbox_cli.context.cost.answer import CostAnswer, cost_answer, costs_of
from cardbox_cli.context.cost.findings import ChatSubject
from cardbox_cli.execution.requests.recorded_requests import no_turn
from cardbox_cli.execution.requests.request_series import sent_by_turn
from cardbox_cli.execution.requests.turn_requests import NEXT
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.serve.project import Project
from cardbox_cli.serve.requests import Requests, one_of
from cardbox_cli.store.views.turn_views import TurnFilter, TurnRow, TurnViews

# Turns of an agent, and runs of a chat, that are looked at.
_LAST = 20


def costed(
    project: Project,
    *,
    box: str | None = None,
    turn: str | None = None,
    agent: str | None = None,
    chat: str | None = None,
    top: int,
) -> CostAnswer:
    """What the requests of one of these cost together. Raises UsageError unless one is named."""
    kind, name = one_of(box=box, turn=turn, agent=agent, chat=chat)
    series, subject = series_of(project, kind, name)
    costs = costs_of(account_of(series), chat=subject)
    return cost_answer(kind, name, costs, top=top, project_option=project.project_option)


def series_of(read: Project, kind: str, name: str) -> tuple[Sequence[Sent], ChatSubject | None]:
    """The requests of a `box`, `chat`, `turn` or `agent`; of what has sent none the next one, composed.

    Raises NotFound, for an agent without a turn, too.
    """
    requests = Requests(read)
    if kind == "box":
        shown = requests.of_box(name)
        return conversation(shown.request, provider_of(shown.format)), None
    if kind == "chat":
        found = sent_by_chat(read.database, read.project_id, name, since=None, most=_LAST)
        return found.series or _next(requests, chat=name), found.chat
    turns = TurnViews(read.database, read.project_id)
    if kind == "turn":
        return _of_turns(read, [turns.get(name)]) or _next(requests, turn=name), None
    last = list(turns.newest(TurnFilter(agent_id=name), limit=_LAST))
    if not last:
        raise no_turn(turns, name)
    return _of_turns(read, last[::-1]), None


def _of_turns(read: Project, turns: Sequence[TurnRow]) -> list[Sent]:
    return [sent for turn in turns for sent in sent_by_turn(read.database, read.project_id, turn)]


def _next(requests: Requests, turn: str | None = None, chat: str | None = None) -> list[Sent]:
    recorded = requests.recorded(turn, chat)
    if recorded is None or recorded.is_over:
        return []
    shown = requests.of_step(recorded, NEXT)
    return [Sent(request=shown.request, provider=provider_of(shown.format), agent_turn_id=turn)]
