"""Linting the conversations of a file as requests, before anything of them is stored.

A conversation's cards are those that importing makes; what stands beside its messages, as in the body of a
request, counts as its model, tools and parameters.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from cardbox_cli.context.lint.check import lint
from cardbox_cli.context.lint.contents import UNREADABLE, UNREADABLE_TYPE
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.registry import provider_for_model, provider_named, providers
from cardbox_cli.context.request import ComposeOptions, RequestEntry, request_of
from cardbox_cli.conversations.conversation import Conversation
from cardbox_cli.conversations.importing import Drafted, drafts_of
from cardbox_cli.conversations.json_window import held
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card, CardDraft, card_of
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.ids import unique


def provider_beside(conversation: Conversation) -> str | None:
    """The provider that a conversation is a request to, as what stands beside its messages tells.

    None where nothing tells.
    """
    for each in providers():
        if any(held(conversation.beside.get(key)) is not None for key in each.files.request_keys):
            return each.name
    model = text_at(conversation.beside, "model")
    return provider_for_model(model).name if model else None


def lint_conversation(conversation: Conversation, provider: str, project_id: str) -> list[LintFinding]:
    """What the rules of `provider` find in a conversation; messages say where in the file that is.

    Card ids are those that an import into the project gives; positions are the cards' in the box it makes.
    """
    places: list[str] = []
    entries: list[RequestEntry] = []
    for place, card in _cards(conversation, project_id):
        slot = Slot(len(entries), card.card_id, card, "present")
        entries.append(RequestEntry(slot=slot, box_id=""))
        places.append(place)
    parameters = unique(name for each in providers() for name in each.files.parameters)
    beside = {key: held(conversation.beside.get(key)) for key in ("model", "tools", *parameters)}
    options = ComposeOptions(model=text_at(beside, "model") or None)
    request = request_of(entries, options, encode=provider_named(provider).encode)
    config = {key: beside[key] for key in parameters if beside[key] is not None}
    request = msgspec.structs.replace(
        request, tools=request.tools + _tools(beside["tools"]), config={**config, **request.config}
    )
    return [_placed(found, conversation, places) for found in lint(entries, request, provider)]


def _placed(found: LintFinding, conversation: Conversation, places: list[str]) -> LintFinding:
    """A finding that says where in the file it is, and names no card that never will be."""
    place = conversation.place if found.position is None else places[found.position]
    card_id = None if found.card_id == _stand_in_id(place) else found.card_id
    return msgspec.structs.replace(found, message=f"{place}: {found.message}", card_id=card_id)


def _cards(conversation: Conversation, project_id: str) -> Iterator[tuple[str, Card]]:
    """The cards, each with its place in the file."""
    for drafted in drafts_of(conversation, project_id):
        drafts = drafted.cards or [_stand_in(drafted)]
        yield from ((drafted.entry.place, card_of(draft, project_id)) for draft in drafts)


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


def _tools(value: Any) -> list[dict[str, Any]]:
    """The tools; {}, which rules find, for each that is no object."""
    if value is None:
        return []
    return [tool if isinstance(tool, dict) else {} for tool in value] if isinstance(value, list) else [{}]
