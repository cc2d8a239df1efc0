"""The requests that pages are about: of boxes, of the steps of a turn or a chat, as they are sent."""

from collections.abc import Sequence

import msgspec

from cardbox_cli.chat.runs.recorded import ChatRequests
from cardbox_cli.context.formats import encoder_of
from cardbox_cli.context.lint.check import provider_for
from cardbox_cli.context.request import ComposeOptions, Request, RequestEntry, request_of
from cardbox_cli.execution.requests.project_layers import collector_for, settled
from cardbox_cli.execution.requests.recorded import RecordedRequests
from cardbox_cli.execution.requests.source import read_source
from cardbox_cli.execution.requests.steps import TurnRequests
from cardbox_cli.serve.reading import Reading
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.views.turns import TurnViews


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

    def __init__(self, look: Reading) -> None:
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
        return TurnRequests(look.database, look.project_id, found)

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
