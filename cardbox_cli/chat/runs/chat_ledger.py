"""The ledger of a chat's run: the turn loop stores its work in the tables of chats, under the run's fence.

Each step first reads new messages. Its request is composed, stored and verified like a turn's.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cardbox_cli.chat.context_tools import CHAT_TOOLS, run_chat_tool
from cardbox_cli.chat.runs import run_lifecycle
from cardbox_cli.chat.runs.run_requests import AGENT
from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.errors import CbxError
from cardbox_cli.execution.requests.step_snapshots import SNAPSHOT_KEY, snapshot_of
from cardbox_cli.execution.requests.turn_requests import TurnBoxes, offered_tools, present_cards, source_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import (
    Author,
    ToolCall,
    argument_problem,
    end_status_of_last_calls,
    pending_calls,
    result_card,
    size_problem,
)
from cardbox_cli.execution.worker.command_output import redact_message, store_log
from cardbox_cli.execution.worker.command_processes import CommandOutcome
from cardbox_cli.execution.worker.failures import (
    FailedTry,
    Postponement,
    StepFailure,
    decide_retry,
    retry_policy,
)
from cardbox_cli.execution.worker.ledger import BegunStep, RunState, lock_call_ids
from cardbox_cli.execution.worker.step_answers import AnswerRules, InvalidAnswer, StepAnswer, read_answer
from cardbox_cli.execution.worker.step_requests import compose_step, store_request
from cardbox_cli.execution.worker.worker_program import ToolCommands
from cardbox_cli.model.card_types import DELIVERABLE
from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.chats import ChatRun
from cardbox_cli.model.execution.turns import (
    COMPLETED,
    LLM_DONE,
    STEP_ANSWERED,
    EndStatus,
    Fence,
    Step,
    TurnEnd,
    new_id,
)
from cardbox_cli.model.identity import Tool
from cardbox_cli.settings import CHAT_EPOCH, CHAT_KEY, CHAT_RUN, PROJECT
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.tools import ToolStore


class ChatState(RunState, frozen=True, kw_only=True):
    run: ChatRun


class ChatLedger:
    """One run of a chat. `commands` answer the registered tools; the ledger answers the four chat tools."""

    noun = "run"

    def __init__(self, project_id: str, run: ChatRun, *, commands: ToolCommands) -> None:
        self._project_id = project_id
        self._fence = run.fence
        self._owner = run.owner
        self._commands = commands
        # The failed tries of the current step. They are not stored, because no other process resumes the run.
        self._tries: list[FailedTry] = []
        self.name = f"run {run.run_id} of chat {run.chat_key}"
        self.agent_id = run.chat_key
        self.agent_turn_id = run.run_id

    def read(self, runtime: Runtime) -> ChatState:
        """Read the run. Raises StaleEpoch if its fence is outdated."""
        stores = _stores(runtime)
        with stores.snapshot():
            chat = stores.chats.get(self._fence.chat_key)
            if chat.fence != self._fence:
                raise stores.chats.stale_error(self._fence, chat)
            return self._state(stores, run_lifecycle.get_run(stores, self._fence))

    def _state(self, stores: ChatStores, run: ChatRun) -> ChatState:
        answered = [
            step for step in stores.runs.steps(run.chat_key, run.run_id) if step.status in STEP_ANSWERED
        ]
        boxes = boxes_of(stores.boxes, run)
        return ChatState(
            run=run,
            boxes=boxes,
            tools=chat_tools(stores, boxes, lambda tool: self._commands.find(tool) is not None),
            config={},
            steps=len(answered),
            step_id=answered[-1].step_id if answered else None,
        )

    def enter(self, runtime: Runtime, state: ChatState) -> None:
        """Return at once, because no other process resumes a chat's run."""

    # --- steps

    def begin_step(
        self, runtime: Runtime, state: ChatState, *, format: str, options: ComposeOptions
    ) -> BegunStep:
        """Read new messages into the run, and begin a step."""
        stores = _stores(runtime)
        while True:
            run = run_lifecycle.update_run(stores, self._fence)
            with stores.snapshot():
                now = self._state(stores, run)
            composed, settings = compose_step(runtime, now, format=format, options=options)
            step_id = new_id("step")
            with runtime.transaction():
                chat = stores.chats.hold(self._fence)
                if chat.version != run.version:
                    continue  # the context was replaced meanwhile
                stores.runs.begin_step(
                    run,
                    step_id,
                    request_box_id=store_request(runtime, composed, settings, step_id),
                    metadata={SNAPSHOT_KEY: snapshot_of(composed.request, composed.body, now.boxes, format)},
                    now=stores.database.now(),
                )
            return BegunStep(step_id=step_id, asked=composed, written=len(now.boxes.own))

    def understand(
        self, runtime: Runtime, state: ChatState, step: BegunStep, stdout: bytes, rules: AnswerRules
    ) -> StepAnswer | InvalidAnswer:
        """Parse the cards that the command printed. If it has sent a reply itself, it may print nothing."""
        if not stdout.strip() and run_lifecycle.get_run(_stores(runtime), self._fence).reply_card_ids:
            return StepAnswer(cards=[], calls=[])
        return read_answer(stdout, self._author(step.step_id), runtime.turns.held_tool_call_ids, rules)

    def store_answer(
        self, runtime: Runtime, state: ChatState, step: BegunStep, answer: StepAnswer
    ) -> TurnEnd | None:
        stores = _stores(runtime)
        self._tries.clear()
        with runtime.transaction():
            stores.chats.hold(self._fence)
            box = stores.boxes.lock(run_lifecycle.get_run(stores, self._fence).output_box_id)
            lock_call_ids(runtime, answer.cards, box.card_ids)
            self._append(stores, answer.cards)
            calls = pending_calls(answer.cards)
            stores.runs.move_step(
                self._fence.chat_key,
                step.step_id,
                LLM_DONE if calls else COMPLETED,
                now=stores.database.now(),
                tool_call_ids=[call.tool_call_id for call in calls] or None,
                metadata={} if answer.usage is None else {"llm_usage": answer.usage},
            )
            return None if calls else self._end(stores, "success", answer=_deliverable_text(answer.cards))

    def complete_step(self, runtime: Runtime, state: ChatState) -> TurnEnd | None:
        stores = _stores(runtime)
        with runtime.transaction():
            stores.chats.hold(self._fence)
            if state.step_id is not None:
                now = stores.database.now()
                stores.runs.move_step(self._fence.chat_key, state.step_id, COMPLETED, now=now)
            own = present_cards(stores.boxes.slots(run_lifecycle.get_run(stores, self._fence).output_box_id))
            status = end_status_of_last_calls(own)
            if status is None:
                return None
            return self._end(stores, status, error=None if status == "success" else "a tool result ended it")

    # --- calls

    def answers(self, call: ToolCall) -> bool:
        return call.tool_name in CHAT_TOOLS

    def answer(self, runtime: Runtime, state: ChatState, call: ToolCall) -> CardDraft:
        """Execute a call of a chat tool. The next step uses the changed context."""
        stores = _stores(runtime)
        author = self.author(state)
        problem = size_problem(call) or argument_problem(call)
        if problem is not None:
            return result_card(call, author, failure=("invalid_arguments", problem))
        try:
            with stores.transaction():
                stores.chats.hold(self._fence)
                result = run_chat_tool(stores, self._fence.chat_key, call.tool_name, call.input)
        except CbxError as exc:
            if exc.exit_code not in (3, 4, 5) or exc.code == "stale-epoch":
                raise
            return result_card(call, author, failure=(exc.code, redact_message(exc.message)))
        return result_card(call, author, result=result)

    def add_result(self, runtime: Runtime, state: ChatState, draft: CardDraft) -> None:
        stores = _stores(runtime)
        with runtime.transaction():
            stores.chats.hold(self._fence)
            self._append(stores, [draft])

    def answer_handlers(
        self, runtime: Runtime, state: ChatState, calls: Sequence[ToolCall], others: Sequence[ToolCall]
    ) -> list[ToolCall]:
        """Unreachable: chats offer no handlers."""
        raise AssertionError(f"chats offer no handlers: {[call.tool_name for call in calls]}")

    def suspend(self, runtime: Runtime, state: ChatState, calls: Sequence[ToolCall]) -> None:
        """Unreachable: chats offer no tools that are answered later."""
        raise AssertionError(f"chats never suspend: {[call.tool_name for call in calls]}")

    def _append(self, stores: ChatStores, drafts: Sequence[CardDraft]) -> None:
        """Append the cards that the output box does not hold yet, because the loop may retry this."""
        box = stores.boxes.lock(run_lifecycle.get_run(stores, self._fence).output_box_id)
        for draft in drafts:
            stores.cards.add(draft)
        new = [draft.card_id for draft in drafts if draft.card_id not in box.card_ids]
        if new:
            stores.boxes.append(box.box_id, new)

    # --- the end

    def fail(
        self,
        runtime: Runtime,
        status: EndStatus,
        *,
        error_code: str,
        message: str,
        details: dict[str, Any],
    ) -> TurnEnd:
        """End the run. Replies that its command has sent remain."""
        return self._end(_stores(runtime), status, error_code=error_code, error=message)

    def postpone(
        self, runtime: Runtime, state: ChatState, step: BegunStep, failure: StepFailure
    ) -> Postponement | StepFailure:
        """Plan another try by this run: no other process resumes it. A failure of its worker is final."""
        if failure.cause == "worker":
            return failure
        self._tries.append(
            FailedTry(
                cause=failure.cause,
                worker_id=self._owner,
                error_code=failure.error_code,
                message=failure.message,
                started_at=runtime.database.now(),
            )
        )
        planned = decide_retry(
            failure,
            self._tries,
            policy=retry_policy(state.profile),
            now=runtime.database.now(),
            delay=lambda tries: runtime.settings.delay(tries, random.random()).total_seconds(),
        )
        if isinstance(planned, Postponement):
            return msgspec.structs.replace(planned, is_deferred=False)
        return planned

    def hand_back(self, runtime: Runtime, reason: str) -> None:
        """Cancel the run and leave the message unanswered."""
        self._end(_stores(runtime), "canceled", error_code="canceled", error="the run was stopped")

    def _end(self, stores: ChatStores, status: EndStatus, **more: str | None) -> TurnEnd:
        run = run_lifecycle.end_run(stores, self._fence, "failed" if status == "partial" else status, **more)
        return TurnEnd(
            agent_turn_id=run.run_id, end_status=run.status, deliverable_card_id=run.answer_card_id
        )

    # --- commands

    def keep_log(
        self,
        runtime: Runtime,
        *,
        ran: CommandOutcome,
        log_id: str,
        step_id: str,
        call: ToolCall | None,
        kept: int,
    ) -> None:
        """Store a command's log in `cbx.logs` under the run's id."""
        store_log(
            runtime,
            lambda: _stores(runtime).chats.hold(self._fence),
            fence=Fence(self._fence.chat_key, self._fence.run_id, self._fence.epoch),
            ran=ran,
            log_id=log_id,
            step_id=step_id,
            call=call,
            worker_id=self._owner,
            kept=kept,
        )

    def author(self, state: ChatState) -> Author:
        return self._author(state.step_id or "")

    def _author(self, step_id: str) -> Author:
        return Author(agent_id=AGENT, agent_turn_id=self._fence.run_id, step_id=step_id)

    def variables(self, state: ChatState) -> dict[str, str]:
        return {
            PROJECT.name: self._project_id,
            CHAT_KEY.name: self._fence.chat_key,
            CHAT_RUN.name: self._fence.run_id,
            CHAT_EPOCH.name: str(self._fence.epoch),
        }


def boxes_of(boxes: BoxStore, run: ChatRun | Step) -> TurnBoxes:
    """Return the boxes of a run or of one of its steps. Raises NotFound for a deleted box."""
    return TurnBoxes(
        profile=source_of(boxes, "profile", run.profile_box_id),
        context=source_of(boxes, "context", run.context_box_id),
        output=source_of(boxes, "output", run.output_box_id),
        output_start=0,
    )


def chat_tools(
    stores: ChatStores, boxes: TurnBoxes, is_answered: Callable[[Tool], bool] = lambda _: True
) -> list[Tool]:
    """Return the chat tools, and the registered tools that the profile allows and `is_answered` accepts."""
    registered = ToolStore(stores.database, stores.project_id).all()
    others = [tool for tool in registered if tool.tool_name not in CHAT_TOOLS and is_answered(tool)]
    own = [each.tool for each in CHAT_TOOLS.values()]
    return [*own, *offered_tools(profile_of(present_cards(boxes.profile.slots)), others)]


def _deliverable_text(cards: Sequence[CardDraft]) -> str | None:
    return next((card_text(card.content) for card in reversed(cards) if card.type == DELIVERABLE), None)


def _stores(runtime: Runtime) -> ChatStores:
    return ChatStores(runtime.database, runtime.project_id, runtime.settings)
