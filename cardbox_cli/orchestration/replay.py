"""The same once more: a turn is asked for again, from its beginning or from a step, by a fresh agent.

The turn that is repeated, its boxes and its agent stay as they are: what the new turns see is the context box
of the old one and a copy of what its output box held. Tools that are called are called again.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from cardbox_cli.context.request import TURN
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import Dispatched, DispatchRequest
from cardbox_cli.execution.provision import enrol
from cardbox_cli.execution.requests.recorded_requests import named_step
from cardbox_cli.execution.requests.step_snapshots import read_snapshot
from cardbox_cli.execution.requests.turn_requests import Source, present_cards, source_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import calls_of
from cardbox_cli.execution.turn_summary import summary
from cardbox_cli.model.card_types import DELIVERABLE, INSTRUCTION, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import OPERATOR, Card, card_text, draft_card
from cardbox_cli.model.diff import Piece, text_diff
from cardbox_cli.model.execution.turns import InboxRow, Step
from cardbox_cli.model.identity import Agent
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.tokens import card_tokens
from cardbox_cli.orchestration.targets import fresh_id
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.profiles import ProfileEntry, ProfileStore
from cardbox_cli.store.views.turn_views import TurnRow, TurnViews
from cardbox_cli.text import argument


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn is asked for again: `times`, by another profile, or for workers of another target.

    From the step `at` on it goes on behind what it had written by then, and behind `instruction`.
    """

    times: int = 1
    profile_name: str | None = None
    worker_target: str | None = None
    at: str | None = None
    instruction: str | None = None


class _Beginning(msgspec.Struct, frozen=True):
    """What an output box holds when its turn begins, and how much of that is older than the turn."""

    card_ids: Sequence[str]
    output_start: int


def ask_again(runtime: Runtime, agent_turn_id: str, again: Again) -> list[Dispatched]:
    """Ask for a turn again, in one transaction; a refusal, the first of them, is the last of the answers.

    Raises NotFound for a turn that nobody asked for, whose boxes are gone or whose step is not there, and
    InvalidInput for a step whose beginning nobody noted, or a blank instruction.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        row = runtime.inbox.turn_row(agent_turn_id)
        if row is None:
            hint = "`cbx turn list` shows the turns"
            raise NotFound(f"no inbox row asked for turn {agent_turn_id}", hint=hint)
        turn = TurnViews(runtime.database, runtime.project_id).get(agent_turn_id)
        beginning = _beginning(runtime, turn, again.at)
        card_ids = [*beginning.card_ids, *_instruction(runtime, again.instruction)]
        agent = _agent(runtime, turn, again)
        asked: list[Dispatched] = []
        for _ in range(again.times):
            asked.append(_dispatched(runtime, row, agent, card_ids, beginning.output_start))
            if asked[-1].result.status != "accepted":
                break
        return asked


def _dispatched(
    runtime: Runtime, row: InboxRow, agent: Agent, card_ids: Sequence[str], output_start: int
) -> Dispatched:
    """One more turn, whose output box begins with these cards."""
    output = runtime.boxes.create(card_ids, title=f"replay of {row.turn_id}", allow_dangling=True)
    request = DispatchRequest(
        target_agent_id=agent.agent_id,
        context_box_id=row.pointer("context_box_id"),
        output_box_id=output.box_id,
        channel_id=row.channel_id,
        depth_policy="root",
        display_name=row.pointer("display_name"),
        runtime_config=row.runtime_config,
        metadata={"replay_of": row.turn_id},
    )
    dispatched = dispatch(runtime, request)
    if dispatched.result.agent_turn_id is not None:
        runtime.turns.reset_output_start(dispatched.result.agent_turn_id, output_start)
    return dispatched


def _beginning(runtime: Runtime, turn: TurnRow, at: str | None) -> _Beginning:
    """What the output box held when the turn began, or when the request of its step `at` was made."""
    if at is None:
        box = source_of(runtime.boxes, "output", turn.output_box_id)
        record = runtime.turns.record(turn.agent_turn_id)
        start = None if record is None else record.output_start
        if start is None:
            start = runtime.turns.output_start(box.box_id, turn.agent_turn_id) or 0
        return _Beginning(_first(box, start), start)
    turn_id = turn.agent_turn_id
    shows = f"`cbx turn show {argument(short_id(turn_id))}`"
    step = named_step(runtime.turns.steps(turn_id), at, f"turn {turn_id!r}", shows)
    snapshot = read_snapshot(step.metadata)
    if snapshot is None:
        raise InvalidInput(
            f"step {step.step_id!r} has no snapshot that says what the turn had written by then",
            hint="only steps that a worker of cbx ran say it; `cbx turn replay` begins at the beginning",
        )
    box = source_of(runtime.boxes, "output", _output_of(step, turn))
    return _Beginning(_first(box, snapshot.output_cards), snapshot.output_start)


def _output_of(step: Step, turn: TurnRow) -> str | None:
    return step.output_box_id or turn.output_box_id


def _first(box: Source, count: int) -> list[str]:
    return [slot.card_id for slot in box.slots[:count]]


def _instruction(runtime: Runtime, text: str | None) -> list[str]:
    if text is None:
        return []
    if not text.strip():
        raise InvalidInput(
            "the instruction is blank", hint="is the shell variable set? say what to do, or leave it out"
        )
    draft = draft_card(INSTRUCTION, text, author_id=OPERATOR)
    return [runtime.cards.add(draft).card.card_id]


def _agent(runtime: Runtime, turn: TurnRow, again: Again) -> Agent:
    """An agent for the new turns alone: those of the old one's agent neither wait nor remember them."""
    profile = _profile(runtime, turn, again.profile_name)
    known = runtime.roster.find(turn.agent_id)
    target = known.worker_target if known and again.profile_name is None else profile.worker_target
    agent = Agent(
        agent_id=fresh_id(profile),
        profile_box_id=profile.profile_box_id,
        worker_target=again.worker_target or target,
        tags=profile.tags,
        display_name=None,
        owner_agent_id=None,
        status="active",
        metadata={
            "profile_name": profile.name,
            "spawned_by": OPERATOR,
            "derived_from": turn.agent_id,
            "replay_of": turn.agent_turn_id,
        },
        created_at=None,
    )
    enrol(runtime.roster, agent, source_agent_id=OPERATOR)
    return agent


def _profile(runtime: Runtime, turn: TurnRow, name: str | None) -> ProfileEntry:
    """The profile of this name, else the one that the turn was run with, in the version that it had."""
    profiles = ProfileStore(runtime.database, runtime.project_id)
    if name is not None:
        entry = profiles.get(name)
        profiles.refuse_lost_box(entry)
        return entry
    held = profiles.held_by(turn.profile_box_id or "") if turn.profile_box_id else None
    if held is None:
        raise NotFound(
            f"the profile of turn {turn.agent_turn_id} is gone",
            hint=f"--profile names another; `cbx turn show {argument(turn.agent_turn_id)}` shows its boxes",
        )
    return held


# What came of turns, side by side: how each ended, in how many steps, for what, in which words.
#
# Reads what turns left. Tokens are those that providers reported, where they did; what was written is
# estimated.


# How providers name what they counted, of the request and of the answer.
_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a turn. `input_tokens` and `output_tokens` are None where no provider reported any;
    `written_tokens`, of what the turn wrote and of the results that it got, are estimated.

    `tools` says how often each was called.
    """

    agent_turn_id: str
    agent_id: str
    status: str
    end_status: str | None
    error: str | None
    steps: int
    input_tokens: int | None
    output_tokens: int | None
    written_tokens: int
    tools: dict[str, int]
    text: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome beside that of the first turn: `same_text`, or so many words that are added and removed."""

    outcome: TurnOutcome
    same_end: bool
    same_text: bool
    words_added: int
    words_removed: int
    pieces: list[Piece]


def outcome_of(turns: TurnViews, agent_turn_id: str) -> TurnOutcome:
    """What came of a turn so far. Raises NotFound. Takes part in the caller's snapshot."""
    found = turns.get(agent_turn_id)
    short = summary(found)
    store = TurnStore(turns.database, turns.project_id)
    steps, record = store.steps(agent_turn_id), store.record(agent_turn_id)
    own = _own_cards(turns, found.output_box_id, record.output_start or 0 if record else 0, agent_turn_id)
    return TurnOutcome(
        agent_turn_id=agent_turn_id,
        agent_id=short.agent_id,
        status=short.status,
        end_status=short.end_status,
        error=record.error if record else None,
        steps=len(steps),
        input_tokens=_reported(steps, _INPUT),
        output_tokens=_reported(steps, _OUTPUT),
        written_tokens=sum(card_tokens(card) for card in own if card.type in (THOUGHT, TOOL_RESULT)),
        tools=dict(Counter(call.tool_name for card in own for call in calls_of(card))),
        text=_text(own, short.deliverable_card_id),
    )


def compare(first: TurnOutcome, others: Sequence[TurnOutcome]) -> list[Compared]:
    """The others beside the first."""
    return [_compared(first, each) for each in others]


def _compared(first: TurnOutcome, other: TurnOutcome) -> Compared:
    pieces = text_diff(first.text, other.text)
    return Compared(
        outcome=other,
        same_end=first.end_status == other.end_status,
        same_text=first.text == other.text,
        words_added=_words(pieces, "added"),
        words_removed=_words(pieces, "removed"),
        pieces=pieces,
    )


def _words(pieces: Sequence[Piece], kind: str) -> int:
    return sum(len(piece.text.split()) for piece in pieces if piece.kind == kind)


def _own_cards(turns: TurnViews, box_id: str | None, start: int, agent_turn_id: str) -> list[Card]:
    """What the turn itself wrote: what goes on from a step of another begins with that one's cards."""
    boxes = BoxStore(turns.database, turns.project_id)
    slots = boxes.slots(box_id) if box_id is not None and boxes.existing([box_id]) else []
    own = present_cards(slots[start:])
    return [card for card in own if card.metadata.get(TURN, agent_turn_id) == agent_turn_id]


def _text(own: Sequence[Card], deliverable: str | None) -> str:
    """What it delivered; without that, what it said last."""
    delivered = [card for card in own if card.type == DELIVERABLE and card.card_id == deliverable]
    said = [card for card in own if card.type == THOUGHT and card_text(card.content)]
    last = (delivered or said)[-1:]
    return card_text(last[0].content) if last else ""


def _reported(steps: Sequence[Step], names: Sequence[str]) -> int | None:
    """What the provider counted in all steps; None where it counted in none."""
    usages = [step.metadata.get("llm_usage") for step in steps if isinstance(step.metadata, dict)]
    counts = [usage.get(name) for usage in usages if isinstance(usage, dict) for name in names]
    known = [count for count in counts if isinstance(count, int) and not isinstance(count, bool)]
    return sum(known) if known else None
