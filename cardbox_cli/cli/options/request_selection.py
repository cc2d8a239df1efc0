"""The requests that commands look at, as a command line names them: by boxes, a turn, an agent or a step.

Reads, and composes: every request of a command line is made by one `Requests`, and so all are made alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.cli.last_ids import LAST, resolving_boxes, resolving_turns
from cardbox_cli.cli.options.compose_options import check_query, check_words, idle_options
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.context.losses import is_looked_at
from cardbox_cli.context.request import ComposeOptions, Request, RequestEntry, request_of, request_to_send
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.execution.requests.recorded_requests import RecordedRequests, TurnRequests, turn_of_agent
from cardbox_cli.execution.requests.step_snapshots import Verified, read_snapshot
from cardbox_cli.execution.requests.turn_requests import (
    Source,
    collector_for,
    offered_definitions,
    present_cards,
    read_entries,
    read_source,
    settled,
)
from cardbox_cli.model.card_types import RESULT_FIELDS
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.orchestration.handlers import HANDLERS
from cardbox_cli.providers.formats import encoder_of, of_another
from cardbox_cli.providers.registry import DEFAULT, provider_for
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.projects import ProjectsStore

_STEP, _TURN = "step_", "turn_"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A request to show, in some format: its name, what it is made of, and what must be said of it.

    `awaited` are the calls whose results are still to come, `idle` the options of composing that change
    nothing, since it was `sent` before. `unknown` is what a comparison of it must say that it cannot know.
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


class Requests:
    """Reads one state of a project. `options` are as given, `format` None is the fitting one.

    `profile` names the profile that boxes are rendered for: its system prompt, model and tools.
    """

    def __init__(
        self,
        database: Database,
        project_id: str,
        *,
        options: ComposeOptions,
        format: str | None,
        profile: str | None = None,
    ) -> None:
        self._database = database
        self._project_id = project_id
        self._boxes = resolving_boxes(database, project_id)
        self._turns = resolving_turns(database, project_id)
        self._typed = options
        self._options = settled(options, ProjectsStore(database).settings(project_id))
        self._format = format
        self._profile = None if profile is None else self._profile_source(profile)

    def of_boxes(self, given: Sequence[str], *, by_model: bool = False, format: str | None = None) -> Shown:
        """The request that boxes make in their order; `by_model`: for its provider if no format is named."""
        check_words(self._typed)
        box_ids = [self._boxes.resolve(each) for each in given]
        entries = list(self._entries(box_ids))
        fitting = provider_for(entries, self._options.model) if by_model else DEFAULT
        format = format or self._format or fitting
        encode = encoder_of(format)
        collector = collector_for(self._database, self._project_id, *box_ids)
        request = request_of(entries, self._options, encode=encode, collector=collector)
        return self._shown(box_ids, format, entries, request)

    def to_send(self, given: Sequence[str]) -> Shown:
        """`of_boxes` of a request to be sent and no more: of its entries it has those that lead to no card.

        Boxes may be too long to hold, and are not.
        """
        format = self._format or DEFAULT
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
        return self._shown(box_ids, format, absent, request)

    def _shown(
        self, box_ids: Sequence[str], format: str, entries: list[RequestEntry], request: Request
    ) -> Shown:
        if self._profile is not None:
            tools = self._tools(self._profile, request.places.values())
            request = msgspec.structs.replace(request, tools=tools)
        missed = [left for left in request.layers_left_out if left.layer in self._options.asked.names]
        return Shown(
            name=f"box {box_ids[-1]}",
            format=format,
            entries=entries,
            request=request,
            notes=[
                *(f"the layer {left.layer} is left out: {left.reason}" for left in missed),
                *self._of_another(request, format),
            ],
        )

    def _of_another(self, request: Request, format: str) -> Iterator[str]:
        """That the model is another provider's, where nobody named the format."""
        note = None if self._format is not None else of_another(request.model, format)
        if note is not None:
            yield note

    def _entries(self, box_ids: Sequence[str]) -> Iterator[RequestEntry]:
        """The places of the profile's box, then of these."""
        if self._profile is not None:
            yield from self._profile.entries
        for box_id in box_ids:
            yield from read_entries(self._boxes, box_id)

    def _profile_source(self, name: str) -> Source:
        profiles = ProfileStore(self._database, self._project_id)
        entry = profiles.get(name)
        profiles.refuse_lost_box(entry)
        return read_source(self._boxes, entry.profile_box_id)

    def _tools(self, profile: Source, entries: Iterable[RequestEntry]) -> list[dict[str, Any]]:
        """What a worker would offer beside this profile."""
        context = present_cards(entry.slot for entry in entries)
        return offered_definitions(
            self._database, self._project_id, present_cards(profile.slots), context, HANDLERS
        )

    def turn(self, given: str | None, agent: str | None = None) -> TurnRequests | None:
        """The turn that is named, or that of an agent, which is then announced; None where neither is."""
        if given is not None:
            return self._steps_of(self._turns.resolve(given))
        if agent is None:
            return None
        found = turn_of_agent(self._turns, agent)
        announce(f"note: agent {agent!r}: turn {found.agent_turn_id}, {found.status}")
        return TurnRequests(self._database, self._project_id, found, HANDLERS)

    def _steps_of(self, turn_id: str) -> TurnRequests:
        return TurnRequests(self._database, self._project_id, self._turns.get(turn_id), HANDLERS)

    def chat(self, given: str) -> RecordedRequests:
        """The chat of this key."""
        from cardbox_cli.chat.runs.recorded_runs import ChatRequests

        return ChatRequests(self._database, self._project_id, given)

    def of_step(self, turn: RecordedRequests, at: str | None) -> Shown:
        """The request of a step of a turn. Raises UsageError for options that change nothing in it."""
        shown = self._of_step(turn, at)
        _refuse(shown.idle)
        return shown

    def verified(self, turn: RecordedRequests, at: str | None) -> tuple[Step, Verified]:
        """A step of a turn, and whether the cards still make its request. Raises UsageError as `of_step`."""
        step, verified = turn.verified(at, self._options, self._format)
        _refuse(_idle(self._typed, step))
        return step, verified

    def _of_step(self, turn: RecordedRequests, at: str | None, *, format: str | None = None) -> Shown:
        check_query(self._typed.query)
        collector = collector_for(self._database, self._project_id, *turn.context_box_ids)
        found = turn.request(at, self._options, format or self._format, collector)
        if found.step is None:
            check_words(self._typed)
        turn_id = turn.name
        return Shown(
            name=f"{turn_id}, next step" if found.step is None else f"{turn_id}, {found.step.step_id}",
            format=found.format,
            step_id=None if found.step is None else found.step.step_id,
            entries=found.entries,
            request=found.request,
            awaited=found.awaited,
            notes=[*found.notes, *self._of_another(found.request, found.format)],
            idle=[] if found.step is None else _idle(self._typed, found.step),
            sent=found.step is not None,
            unknown=[] if found.step is None else _unknown(found.step),
        )

    def pair(
        self, given: tuple[str, str], *, before: Sequence[str], turn: RecordedRequests | None
    ) -> tuple[Shown, Shown]:
        """The two that --diff names, in one format: boxes behind those of `before`, turns, or steps by id.

        Both are steps of `turn` where there is one. Raises UsageError for options that change neither.
        """
        one = self._operand(given[0], before, turn, None)
        other = self._operand(given[1], before, turn, one.format)
        _refuse([option for option in one.idle if option in other.idle])
        return one, other

    def _operand(
        self, given: str, before: Sequence[str], turn: RecordedRequests | None, format: str | None
    ) -> Shown:
        if turn is not None:
            return self._of_step(turn, given, format=format)
        is_box = not given.startswith((_STEP, _TURN)) and self._is_box(given)
        if is_box:
            return self.of_boxes([*before, given], format=format)
        option = "--box" if before else "--profile" if self._profile is not None else None
        if option is not None:
            raise UsageError(
                f"--diff: {given!r} is not a box, and {option} works only with boxes",
                hint=f"remove {option}",
            )
        if given.startswith(_STEP):
            return self._of_step(self._steps_of(self._turns.of_step(given)), given, format=format)
        try:
            turn_id = self._turns.resolve(given)
        except NotFound:
            raise NotFound(
                f"no box, turn or step {given!r} in project {self._project_id!r}",
                hint="`cbx box list` and `cbx turn list` show the newest; a step is named by its whole id",
            ) from None
        return self._of_step(self._steps_of(turn_id), None, format=format)

    def _is_box(self, given: str) -> bool:
        try:
            self._boxes.resolve(given)
        except NotFound:
            return given == LAST
        return True


def _idle(options: ComposeOptions, step: Step) -> list[str]:
    """The options that change nothing in the request of a step that has begun."""
    snapshot = read_snapshot(step.metadata)
    return idle_options(options, {} if snapshot is None else snapshot.layers)


def _unknown(step: Step) -> list[str]:
    """What nobody knows of the request of a step that has begun."""
    if read_snapshot(step.metadata) is not None:
        return []
    return [f"{step.step_id} kept no hashes: layers that lived for its call, if any, are not compared"]


def _refuse(idle: Sequence[str]) -> None:
    if idle:
        raise UsageError(
            f"{idle[0]} cannot change a step that was sent",
            hint="use --at next for the next request",
        )
