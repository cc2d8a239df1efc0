"""What the loop of a run stands on: the tables of what it runs, be that a turn or a chat.

The loop knows no table and no fence; a ledger knows no command. Each method is a transaction that may be
tried again, and raises StaleEpoch once the run has lost what it runs.
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.execution.queue import turn_ends
from cardbox_cli.execution.requests.turn_requests import TurnContext, TurnRequest, context_of, present_cards
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import Author, ToolCall, calls_of, pending_calls
from cardbox_cli.execution.worker.command_processes import Ran
from cardbox_cli.execution.worker.step_answers import Answer, AnswerRules, BadAnswer
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.execution.turns import STEP_ANSWERED, End, EndStatus, Fence, Head
from cardbox_cli.model.identity import Tool


class RunState(TurnContext, frozen=True, kw_only=True):
    """What is run, as its next step finds it. `steps` is how many are answered, `step_id` the last."""

    steps: int
    step_id: str | None

    @property
    def pending(self) -> list[ToolCall]:
        """The calls that have no result yet, in order."""
        return pending_calls(self.boxes.own)

    @property
    def profile(self) -> dict[str, Any]:
        """What its profile says."""
        return profile_of(present_cards(self.boxes.profile.slots))

    def end_rule(self, tools: Sequence[dict[str, Any]] = ()) -> turn_ends.EndRule:
        """By what it may end, whose model is offered tools of these definitions."""
        return turn_ends.end_rule(self.profile, tools)

    def tool(self, name: str) -> Tool | None:
        """The tool of this name, if it is offered."""
        return next((tool for tool in self.tools if tool.tool_name == name), None)


class BegunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that has begun, and what is asked in it. `written` is how many cards the run had written."""

    step_id: str
    asked: TurnRequest
    written: int


class CallIdTaken(Exception):
    """An id that an answer's calls would have has been taken since it was read: it is to be read again."""


def hold_call_ids(runtime: Runtime, cards: Sequence[CardDraft], stored: Collection[str]) -> None:
    """Hold the ids of the calls that these cards make until the end of the caller's transaction.

    A call's result finds it by its id, so that no other may have it. Raises CallIdTaken where the project has
    one by now; cards among those `stored`, whose ids these are, are stored a second time.
    """
    ids = [call.tool_call_id for card in cards for call in calls_of(card) if card.card_id not in stored]
    if ids and runtime.turns.lock_tool_call_ids(ids):
        raise CallIdTaken(", ".join(ids))


_State = TypeVar("_State", bound=RunState)


class Ledger(Protocol[_State]):
    """What is run, on its tables. `noun` and `name` say what it is, the two ids whose and which."""

    noun: str
    name: str
    agent_id: str
    agent_turn_id: str

    def read(self, runtime: Runtime) -> _State:
        """The state of it. Raises NotFound for a box that is gone."""

    def enter(self, runtime: Runtime, state: _State) -> None:
        """Take up what goes on with calls that others left without results."""

    def begin_step(
        self, runtime: Runtime, state: _State, *, format: str, options: ComposeOptions
    ) -> BegunStep:
        """Begin a step, and keep what its model is about to see as its request box.

        Raises IncompleteContext, InvalidLayers, CannotEnd, and InvalidInput for what cannot be stored.
        """

    def understand(
        self, runtime: Runtime, state: _State, step: BegunStep, stdout: bytes, rules: AnswerRules
    ) -> Answer | BadAnswer:
        """The cards that the command of a step printed."""

    def store_answer(self, runtime: Runtime, state: _State, step: BegunStep, answer: Answer) -> End | None:
        """Store the answer of a step; the end, where no call is left without a result.

        Raises CardConflict for a card whose id is taken, CallIdTaken for a call's.
        """

    def answers(self, call: ToolCall) -> bool:
        """Whether a call is answered by cbx itself."""

    def answer(self, runtime: Runtime, state: _State, call: ToolCall) -> CardDraft:
        """The result of a call that cbx itself answers, once it has done what is asked."""

    def add_result(self, runtime: Runtime, state: _State, draft: CardDraft) -> None:
        """Store the result of a call."""

    def complete_step(self, runtime: Runtime, state: _State) -> End | None:
        """The calls of the last step have their results; the end, where that is one."""

    def answer_handlers(
        self, runtime: Runtime, state: _State, calls: Sequence[ToolCall], others: Sequence[ToolCall]
    ) -> list[ToolCall]:
        """Have internal handlers answer `calls`; those that it waits for now, with `others`. Where there are
        any it is suspended."""

    def suspend(self, runtime: Runtime, state: _State, calls: Sequence[ToolCall]) -> None:
        """Wait for the results of calls that somebody else answers."""

    def fail(
        self,
        runtime: Runtime,
        status: EndStatus,
        *,
        error_code: str,
        message: str,
        details: dict[str, Any],
    ) -> End:
        """End it otherwise than in success."""

    def hand_back(self, runtime: Runtime, reason: str) -> None:
        """Leave it to whoever takes it up next."""

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
        """Keep the last `kept` bytes of what a command wrote on stderr."""

    def author(self, state: _State) -> Author:
        """On whose behalf results of the last step's calls are written."""

    def variables(self, state: _State) -> dict[str, str]:
        """What the environment of each command says of it."""


# A turn as its next step finds it, read from its boxes at its fence.


class TurnState(RunState, frozen=True, kw_only=True):
    """A turn as its next step finds it."""

    head: Head

    @property
    def fence(self) -> Fence:
        """The fence that it was read at."""
        return self.head.fence


def read_turn(runtime: Runtime, fence: Fence) -> TurnState:
    """The turn at `fence`. Raises StaleEpoch where it is elsewhere, NotFound for a box that is gone."""
    # A step counts against the limit once the model has answered.
    stored = runtime.contexts.read(fence.agent_turn_id, agent_id=fence.agent_id, answered=STEP_ANSWERED)
    head = stored.head
    if head is None or head.fence != fence:
        raise runtime.heads.stale(fence, head)
    named = {"output": head.output_box_id, "context": head.context_box_id, "profile": head.profile_box_id}
    return TurnState(
        head=head,
        steps=len(stored.answered),
        step_id=stored.answered[-1] if stored.answered else None,
        **msgspec.structs.asdict(context_of(stored, runtime.project_id, named, runtime.handlers)),
    )


def author_of(turn: TurnState) -> Author:
    """On whose behalf results of the last step's calls are written."""
    return author_in(turn.head, turn.step_id or "")


def author_in(head: Head, step_id: str) -> Author:
    """On whose behalf cards of this step of the head's turn are written."""
    return Author(
        agent_id=head.agent_id,
        agent_turn_id=head.fence.agent_turn_id,
        step_id=step_id,
        trace_id=head.trace_id,
        parent_step_id=head.parent_step_id,
    )
