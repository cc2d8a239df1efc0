"""The requests whose costs are asked for: of a turn, an agent's turns, a chat's runs, a box's answers."""

from collections.abc import Sequence

import msgspec

from cardbox_cli.cli.last_ids import LAST, resolving_boxes, resolving_turns
from cardbox_cli.cli.options.request_selection import Requests
from cardbox_cli.cli.options.shared_options import parse_span
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.context.cost.account import Sent, conversation
from cardbox_cli.context.cost.findings import ChatSubject
from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.execution.requests.recorded_requests import RecordedRequests, no_turn
from cardbox_cli.execution.requests.request_series import sent_by_turn
from cardbox_cli.execution.requests.turn_requests import NEXT
from cardbox_cli.providers.formats import provider_of
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.turn_views import TurnFilter, TurnRow
from cardbox_cli.text import command_line, format_count

# Turns of an agent, or runs of a chat, that are looked at where nobody says since when.
_LAST = 20
_TURN = "turn_"


class Costed(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that belong together: of what `kind` of thing with which `id`, and the profile that all of
    them are of, where one is known by name, or the chat."""

    kind: str
    id: str
    series: Sequence[Sent]
    profile: str | None = None
    chat: ChatSubject | None = None


def costed_source(database: Database, given: str, options: ComposeOptions, profile: str | None) -> Costed:
    """The requests of a turn, or of a box. Raises NotFound for what is neither."""
    box_id = None if given.startswith(_TURN) else _box(database, given)
    if box_id is not None:
        return costed_box(database, box_id, options, profile)
    try:
        turn_id = resolving_turns(database, session().project_id).resolve(given)
    except NotFound:
        raise NotFound(
            f"no box or turn {given!r} in project {session().project_id!r}",
            hint="`cbx box list` and `cbx turn list` show the newest",
        ) from None
    return costed_turn(database, turn_id, options, profile)


def _box(database: Database, given: str) -> str | None:
    """The id of the box that is named so, None where none is. Raises NotFound where no box was made last."""
    try:
        return resolving_boxes(database, session().project_id).resolve(given)
    except NotFound:
        if given == LAST:
            raise
        return None


def costed_turn(database: Database, given: str, options: ComposeOptions, profile: str | None) -> Costed:
    """The requests of a turn's steps. Raises NotFound."""
    _refuse_profile(profile)
    requests = Requests(database, session().project_id, options=options, format=None)
    turns = resolving_turns(database, session().project_id)
    turn = turns.get(turns.resolve(given))
    return Costed(
        kind="turn",
        id=turn.agent_turn_id,
        series=_of_turn(database, requests, turn, options),
        profile=_profile_of(database, turn),
    )


def costed_agent(
    database: Database, agent: str, since: str | None, options: ComposeOptions, profile: str | None
) -> Costed:
    """The requests of an agent's turns, the oldest first. Raises NotFound for an agent without any."""
    _refuse_profile(profile)
    requests = Requests(database, session().project_id, options=options, format=None)
    turns = resolving_turns(database, session().project_id)
    first, _ = parse_span(since, None)
    where = TurnFilter(agent_id=agent, since=first)
    found = list(turns.newest(where, limit=None if since else _LAST))[::-1]
    if not found:
        raise no_turn(turns, agent, "" if since is None else f" since {since}")
    announce(f"note: agent {agent!r}: {format_count(len(found), 'turn')}")
    series = [sent for turn in found for sent in _of_turn(database, requests, turn, options)]
    return Costed(kind="agent", id=agent, series=series, profile=_profile_of(database, found[-1]))


def costed_chat(
    database: Database, key: str, since: str | None, options: ComposeOptions, profile: str | None
) -> Costed:
    """The requests of a chat's runs, the oldest first; of a chat that has sent none its next one as cbx would
    compose it. Raises NotFound for a chat that there is not, and for one without runs since then."""
    from cardbox_cli.chat.runs.recorded_runs import sent_by_chat

    _refuse_profile(profile)
    first, _ = parse_span(since, None)
    found = sent_by_chat(database, session().project_id, key, since=first, most=None if since else _LAST)
    if since is not None and not found.runs:
        raise NotFound(
            f"chat {key!r} has no run since {since} in project {session().project_id!r}",
            hint=f"`{command_line(['chat', 'show', key])}` shows the last ones",
        )
    announce(f"note: chat {key!r}: {format_count(found.runs, 'run')}")
    requests = Requests(database, session().project_id, options=options, format=None)
    series = _for_model(found.series, options) or _next(requests.chat(key), requests)
    return Costed(kind="chat", id=key, series=series, chat=found.chat)


def _of_turn(database: Database, requests: Requests, turn: TurnRow, options: ComposeOptions) -> list[Sent]:
    """The requests of its steps; of a turn that has sent none the next one as cbx would compose it."""
    sent = _for_model(sent_by_turn(database, session().project_id, turn), options)
    if sent:
        return sent
    of_turn = requests.turn(turn.agent_turn_id)
    assert of_turn is not None
    return [
        msgspec.structs.replace(each, agent_turn_id=turn.agent_turn_id) for each in _next(of_turn, requests)
    ]


def _for_model(series: list[Sent], options: ComposeOptions) -> list[Sent]:
    """The same requests, as another model counts them where one is named."""
    if options.model is None:
        return series
    model = options.model
    return [
        msgspec.structs.replace(sent, request=msgspec.structs.replace(sent.request, model=model))
        for sent in series
    ]


def _next(recorded: RecordedRequests, requests: Requests) -> list[Sent]:
    try:
        shown = requests.of_step(recorded, NEXT)
    except NotFound:
        return []
    announce(f"note: {recorded.name} has sent nothing: its next request as cbx would compose it")
    return [Sent(request=shown.request, provider=provider_of(shown.format))]


def costed_box(database: Database, given: str, options: ComposeOptions, profile: str | None) -> Costed:
    """The requests that the answers in a box were given to. Raises NotFound."""
    requests = Requests(database, session().project_id, options=options, format=None, profile=profile)
    shown = requests.of_boxes([given], by_model=True)
    series = conversation(shown.request, provider_of(shown.format))
    if len(series) > 1:
        announce(
            f"note: {format_count(len(series), 'request')}: one for each answer in the box, "
            "as cbx would compose it"
        )
    return Costed(kind="box", id=shown.name.removeprefix("box "), series=series, profile=profile)


def _refuse_profile(profile: str | None) -> None:
    if profile is not None:
        raise UsageError(
            "--profile is for boxes: a turn or a chat has its own", hint="leave it out, or name a box"
        )


def _profile_of(database: Database, turn: TurnRow) -> str | None:
    """The name of the turn's profile, as far as its box tells."""
    from cardbox_cli.store.boxes import BoxStore

    if turn.profile_box_id is None:
        return None
    slots = BoxStore(database, session().project_id).slots(turn.profile_box_id)
    name = profile_of(slot.card for slot in slots if slot.card is not None).get("name")
    return name if isinstance(name, str) else None
