"""The calls of a turn that internal handlers answer: in one transaction with their results, and with the
suspension of the turn where a call is to be answered later. So a call is answered once, whatever crashes.

Owns what becomes of a handler's failure: a result that the model reads, never the end of the turn.
"""

from collections.abc import Sequence
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
from cardbox_cli.execution.dispatch.caller import Caller, calling_turn
from cardbox_cli.execution.dispatch.request import Parent
from cardbox_cli.execution.handlers import Awaiting, Ending, Handler, text_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import (
    Author,
    ToolCall,
    fault_of_arguments,
    fault_of_size,
    last_calls,
    result_card,
)
from cardbox_cli.execution.worker.redaction import told
from cardbox_cli.execution.worker.runs.ledger import RunState
from cardbox_cli.execution.worker.runs.storing import add_result
from cardbox_cli.execution.worker.runs.suspending import suspend
from cardbox_cli.execution.worker.runs.turn_state import TurnState, author_of, read_turn
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import DELIVERABLE
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.model.identity import HandlerTool
from cardbox_cli.store.connection.driver_errors import is_collision


def answer_handlers(
    runtime: Runtime,
    turn: TurnState,
    row: InboxRow,
    calls: Sequence[ToolCall],
    others: Sequence[ToolCall],
) -> list[ToolCall]:
    """Answer `calls` by their handlers; those that wait now, with `others` that wait anyhow.

    Where any waits the turn is suspended, and its claimed `row` done. Raises StaleEpoch; nothing of what
    handlers did stays then, as when the database goes away.
    """
    with runtime.transaction():
        runtime.heads.hold(turn.fence)
        pending = {call.tool_call_id for call in read_turn(runtime, turn.fence).pending}
        caller = calling_turn(runtime, turn.fence.agent_turn_id, step_id=turn.step_id)
        waiting, seconds = list(others), 0.0
        for call in calls:
            if call.tool_call_id not in pending:
                continue
            answer = _answer(runtime, caller, turn, call)
            if isinstance(answer, Awaiting):
                waiting.append(call)
                seconds = max(seconds, answer.seconds)
            else:
                for draft in answer:
                    add_result(runtime, turn, draft)
        if waiting:
            suspend(runtime, turn, row, waiting, at_least=seconds)
    return waiting


def answer_by(handler: Handler, runtime: Runtime, caller: Caller, arguments: dict[str, Any]) -> Any:
    """What a handler answers: a JSON value that can be stored, Awaiting, or Ending where it ends its turn.

    Raises what it raises of cbx's errors, and HandlerFailed for anything else, and for other answers.
    """
    try:
        answer = handler.function(runtime, caller, arguments)
        if runtime.database.spoiled:
            raise ValueError("a statement of its failed in the database, and it did not say so")
        _check_answer(handler, answer)
    except (CbxError, KeyboardInterrupt):
        raise
    except BaseException as exc:  # a package may call sys.exit(), too
        raise HandlerFailed(
            f"the handler {handler.name!r} failed: {type(exc).__name__}: {text_of(exc)}",
            hint="mend or uninstall the package that brings it",
        ) from exc
    return answer


def _check_answer(handler: Handler, answer: Any) -> None:
    """Raise ValueError unless this handler may answer so."""
    if isinstance(answer, Ending) != handler.ends_turn:
        declared = "is declared to end its turn" if handler.ends_turn else "is not declared to end its turn"
        raise ValueError(f"it answers {type(answer).__name__}, and {declared}")
    if isinstance(answer, Awaiting):
        return
    parts = {"result": answer}
    if isinstance(answer, Ending):
        parts = {"result": answer.result, "deliverable": answer.deliverable}
        if not isinstance(answer.deliverable, dict | list):
            raise ValueError(f"the deliverable is a {type(answer.deliverable).__name__}, no object or list")
    for name, part in parts.items():
        exact_json.check_storable(part, f"the {name}")
        if len(exact_json.encode(part)) > RESULT_SIZE.value << 20:
            raise ValueError(f"the {name} is larger than {RESULT_SIZE}")


def ending_beside(turn: RunState) -> ToolCall | None:
    """The call among the last ones that ends the turn, and so should have been made alone."""
    calls = last_calls(turn.boxes.own)
    tools = ((call, turn.tool(call.tool_name)) for call in calls)
    ending = (call for call, tool in tools if isinstance(tool, HandlerTool) and tool.ends_turn)
    return next(ending, None) if len(calls) > 1 else None


def not_alone(call: ToolCall, author: Author, ending: ToolCall) -> CardDraft:
    """The failure of a call that was made beside `ending`."""
    why = f"{ending.tool_name!r} ends the turn, and is called alone: no call of this answer was made"
    return result_card(call, author, failure=("not_called_alone", why))


def _answer(
    runtime: Runtime, caller: Caller, turn: TurnState, call: ToolCall
) -> Sequence[CardDraft] | Awaiting:
    """What a handler answers: the cards of its result, or of its failure, whose writes are taken back."""
    fault = fault_of_size(call) or fault_of_arguments(call)
    if fault is not None:
        return [_failed(call, turn, "invalid_arguments", fault)]
    try:
        with runtime.transaction():
            handler = runtime.handlers.find(call.tool_name)
            answer = answer_by(handler, runtime, _at(caller, turn, call), call.input or {})
            if isinstance(answer, Awaiting):
                return answer
            if isinstance(answer, Ending):
                return _ending(call, turn, answer)
            return [result_card(call, author_of(turn), result=answer)]
    except (SchemaMissing, MissingRight) as exc:
        # The database is there and has no place for it: trying again would not help.
        return [_failed(call, turn, exc.code.replace("-", "_"), exc.message)]
    except (DatabaseUnavailable, StaleEpoch, LeaseLost):
        raise
    except CbxError as exc:
        if is_collision(exc):
            raise
        return [_failed(call, turn, exc.code.replace("-", "_"), _in_words(exc))]
    except Exception as exc:
        # A package's handler may fail in any way; the turn goes on, and its model is told.
        return [_failed(call, turn, "handler_failed", f"{type(exc).__name__}: {exc}")]


def _ending(call: ToolCall, turn: TurnState, answer: Ending) -> list[CardDraft]:
    """The result that ends the turn, then what it delivers: nothing stands between a call and its result."""
    author = author_of(turn)
    deliverable = draft_card(
        DELIVERABLE, JsonContent(answer.deliverable), author_id=author.agent_id, metadata=author.metadata
    )
    return [result_card(call, author, after_execution="terminate", result=answer.result), deliverable]


def _at(caller: Caller, turn: TurnState, call: ToolCall) -> Caller:
    parent = Parent(
        agent_turn_id=turn.fence.agent_turn_id, step_id=turn.step_id, tool_call_id=call.tool_call_id
    )
    return msgspec.structs.replace(caller, parent=parent)


def _in_words(error: CbxError) -> str:
    """The message of an error; its hints are for people who have a terminal."""
    code = error.details.get("error_code")
    return f"{error.message} ({code})" if code and str(code) not in error.message else error.message


def _failed(call: ToolCall, turn: TurnState, code: str, message: str) -> CardDraft:
    return result_card(call, author_of(turn), failure=(code, told(message)))
