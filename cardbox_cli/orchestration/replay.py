"""Replay a turn with a new agent, from its beginning or from a step, and compare the outcomes of turns.

The old turn, its boxes and its agent do not change. The new turns see the old context box and a copy of the
old output box, and call tools again. A comparison uses the token counts that providers reported, and
estimates the tokens of written cards.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from cardbox_cli.context.request import TURN
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchOutcome, DispatchRequest
from cardbox_cli.execution.provision import add_agent
from cardbox_cli.execution.requests.recorded_requests import find_step
from cardbox_cli.execution.requests.request_series import step_usage
from cardbox_cli.execution.requests.step_snapshots import read_snapshot
from cardbox_cli.execution.requests.turn_requests import BoxSource, present_cards, source_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import calls_of
from cardbox_cli.execution.turn_summary import summary
from cardbox_cli.model.card_types import DELIVERABLE, INSTRUCTION, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import OPERATOR, Card, card_text, draft_card
from cardbox_cli.model.diff import TextPart, text_diff
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.model.identity import Agent
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.tokens import card_tokens
from cardbox_cli.orchestration.targets import new_agent
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.profiles import ProfileEntry, ProfileStore
from cardbox_cli.store.views.turn_views import TurnRow, TurnViews
from cardbox_cli.text.command_lines import quote_argument


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a replay: the number of new turns (`times`), and another profile or worker target.

    A replay from the step `at` begins with the cards that were written before it, plus `instruction`.
    """

    times: int = 1
    profile_name: str | None = None
    worker_target: str | None = None
    at: str | None = None
    instruction: str | None = None


class _ReplayStart(msgspec.Struct, frozen=True):
    """The cards at the beginning of a new output box. The old turn did not write the first `output_start`."""

    card_ids: Sequence[str]
    output_start: int


def dispatch_replays(runtime: Runtime, agent_turn_id: str, again: ReplayOptions) -> list[DispatchOutcome]:
    """Dispatch a turn again, as often as requested or until the first refusal, and return all outcomes.

    Runs in one transaction. Raises NotFound if the turn's inbox row, one of its boxes or the step is missing.
    Raises InvalidInput for a step without a snapshot, and for a blank instruction.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        row = runtime.inbox.turn_row(agent_turn_id)
        if row is None:
            hint = "`cbx turn list` shows the turns"
            raise NotFound(f"turn {agent_turn_id} has no inbox row", hint=hint)
        turn = TurnViews(runtime.database, runtime.project_id).get(agent_turn_id)
        beginning = _find_start(runtime, turn, again.at)
        card_ids = [*beginning.card_ids, *_add_instruction(runtime, again.instruction)]
        agent = _make_agent(runtime, turn, again)
        outcomes: list[DispatchOutcome] = []
        for _ in range(again.times):
            outcomes.append(_dispatch_replay(runtime, row, agent, card_ids, beginning.output_start))
            if outcomes[-1].result.status != "accepted":
                break
        return outcomes


def _dispatch_replay(
    runtime: Runtime, row: InboxRow, agent: Agent, card_ids: Sequence[str], output_start: int
) -> DispatchOutcome:
    """Dispatch one more turn. Its new output box begins with these cards."""
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
        new_turn_id = dispatched.result.agent_turn_id
        runtime.turns.reset_output_start(new_turn_id, output_start)
        runtime.audit.record_successor(row.fence, new_turn_id, action="replay", actor=OPERATOR)
    return dispatched


def _find_start(runtime: Runtime, turn: TurnRow, at: str | None) -> _ReplayStart:
    """Return the cards that the output box had when the turn began, or when its step `at` began."""
    if at is None:
        box = source_of(runtime.boxes, "output", turn.output_box_id)
        record = runtime.turns.record(turn.agent_turn_id)
        start = None if record is None else record.output_start
        if start is None:
            start = runtime.turns.output_start(box.box_id, turn.agent_turn_id) or 0
        return _ReplayStart(_first_card_ids(box, start), start)
    turn_id = turn.agent_turn_id
    shows = f"`cbx turn show {quote_argument(short_id(turn_id))}`"
    step = find_step(runtime.turns.steps(turn_id), at, f"turn {turn_id!r}", shows)
    snapshot = read_snapshot(step.metadata)
    if snapshot is None:
        raise InvalidInput(
            f"step {step.step_id!r} has no snapshot, so the turn's output before it is unknown",
            hint="only workers of cbx store snapshots; run `cbx turn replay` without a step",
        )
    box = source_of(runtime.boxes, "output", step.output_box_id or turn.output_box_id)
    return _ReplayStart(_first_card_ids(box, snapshot.output_cards), snapshot.output_start)


def _first_card_ids(box: BoxSource, count: int) -> list[str]:
    return [slot.card_id for slot in box.slots[:count]]


def _add_instruction(runtime: Runtime, text: str | None) -> list[str]:
    if text is None:
        return []
    if not text.strip():
        raise InvalidInput(
            "the instruction is blank", hint="is the shell variable set? pass a text, or remove the option"
        )
    draft = draft_card(INSTRUCTION, text, author_id=OPERATOR)
    return [runtime.cards.add(draft).card.card_id]


def _make_agent(runtime: Runtime, turn: TurnRow, again: ReplayOptions) -> Agent:
    """Create an agent for the new turns, so that the old agent does not run them or get their output."""
    profile = _profile(runtime, turn, again.profile_name)
    known = runtime.roster.find(turn.agent_id)
    target = known.worker_target if known and again.profile_name is None else None
    origin = {"derived_from": turn.agent_id, "replay_of": turn.agent_turn_id}
    agent = new_agent(
        profile,
        owner=None,
        metadata={"spawned_by": OPERATOR, **origin},
        worker_target=again.worker_target or target,
    )
    add_agent(runtime.roster, agent, source_agent_id=OPERATOR)
    return agent


def _profile(runtime: Runtime, turn: TurnRow, name: str | None) -> ProfileEntry:
    """Return the named profile. If `name` is None, return the version of the profile that the turn used."""
    profiles = ProfileStore(runtime.database, runtime.project_id)
    if name is not None:
        entry = profiles.get(name)
        profiles.refuse_lost_box(entry)
        return entry
    entry_in_box = profiles.profile_in_box(turn.profile_box_id) if turn.profile_box_id else None
    if entry_in_box is None:
        raise NotFound(
            f"the profile of turn {turn.agent_turn_id} is gone", hint="pass another profile with --profile"
        )
    return entry_in_box


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a turn. `input_tokens` and `output_tokens` are None if the provider reported none.

    `written_tokens` estimates the tokens of its thoughts and results. `tools` counts calls by tool name.
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


class OutcomeComparison(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome, and the numbers of words that its text adds and removes compared with the first turn."""

    outcome: TurnOutcome
    same_end: bool
    same_text: bool
    words_added: int
    words_removed: int
    pieces: list[TextPart]


def outcome_of(turns: TurnViews, agent_turn_id: str) -> TurnOutcome:
    """Return the outcome of a turn, which may still run, in the caller's snapshot. Raises NotFound."""
    turn = turns.get(agent_turn_id)
    short = summary(turn)
    store = TurnStore(turns.database, turns.project_id)
    steps, record = store.steps(agent_turn_id), store.record(agent_turn_id)
    usages = [usage for usage in map(step_usage, steps) if usage is not None]
    own = _own_cards(turns, turn.output_box_id, record.output_start or 0 if record else 0, agent_turn_id)
    return TurnOutcome(
        agent_turn_id=agent_turn_id,
        agent_id=short.agent_id,
        status=short.status,
        end_status=short.end_status,
        error=record.error if record else None,
        steps=len(steps),
        input_tokens=_sum_counts([usage.input for usage in usages]),
        output_tokens=_sum_counts([usage.output for usage in usages]),
        written_tokens=sum(card_tokens(card) for card in own if card.type in (THOUGHT, TOOL_RESULT)),
        tools=dict(Counter(call.tool_name for card in own for call in calls_of(card))),
        text=_outcome_text(own, short.deliverable_card_id),
    )


def compare(first: TurnOutcome, others: Sequence[TurnOutcome]) -> list[OutcomeComparison]:
    return [_compare_with(first, each) for each in others]


def _compare_with(first: TurnOutcome, other: TurnOutcome) -> OutcomeComparison:
    pieces = text_diff(first.text, other.text)
    return OutcomeComparison(
        outcome=other,
        same_end=first.end_status == other.end_status,
        same_text=first.text == other.text,
        words_added=_count_words(pieces, "added"),
        words_removed=_count_words(pieces, "removed"),
        pieces=pieces,
    )


def _count_words(pieces: Sequence[TextPart], kind: str) -> int:
    return sum(len(piece.text.split()) for piece in pieces if piece.kind == kind)


def _own_cards(turns: TurnViews, box_id: str | None, start: int, agent_turn_id: str) -> list[Card]:
    """Return the cards that the turn itself wrote, without cards that a replay copied from the old turn."""
    boxes = BoxStore(turns.database, turns.project_id)
    slots = boxes.slots(box_id) if box_id is not None and boxes.filter_existing([box_id]) else []
    own = present_cards(slots[start:])
    return [card for card in own if card.metadata.get(TURN, agent_turn_id) == agent_turn_id]


def _outcome_text(own: Sequence[Card], deliverable: str | None) -> str:
    """Return the text of the deliverable, or else of the last thought."""
    delivered = [card for card in own if card.type == DELIVERABLE and card.card_id == deliverable]
    thoughts = [card for card in own if card.type == THOUGHT and card_text(card.content)]
    last = (delivered or thoughts)[-1:]
    return card_text(last[0].content) if last else ""


def _sum_counts(usages: Sequence[int | None]) -> int | None:
    """Return the sum of the provider's counts in all steps, or None if no step has a count."""
    known = [count for count in usages if count is not None]
    return sum(known) if known else None
