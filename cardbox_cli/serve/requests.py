"""The requests that pages are about: of boxes, of the steps of a turn or a chat, as they are sent."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cardbox_cli.chat.runs.recorded_runs import ChatRequests
from cardbox_cli.context.explain import Explanation, explain
from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.context.request import ComposeOptions, Request, RequestEntry, request_of
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.execution.requests.recorded_requests import RecordedRequests, TurnRequests
from cardbox_cli.execution.requests.turn_requests import collector_for, read_source, settled
from cardbox_cli.orchestration.handlers import HANDLERS
from cardbox_cli.providers.formats import body_of, encoder_of, provider_of
from cardbox_cli.providers.registry import provider_for, providers
from cardbox_cli.serve.project import Project
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.views.turn_views import TurnViews


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its name, its format, what it is made of. `step_id` is that of the step that sent it."""

    name: str
    format: str
    step_id: str | None
    entries: list[RequestEntry]
    request: Request
    awaited: list[str]
    notes: list[str]


class Requests:
    """The requests of a project, within the caller's snapshot."""

    def __init__(self, look: Project) -> None:
        self._look = look
        self._options = settled(ComposeOptions(), ProjectsStore(look.database).settings(look.project_id))

    def recorded(self, turn: str | None, chat: str | None) -> RecordedRequests | None:
        """The steps of the turn or the chat that is named, if one is."""
        look = self._look
        if chat is not None:
            return ChatRequests(look.database, look.project_id, chat)
        if turn is None:
            return None
        found = TurnViews(look.database, look.project_id).get(turn)
        return TurnRequests(look.database, look.project_id, found, HANDLERS)

    def of_step(self, recorded: RecordedRequests, at: str | None, format: str | None = None) -> Asked:
        """The request of a step, or the next one."""
        look = self._look
        collector = collector_for(look.database, look.project_id, *recorded.context_box_ids)
        found = recorded.request(at, self._options, format, collector)
        step_id = None if found.step is None else found.step.step_id
        return Asked(
            name=f"{recorded.name}, {step_id or 'the next step'}",
            format=found.format,
            step_id=step_id,
            entries=found.entries,
            request=found.request,
            awaited=found.awaited,
            notes=found.notes,
        )

    def of_box(self, box_id: str, format: str | None = None) -> Asked:
        """The request that a box makes."""
        look = self._look
        boxes = BoxStore(look.database, look.project_id)
        boxes.require(box_id)
        entries: Sequence[RequestEntry] = read_source(boxes, box_id).entries
        format = format or provider_for(entries, None)
        collector = collector_for(look.database, look.project_id, box_id)
        request = request_of(entries, self._options, encode=encoder_of(format), collector=collector)
        return Asked(
            name=f"box {box_id}",
            format=format,
            step_id=None,
            entries=list(entries),
            request=request,
            awaited=[],
            notes=[],
        )


class RenderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its body as it is sent, where each message of it comes from, and what the lint finds."""

    name: str
    format: str
    step_id: str | None
    body: Any
    explanation: Explanation
    findings: list[LintFinding]
    notes: list[str]


def rendered(
    project: Project,
    *,
    box: str | None = None,
    turn: str | None = None,
    chat: str | None = None,
    at: str | None = None,
    format: str | None = None,
) -> RenderAnswer:
    """The request of a box, or of a step of a turn or a chat: its last one, or the next.

    Raises UsageError unless one of them is named, InvalidInput for a format that there is not.
    """
    one_of(box=box, turn=turn, chat=chat)
    formats = [each.name for each in providers()]
    if format is not None and format not in formats:
        raise InvalidInput(f"there is no format {format!r}: there are {', '.join(formats)}")
    shown = _shown(Requests(project), box=box, turn=turn, chat=chat, at=at, format=format)
    provider = provider_of(shown.format)
    return RenderAnswer(
        name=shown.name,
        format=shown.format,
        step_id=shown.step_id,
        body=body_of(shown.request, shown.format),
        explanation=explain(shown.request, provider),
        findings=lint(shown.entries, shown.request, provider, awaited=shown.awaited),
        notes=shown.notes,
    )


def one_of(**given: str | None) -> tuple[str, str]:
    """The one thing that is named, and what it is. Raises UsageError."""
    named = [(kind, name) for kind, name in given.items() if name is not None]
    if len(named) != 1:
        raise UsageError(f"name one of {', '.join(given)}")
    return named[0]


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
