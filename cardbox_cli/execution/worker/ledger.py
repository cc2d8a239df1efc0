"""The interface between the loop of a run and the tables of a turn or a chat.

The loop does not use tables or fences, and a ledger does not run commands. Each method of a ledger is one
transaction and may be repeated. It raises StaleEpoch if another worker has the turn or chat.
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.execution.queue import turn_ends
from cardbox_cli.execution.requests.turn_requests import TurnContext, TurnRequest, context_of, present_cards
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import Author, ToolCall, calls_of, pending_calls
from cardbox_cli.execution.worker.command_processes import CommandOutcome
from cardbox_cli.execution.worker.failures import Postponement, StepFailure
from cardbox_cli.execution.worker.step_answers import AnswerRules, InvalidAnswer, StepAnswer
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.execution.turns import STEP_ANSWERED, EndStatus, Fence, Head, TurnEnd
from cardbox_cli.model.identity import Tool


class RunState(TurnContext, frozen=True, kw_only=True):
    """The state before the next step. `steps` counts the answered steps. `step_id` is the last step."""

    steps: int
    step_id: str | None

    @property
    def pending(self) -> list[ToolCall]:
        """The calls without a result, in order."""
        return pending_calls(self.boxes.own)

    @property
    def profile(self) -> dict[str, Any]:
        return profile_of(present_cards(self.boxes.profile.slots))

    def end_rule(self, tools: Sequence[dict[str, Any]] = ()) -> turn_ends.EndRule:
        """Return the profile's rule about the end of a turn, for a model that is offered these tools."""
        return turn_ends.end_rule(self.profile, tools)

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.tool_name == name), None)


class BegunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that has begun, and its request. `written` counts the cards that the run wrote before it."""

    step_id: str
    asked: TurnRequest
    written: int


class CallIdTaken(Exception):
    """The refusal of an answer, because another run has just used one of its call ids.

    Reading the answer again assigns other ids.
    """


def lock_call_ids(runtime: Runtime, cards: Sequence[CardDraft], stored: Collection[str]) -> None:
    """Lock the ids of the calls of these cards until the end of the caller's transaction.

    A result finds its call by the id, so ids must be unique. Raises CallIdTaken if the project has already
    used one of them. Cards with an id in `stored` are skipped, because an earlier attempt has stored them.
    """
    ids = [call.tool_call_id for card in cards for call in calls_of(card) if card.card_id not in stored]
    if ids and runtime.turns.lock_tool_call_ids(ids):
        raise CallIdTaken(", ".join(ids))


_State = TypeVar("_State", bound=RunState)


class Ledger(Protocol[_State]):
    """The storage of one run of a turn or chat. `noun` and `name` describe it in messages.

    The ids identify the agent and turn, or the chat and its run.
    """

    noun: str
    name: str
    agent_id: str
    agent_turn_id: str

    def read(self, runtime: Runtime) -> _State:
        """Read the state. Raises NotFound for a missing box."""

    def enter(self, runtime: Runtime, state: _State) -> None:
        """Mark the run as running. It continues with calls that an earlier worker left without results."""

    def begin_step(
        self, runtime: Runtime, state: _State, *, format: str, options: ComposeOptions
    ) -> BegunStep:
        """Begin a step, and store its request as the request box.

        Raises IncompleteContext, InvalidLayers, CannotEnd, and InvalidInput for a request that cannot be
        stored.
        """

    def understand(
        self, runtime: Runtime, state: _State, step: BegunStep, stdout: bytes, rules: AnswerRules
    ) -> StepAnswer | InvalidAnswer:
        """Return the cards that the command of a step printed."""

    def store_answer(
        self, runtime: Runtime, state: _State, step: BegunStep, answer: StepAnswer
    ) -> TurnEnd | None:
        """Store the answer of a step. Return the end of the run if the answer ends it.

        Raises CardConflict if a card id is taken, and CallIdTaken if the id of a call is taken.
        """

    def answers(self, call: ToolCall) -> bool:
        """Return whether cbx itself answers a call."""

    def answer(self, runtime: Runtime, state: _State, call: ToolCall) -> CardDraft:
        """Execute a call that cbx itself answers, and return the card of its result."""

    def add_result(self, runtime: Runtime, state: _State, draft: CardDraft) -> None:
        """Store the result of a call."""

    def complete_step(self, runtime: Runtime, state: _State) -> TurnEnd | None:
        """Complete the last step when its calls have results. Return the end if the results end the run."""

    def answer_handlers(
        self, runtime: Runtime, state: _State, calls: Sequence[ToolCall], others: Sequence[ToolCall]
    ) -> list[ToolCall]:
        """Answer `calls` by internal handlers. Return all calls that wait for a report, including `others`.

        If there are any, the turn is suspended.
        """

    def suspend(self, runtime: Runtime, state: _State, calls: Sequence[ToolCall]) -> None:
        """Suspend the turn until reports answer these calls."""

    def fail(
        self, runtime: Runtime, status: EndStatus, *, error_code: str, message: str, details: dict[str, Any]
    ) -> TurnEnd:
        """End the run with a status other than success."""

    def postpone(
        self, runtime: Runtime, state: _State, step: BegunStep, failure: StepFailure
    ) -> Postponement | StepFailure:
        """Store the failure of a step and plan another try, or return the run's failure if no try is left."""

    def hand_back(self, runtime: Runtime, reason: str) -> None:
        """Return the run so that another worker can claim it."""

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
        """Store the last `kept` bytes of a command's stderr."""

    def author(self, state: _State) -> Author:
        """Return the author of the result cards of the last step."""

    def variables(self, state: _State) -> dict[str, str]:
        """Return the environment variables that describe the run to each command."""


class TurnState(RunState, frozen=True, kw_only=True):
    head: Head

    @property
    def fence(self) -> Fence:
        return self.head.fence


def read_turn(runtime: Runtime, fence: Fence) -> TurnState:
    """Read the turn at `fence`. Raises StaleEpoch if it has moved on, NotFound for a missing box."""
    # A step counts toward the step limit once the model has answered.
    stored = runtime.contexts.read(fence.agent_turn_id, agent_id=fence.agent_id, answered=STEP_ANSWERED)
    head = stored.head
    if head is None or head.fence != fence:
        raise runtime.heads.stale_error(fence, head)
    named = {"output": head.output_box_id, "context": head.context_box_id, "profile": head.profile_box_id}
    return TurnState(
        head=head,
        steps=len(stored.answered),
        step_id=stored.answered[-1] if stored.answered else None,
        **msgspec.structs.asdict(context_of(stored, runtime.project_id, named, runtime.handlers)),
    )


def last_step_author(turn: TurnState) -> Author:
    return step_author(turn.head, turn.step_id or "")


def step_author(head: Head, step_id: str) -> Author:
    """Return the author of cards of this step of the head's turn."""
    return Author(
        agent_id=head.agent_id,
        agent_turn_id=head.fence.agent_turn_id,
        step_id=step_id,
        trace_id=head.trace_id,
        parent_step_id=head.parent_step_id,
    )
