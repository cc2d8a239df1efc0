"""The requests of boxes, and of the steps of a turn, of an agent's turn or of a chat, for every surface.

A surface passes the stores that resolve its ids, and shows the notes. This module never writes. It reads
within the caller's snapshot.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context.explain import Explanation, explain
from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.context.losses import is_looked_at
from cardbox_cli.context.request import (
    DEFAULT_OPTIONS,
    ComposeOptions,
    Request,
    RequestEntry,
    request_of,
    request_to_send,
)
from cardbox_cli.errors import InvalidInput, NotFound, UsageError
from cardbox_cli.execution.requests.recorded_requests import RecordedRequests, TurnRequests, turn_of_agent
from cardbox_cli.execution.requests.step_snapshots import Verification, read_snapshot
from cardbox_cli.execution.requests.turn_requests import (
    BoxSource,
    apply_share_default,
    collector_for,
    offered_definitions,
    present_cards,
    read_entries,
    read_source,
)
from cardbox_cli.model.card_types import RESULT_FIELDS
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.layers import EXPERIENCE, KNOWLEDGE
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.providers.formats import body_of, encoder_of, other_provider_note, provider_of
from cardbox_cli.providers.registry import DEFAULT, provider_for, providers
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.views.turn_views import TurnViews
from cardbox_cli.text.error_messages import unknown_message

_STEP, _TURN = "step_", "turn_"
# The prefix of names that only the surface's stores resolve, for example `@last`.
_RECALLED = "@"


class InspectedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request in some format: its name, its entries, and notes about it.

    `awaited` are the calls without results. `idle` are the options that cannot change the request, because it
    was already `sent`. `unknown` are notes on parts that cannot be compared.
    """

    name: str
    format: str
    step_id: str | None = None
    entries: list[RequestEntry]
    request: Request
    awaited: list[str] = []
    notes: list[str] = []
    idle: list[str] = []
    sent: bool = False
    unknown: list[str] = []

    def explanation(self) -> Explanation:
        return explain(self.request, provider_of(self.format))

    def findings(self) -> list[LintFinding]:
        return lint(self.entries, self.request, provider_of(self.format), awaited=self.awaited)


class RenderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its body in the sent form, the origin of each message, and the findings of the lint."""

    name: str
    format: str
    step_id: str | None
    body: Any
    explanation: Explanation
    findings: list[LintFinding]
    notes: list[str]


class SentStep(NamedTuple):
    """A step of a turn or run that has sent its request: its number from 1, its id and its explanation."""

    number: int
    step_id: str
    account: Explanation


class Requests:
    """Reads the requests of one project. Default of `format`: the one that was sent, else the fitting one.

    Boxes are rendered for the system prompt, model and tools of `profile`. `notes` name the turn of an agent.
    """

    def __init__(
        self,
        boxes: BoxStore,
        turns: TurnViews,
        *,
        options: ComposeOptions = DEFAULT_OPTIONS,
        format: str | None = None,
        profile: str | None = None,
    ) -> None:
        self._database = boxes.database
        self._project_id = boxes.project_id
        self._boxes = boxes
        self._turns = turns
        self._typed = options
        self._options = apply_share_default(options, ProjectsStore(self._database).settings(self._project_id))
        self.format = format
        self.profile: BoxSource | None = None
        if profile is not None:
            profiles = ProfileStore(self._database, self._project_id)
            entry = profiles.get(profile)
            profiles.refuse_lost_box(entry)
            self.profile = read_source(self._boxes, entry.profile_box_id)
        self.notes: list[str] = []

    # --- of boxes

    def read_boxes(
        self, given: Sequence[str], *, by_model: bool = False, format: str | None = None
    ) -> InspectedRequest:
        """Return the request of boxes in their order. `by_model`: the default format is that of the model."""
        check_words(self._typed)
        box_ids = [self._boxes.resolve(each) for each in given]
        entries = list(self._entries(box_ids))
        fitting = provider_for(entries, self._options.model) if by_model else DEFAULT
        format = format or self.format or fitting
        encode = encoder_of(format)
        collector = collector_for(self._database, self._project_id, *box_ids)
        request = request_of(entries, self._options, encode=encode, collector=collector)
        return self._inspected_boxes(box_ids, format, entries, request)

    def read_to_send(self, given: Sequence[str]) -> InspectedRequest:
        """Return a request for sending only. Its entries that have cards are omitted.

        The boxes are streamed, because they may be too long for memory.
        """
        format = self.format or DEFAULT
        check_words(self._typed)
        box_ids = [self._boxes.resolve(each) for each in given]
        absent: list[RequestEntry] = []

        def entries() -> Iterator[RequestEntry]:
            for entry in self._entries(box_ids):
                if entry.slot.state != "present":
                    absent.append(entry)
                yield entry

        request = request_to_send(
            entries(),
            self._options,
            encode=encoder_of(format),
            collector=collector_for(self._database, self._project_id, *box_ids),
            keep=lambda card: card.type == RESULT_FIELDS or is_looked_at(card),
        )
        return self._inspected_boxes(box_ids, format, absent, request)

    def _inspected_boxes(
        self, box_ids: Sequence[str], format: str, entries: list[RequestEntry], request: Request
    ) -> InspectedRequest:
        if self.profile is not None:
            profile_cards = present_cards(self.profile.slots)
            context = present_cards(entry.slot for entry in request.places.values())
            database, project_id = self._database, self._project_id
            tools = offered_definitions(database, project_id, profile_cards, context, HANDLERS)
            request = msgspec.structs.replace(request, tools=tools)
        missed = [left for left in request.layers_left_out if left.layer in self._options.asked.names]
        return InspectedRequest(
            name=f"box {box_ids[-1]}",
            format=format,
            entries=entries,
            request=request,
            notes=[
                *(f"the layer {left.layer} is left out: {left.reason}" for left in missed),
                *self._notes_on_model(request, format),
            ],
        )

    def _notes_on_model(self, request: Request, format: str) -> Iterator[str]:
        """Yield a note if no format was given, and the model belongs to another provider."""
        if self.format is None and (note := other_provider_note(request.model, format)) is not None:
            yield note

    def _entries(self, box_ids: Sequence[str]) -> Iterator[RequestEntry]:
        """Yield the entries of the profile's box, then of these boxes."""
        if self.profile is not None:
            yield from self.profile.entries
        for box_id in box_ids:
            yield from read_entries(self._boxes, box_id)

    # --- of recorded steps

    def recorded(
        self, *, turn: str | None = None, agent: str | None = None, chat: str | None = None
    ) -> RecordedRequests | None:
        """Return the steps of a turn, an agent's turn or a chat, or None if all arguments are None.

        A note names the turn of an agent. Raises NotFound, AmbiguousId.
        """
        if chat is not None:
            from cardbox_cli.chat.runs.recorded_runs import ChatRequests

            return ChatRequests(self._database, self._project_id, chat)
        if turn is not None:
            return self._steps_of(self._turns.resolve(turn))
        if agent is None:
            return None
        row = turn_of_agent(self._turns, agent)
        self.notes.append(f"agent {agent!r}: turn {row.agent_turn_id}, {row.status}")
        return TurnRequests(self._database, self._project_id, row, HANDLERS)

    def _steps_of(self, turn_id: str) -> TurnRequests:
        return TurnRequests(self._database, self._project_id, self._turns.get(turn_id), HANDLERS)

    def read_step(self, steps: RecordedRequests, at: str | None) -> InspectedRequest:
        """Return the request of a step. Raises UsageError for options that cannot change it."""
        view = self._read_step(steps, at)
        _refuse(view.idle)
        return view

    def verified(self, steps: RecordedRequests, at: str | None) -> tuple[Step, Verification]:
        """Verify whether a step's cards still produce its request. Raises UsageError as `read_step` does."""
        step, verified = steps.verify(at, self._options, self.format)
        _refuse(_idle(self._typed, step))
        return step, verified

    def sent_before(self, steps: RecordedRequests, step_id: str | None, *, most: int) -> list[SentStep]:
        """Return the last `most` steps up to and including this one; None: of all that have sent requests."""
        sent = list(enumerate(steps.recorded_step_ids(step_id), 1))[-most:]
        return [SentStep(number, each, self._read_step(steps, each).explanation()) for number, each in sent]

    def _read_step(
        self, steps: RecordedRequests, at: str | None, *, format: str | None = None
    ) -> InspectedRequest:
        check_query(self._typed.query)
        collector = collector_for(self._database, self._project_id, *steps.context_box_ids)
        step_request = steps.request(at, self._options, format or self.format, collector)
        step = step_request.step
        if step is None:
            check_words(self._typed)
        return InspectedRequest(
            name=f"{steps.name}, {'next step' if step is None else step.step_id}",
            format=step_request.format,
            step_id=None if step is None else step.step_id,
            entries=step_request.entries,
            request=step_request.request,
            awaited=step_request.awaited,
            notes=[*step_request.notes, *self._notes_on_model(step_request.request, step_request.format)],
            idle=[] if step is None else _idle(self._typed, step),
            sent=step is not None,
            unknown=[] if step is None else _unknown(step),
        )

    # --- two of them

    def pair(
        self, given: tuple[str, str], *, before: Sequence[str] = (), steps: RecordedRequests | None
    ) -> tuple[InspectedRequest, InspectedRequest]:
        """Return two requests to compare, in one format: boxes after those of `before`, turns, or steps.

        If `steps` is given, both are steps of it. Raises UsageError for options that can change neither.
        """
        one = self._operand(given[0], before, steps, None)
        other = self._operand(given[1], before, steps, one.format)
        _refuse([option for option in one.idle if option in other.idle])
        return one, other

    def _operand(
        self, given: str, before: Sequence[str], steps: RecordedRequests | None, format: str | None
    ) -> InspectedRequest:
        if steps is not None:
            return self._read_step(steps, given, format=format)
        if not given.startswith((_STEP, _TURN)) and find_box(self._boxes, given) is not None:
            return self.read_boxes([*before, given], format=format)
        option = "--box" if before else "--profile" if self.profile is not None else None
        if option is not None:
            raise UsageError(
                f"--diff: {given!r} is not a box, and {option} requires boxes",
                hint=f"remove {option}",
            )
        if given.startswith(_STEP):
            return self._read_step(self._steps_of(self._turns.find_by_step(given)), given, format=format)
        try:
            turn_id = self._turns.resolve(given)
        except NotFound:
            raise NotFound(
                f"no box, turn or step {given!r} in project {self._project_id!r}",
                hint="`cbx box list` and `cbx turn list` show the newest ids; for a step, pass its full id",
            ) from None
        return self._read_step(self._steps_of(turn_id), None, format=format)


def find_box(boxes: BoxStore, given: str) -> str | None:
    """Return the id of the box that `given` names, or None. Raises NotFound for `@last` if there is none."""
    try:
        return boxes.resolve(given)
    except NotFound:
        if given.startswith(_RECALLED):
            raise
        return None


def render_answer(
    requests: Requests,
    *,
    box: str | None = None,
    turn: str | None = None,
    agent: str | None = None,
    chat: str | None = None,
    at: str | None = None,
) -> RenderAnswer:
    """Return the request of a box, or of a step of a turn, an agent's turn or a chat. Default: the last step.

    Raises UsageError unless exactly one of them is given, for a step of a box, and for a profile without a
    box. Raises InvalidInput for an unknown format.
    """
    one_of(box=box, turn=turn, agent=agent, chat=chat)
    check_format(requests.format)
    if requests.profile is not None and box is None:
        raise UsageError("profile requires a box, not a turn, agent or chat")
    steps = requests.recorded(turn=turn, agent=agent, chat=chat)
    if steps is None and at is not None:
        raise UsageError("at requires a turn, an agent or a chat: a box has no steps")
    view = requests.read_boxes([box or ""], by_model=True) if steps is None else requests.read_step(steps, at)
    return RenderAnswer(
        name=view.name,
        format=view.format,
        step_id=view.step_id,
        body=body_of(view.request, view.format),
        explanation=view.explanation(),
        findings=view.findings(),
        notes=[*requests.notes, *view.notes],
    )


def check_format(format: str | None) -> None:
    formats = [each.name for each in providers()]
    if format is not None and format not in formats:
        raise InvalidInput(
            unknown_message("format", format, formats), hint=f"formats are {', '.join(formats)}"
        )


def one_of(hint: str | None = None, /, **given: str | None) -> tuple[str, str]:
    """Return the name and the value of the one argument that is not None. Raises UsageError."""
    named = [(kind, name) for kind, name in given.items() if name is not None]
    if len(named) != 1:
        raise UsageError(f"exactly one of {', '.join(given)} is required", hint=hint)
    return named[0]


# --- options of composing that do not fit a request


def check_query(query: str | None) -> None:
    """Raise UsageError for a query together with a turn, because the turn's boxes contain the prompt."""
    if query is not None:
        raise UsageError(
            "--query requires --box: a turn's prompt is in its context box", hint="remove --query"
        )


def check_words(options: ComposeOptions) -> None:
    """Raise UsageError for a knowledge layer without search text."""
    asked = options.asked
    if KNOWLEDGE in asked.to_collect and asked.knowledge is None:
        raise UsageError(f"--layer {KNOWLEDGE} requires --knowledge-query", hint="add --knowledge-query TEXT")


def _idle(options: ComposeOptions, step: Step) -> list[str]:
    """Return the options that cannot change a sent request. Only the texts of its layers can change it."""
    snapshot = read_snapshot(step.metadata)
    sent = {} if snapshot is None else snapshot.layers
    asked = options.asked
    given = {
        "--process": options.process is not None,
        "--share" if options.share else "--no-share": options.share is not None,
        "--layout": options.layout is not None,
        "--experience": EXPERIENCE in asked.to_collect,
        "--knowledge-query": asked.knowledge is not None,
    }
    layers = {*(asked.to_collect - {EXPERIENCE}), *(name for name in asked.texts if name not in sent)}
    return [
        *(option for option, is_given in given.items() if is_given),
        *(f"--layer {name}" for name in sorted(layers)),
    ]


def _unknown(step: Step) -> list[str]:
    """Return notes on the parts of a sent request that cannot be compared."""
    if read_snapshot(step.metadata) is not None:
        return []
    return [f"{step.step_id} has no hashes: layers that existed only for its call are not compared"]


def _refuse(idle: Sequence[str]) -> None:
    if idle:
        raise UsageError(
            f"{idle[0]} cannot change a step that was sent",
            hint="use --at next for the next request",
        )
