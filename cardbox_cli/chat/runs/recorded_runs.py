"""The requests of a chat: those that its steps sent, the next one, and the series of its last runs.

A step is identified by its number in the last run, or by its id. Never writes; takes part in the caller's
snapshot.
"""

import msgspec

from cardbox_cli.chat.context_tools import CHAT_TOOLS
from cardbox_cli.chat.runs.chat_ledger import boxes_of, chat_tools
from cardbox_cli.chat.runs.run_requests import context_parts, profile_card, select_messages, unsaved_source
from cardbox_cli.chat.transcript import unanswered_messages
from cardbox_cli.context.composer import ContextCollector
from cardbox_cli.context.cost.account import Sent
from cardbox_cli.context.cost.findings import ChatSubject
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.requests.recorded_requests import RecordedRequests, StepRequest
from cardbox_cli.execution.requests.request_series import read_step_requests
from cardbox_cli.execution.requests.turn_requests import (
    BoxSource,
    TurnBoxes,
    compose_turn_request,
)
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.ids import unique
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import DateFilter, Moment
from cardbox_cli.text.command_lines import quote_argument

# The placeholder for the id of the next run.
_NEXT_RUN_ID = "run_…"


class ChatRequests(RecordedRequests):
    """The requests of one chat. If no message is unanswered, the next request is that of the last step."""

    noun = "chat"

    def __init__(self, database: Database, project_id: str, chat_key: str) -> None:
        self._stores = ChatStores(database, project_id)
        self.chat = self._stores.chats.get(chat_key)
        self._last = next(iter(self._stores.runs.last(chat_key, 1)), None)
        steps = [] if self._last is None else self._stores.runs.steps(chat_key, self._last.run_id)
        super().__init__(database, project_id, steps)
        self._waiting = unanswered_messages(self._stores, self.chat, self.chat.answered)
        self.name = chat_key
        self.shows = f"`cbx chat show {quote_argument(chat_key)}`"
        self.is_over = not self._waiting and bool(steps)

    @property
    def context_box_ids(self) -> list[str]:
        """Return an empty list, because a chat's context is not packed."""
        return []

    def boxes_of(self, step: Step) -> TurnBoxes:
        return boxes_of(self._boxes, step)

    def _box_ids_of(self, step: Step) -> tuple[str | None, str | None, str | None]:
        return step.profile_box_id, step.context_box_id, step.output_box_id

    def _find_step(self, at: str) -> Step:
        """Find a step of the last run, or of any run by its id."""
        try:
            return super()._find_step(at)
        except NotFound:
            steps = self._stores.runs.steps_like(self.chat.chat_key, at)
            if not steps:
                raise
            self._steps = steps
            return super()._find_step(at)

    def _compose(
        self, options: ComposeOptions, format: str | None, collector: ContextCollector
    ) -> StepRequest:
        is_running = self._last is not None and self._last.run_id == self.chat.run_id
        running = self._last if is_running else None
        boxes = self._boxes_of_next() if running is None else boxes_of(self._boxes, running)
        format = format or self._last_format(options, boxes.entries)
        tools = chat_tools(self._stores, boxes)
        composed = compose_turn_request(boxes, tools, options, format=format, collector=collector)
        return StepRequest(
            step=None,
            format=format,
            entries=composed.entries,
            request=composed.request,
            awaited=[],
            notes=[
                "as cbx would compose it",
                *([] if running is None else [f"run {running.run_id} is running: its current state"]),
                *([] if self._waiting else ["all messages are answered"]),
            ],
        )

    def _boxes_of_next(self) -> TurnBoxes:
        chat, waiting = self.chat, self._waiting
        position = waiting[-1].position if waiting else chat.entries
        profile = profile_card(chat.chat_key, _NEXT_RUN_ID, None)
        context = context_parts(self._stores, chat, position, select_messages(chat, waiting))
        return TurnBoxes(
            profile=unsaved_source(self._stores, [profile]),
            context=unsaved_source(self._stores, context),
            output=BoxSource("", []),
            output_start=0,
        )


class SentByChat(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that the last `runs` runs of a chat sent, the oldest first, and the chat itself."""

    runs: int
    series: list[Sent]
    chat: ChatSubject


def sent_by_chat(
    database: Database, project_id: str, chat_key: str, *, since: Moment | None, most: int | None
) -> SentByChat:
    """Read the requests of the last `most` runs that began at or after `since`. Raises NotFound."""
    stores = ChatStores(database, project_id)
    active = stores.chats.get(chat_key).context_box_id
    runs = stores.runs.last(chat_key, most, DateFilter(since=since))[::-1]
    steps = [step for run in runs for step in stores.runs.steps(chat_key, run.run_id)]
    step_boxes = [box_id for step in steps for box_id in (step.output_box_id, step.context_box_id) if box_id]
    homes = unique([*([active] if active else []), *step_boxes])
    return SentByChat(
        runs=len(runs),
        series=read_step_requests(database, project_id, steps, homes),
        chat=ChatSubject(key=chat_key, box_id=active, tools=frozenset(CHAT_TOOLS)),
    )
