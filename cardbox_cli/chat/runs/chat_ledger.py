"""The ledger of a run of a chat: what the loop of turns does to the tables of chats, under the run's fence.

A step takes in first what has come meanwhile; its request is composed, kept and proved as that of a turn is.
"""

from collections.abc import Sequence
from typing import Any

from cardbox_cli.chat.context_tools import CHAT_TOOLS, answer
from cardbox_cli.chat.runs import rounds
from cardbox_cli.chat.runs.run_requests import AGENT
from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.errors import CbxError
from cardbox_cli.execution.requests.step_snapshots import REQUEST, snapshot_of
from cardbox_cli.execution.requests.turn_requests import TurnBoxes, offered_tools, present_cards, source_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import (
    Author,
    ToolCall,
    ended_by_last_calls,
    fault_of_arguments,
    fault_of_size,
    pending_calls,
    result_card,
)
from cardbox_cli.execution.worker.command_output import keep_log, told
from cardbox_cli.execution.worker.command_processes import Ran
from cardbox_cli.execution.worker.ledger import BegunStep, RunState, hold_call_ids
from cardbox_cli.execution.worker.step_answers import Answer, AnswerRules, BadAnswer, read_answer
from cardbox_cli.execution.worker.step_requests import compose_step, keep_request
from cardbox_cli.execution.worker.worker_program import ToolCommands
from cardbox_cli.model.card_types import DELIVERABLE
from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.chats import ChatRun
from cardbox_cli.model.execution.turns import (
    COMPLETED,
    LLM_DONE,
    STEP_ANSWERED,
    End,
    EndStatus,
    Fence,
    Step,
    new_id,
)
from cardbox_cli.model.identity import Tool
from cardbox_cli.settings import CHAT_EPOCH, CHAT_KEY, CHAT_RUN, PROJECT
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.chats import Room
from cardbox_cli.store.tools import ToolStore


class ChatState(RunState, frozen=True, kw_only=True):
    """A run of a chat as its next step finds it."""

    run: ChatRun


class ChatLedger:
    """One run of a chat. `commands` are what answers the tools that are offered beside the four of chats."""

    noun = "run"

    def __init__(self, project_id: str, run: ChatRun, *, commands: ToolCommands) -> None:
        self._project_id = project_id
        self._fence = run.fence
        self._owner = run.owner
        self._commands = commands
        self.name = f"run {run.run_id} of chat {run.chat_key}"
        self.agent_id = run.chat_key
        self.agent_turn_id = run.run_id

    def read(self, runtime: Runtime) -> ChatState:
        """The run, at its fence."""
        room = _room(runtime)
        with room.snapshot():
            chat = room.chats.get(self._fence.chat_key)
            if chat.fence != self._fence:
                raise room.chats.stale(self._fence, chat)
            return self._state(room, rounds.run_at(room, self._fence))

    def _state(self, room: Room, run: ChatRun) -> ChatState:
        answered = [
            step for step in room.runs.steps(run.chat_key, run.run_id) if step.status in STEP_ANSWERED
        ]
        boxes = boxes_of(room.boxes, run)
        return ChatState(
            run=run,
            boxes=boxes,
            tools=self._tools(room, boxes),
            config={},
            steps=len(answered),
            step_id=answered[-1].step_id if answered else None,
        )

    def _tools(self, room: Room, boxes: TurnBoxes) -> list[Tool]:
        """Those of chats, and of the registered ones those that the profile allows and a command answers."""
        own = [each.tool for each in CHAT_TOOLS.values()]
        registered = ToolStore(room.database, room.project_id).all()
        here = [
            tool
            for tool in registered
            if tool.tool_name not in CHAT_TOOLS and self._commands.of(tool) is not None
        ]
        return [*own, *offered_tools(profile_of(present_cards(boxes.profile.slots)), here)]

    def enter(self, runtime: Runtime, state: ChatState) -> None:
        """Nothing: a run is never taken up by another."""

    # --- steps

    def begin_step(
        self, runtime: Runtime, state: ChatState, *, format: str, options: ComposeOptions
    ) -> BegunStep:
        """Take in what has come, and begin a step."""
        room = _room(runtime)
        while True:
            run = rounds.take_in(room, self._fence)
            with room.snapshot():
                now = self._state(room, run)
            asked, settings = compose_step(runtime, now, format=format, options=options)
            step_id = new_id("step")
            with runtime.transaction():
                chat = room.chats.hold(self._fence)
                if chat.version != run.version:
                    # Somebody replaced the context just now.
                    continue
                room.runs.begin_step(
                    run,
                    step_id,
                    request_box_id=keep_request(runtime, asked, settings, step_id),
                    metadata={REQUEST: snapshot_of(asked.request, asked.body, now.boxes, format)},
                    now=room.database.now(),
                )
            return BegunStep(step_id=step_id, asked=asked, written=len(now.boxes.own))

    def understand(
        self, runtime: Runtime, state: ChatState, step: BegunStep, stdout: bytes, rules: AnswerRules
    ) -> Answer | BadAnswer:
        """The cards that the command printed. One that has sent a reply itself need print nothing."""
        if not stdout.strip() and rounds.run_at(_room(runtime), self._fence).reply_card_ids:
            return Answer(cards=[], calls=[])
        return read_answer(stdout, self._author(step.step_id), runtime.turns.held_tool_call_ids, rules)

    def store_answer(self, runtime: Runtime, state: ChatState, step: BegunStep, answer: Answer) -> End | None:
        """Append the answer to the output box; the end of the run, where it calls nothing."""
        room = _room(runtime)
        with runtime.transaction():
            room.chats.hold(self._fence)
            box = room.boxes.lock(rounds.run_at(room, self._fence).output_box_id)
            hold_call_ids(runtime, answer.cards, box.card_ids)
            self._append(room, answer.cards)
            calls = pending_calls(answer.cards)
            room.runs.move_step(
                self._fence.chat_key,
                step.step_id,
                LLM_DONE if calls else COMPLETED,
                now=room.database.now(),
                tool_call_ids=[call.tool_call_id for call in calls] or None,
                metadata={} if answer.usage is None else {"llm_usage": answer.usage},
            )
            return None if calls else self._end(room, "success", answer=_text_of(answer.cards))

    def complete_step(self, runtime: Runtime, state: ChatState) -> End | None:
        """The last step is done; the end of the run, where a result ends it."""
        room = _room(runtime)
        with runtime.transaction():
            room.chats.hold(self._fence)
            if state.step_id is not None:
                now = room.database.now()
                room.runs.move_step(self._fence.chat_key, state.step_id, COMPLETED, now=now)
            own = present_cards(room.boxes.slots(rounds.run_at(room, self._fence).output_box_id))
            status = ended_by_last_calls(own)
            if status is None:
                return None
            return self._end(room, status, error=None if status == "success" else "a tool's result ended it")

    # --- calls

    def answers(self, call: ToolCall) -> bool:
        """Whether it is one of the four tools of chats."""
        return call.tool_name in CHAT_TOOLS

    def answer(self, runtime: Runtime, state: ChatState, call: ToolCall) -> CardDraft:
        """Change the chat's context as the model wants; the next step goes on with that."""
        room = _room(runtime)
        author = self.author(state)
        fault = fault_of_size(call) or fault_of_arguments(call)
        if fault is not None:
            return result_card(call, author, failure=("invalid_arguments", fault))
        try:
            with room.transaction():
                room.chats.hold(self._fence)
                result = answer(room, self._fence.chat_key, call.tool_name, call.input)
        except CbxError as exc:
            if exc.exit_code not in (3, 4, 5) or exc.code == "stale-epoch":
                raise
            return result_card(call, author, failure=(exc.code, told(exc.message)))
        return result_card(call, author, result=result)

    def add_result(self, runtime: Runtime, state: ChatState, draft: CardDraft) -> None:
        """Append a result to the output box."""
        room = _room(runtime)
        with runtime.transaction():
            room.chats.hold(self._fence)
            self._append(room, [draft])

    def answer_handlers(
        self, runtime: Runtime, state: ChatState, calls: Sequence[ToolCall], others: Sequence[ToolCall]
    ) -> list[ToolCall]:
        """Never: handlers answer turns, and none is offered here."""
        raise AssertionError(f"a chat offers no handler: {[call.tool_name for call in calls]}")

    def suspend(self, runtime: Runtime, state: ChatState, calls: Sequence[ToolCall]) -> None:
        """Never: no tool is offered whose calls somebody else answers."""
        raise AssertionError(f"a chat waits for nobody: {[call.tool_name for call in calls]}")

    def _append(self, room: Room, drafts: Sequence[CardDraft]) -> None:
        """Append cards that the output box does not hold yet, since this may be tried again."""
        box = room.boxes.lock(rounds.run_at(room, self._fence).output_box_id)
        for draft in drafts:
            room.cards.add(draft)
        new = [draft.card_id for draft in drafts if draft.card_id not in box.card_ids]
        if new:
            room.boxes.append(box.box_id, new)

    # --- the end

    def fail(
        self,
        runtime: Runtime,
        status: EndStatus,
        *,
        error_code: str,
        message: str,
        details: dict[str, Any],
    ) -> End:
        """End the run; what its command has sent stays said."""
        return self._end(_room(runtime), status, error_code=error_code, error=message)

    def hand_back(self, runtime: Runtime, reason: str) -> None:
        """Leave the message unanswered."""
        self._end(_room(runtime), "canceled", error_code="canceled", error="it was stopped")

    def _end(self, room: Room, status: EndStatus, **more: str | None) -> End:
        run = rounds.end(room, self._fence, "failed" if status == "partial" else status, **more)
        return End(agent_turn_id=run.run_id, end_status=run.status, deliverable_card_id=run.answer_card_id)

    # --- commands

    def keep_log(
        self,
        runtime: Runtime,
        *,
        ran: Ran,
        log_id: str,
        step_id: str,
        call: ToolCall | None,
        kept: int,
    ) -> None:
        """Keep it in `cbx.logs`, under the run's id."""
        fence = Fence(self._fence.chat_key, self._fence.run_id, self._fence.epoch)
        keep_log(
            runtime,
            lambda: _room(runtime).chats.hold(self._fence),
            fence=fence,
            ran=ran,
            log_id=log_id,
            step_id=step_id,
            call=call,
            worker_id=self._owner,
            kept=kept,
        )

    def author(self, state: ChatState) -> Author:
        """The chat's agent, in the last step."""
        return self._author(state.step_id or "")

    def _author(self, step_id: str) -> Author:
        return Author(agent_id=AGENT, agent_turn_id=self._fence.run_id, step_id=step_id)

    def variables(self, state: ChatState) -> dict[str, str]:
        """The chat and its run: by these `cbx chat reply` knows whose reply it is."""
        return {
            PROJECT.name: self._project_id,
            CHAT_KEY.name: self._fence.chat_key,
            CHAT_RUN.name: self._fence.run_id,
            CHAT_EPOCH.name: str(self._fence.epoch),
        }


def boxes_of(boxes: BoxStore, run: ChatRun | Step) -> TurnBoxes:
    """The boxes of a run, or of one of its steps. Raises NotFound for one that is gone."""
    return TurnBoxes(
        profile=source_of(boxes, "profile", run.profile_box_id),
        context=source_of(boxes, "context", run.context_box_id),
        output=source_of(boxes, "output", run.output_box_id),
        output_start=0,
    )


def _text_of(cards: Sequence[CardDraft]) -> str | None:
    """What an answer says in the end."""
    texts = [card_text(card.content) for card in cards if card.type == DELIVERABLE]
    return texts[-1] if texts else None


def _room(runtime: Runtime) -> Room:
    return Room(runtime.database, runtime.project_id, runtime.settings)
