"""The lint of a file's conversations as requests, without storing them.

It checks the cards that an import would make. The keys next to the messages, as in the body of a request, are
its model, tools and parameters.
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
from cardbox_cli.conversations.conversation_cards import DraftedEntry, drafts_of, has_no_message
from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.conversations.json_documents import LazyList, load_lazy_lists
from cardbox_cli.conversations.message_lists import is_list
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import CardDraft, draft_as_card
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.ids import unique
from cardbox_cli.providers.registry import provider_for_model, provider_named, providers


def detect_provider(conversation: Conversation) -> str | None:
    """Detect the provider of a request from the keys next to its messages, None if they show none.

    Messages in a form that only one provider has are a request to it, and so are messages next to its key of
    a system prompt. Otherwise the other providers' own keys decide, and then the model. If this provider's
    messages are there, another provider's key of messages is not evidence.
    """
    own = provider_named(find_format(conversation.format).provider)
    if own.files.shape.is_own or any(key in conversation.siblings for key in own.files.system_keys):
        return own.name
    are_there = own.files.shape.key in conversation.siblings
    for each in providers():
        keys = [key for key in each.files.request_keys if not (are_there and key == each.files.shape.key)]
        if any(load_lazy_lists(conversation.siblings.get(key)) is not None for key in keys):
            return each.name
    model = text_at(conversation.siblings, "model")
    return provider_for_model(model) if model else None


def is_empty_conversation(conversation: Conversation) -> bool:
    """Return whether there is nothing to check: neither a request nor any message.

    A request has a model, tools or parameters next to its messages. It is checked even without messages,
    because providers refuse it. Conversations in the files of agents are not requests.
    """
    own, siblings = provider_named(find_format(conversation.format).provider), conversation.siblings
    keys = ("model", "tools", *own.files.parameters)
    has_keys = is_request(own, siblings) or any(siblings.get(key) is not None for key in keys)
    return not (conversation.format == own.name and has_keys) and has_no_message(conversation)


def lint_conversation(
    conversation: Conversation, provider: str, project_id: str, *, warned: Container[str] = ()
) -> list[LintFinding]:
    """Check a conversation with the rules of `provider`. Each message begins with the place in the file.

    A conversation in the provider's own format is checked as written, any other as it would be rendered. Card
    ids and positions are those of an import into the project. Rules in `warned` report warnings, not errors.
    """
    record, source = provider_named(provider), provider_named(find_format(conversation.format).provider)
    places: list[str] = []
    entries: list[RequestEntry] = []
    first: dict[str, RequestEntry] = {}
    for drafted in drafts_of(conversation, project_id):
        own = list(_entries(drafted, project_id, len(entries)))
        entries += own
        places += [drafted.entry.place] * len(own)
        first[drafted.entry.position] = own[0]
    siblings = _sibling_keys(conversation, source)
    config, tools = source.files.read_request(siblings)
    request = request_of(
        entries, ComposeOptions(model=text_at(siblings, "model") or None), encode=record.encode
    )
    parameters = {key: value for key, value in config.items() if value is not None}
    request = msgspec.structs.replace(
        request, tools=request.tools + tools, config={**parameters, **request.config}
    )
    logged = None
    if conversation.format == source.name == record.format:
        messages = list(_messages(conversation, source, first))
        logged = Logged(messages=messages, beside=siblings, is_request=is_request(source, siblings))
    findings = lint(entries, request, record, logged=logged, warned=warned)
    return [_add_place(each, conversation, places) for each in findings]


def _sibling_keys(conversation: Conversation, source: Provider) -> dict[str, Any]:
    """Return the keys next to the messages: all of a request, otherwise the model, tools and parameters."""
    key = source.files.shape.key
    own = {
        name: each
        for name, each in conversation.siblings.items()
        if name != key or not isinstance(each, list | LazyList | dict)
    }
    if not is_request(source, own):
        parameters = unique(name for each in providers() for name in each.files.parameters)
        own = {name: own[name] for name in ("model", "tools", *parameters) if name in own}
    return {name: load_lazy_lists(each) for name, each in own.items()}


def _messages(
    conversation: Conversation, source: Provider, first: Mapping[str, RequestEntry]
) -> Iterator[tuple[RequestEntry, Any]]:
    """Yield the messages of the file, each with the entry of the card that it begins or continues.

    A string instead of the messages yields none.
    """
    listed = conversation.siblings.get(source.files.shape.key)
    if isinstance(listed, str):
        return
    entry: RequestEntry | None = None
    messages: Iterable[Any] = listed if listed and is_list(listed) else _list_messages(conversation, source)
    for number, message in enumerate(messages):
        entry = first.get(str(number), entry)
        if entry is not None:
            yield entry, message


def _list_messages(conversation: Conversation, source: Provider) -> Iterator[Any]:
    keys, key = source.files.system_keys, source.files.shape.key
    values = (entry.value for entry in conversation.entries if entry.position not in keys)
    if not source.files.shape.takes_one:
        return values
    return (value[key] if isinstance(value, dict) and value.keys() == {key} else value for value in values)


def _add_place(finding: LintFinding, conversation: Conversation, places: list[str]) -> LintFinding:
    """Add the place in the file to a finding, and remove the id of a placeholder card."""
    place = conversation.place if finding.position is None else places[finding.position]
    card_id = None if finding.card_id == _placeholder_id(place) else finding.card_id
    return msgspec.structs.replace(finding, message=f"{place}: {finding.message}", card_id=card_id)


def _entries(drafted: DraftedEntry, project_id: str, position: int) -> Iterator[RequestEntry]:
    """Yield the request entries of the cards that a file entry makes, from `position` on."""
    for number, draft in enumerate(drafted.cards or [_placeholder(drafted)], position):
        slot = Slot(number, draft.card_id, draft_as_card(draft, project_id), "present")
        yield RequestEntry(slot=slot, box_id="")


def _placeholder(drafted: DraftedEntry) -> CardDraft:
    """Return a card for an entry that cannot be imported. A rule reports it."""
    value = drafted.entry.value
    role = text_at(value, "role")
    metadata = {} if role is None else {"role": role}
    return CardDraft(
        card_id=_placeholder_id(drafted.entry.place),
        content=TextContent(exact_json.encode(value).decode()),
        metadata={"type": UNREADABLE_TYPE, UNREADABLE: drafted.problem, **metadata},
    )


def _placeholder_id(place: str) -> str:
    return f"? {place}"
