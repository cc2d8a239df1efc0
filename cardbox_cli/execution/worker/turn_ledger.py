"""The ledger of a claimed turn: store answers and results, call internal handlers, suspend and end the turn.

Each transaction locks the head first, so nothing is written once the turn is at another epoch. One
transaction calls the internal handlers, stores their results and suspends the turn, so that each call is
answered once despite crashes. A handler's failure becomes a result for the model and never ends the turn.
"""

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from cardbox_cli.errors import (
    CbxError,
    DatabaseUnavailable,
    HandlerFailed,
    LeaseLost,
    MissingRight,
    SchemaMissing,
    StaleEpoch,
)
from cardbox_cli.execution.dispatch_requests import Caller, Parent, calling_turn
from cardbox_cli.execution.handlers import Awaiting, Ending, Handler, exception_text
from cardbox_cli.execution.notifications.notifier import Phase
from cardbox_cli.execution.queue import turn_ends
from cardbox_cli.execution.queue.claims import ClaimedWork, hand_back, postpone
from cardbox_cli.execution.queue.turn_ends import (
    BY_RESULT,
    end_held,
    end_turn,
    finish_held,
    turn_deliverables,
)
from cardbox_cli.execution.recovery.reaping import report_lost
from cardbox_cli.execution.requests.turn_requests import present_cards
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import (
    Author,
    ToolCall,
    argument_problem,
    end_status_of_last_calls,
    last_calls,
    pending_calls,
    result_card,
    size_problem,
)
from cardbox_cli.execution.worker import step_requests
from cardbox_cli.execution.worker.command_output import redact_message, store_log
from cardbox_cli.execution.worker.command_processes import CommandOutcome
from cardbox_cli.execution.worker.failures import (
    FAILURE_KEY,
    Postponement,
    StepFailure,
    decide_retry,
    failed_tries,
    retry_policy,
    stored_failure,
)
from cardbox_cli.execution.worker.ledger import (
    BegunStep,
    RunState,
    TurnState,
    last_step_author,
    lock_call_ids,
    read_turn,
    step_author,
)
from cardbox_cli.execution.worker.step_answers import (
    AUTO_RULES,
    AnswerRules,
    InvalidAnswer,
    StepAnswer,
    read_answer,
)
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import DELIVERABLE
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.model.execution.turns import (
    COMPLETED,
    LLM_DONE,
    SUSPENDED,
    EndStatus,
    Head,
    InboxRow,
    TurnEnd,
    new_id,
)
from cardbox_cli.model.identity import HandlerTool, Tool
from cardbox_cli.settings import AGENT, CONTEXT_BOX, OUTPUT_BOX, PROJECT, TURN_EPOCH, TURN_ID
from cardbox_cli.store.connection.driver_errors import is_collision
from cardbox_cli.store.execution.step_store import AnsweredStep


def read_step_answer(
    runtime: Runtime, turn: TurnState, step: BegunStep, stdout: bytes, rules: AnswerRules = AUTO_RULES
) -> StepAnswer | InvalidAnswer:
    """Return the cards that a command printed. There are none if it appended its cards to the box itself."""
    answer = read_answer(
        stdout, step_author(turn.head, step.step_id), runtime.turns.held_tool_call_ids, rules
    )
    if not stdout.strip() and len(read_turn(runtime, turn.fence).boxes.own) > step.written:
        return StepAnswer(cards=[], calls=[])
    return answer


def store_answer(runtime: Runtime, turn: TurnState, step: BegunStep, answer: StepAnswer) -> TurnEnd | None:
    """Store the answer of a step. Return the end of the turn if the answer ends it.

    If the answer may not end the turn, it is stored as thoughts with a reminder for the model. Raises
    StaleEpoch, CardConflict if the id of a card is taken, and CallIdTaken if the id of a call is taken.
    """
    rule = turn.end_rule(step.asked.request.tools)
    with runtime.transaction(savepoint=False):
        head, own = _hold_own(runtime, turn)
        stored = {card.card_id for card in own}
        lock_call_ids(runtime, answer.cards, stored)
        cards = answer.cards
        continues = not rule.allows_end(own) and not pending_calls([*own, *cards])
        if continues:
            reminder = rule.reminder(runtime.project_id, step_author(head, step.step_id))
            cards = [*turn_ends.drop_deliverable(cards), reminder]
        # An earlier attempt may have stored some of these cards.
        new = [card for card in cards if card.card_id not in stored]
        calls = pending_calls([*own, *new])
        answered = AnsweredStep(
            step_id=step.step_id,
            status=LLM_DONE if calls else COMPLETED,
            tool_call_ids=[call.tool_call_id for call in calls] or None,
            metadata={} if answer.usage is None else {"llm_usage": answer.usage},
        )
        _append(runtime, turn, new, answered)
        phase: Phase = "executing" if calls else "completed"
        runtime.publish_step(head, step.step_id, phase, [card.card_id for card in new])
        return None if calls or continues else finish_held(runtime, head, profile=turn.profile)


def add_result(runtime: Runtime, state: TurnState, draft: CardDraft) -> None:
    """Store the result of a call. Raises StaleEpoch."""
    with runtime.statement():
        _append(runtime, state, [draft])


def complete_step(runtime: Runtime, turn: TurnState) -> TurnEnd | None:
    """Complete the last step when its calls have results. Return the end if the results end the turn.

    Raises StaleEpoch.
    """
    with runtime.transaction(savepoint=False):
        head, own = _hold_own(runtime, turn)
        if turn.step_id is not None:
            runtime.turns.move_step(head.agent_id, turn.step_id, COMPLETED)
            runtime.publish_step(head, turn.step_id, COMPLETED)
        status = end_status_of_last_calls(own)
        if status == "success":
            return finish_held(runtime, head, profile=turn.profile, message=BY_RESULT)
        if status is not None:
            return end_held(runtime, head, status, message=BY_RESULT)
        if turn.end_rule().allows_end(own) and turn_deliverables(head, own):
            return finish_held(runtime, head, profile=turn.profile)
    return None


def _hold_own(runtime: Runtime, turn: TurnState) -> tuple[Head, list[Card]]:
    """Lock and return the head, and return the cards that the turn and its commands have written.

    Raises StaleEpoch, and NotFound for a missing output box.
    """
    box_id, start = turn.boxes.output.box_id, turn.boxes.output_start
    found = runtime.steps.hold(turn.fence, start)
    if found is None:
        raise runtime.heads.stale_error(turn.fence, runtime.heads.get(turn.fence.agent_id))
    slots = found.own
    if not found.has_box or any(slot.state == "dangling" for slot in slots):
        slots = runtime.boxes.slots(box_id)[start:]
    return found.head, present_cards(slots)


def _append(
    runtime: Runtime, turn: TurnState, cards: Sequence[CardDraft], answered: AnsweredStep | None = None
) -> None:
    """Write and append the cards that the turn does not have yet, and update the step.

    Raises StaleEpoch, NotFound for a missing output box, and CardConflict.
    """
    while True:
        found = runtime.steps.append(turn.fence, turn.boxes.output_start, cards, answered)
        if not found.at_fence:
            raise runtime.heads.stale_error(turn.fence, runtime.heads.get(turn.fence.agent_id))
        if found.written:
            return
        runtime.boxes.get(turn.boxes.output.box_id)
        for card in cards:
            # Another transaction may have just written the card. The next try then sees it.
            if card.card_id not in found.stored:
                runtime.cards.add(card)


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that a turn waits for, as tool names by call id, and the longest wait in seconds."""

    calls: Mapping[str, str]
    seconds: float


def plan_suspension(
    tools: Sequence[Tool], calls: Sequence[ToolCall], *, tool_wait: float, at_least: float = 0
) -> Suspension:
    """Decide how long a turn with these tools waits for calls: the longest timeout of the called tools.

    A tool that has no timeout or is not offered counts as `tool_wait` seconds.
    """
    given = {tool.tool_name: tool.timeout_seconds for tool in tools}
    times = [given.get(call.tool_name) or tool_wait for call in calls]
    return Suspension(
        calls={call.tool_call_id: call.tool_name for call in calls}, seconds=max(at_least, *times)
    )


def suspend(
    runtime: Runtime, turn: TurnState, row: InboxRow, calls: Sequence[ToolCall], *, at_least: float = 0
) -> None:
    """Suspend the turn until `calls` have results, and consume its claimed row. Raises StaleEpoch.

    The deadline of the wait is at least `at_least` seconds from now.
    """
    plan = plan_suspension(turn.tools, calls, tool_wait=runtime.settings.tool_wait, at_least=at_least)
    with runtime.transaction(savepoint=False):
        deadline = runtime.steps.suspend(
            turn.fence,
            turn.step_id or new_id("step"),
            plan.calls,
            inbox_id=row.inbox_id,
            wait=timedelta(seconds=plan.seconds),
        )
        if deadline is None:
            raise runtime.heads.stale_error(turn.fence, runtime.heads.get(turn.fence.agent_id))
        report_lost(runtime, turn.fence.agent_turn_id)
        runtime.follow_suspension(turn.fence)
        runtime.publish_state(
            turn.head,
            SUSPENDED,
            turn.head.turn_epoch,
            waiting_tool_count=len(plan.calls),
            waiting_tool_call_ids=list(plan.calls),
            resume_deadline=deadline.isoformat(),
        )


def run_handler(handler: Handler, runtime: Runtime, caller: Caller, arguments: dict[str, Any]) -> Any:
    """Call a handler, and return a JSON value that can be stored, Awaiting, or Ending.

    Raises the handler's own CbxError, and HandlerFailed for other exceptions and invalid return values.
    """
    try:
        answer = handler.function(runtime, caller, arguments)
        if runtime.database.has_failed:
            raise ValueError("one of its SQL statements failed, and it ignored the error")
        _check_answer(handler, answer)
    except (CbxError, KeyboardInterrupt):
        raise
    except BaseException as exc:  # a package may call sys.exit(), too
        raise HandlerFailed(
            f"the handler {handler.name!r} failed: {type(exc).__name__}: {exception_text(exc)}",
            hint="fix or uninstall the package that provides this handler",
        ) from exc
    return answer


def _check_answer(handler: Handler, answer: Any) -> None:
    """Raise ValueError if the handler may not return this value."""
    if isinstance(answer, Ending) != handler.ends_turn:
        declared = "is declared to end its turn" if handler.ends_turn else "is not declared to end its turn"
        raise ValueError(f"it returned {type(answer).__name__}, but {declared}")
    if isinstance(answer, Awaiting):
        return
    parts = {"result": answer}
    if isinstance(answer, Ending):
        parts = {"result": answer.result, "deliverable": answer.deliverable}
        if not isinstance(answer.deliverable, dict | list):
            raise ValueError(
                f"the deliverable is not an object or a list but a {type(answer.deliverable).__name__}"
            )
    for name, part in parts.items():
        exact_json.check_storable(part, f"the {name}")
        if len(exact_json.encode(part)) > RESULT_SIZE.value << 20:
            raise ValueError(f"the {name} is larger than {RESULT_SIZE}")


def ending_call_with_others(turn: RunState) -> ToolCall | None:
    """Return a call that would end the turn, if its answer also made other calls. Return None if not."""
    calls = last_calls(turn.boxes.own)
    tools = ((call, turn.tool(call.tool_name)) for call in calls)
    ending = (call for call, tool in tools if isinstance(tool, HandlerTool) and tool.ends_turn)
    return next(ending, None) if len(calls) > 1 else None


def not_alone_result(call: ToolCall, author: Author, ending: ToolCall) -> CardDraft:
    """Return the failure of a call whose answer also made the call `ending`, which must be the only one."""
    why = f"{ending.tool_name!r} ends the turn and must be called alone; none of these calls was executed"
    return result_card(call, author, failure=("not_called_alone", why))


def _answer(
    runtime: Runtime, caller: Caller, turn: TurnState, call: ToolCall
) -> Sequence[CardDraft] | Awaiting:
    """Call a handler and return the cards of its result. If it fails, its writes are rolled back."""
    fault = size_problem(call) or argument_problem(call)
    if fault is not None:
        return [_failure(call, turn, "invalid_arguments", fault)]
    turn_id = turn.fence.agent_turn_id
    parent = Parent(agent_turn_id=turn_id, step_id=turn.step_id, tool_call_id=call.tool_call_id)
    try:
        with runtime.transaction():
            handler = runtime.handlers.find(call.tool_name)
            caller = msgspec.structs.replace(caller, parent=parent)
            answer = run_handler(handler, runtime, caller, call.input or {})
            if isinstance(answer, Awaiting):
                return answer
            if isinstance(answer, Ending):
                return _ending_cards(call, turn, answer)
            return [result_card(call, last_step_author(turn), result=answer)]
    except (SchemaMissing, MissingRight) as exc:
        # The database is available and lacks a table or a right, so another try would also fail.
        return [_failure(call, turn, exc.code.replace("-", "_"), exc.message)]
    except (DatabaseUnavailable, StaleEpoch, LeaseLost):
        raise
    except CbxError as exc:
        if is_collision(exc):
            raise
        # The model does not get the hint, which is for people at a terminal.
        code = exc.details.get("error_code")
        message = f"{exc.message} ({code})" if code and str(code) not in exc.message else exc.message
        return [_failure(call, turn, exc.code.replace("-", "_"), message)]
    except Exception as exc:
        # A package's handler may raise anything. The turn continues, and its model reads the failure.
        return [_failure(call, turn, "handler_failed", f"{type(exc).__name__}: {exc}")]


def _ending_cards(call: ToolCall, turn: TurnState, answer: Ending) -> list[CardDraft]:
    """Return the result that ends the turn, then the deliverable, because a result must follow its call."""
    author = last_step_author(turn)
    deliverable = draft_card(
        DELIVERABLE, JsonContent(answer.deliverable), author_id=author.agent_id, metadata=author.metadata
    )
    return [result_card(call, author, after_execution="terminate", result=answer.result), deliverable]


def _failure(call: ToolCall, turn: TurnState, code: str, message: str) -> CardDraft:
    return result_card(call, last_step_author(turn), failure=(code, redact_message(message)))


class TurnLedger:
    """The storage of one claimed turn. All writes are guarded by the claim's fence. `owner` has the lease."""

    noun = "turn"
    enter = staticmethod(step_requests.enter)
    begin_step = staticmethod(step_requests.begin_step)
    understand = staticmethod(read_step_answer)
    store_answer = staticmethod(store_answer)
    add_result = staticmethod(add_result)
    complete_step = staticmethod(complete_step)
    author = staticmethod(last_step_author)

    def __init__(self, work: ClaimedWork, *, owner: str) -> None:
        self._work = work
        self._fence = work.fence
        self._owner = owner
        self.name = f"turn {work.fence.agent_turn_id}"
        self.agent_id = work.fence.agent_id
        self.agent_turn_id = work.fence.agent_turn_id

    def read(self, runtime: Runtime) -> TurnState:
        return read_turn(runtime, self._fence)

    def answers(self, call: ToolCall) -> bool:
        """Return False, because a turn has no calls that cbx itself answers."""
        return False

    def answer(self, runtime: Runtime, state: TurnState, call: ToolCall) -> CardDraft:
        """Raise AssertionError, because `answers` always returns False."""
        raise AssertionError(f"a turn does not answer calls itself: {call.tool_name}")

    def answer_handlers(
        self, runtime: Runtime, state: TurnState, calls: Sequence[ToolCall], others: Sequence[ToolCall]
    ) -> list[ToolCall]:
        """Answer `calls` by their handlers, in one transaction with the results.

        If a call waits, the turn is suspended and its claimed row is consumed. Raises StaleEpoch. Any error
        rolls back the writes of all handlers.
        """
        with runtime.transaction():
            runtime.heads.hold(state.fence)
            pending = {call.tool_call_id for call in read_turn(runtime, state.fence).pending}
            caller = calling_turn(runtime, state.fence.agent_turn_id, step_id=state.step_id)
            waiting, seconds = list(others), 0.0
            for call in calls:
                if call.tool_call_id not in pending:
                    continue
                answer = _answer(runtime, caller, state, call)
                if isinstance(answer, Awaiting):
                    waiting.append(call)
                    seconds = max(seconds, answer.seconds)
                else:
                    for draft in answer:
                        add_result(runtime, state, draft)
            if waiting:
                self.suspend(runtime, state, waiting, at_least=seconds)
        return waiting

    def suspend(
        self, runtime: Runtime, state: TurnState, calls: Sequence[ToolCall], *, at_least: float = 0
    ) -> None:
        """Suspend the turn with a deadline in `at_least` seconds or later, and consume its claimed row."""
        suspend(runtime, state, self._work.row, calls, at_least=at_least)

    def fail(
        self, runtime: Runtime, status: EndStatus, *, error_code: str, message: str, details: dict[str, Any]
    ) -> TurnEnd:
        return end_turn(runtime, self._fence, status, error_code=error_code, message=message, details=details)

    def postpone(
        self, runtime: Runtime, state: TurnState, step: BegunStep, failure: StepFailure
    ) -> Postponement | StepFailure:
        """Plan another try, and defer the claimed row until then. The row's count of tries is unchanged."""
        settings = runtime.settings
        with runtime.transaction():
            runtime.heads.hold(self._fence)
            runtime.turns.note_failure(
                self._fence.agent_id,
                step.step_id,
                error=f"{failure.error_code}: {failure.message}",
                metadata={FAILURE_KEY: stored_failure(failure, self._owner)},
            )
            planned = decide_retry(
                failure,
                failed_tries(runtime.turns.steps(self._fence.agent_turn_id)),
                policy=retry_policy(state.profile),
                now=runtime.database.now(),
                delay=lambda tries: settings.delay(tries, random.random()).total_seconds(),
            )
            if isinstance(planned, Postponement):
                wait = timedelta(seconds=planned.seconds)
                postpone(runtime, self._work.row, owner=self._owner, reason=planned.message, delay=wait)
        return planned

    def hand_back(self, runtime: Runtime, reason: str) -> None:
        hand_back(runtime, self._work.row, owner=self._owner, reason=reason)

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
        store_log(
            runtime,
            lambda: runtime.heads.hold(self._fence),
            fence=self._fence,
            ran=ran,
            log_id=log_id,
            step_id=step_id,
            call=call,
            worker_id=self._owner,
            kept=kept,
        )

    def variables(self, state: TurnState) -> dict[str, str]:
        return {
            PROJECT.name: self._work.row.project_id,
            AGENT.name: self._fence.agent_id,
            TURN_ID.name: self._fence.agent_turn_id,
            TURN_EPOCH.name: str(self._fence.turn_epoch),
            CONTEXT_BOX.name: state.boxes.context.box_id,
            OUTPUT_BOX.name: state.boxes.output.box_id,
        }
