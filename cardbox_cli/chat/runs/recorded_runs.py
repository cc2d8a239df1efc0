"""The requests of a chat's steps as they were sent, and the next one as it would be.

A step is named by its number within the last run, or by its id within any. Never writes; methods take part in
the caller's snapshot.
"""

import msgspec

from cardbox_cli.chat.context_tools import CHAT_TOOLS
from cardbox_cli.chat.runs.chat_ledger import boxes_of
from cardbox_cli.chat.runs.run_requests import as_source, asked_of, context_parts, profile_card
from cardbox_cli.chat.transcript import unanswered
from cardbox_cli.context.composer import ContextCollector
from cardbox_cli.context.cost.account import Sent
from cardbox_cli.context.cost.findings import ChatSubject
from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.requests.recorded_requests import RecordedRequests, StepRequest
from cardbox_cli.execution.requests.request_series import sent_by_steps
from cardbox_cli.execution.requests.turn_requests import (
    Source,
    TurnBoxes,
    offered_tools,
    present_cards,
    turn_request,
)
from cardbox_cli.model.chats import ChatRun
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.ids import unique
from cardbox_cli.store.chats import Room
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import Dated, Moment
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.text import argument

# What stands in the place of the id of a run that has not begun.
_NO_RUN = "run_…"


class ChatRequests(RecordedRequests):
    """The requests of one chat. Without a message to answer, the next is that of its last step."""

    noun = "chat"

    def __init__(self, database: Database, project_id: str, chat_key: str) -> None:
        self._room = Room(database, project_id)
        self.chat = self._room.chats.get(chat_key)
        self._last = next(iter(self._room.runs.last(chat_key, 1)), None)
        steps = [] if self._last is None else self._room.runs.steps(chat_key, self._last.run_id)
        super().__init__(database, project_id, steps)
        self._waiting = unanswered(self._room, self.chat, self.chat.answered)
        self.name = chat_key
        self.shows = f"`cbx chat show {argument(chat_key)}`"
        self.is_over = not self._waiting and bool(steps)

    @property
    def context_box_ids(self) -> list[str]:
        """None: what a chat carries was not packed."""
        return []

    def boxes_of(self, step: Step) -> TurnBoxes:
        """The boxes of a step."""
        return boxes_of(self._boxes, step)

    def _box_ids_of(self, step: Step) -> tuple[str | None, str | None, str | None]:
        return step.profile_box_id, step.context_box_id, step.output_box_id

    def _named(self, at: str) -> Step:
        """A step of the last run, or of any by its id."""
        try:
            return super()._named(at)
        except NotFound:
            found = self._room.runs.steps_like(self.chat.chat_key, at)
            if not found:
                raise
            self._steps = found
            return super()._named(at)

    def _composed(
        self, options: ComposeOptions, format: str | None, collector: ContextCollector
    ) -> StepRequest:
        running = self._running()
        boxes = self._boxes_of_next() if running is None else boxes_of(self._boxes, running)
        format = format or self._last_format(options, boxes.entries)
        asked = turn_request(boxes, self._tools(boxes), options, format=format, collector=collector)
        return StepRequest(
            step=None,
            format=format,
            entries=asked.entries,
            request=asked.request,
            awaited=[],
            notes=[
                "as cbx would compose it",
                *([] if running is None else [f"run {running.run_id} goes on: as it stands now"]),
                *([] if self._waiting else ["no message is unanswered"]),
            ],
        )

    def _running(self) -> ChatRun | None:
        is_running = self._last is not None and self._last.run_id == self.chat.run_id
        return self._last if is_running else None

    def _boxes_of_next(self) -> TurnBoxes:
        chat, waiting = self.chat, self._waiting
        position = waiting[-1].position if waiting else chat.entries
        profile = profile_card(chat.chat_key, _NO_RUN, None)
        context = context_parts(self._room, chat, position, asked_of(chat, waiting))
        return TurnBoxes(
            profile=as_source(self._room, [profile]),
            context=as_source(self._room, context),
            output=Source("", []),
            output_start=0,
        )

    def _tools(self, boxes: TurnBoxes) -> list[Tool]:
        """Those of chats, and of the registered ones those that a command may answer."""
        own = [each.tool for each in CHAT_TOOLS.values()]
        registered = ToolStore(self._database, self._project_id).all()
        others = [tool for tool in registered if tool.tool_name not in CHAT_TOOLS]
        return [*own, *offered_tools(profile_of(present_cards(boxes.profile.slots)), others)]


# The requests of a chat's runs as a series. Never writes; takes part in the caller's snapshot.


class SentByChat(msgspec.Struct, frozen=True, kw_only=True):
    """What runs of a chat have sent, so many `runs`, the oldest first, and what findings must know of it."""

    runs: int
    series: list[Sent]
    chat: ChatSubject


def sent_by_chat(
    database: Database, project_id: str, chat_key: str, *, since: Moment | None, most: int | None
) -> SentByChat:
    """The requests of the last `most` runs that began `since` then. Raises NotFound for a chat that there
    is not."""
    room = Room(database, project_id)
    active = room.chats.get(chat_key).context_box_id
    runs = room.runs.last(chat_key, most, Dated(since=since))[::-1]
    steps = [step for run in runs for step in room.runs.steps(chat_key, run.run_id)]
    of_steps = [box_id for step in steps for box_id in (step.output_box_id, step.context_box_id) if box_id]
    homes = unique([*([active] if active else []), *of_steps])
    return SentByChat(
        runs=len(runs),
        series=sent_by_steps(database, project_id, steps, homes),
        chat=ChatSubject(key=chat_key, box_id=active, tools=frozenset(CHAT_TOOLS)),
    )
