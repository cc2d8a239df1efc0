"""The loop that runs a turn or a chat until it ends, is suspended, or belongs to another worker.

Each round reads the state from the ledger, so a run continues where an earlier worker stopped. If calls have
no result, cbx or the commands of their tools answer them. If not, the model's command runs the next step. The
loop uses neither tables nor threads. A cancellation token stops it.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from threading import Event
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from cardbox_cli.context.lint.rule import lint
from cardbox_cli.errors import CardConflict, InvalidInput, LeaseLost, NotFound, StaleEpoch
from cardbox_cli.execution.queue.turn_ends import NOT_OFFERED
from cardbox_cli.execution.requests.request_checks import INCOMPLETE, READ_POINTERS
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ToolCall, argument_problem, result_card
from cardbox_cli.execution.worker.command_output import (
    FAILED,
    TAIL,
    bytes_to_read,
    diagnostics,
    failure_message,
    failure_reason,
    redact_message,
    redact_stderr,
)
from cardbox_cli.execution.worker.command_processes import CommandOutcome, run_command
from cardbox_cli.execution.worker.failures import (
    Cause,
    Postponement,
    StepFailure,
    cause_of_error,
    cause_of_run,
    retry_after,
)
from cardbox_cli.execution.worker.ledger import BegunStep, CallIdTaken, Ledger, RunState
from cardbox_cli.execution.worker.step_answers import (
    EMPTY,
    INVALID,
    PROVIDER,
    AnswerRules,
    InvalidAnswer,
    result_of,
)
from cardbox_cli.execution.worker.step_requests import CannotEnd, IncompleteContext, InvalidLayers
from cardbox_cli.execution.worker.turn_ledger import ending_call_with_others, not_alone_result
from cardbox_cli.execution.worker.worker_program import Program, schema_mismatch
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.execution.turns import EndStatus, TurnEnd, new_id
from cardbox_cli.model.identity import HandlerTool
from cardbox_cli.providers.formats import other_provider_note
from cardbox_cli.providers.registry import PROVIDERS, provider_named
from cardbox_cli.settings import STEP, TOOL_CALL_ID, TOOL_NAME, TURN_TIME
from cardbox_cli.text.quantities import format_count

_T = TypeVar("_T")
_State = TypeVar("_State", bound=RunState)

NO_BOX = "box_not_found"
# The number of characters of an unknown tool's name that a message shows.
_MAX_QUOTE_LENGTH = 1000

Kind = Literal["ended", "suspended", "lost", "handed_back", "deferred"]

# The seconds in which a stopping worker gets its own signal after its client has got one.
_SIGNAL_TIMEOUT_SECONDS = 0.5


class Attempt(Protocol):
    """A function that calls a repeatable action. If the connection breaks, it calls it again on a new one."""

    def __call__(self, action: Callable[[Runtime], _T]) -> _T: ...


class CancellationToken:
    """A token that cancels a run. `lost` is True if another worker has the run.

    `leaving` is set once the process of the run stops, even if the run may still finish.
    """

    def __init__(self, leaving: Event | None = None) -> None:
        self.cancelled = Event()
        self.leaving = leaving or Event()
        self.lost = False

    def cancel(self, *, lost: bool = False) -> None:
        """Stop the run and return it to the inbox. If it is `lost`, it only stops and stores nothing."""
        self.lost = self.lost or lost
        self.cancelled.set()


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run. `end` is set if the turn or chat run ended. `message` is for people.

    `failure` is the last failure of a step, or None. For a chat, the agent id is the chat's key, and the turn
    id is the id of the run.
    """

    kind: Kind
    agent_id: str
    agent_turn_id: str
    steps: int
    message: str
    error_code: str | None = None
    end: TurnEnd | None = None
    waiting: list[str] = []
    failure: StepFailure | None = None


class _Cancelled(Exception):
    """The cancellation of the run."""


class _RunFailed(Exception):
    status: EndStatus = "failed"

    def __init__(
        self,
        error_code: str,
        message: str,
        details: dict[str, Any] | None = None,
        failure: StepFailure | None = None,
    ) -> None:
        super().__init__(message)
        # A provider's error may quote the key that it rejected.
        self.error_code, self.message, self.details = error_code, redact_message(message), details or {}
        self.failure = failure


class _StepFailed(Exception):
    """The failure of a step, which may be tried again."""

    def __init__(self, failure: StepFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _OutOfTime(_RunFailed):
    status = "timeout"

    def __init__(self, noun: str, seconds: float) -> None:
        super().__init__("turn_timeout", f"the {noun} had run for {seconds:g} seconds ({TURN_TIME.name})")


class Run(Generic[_State]):
    """One run of a ledger's turn or chat. `attempt` calls the ledger's methods with a runtime.

    `tell` gets log lines about failed commands, and `warn` gets warnings about requests that may fail.
    """

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
        self._deadline = time.monotonic() + program.turn_time

    def run(self) -> RunOutcome:
        """Run until there is an outcome. Raises only database errors, apart from bugs."""
        try:
            try:
                return self._loop()
            except _RunFailed as exc:
                return self._fail(exc)
            except NotFound as exc:
                code = INCOMPLETE if exc.details.get("pointer") in READ_POINTERS else NO_BOX
                return self._fail(_RunFailed(code, exc.message, exc.details))
            except _Cancelled:
                return self._cancelled()
        except (StaleEpoch, LeaseLost) as exc:
            return self._outcome("lost", exc.message)

    def _loop(self) -> RunOutcome:
        is_first = True
        while True:
            turn = self._attempt(self._ledger.read)
            self._steps = turn.steps
            if is_first:
                self._configure_program(turn)
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

    def _step(self, turn: _State) -> RunOutcome | None:
        program = self._program
        if turn.steps >= program.max_steps:
            steps = format_count(program.max_steps, "step")
            what = f"the model did not finish within {steps}{turn.end_rule().unfinished}"
            raise _RunFailed("max_steps_reached", what)
        try:
            step = self._attempt(
                lambda runtime: self._ledger.begin_step(
                    runtime, turn, format=program.format, options=program.options
                )
            )
        except IncompleteContext as exc:
            details = {"lacking": msgspec.to_builtins(exc.lacking)}
            raise _RunFailed(INCOMPLETE, str(exc), details) from exc
        except InvalidLayers as exc:
            raise _RunFailed("invalid_layers", str(exc)) from exc
        except CannotEnd as exc:
            raise _RunFailed(NOT_OFFERED, str(exc)) from exc
        except InvalidInput as exc:
            raise _RunFailed("invalid_request", f"the request cannot be stored: {exc.message}") from exc
        model = step.asked.request.model
        if not program.format_named and (note := other_provider_note(model, program.format)) is not None:
            self._warn(f"warning: {note}")
        try:
            ran = self._run(program.command, step.asked.body, turn, step.step_id, program.timeout)
            if not ran.succeeded:
                raise _StepFailed(self._failure_of(ran))
            end = self._store_answer(turn, step, ran)
        except _StepFailed as exc:
            return self._retry_or_fail(turn, step, exc.failure)
        self._steps += 1
        return self._end_outcome(end)

    def _failure_of(self, ran: CommandOutcome) -> StepFailure:
        """Return the failure of the model's command. Raises _Cancelled if the worker is leaving."""
        if ran.was_not_killed and self._cancellation.leaving.wait(_SIGNAL_TIMEOUT_SECONDS):
            # Service managers send SIGTERM to the command, too, often before the worker gets it.
            raise _Cancelled
        code, message = failure_reason(ran, None, self._program.timeout)
        return StepFailure(
            cause=cause_of_run(ran),
            error_code=code,
            message=message,
            details=diagnostics(ran),
            retry_after=retry_after(ran.stderr[-TAIL:], datetime.now(UTC)),
        )

    def _failure_of_answer(self, answer: InvalidAnswer, step: BegunStep, ran: CommandOutcome) -> StepFailure:
        """Return the failure of an output that is not an answer. Raises _Cancelled as `_failure_of` does."""
        if self._cancellation.leaving.wait(_SIGNAL_TIMEOUT_SECONDS):
            raise _Cancelled
        cause: Cause = "answer"
        error = ran.stderr[-TAIL:]
        message = answer.message
        if answer.error_code == PROVIDER:
            error = ran.stdout[:TAIL].decode(errors="replace")
            cause = "transient" if cause_of_error(error) == "transient" else "refusal"
            if cause == "refusal":
                message += self._lint_clause(step)
        elif answer.error_code == EMPTY and cause_of_error(error) == "transient":
            cause = "transient"
        return StepFailure(
            cause=cause,
            error_code=answer.error_code,
            message=message,
            details=diagnostics(ran),
            retry_after=retry_after(error, datetime.now(UTC)),
        )

    def _lint_clause(self, step: BegunStep) -> str:
        """Return what the lint finds in a refused request, to be read after the provider's message, or ""."""
        asked, name = step.asked, self._program.format
        provider = PROVIDERS.get(name)
        findings = [] if provider is None else lint(asked.entries, asked.request, provider_named(name))
        return "".join(f"; lint {each.rule}: {each.message}" for each in findings if each.severity == "error")

    def _retry_or_fail(self, turn: _State, step: BegunStep, failure: StepFailure) -> RunOutcome | None:
        """Try the step again later, if its failure may pass. Raises _RunFailed if the run fails."""
        postponed: Postponement | StepFailure = failure
        if failure.cause in ("transient", "worker"):
            postponed = self._attempt(lambda runtime: self._ledger.postpone(runtime, turn, step, failure))
        if isinstance(postponed, StepFailure):
            raise _RunFailed(postponed.error_code, postponed.message, dict(postponed.details), postponed)
        if postponed.is_deferred:
            return self._outcome("deferred", postponed.message, failure=failure)
        self._tell(f"{self._ledger.name}: {postponed.message}")
        if self._cancellation.cancelled.wait(postponed.seconds):
            raise _Cancelled
        return None

    def _store_answer(self, turn: _State, step: BegunStep, ran: CommandOutcome) -> TurnEnd | None:
        program = self._program
        rules = AnswerRules(mode=program.answers, format=program.format, max_calls=program.max_tool_calls)
        answer = self._attempt(
            lambda runtime: self._ledger.understand(runtime, turn, step, ran.stdout, rules)
        )
        if isinstance(answer, InvalidAnswer):
            raise _StepFailed(self._failure_of_answer(answer, step, ran))
        try:
            return self._attempt(lambda runtime: self._ledger.store_answer(runtime, turn, step, answer))
        except CallIdTaken:
            # Another run has just stored a call with the same id. Reading the answer again assigns a new id.
            return self._store_answer(turn, step, ran)
        except (CardConflict, InvalidInput) as exc:
            raise _RunFailed(
                INVALID, f"the answer cannot be stored: {exc.message}", diagnostics(ran)
            ) from exc

    def _configure_program(self, turn: _State) -> None:
        try:
            self._program = self._program.configure(turn.config)
        except InvalidInput as exc:
            raise _RunFailed("invalid_runtime_config", exc.message) from exc

    # --- its tools

    def _answer_calls(self, turn: _State, calls: list[ToolCall]) -> RunOutcome | None:
        """Run the commands of tools, then the handlers. Suspend the turn if reports must answer any calls."""
        self._attempt(lambda runtime: self._ledger.enter(runtime, turn))
        ending = ending_call_with_others(turn)
        if ending is not None:
            for call in calls:
                refused = not_alone_result(call, self._ledger.author(turn), ending)
                self._attempt(partial(self._ledger.add_result, state=turn, draft=refused))
            return self._complete(turn)
        handled = [call for call in calls if isinstance(turn.tool(call.tool_name), HandlerTool)]
        waiting = [call for call in calls if call not in handled and self._needs_report(turn, call)]
        for call in calls:
            if call not in handled and call not in waiting:
                result = self._call_tool(turn, call)
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

    def _call_tool(self, turn: _State, call: ToolCall) -> CardDraft:
        author = self._ledger.author(turn)
        if self._ledger.answers(call):
            return self._attempt(lambda runtime: self._ledger.answer(runtime, turn, call))
        tool = turn.tool(call.tool_name)
        command = None if tool is None else self._program.tools.find(tool)
        if tool is None or command is None:
            failure = "unknown_tool", f"this agent has no tool {call.tool_name[:_MAX_QUOTE_LENGTH]!r}"
            return result_card(call, author, failure=failure)
        fault = argument_problem(call)
        if fault is None and command.checks_arguments:
            fault = schema_mismatch(call.input or {}, tool.parameters)
        if fault is not None:
            return result_card(call, author, failure=("invalid_arguments", fault))
        timeout = command.timeout or tool.timeout_seconds or self._program.timeout
        stdin = exact_json.encode(call.input)
        ran = self._run(command.command, stdin, turn, turn.step_id or "", timeout, call, command.environment)
        return result_of(call, author, tool, ran, timeout)

    def _needs_report(self, turn: _State, call: ToolCall) -> bool:
        """Return whether a report must answer a call, because its tool is offered but has no command here."""
        if self._ledger.answers(call):
            return False
        tool = turn.tool(call.tool_name)
        return tool is not None and self._program.tools.find(tool) is None and call.input is not None

    def _complete(self, turn: _State) -> RunOutcome | None:
        return self._end_outcome(self._attempt(lambda runtime: self._ledger.complete_step(runtime, turn)))

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
    ) -> CommandOutcome:
        if self._cancellation.cancelled.is_set():
            raise _Cancelled
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _OutOfTime(self._ledger.noun, self._program.turn_time)
        variables = {**more, STEP.name: step_id, **self._ledger.variables(turn)}
        if call is not None:
            variables |= {TOOL_NAME.name: call.tool_name, TOOL_CALL_ID.name: call.tool_call_id}
        try:
            ran = self._run_client_or_command(command, stdin, variables, min(timeout, left), call)
        except OSError as exc:
            message = f"the command cannot be started: {exc.strerror}"
            if call is None:
                raise _StepFailed(StepFailure(cause="worker", error_code=FAILED, message=message)) from exc
            raise _RunFailed(FAILED, message) from exc
        ran = redact_stderr(ran)
        if not self._cancellation.lost:
            log = partial(self._ledger.keep_log, ran=ran, log_id=new_id("log"), step_id=step_id, call=call)
            self._attempt(partial(log, kept=self._program.stderr_kept))
        if ran.stopped:
            raise _Cancelled
        if ran.timed_out and left <= timeout:
            raise _OutOfTime(self._ledger.noun, self._program.turn_time)
        if not ran.succeeded:
            _, why = failure_reason(ran, call, timeout)
            self._tell(failure_message(f"{self._ledger.name}, {step_id}: {why}", ran))
        return ran

    def _run_client_or_command(
        self, command: str, stdin: bytes, variables: Mapping[str, str], timeout: float, call: ToolCall | None
    ) -> CommandOutcome:
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
            heard=program.listen() if call is None else lambda chunk: None,
        )

    # --- outcomes

    def _fail(self, failed: _RunFailed) -> RunOutcome:
        code, message = failed.error_code, failed.message
        fail = partial(self._ledger.fail, error_code=code, message=message, details=failed.details)
        end = self._attempt(lambda runtime: fail(runtime, failed.status))
        return self._outcome("ended", message, end=end, error_code=code, failure=failed.failure)

    def _cancelled(self) -> RunOutcome:
        if self._cancellation.lost:
            return self._outcome("lost", "the lease was lost, and the command was stopped")
        reason = "the worker stops"
        self._attempt(lambda runtime: self._ledger.hand_back(runtime, reason))
        return self._outcome("handed_back", reason)

    def _end_outcome(self, end: TurnEnd | None) -> RunOutcome | None:
        return None if end is None else self._outcome("ended", end.end_status, end=end)

    def _outcome(self, kind: Kind, message: str, **more: Any) -> RunOutcome:
        return RunOutcome(
            kind=kind,
            agent_id=self._ledger.agent_id,
            agent_turn_id=self._ledger.agent_turn_id,
            steps=self._steps,
            message=message,
            **more,
        )
