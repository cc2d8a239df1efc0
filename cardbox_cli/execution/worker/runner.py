"""A turn, or a chat, run until it has ended, is suspended, or is in other hands.

The one loop: calls without results are answered by cbx or by the commands of their tools; else the command of
the model is asked for the next step. What is done is read from the ledger each time, so that it goes on where
whoever had it before left it. Knows no tables and no threads; a cancellation token stops it.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Event
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from cardbox_cli.errors import CardConflict, InvalidInput, LeaseLost, NotFound, StaleEpoch
from cardbox_cli.execution.queue.turn_ends import NOT_OFFERED
from cardbox_cli.execution.requests.request_checks import INCOMPLETE, READ
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ToolCall, fault_of_arguments, result_card
from cardbox_cli.execution.worker.command_output import (
    FAILED,
    bytes_to_read,
    diagnostics,
    told,
    told_failure,
    why_failed,
    without_secrets,
)
from cardbox_cli.execution.worker.command_processes import Ran, run_command
from cardbox_cli.execution.worker.ledger import BegunStep, CallIdTaken, Ledger, RunState
from cardbox_cli.execution.worker.step_answers import INVALID, BadAnswer, result_of
from cardbox_cli.execution.worker.step_requests import CannotEnd, IncompleteContext, InvalidLayers
from cardbox_cli.execution.worker.turn_ledger import ending_beside, not_alone
from cardbox_cli.execution.worker.worker_program import Program, mismatch
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.execution.turns import End, EndStatus, new_id
from cardbox_cli.model.identity import HandlerTool
from cardbox_cli.providers.formats import of_another
from cardbox_cli.settings import STEP, TOOL_CALL_ID, TOOL_NAME, TURN_TIME

_T = TypeVar("_T")
_State = TypeVar("_State", bound=RunState)

NO_BOX = "box_not_found"
# How much is shown of a name that no tool has, in characters.
_SHOWN = 1000

Kind = Literal["ended", "suspended", "lost", "handed_back"]


class Attempt(Protocol):
    """Does something with a database, and again on another connection where one breaks."""

    def __call__(self, action: Callable[[Runtime], _T]) -> _T:
        """What `action` answers. It must be harmless to do twice."""


class CancellationToken:
    """Cancels a run: at once, and why."""

    def __init__(self) -> None:
        self.cancelled = Event()
        self.lost = False

    def cancel(self, *, lost: bool = False) -> None:
        """Stop the run: it is handed back, or `lost` to others, and nothing of it may be stored."""
        self.lost = self.lost or lost
        self.cancelled.set()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run. `end` is set when it came to its end; `message` says more in words.

    The run of a chat has the chat's key and its own id for those of an agent and a turn.
    """

    kind: Kind
    agent_id: str
    agent_turn_id: str
    steps: int
    message: str
    error_code: str | None = None
    end: End | None = None
    waiting: list[str] = []


class _Cancelled(Exception):
    """The run was cancelled."""


class _Failed(Exception):
    """Why it ends, and as what."""

    status: EndStatus = "failed"

    def __init__(self, error_code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        # A provider's error may quote the key that it refused.
        self.error_code, self.message, self.details = error_code, told(message), details or {}


class _OutOfTime(_Failed):
    status = "timeout"

    def __init__(self, noun: str, seconds: float) -> None:
        super().__init__("turn_timeout", f"the {noun} had run for {seconds:g} seconds ({TURN_TIME.name})")


def _without(gone: NotFound) -> _Failed:
    """Why a turn fails one of whose boxes is gone."""
    code = INCOMPLETE if gone.details.get("pointer") in READ else NO_BOX
    return _Failed(code, gone.message, gone.details)


class Run(Generic[_State]):
    """One run of what a ledger has. `attempt` gives it a database, and `tell` is told, in a line or more, of
    commands that fail. `warn` is told before each request of what may make them, and others, fail."""

    def __init__(
        self,
        attempt: Attempt,
        ledger: Ledger[_State],
        program: Program,
        cancellation: CancellationToken,
        *,
        tell: Callable[[str], None] = lambda text: None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._attempt = attempt
        self._ledger = ledger
        self._program = program
        self._cancellation = cancellation
        self._tell = tell
        self._warn = warn
        self._steps = 0
        self._until = time.monotonic() + program.turn_time

    def run(self) -> Outcome:
        """Run it. What it raises is the failure of the database, or a bug."""
        try:
            try:
                return self._loop()
            except _Failed as exc:
                return self._fail(exc)
            except NotFound as exc:
                return self._fail(_without(exc))
            except _Cancelled:
                return self._cancelled()
        except (StaleEpoch, LeaseLost) as exc:
            return self._outcome("lost", exc.message)

    def _loop(self) -> Outcome:
        is_first = True
        while True:
            turn = self._attempt(self._ledger.read)
            self._steps = turn.steps
            if is_first:
                self._program = self._wanted(turn)
            if turn.pending:
                outcome = self._answer_calls(turn, turn.pending)
            elif is_first and turn.boxes.own:
                outcome = self._complete(turn)
            else:
                outcome = self._step(turn)
            if outcome is not None:
                return outcome
            is_first = False

    # --- the model

    def _step(self, turn: _State) -> Outcome | None:
        program = self._program
        if turn.steps >= program.max_steps:
            what = f"the model had not finished after {program.max_steps} steps{turn.end_rule().unfinished}"
            raise _Failed("max_steps_reached", what)
        try:
            step = self._attempt(
                lambda runtime: self._ledger.begin_step(
                    runtime, turn, format=program.format, options=program.options
                )
            )
        except IncompleteContext as exc:
            details = {"lacking": msgspec.to_builtins(exc.lacking)}
            raise _Failed(INCOMPLETE, str(exc), details) from exc
        except InvalidLayers as exc:
            raise _Failed("invalid_layers", str(exc)) from exc
        except CannotEnd as exc:
            raise _Failed(NOT_OFFERED, str(exc)) from exc
        except InvalidInput as exc:
            raise _Failed("invalid_request", f"the request cannot be stored: {exc.message}") from exc
        self._check_format(step.asked.request.model)
        ran = self._run(program.command, step.asked.body, turn, step.step_id, program.timeout)
        if not ran.succeeded:
            raise _Failed(*why_failed(ran, None, program.timeout), details=diagnostics(ran))
        end = self._store_answer(turn, step, ran)
        self._steps += 1
        return self._ended(end)

    def _check_format(self, model: str | None) -> None:
        note = None if self._program.format_named else of_another(model, self._program.format)
        if note is not None:
            self._warn(f"warning: {note}")

    def _store_answer(self, turn: _State, step: BegunStep, ran: Ran) -> End | None:
        rules = self._program.answer_rules
        answer = self._attempt(
            lambda runtime: self._ledger.understand(runtime, turn, step, ran.stdout, rules)
        )
        if isinstance(answer, BadAnswer):
            raise _Failed(answer.error_code, answer.message, diagnostics(ran))
        try:
            return self._attempt(lambda runtime: self._ledger.store_answer(runtime, turn, step, answer))
        except CallIdTaken:
            # Another run has stored a call of the same id just now: this one gets an id of its own.
            return self._store_answer(turn, step, ran)
        except (CardConflict, InvalidInput) as exc:
            raise _Failed(INVALID, f"the answer cannot be stored: {exc.message}", diagnostics(ran)) from exc

    def _wanted(self, turn: _State) -> Program:
        try:
            return self._program.for_turn(turn.config)
        except InvalidInput as exc:
            raise _Failed("invalid_runtime_config", exc.message) from exc

    # --- its tools

    def _answer_calls(self, turn: _State, calls: list[ToolCall]) -> Outcome | None:
        """Run the commands of tools, then the handlers; the turn suspends for what others answer."""
        self._attempt(lambda runtime: self._ledger.enter(runtime, turn))
        ending = ending_beside(turn)
        if ending is not None:
            for call in calls:
                refused = not_alone(call, self._ledger.author(turn), ending)
                self._attempt(partial(self._ledger.add_result, state=turn, draft=refused))
            return self._complete(turn)
        handled = [call for call in calls if isinstance(turn.tool(call.tool_name), HandlerTool)]
        waiting = [call for call in calls if call not in handled and self._is_for_others(turn, call)]
        for call in calls:
            if call not in handled and call not in waiting:
                result = self._result(turn, call)
                self._attempt(partial(self._ledger.add_result, state=turn, draft=result))
        if handled:
            answer = partial(self._ledger.answer_handlers, state=turn, calls=handled, others=waiting)
            waiting = self._attempt(answer)
        elif waiting:
            self._attempt(lambda runtime: self._ledger.suspend(runtime, turn, waiting))
        if not waiting:
            return self._complete(turn)
        ids = [call.tool_call_id for call in waiting]
        return self._outcome("suspended", f"waits for {', '.join(ids)}", waiting=ids)

    def _result(self, turn: _State, call: ToolCall) -> CardDraft:
        author = self._ledger.author(turn)
        if self._ledger.answers(call):
            return self._attempt(lambda runtime: self._ledger.answer(runtime, turn, call))
        tool = turn.tool(call.tool_name)
        command = None if tool is None else self._program.tools.of(tool)
        if tool is None or command is None:
            failure = "unknown_tool", f"no tool {call.tool_name[:_SHOWN]!r} is offered to this agent"
            return result_card(call, author, failure=failure)
        wrong = fault_of_arguments(call)
        if wrong is None and command.checks_arguments:
            wrong = mismatch(call.input or {}, tool.parameters)
        if wrong is not None:
            return result_card(call, author, failure=("invalid_arguments", wrong))
        timeout = command.timeout or tool.timeout_seconds or self._program.timeout
        stdin = exact_json.encode(call.input)
        ran = self._run(command.command, stdin, turn, turn.step_id or "", timeout, call, command.environment)
        return result_of(call, author, tool, ran, timeout)

    def _is_for_others(self, turn: _State, call: ToolCall) -> bool:
        """Whether a call is answered by a report: its tool is offered, and has no command here."""
        if self._ledger.answers(call):
            return False
        tool = turn.tool(call.tool_name)
        return tool is not None and self._program.tools.of(tool) is None and call.input is not None

    def _complete(self, turn: _State) -> Outcome | None:
        return self._ended(self._attempt(lambda runtime: self._ledger.complete_step(runtime, turn)))

    # --- commands

    def _run(
        self,
        command: str,
        stdin: bytes,
        turn: _State,
        step_id: str,
        timeout: float,
        call: ToolCall | None = None,
        more: Mapping[str, str] = {},
    ) -> Ran:
        if self._cancellation.cancelled.is_set():
            raise _Cancelled
        left = self._until - time.monotonic()
        if left <= 0:
            raise _OutOfTime(self._ledger.noun, self._program.turn_time)
        variables = {**more, **self._variables(turn, step_id, call)}
        try:
            ran = self._answered(command, stdin, variables, min(timeout, left), call)
        except OSError as exc:
            raise _Failed(FAILED, f"the command cannot be started: {exc.strerror}") from exc
        ran = without_secrets(ran)
        if not self._cancellation.lost:
            self._keep_log(ran, step_id, call)
        if ran.stopped:
            raise _Cancelled
        if ran.timed_out and left <= timeout:
            raise _OutOfTime(self._ledger.noun, self._program.turn_time)
        if not ran.succeeded:
            _, why = why_failed(ran, call, timeout)
            self._tell(told_failure(f"{self._ledger.name}, {step_id}: {why}", ran))
        return ran

    def _answered(
        self, command: str, stdin: bytes, variables: Mapping[str, str], timeout: float, call: ToolCall | None
    ) -> Ran:
        """What a client that stays, or a command, makes of its input."""
        program, stop = self._program, self._cancellation.cancelled
        if call is None and program.clients is not None:
            request = msgspec.json.encode(stdin.decode()) if program.format == "text" else stdin
            return program.clients.ask(request, variables, timeout=timeout, stop=stop)
        return run_command(
            command,
            stdin,
            environment={**program.environment, **variables},
            timeout=timeout,
            stop=stop,
            keep_stderr=bytes_to_read(program.stderr_kept),
            heard=program.listen() if call is None else lambda piece: None,
        )

    def _keep_log(self, ran: Ran, step_id: str, call: ToolCall | None) -> None:
        keep = partial(
            self._ledger.keep_log,
            ran=ran,
            log_id=new_id("log"),
            step_id=step_id,
            call=call,
            kept=self._program.stderr_kept,
        )
        self._attempt(keep)

    def _variables(self, turn: _State, step_id: str, call: ToolCall | None) -> dict[str, str]:
        called = (
            {} if call is None else {TOOL_NAME.name: call.tool_name, TOOL_CALL_ID.name: call.tool_call_id}
        )
        return {**called, STEP.name: step_id, **self._ledger.variables(turn)}

    # --- outcomes

    def _fail(self, failed: _Failed) -> Outcome:
        code, message = failed.error_code, failed.message
        fail = partial(self._ledger.fail, error_code=code, message=message, details=failed.details)
        end = self._attempt(lambda runtime: fail(runtime, failed.status))
        return self._outcome("ended", message, end=end, error_code=code)

    def _cancelled(self) -> Outcome:
        if self._cancellation.lost:
            return self._outcome("lost", "its lease was lost; its command was stopped")
        reason = "the worker stops"
        self._attempt(lambda runtime: self._ledger.hand_back(runtime, reason))
        return self._outcome("handed_back", reason)

    def _ended(self, end: End | None) -> Outcome | None:
        return None if end is None else self._outcome("ended", end.end_status, end=end)

    def _outcome(self, kind: Kind, message: str, **more: Any) -> Outcome:
        return Outcome(
            kind=kind,
            agent_id=self._ledger.agent_id,
            agent_turn_id=self._ledger.agent_turn_id,
            steps=self._steps,
            message=message,
            **more,
        )
