"""Linting the conversations of a file as requests, before anything of them is stored.

A conversation's cards are those that importing makes; what stands beside its messages, as in the body of a
request, counts as its model, tools and parameters.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cardbox_cli.context.lint.card_rules import UNREADABLE, UNREADABLE_TYPE
from cardbox_cli.context.lint.request_rules import is_request
from cardbox_cli.context.lint.rule import LintFinding, Logged, lint
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import ComposeOptions, RequestEntry, request_of
from cardbox_cli.conversations.conversation import Conversation
from cardbox_cli.conversations.drafting import Drafted, drafts_of, says_nothing
from cardbox_cli.conversations.formats.registry import format_named
from cardbox_cli.conversations.json_documents import LazyList, held
from cardbox_cli.conversations.message_lists import is_list
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import CardDraft, card_of
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.ids import unique
from cardbox_cli.providers.registry import provider_for_model, provider_named, providers


def provider_beside(conversation: Conversation) -> str | None:
    """The provider that a conversation is a request to, as what stands beside its messages tells.

    None where nothing tells. Messages that look like no other provider's are a request to theirs, and so are
    those beside which the system prompt stands as theirs does. Where others have their messages, something
    else beside these tells nothing.
    """
    own = provider_named(format_named(conversation.format).provider)
    if own.files.shape.is_own or any(key in conversation.beside for key in own.files.system_keys):
        return own.name
    are_there = own.files.shape.key in conversation.beside
    for each in providers():
        keys = [key for key in each.files.request_keys if not (are_there and key == each.files.shape.key)]
        if any(held(conversation.beside.get(key)) is not None for key in keys):
            return each.name
    model = text_at(conversation.beside, "model")
    return provider_for_model(model) if model else None


def is_unsaid(conversation: Conversation) -> bool:
    """Whether there is nothing to be checked: no request, which is refused without a message, and nobody who
    says anything."""
    return not _is_request(conversation) and says_nothing(conversation)


def _is_request(conversation: Conversation) -> bool:
    """Whether a model, tools or parameters stand beside the messages, or where these should stand. What else
    is known of conversations in files of agents makes none."""
    own = provider_named(format_named(conversation.format).provider)
    if conversation.format != own.name:
        return False
    named = ("model", "tools", *own.files.parameters)
    return is_request(own, conversation.beside) or any(
        conversation.beside.get(key) is not None for key in named
    )


def lint_conversation(
    conversation: Conversation, provider: str, project_id: str, *, warned: Container[str] = ()
) -> list[LintFinding]:
    """What the rules of `provider` find in a conversation; messages say where in the file that is.

    One in the provider's own format is checked as it stands there, any other as it would be rendered. Card
    ids are those that an import into the project gives; positions are the cards' in the box it makes. Rules
    that are `warned` of find no errors.
    """
    record, source = provider_named(provider), provider_named(format_named(conversation.format).provider)
    is_logged = conversation.format == source.name == record.format
    places: list[str] = []
    entries: list[RequestEntry] = []
    first: dict[str, RequestEntry] = {}
    for drafted in drafts_of(conversation, project_id):
        made = list(_entries(drafted, project_id, len(entries)))
        entries += made
        places += [drafted.entry.place] * len(made)
        first[drafted.entry.position] = made[0]
    beside = _beside(conversation, source)
    config, tools = source.files.read_request(beside)
    request = request_of(
        entries, ComposeOptions(model=text_at(beside, "model") or None), encode=record.encode
    )
    request = msgspec.structs.replace(
        request, tools=request.tools + tools, config={**_given(config), **request.config}
    )
    logged = (
        Logged(
            messages=list(_messages(conversation, source, first)),
            beside=beside,
            is_request=is_request(source, beside),
        )
        if is_logged
        else None
    )
    found = lint(entries, request, record, logged=logged, warned=warned)
    return [_placed(each, conversation, places) for each in found]


def _beside(conversation: Conversation, source: Provider) -> dict[str, Any]:
    """What stands beside the messages: all of it where that is a request, else what the lint may look at."""
    key = source.files.shape.key
    own = {
        name: each
        for name, each in conversation.beside.items()
        if name != key or not isinstance(each, list | LazyList | dict)
    }
    if not is_request(source, own):
        parameters = unique(name for each in providers() for name in each.files.parameters)
        own = {name: own[name] for name in ("model", "tools", *parameters) if name in own}
    return {name: held(each) for name, each in own.items()}


def _messages(
    conversation: Conversation, source: Provider, first: Mapping[str, RequestEntry]
) -> Iterator[tuple[RequestEntry, Any]]:
    """The messages as they stand in the file, each with the place of the card that it begins or goes on.

    One text in their place is no message.
    """
    listed = conversation.beside.get(source.files.shape.key)
    if isinstance(listed, str):
        return
    entry: RequestEntry | None = None
    messages: Iterable[Any] = listed if listed and is_list(listed) else _listed(conversation, source)
    for number, message in enumerate(messages):
        entry = first.get(str(number), entry)
        if entry is not None:
            yield entry, message


def _listed(conversation: Conversation, source: Provider) -> Iterator[Any]:
    """The messages of a conversation that is a list and nothing else."""
    keys, key = source.files.system_keys, source.files.shape.key
    values = (entry.value for entry in conversation.entries if entry.position not in keys)
    if not source.files.shape.takes_one:
        return values
    return (value[key] if isinstance(value, dict) and value.keys() == {key} else value for value in values)


def _given(config: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a config that have a value."""
    return {key: value for key, value in config.items() if value is not None}


def _placed(found: LintFinding, conversation: Conversation, places: list[str]) -> LintFinding:
    """A finding that says where in the file it is, and names no card that never will be."""
    place = conversation.place if found.position is None else places[found.position]
    card_id = None if found.card_id == _stand_in_id(place) else found.card_id
    return msgspec.structs.replace(found, message=f"{place}: {found.message}", card_id=card_id)


def _entries(drafted: Drafted, project_id: str, position: int) -> Iterator[RequestEntry]:
    """The places of the cards that an entry of a file makes, from this position on."""
    for number, draft in enumerate(drafted.cards or [_stand_in(drafted)], position):
        slot = Slot(number, draft.card_id, card_of(draft, project_id), "present")
        yield RequestEntry(slot=slot, box_id="")


def _stand_in(drafted: Drafted) -> CardDraft:
    """A card for what cannot be imported, which a rule finds."""
    value = drafted.entry.value
    role = text_at(value, "role")
    named = {} if role is None else {"role": role}
    return CardDraft(
        card_id=_stand_in_id(drafted.entry.place),
        content=TextContent(exact_json.encode(value).decode()),
        metadata={"type": UNREADABLE_TYPE, UNREADABLE: drafted.problem, **named},
    )


def _stand_in_id(place: str) -> str:
    return f"? {place}"
