"""Anthropic's content blocks, and their conversion from and to parts and calls of the chat form.

This module is pure. A part without a counterpart becomes text with its type. Anthropic requires that the ids
of tool calls are unique in a request and consist of letters, digits, `_` and `-`. If an id must change, it
changes in the call and in its result. Their original ids pair them, as in `model/pairing.py`, so a change
never affects the pairs. Sources: the types of the packages `anthropic` and `openai`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import (
    answered_call,
    called_function,
    data_url,
    function_call,
    input_of,
    is_text,
    kind,
    list_at,
    media_of,
    result_text,
    text_at,
    text_part,
    words_of,
)
from cardbox_cli.context.provider import AnyCard, Body, ModelFacts, Provider, RenamedCall
from cardbox_cli.context.request import Request
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import ASIDE, REASONING
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.layers import CHECKPOINT

Block = dict[str, Any]

NAME = "anthropic"
# The formats of files with Anthropic's content blocks.
FORMATS = (NAME, "claude-code")

# The media types that Messages accepts as base64 (anthropic.types.Base64ImageSourceParam).
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
# The block types that only system messages within the history may have.
SYSTEM_BLOCKS = ("tool_addition", "tool_removal")
# Matches a character that Messages refuses in the id of a tool call.
_NO_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


def is_call(block: Any) -> bool:
    """Return whether a block is a call of a client's tool with id, name and input."""
    if kind(block) != "tool_use" or not isinstance(block.get("input"), dict):
        return False
    return bool(text_at(block, "id") and text_at(block, "name"))


def is_result(block: Any) -> bool:
    """Return whether a block answers a call of a client's tool."""
    call_id = block.get("tool_use_id") if kind(block) == "tool_result" else None
    return isinstance(call_id, str) and call_id != ""


def is_of_server(name: str) -> bool:
    """Return whether a block type is a call or result of a tool that Anthropic's server runs."""
    is_result = name.endswith("_tool_result") and name != "tool_result"
    return is_result or name in ("server_tool_use", "mcp_tool_use")


def call_of_block(block: Block) -> dict[str, Any]:
    """Convert a tool_use block to a tool call. Equal inputs result in equal arguments."""
    return function_call(block["id"], block["name"], exact_json.canonical_text(block["input"]))


def parts_of(blocks: Iterable[Any]) -> list[dict[str, Any]]:
    return [_file_part(block) or text_part(plain_text([block])) for block in blocks]


def has_files(blocks: Any) -> bool:
    """Return whether any block holds a file that the chat form can send."""
    return isinstance(blocks, list) and any(_file_part(block) is not None for block in blocks)


def plain_text(blocks: Iterable[Any]) -> str:
    """Return blocks as text. A block without text becomes its type in brackets."""
    return "\n".join(words_of(block) or f"[{kind(block) or 'block'}]" for block in blocks)


def _file_part(block: Any) -> dict[str, Any] | None:
    source = block.get("source") if kind(block) in ("image", "document") else None
    if not isinstance(source, dict):
        return None
    media_type, data = text_at(source, "media_type"), text_at(source, "data")
    has_bytes = kind(source) == "base64" and media_type is not None and data is not None
    url = data_url(media_type or "", data or "") if has_bytes else None
    if kind(block) == "image":
        url = text_at(source, "url") if kind(source) == "url" else url
        return None if url is None else {"type": "image_url", "image_url": {"url": url}}
    if url is None:
        return None
    return {"type": "file", "file": {"filename": text_at(block, "title") or "document.pdf", "file_data": url}}


def block_of_call(call: Any) -> Block:
    """Convert a tool call to a tool_use block with the same id.

    Arguments that are not a JSON object become `{"_raw": text}`. A name that is not a string becomes "".
    """
    if (function := called_function(call)) is None:
        return text_part(f"[tool call: {exact_json.encode(call).decode()}]")
    call_id, name = text_at(call, "id") or block_id(""), text_at(function, "name") or ""
    return {"type": "tool_use", "id": call_id, "name": name, "input": input_of(function.get("arguments"))}


def block_id(call_id: str) -> str:
    """Return a tool-call id with `_` for each character that Anthropic refuses."""
    return _NO_ID_CHARACTER.sub("_", call_id) or "_"


def blocks_of_content(content: Any) -> list[Block]:
    """Convert the content of a chat message to blocks. Null and empty text make no block."""
    if isinstance(content, list):
        return [_block(part) for part in content]
    if content is None or content == "":
        return []
    return [text_part(content if isinstance(content, str) else exact_json.encode(content).decode())]


def ensure_blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else blocks_of_content(content)


def _block(part: Any) -> Block:
    if is_text(part):
        return text_part(part["text"])
    name = kind(part)
    value = part.get(name) if name else None
    if name == "image_url":
        return _image_block(value.get("url") if isinstance(value, dict) else value)
    if name == "file" and isinstance(value, dict) and (document := _document_block(value)):
        return document
    if name == "refusal" and isinstance(value, str):
        return text_part(value)
    return text_part(f"[{name}]" if name else exact_json.encode(part).decode())


def _image_block(url: Any) -> Block:
    media = media_of(url)
    if media is not None and media[0] in IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": media[0], "data": media[1]}}
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return text_part(f"[image: {media[0] if media else url}]")


def _document_block(file: dict[str, Any]) -> Block | None:
    media = media_of(file.get("file_data"))
    if media is None or media[0] != "application/pdf":
        return None
    source = {"type": "base64", "media_type": media[0], "data": media[1]}
    title = {"title": file["filename"]} if text_at(file, "filename") is not None else {}
    return {"type": "document", "source": source, **title}


def own_blocks(card: AnyCard) -> Any:
    """Return the original content of an Anthropic message that a card stores, or `UNSET`."""
    is_own = card.metadata.get(sources.FORMAT) in FORMATS
    return card.metadata.get(sources.BLOCKS, msgspec.UNSET) if is_own else msgspec.UNSET


def content_of(card: AnyCard, provider: Provider) -> Any:
    """Return the original content that a card stores, or else content made from its own fields."""
    original = own_blocks(card)
    return standard_content(card, provider) if original is msgspec.UNSET else original


def standard_content(card: AnyCard, provider: Provider) -> str | list[Block]:
    """Return content made from a card's own fields. It is a string if they hold only text."""
    if card.type == ASIDE:
        return []
    if card.type == REASONING:
        return [_thinking_block(card)]
    body = provider.chat_body(card)
    if body["role"] in ("tool", "function"):
        return [_result_block(card, body, provider)]
    content = body.get("content")
    if isinstance(content, str) and len(body) == 2:
        return content
    blocks = blocks_of_content(content)
    blocks += [text_part(body["refusal"])] if isinstance(body.get("refusal"), str) else []
    blocks += map(block_of_call, list_at(body, "tool_calls"))
    if body.get("function_call"):
        blocks.append(text_part(f"[call of {exact_json.encode(body['function_call']).decode()}]"))
    is_text_alone = isinstance(content, str) and len(blocks) == (1 if content else 0)
    return content if isinstance(content, str) and is_text_alone else blocks


def _thinking_block(card: AnyCard) -> Block:
    signature = card.metadata.get("signature")
    block = {"type": "thinking", "thinking": card_text(card.content)}
    return {**block, "signature": signature} if isinstance(signature, str) else block


def _result_block(card: AnyCard, body: Body, provider: Provider) -> Block:
    content, is_failed = body.get("content"), provider.is_failed(card)
    if is_sent_as_text(card, body):
        return text_part(result_text(body, failed=is_failed))
    text = content if isinstance(content, str) else blocks_of_content(content) or ""
    block = {"type": "tool_result", "tool_use_id": body["tool_call_id"], "content": text}
    return {**block, "is_error": True} if is_failed else block


def is_sent_as_text(card: AnyCard, body: Body) -> bool:
    """Return whether a card is a result that is sent as text, because it has no id or its call is text."""
    if body["role"] not in ("tool", "function"):
        return False
    return not text_at(body, "tool_call_id") or answered_call(card) is not None


def leading_system_messages(request: Request, facts: ModelFacts) -> Iterator[Message]:
    return (message for is_top, message in place_system_text(request.messages, facts) if is_top)


def conversation(messages: Iterable[Message], facts: ModelFacts) -> Iterator[Message]:
    """Yield the messages that are not sent at the top. Layers after the history get the role user."""
    is_behind = False
    for is_top, message in place_system_text(messages, facts):
        is_behind = is_behind or message.layer == CHECKPOINT
        if is_behind and message.layer != CHECKPOINT and message.body["role"] == "system":
            message = msgspec.structs.replace(message, body={**message.body, "role": "user"})
        if not is_top:
            yield message


def place_system_text(messages: Iterable[Message], facts: ModelFacts) -> Iterator[tuple[bool, Message]]:
    """Yield each message after a flag that is True if the message is sent at the top."""
    stays, is_behind, is_begun = facts.system_in_history is True, False, False
    for message in messages:
        is_behind = is_behind or message.layer == CHECKPOINT
        is_layer_behind = is_behind and message.layer != CHECKPOINT
        is_top = message.body["role"] == "system" and not is_layer_behind and not (stays and is_begun)
        is_begun = is_begun or not is_top
        yield is_top, message


def results_first(block: Any) -> bool:
    """Return a sort key that moves the results in a user's message to the front."""
    return kind(block) != "tool_result"


def allowed_ids(ids: Iterable[str]) -> dict[str, str]:
    """Map each id that Anthropic refuses to an allowed id. The new id differs from all other ids."""
    every = {call_id: block_id(call_id) for call_id in ids}
    others = {call_id: allowed for call_id, allowed in every.items() if allowed != call_id}
    taken = every.keys() - others.keys()
    times: dict[str, int] = {}
    for call_id, allowed in others.items():
        new = allowed
        while new in taken:
            times[allowed] = times.get(allowed, 1) + 1
            new = f"{allowed}_{times[allowed]}"
        taken.add(new)
        others[call_id] = new
    return others


def ids_in(blocks: Iterable[Any]) -> Iterator[str]:
    """Yield the call ids in calls and results of the client's tools."""
    for block in blocks:
        key = _key(block)
        if key is not None:
            yield block[key]


def replace_id(block: Any, name: Callable[[str], str]) -> Any:
    """Return a call or result with `name` applied to its call id. Other blocks do not change."""
    key = _key(block)
    if key is None or (new := name(block[key])) == block[key]:
        return block
    return {**block, key: new}


def _key(block: Any) -> str | None:
    """Return the key of a block that holds a call id, or None."""
    if _is_call(block):
        return "id"
    return "tool_use_id" if is_result(block) else None


def _is_call(block: Any) -> bool:
    """Return whether a block is a call with an id. Other keys may be missing."""
    return kind(block) == "tool_use" and bool(text_at(block, "id"))


def make_ids_unique(messages: Sequence[Message]) -> tuple[list[Message], list[RenamedCall]]:
    """Return the messages with unique call ids, and the renamed calls. A repeated id `x` becomes `x_2`."""
    naming = CallNaming(lambda: messages)
    return list(naming.renamed()), naming.changes


def _are_fine(messages: Iterable[Message]) -> bool:
    """Return whether no call needs another id. This check is cheap, and most requests pass it."""
    called: set[str] = set()
    for message in messages:
        for block in list_at(message.body, "content"):
            name = kind(block)
            if name == "tool_use" and _is_call(block):
                if block["id"] in called or not is_allowed(block["id"]):
                    return False
                called.add(block["id"])
            elif name == "tool_result" and is_result(block) and not is_allowed(block["tool_use_id"]):
                return False
    return True


def is_allowed(call_id: str) -> bool:
    return block_id(call_id) == call_id


class CallNaming:
    """One pass that makes call ids unique. `messages` must return a new iterator of all messages each time.

    `changes` is complete when the iterator that `renamed` returns is exhausted.
    """

    def __init__(self, messages: Callable[[], Iterable[Message]]) -> None:
        self.changes: list[RenamedCall] = []
        self._messages = messages
        self._given: set[str] = set()
        self._times: dict[str, int] = {}
        # Maps an old id to the calls without a result: (position of the message, new id).
        self._waiting: dict[str, list[tuple[int, str]]] = {}

    def renamed(self) -> Iterator[Message]:
        if _are_fine(self._messages()):
            return iter(self._messages())
        contents = (list_at(message.body, "content") for message in self._messages())
        ids = {call_id: None for content in contents for call_id in ids_in(content)}
        self._allowed = allowed_ids(ids)
        # A new id must differ from the ids of later calls.
        self._wanted = {self._allowed.get(call_id, call_id) for call_id in ids}
        return (self._rename(place, message) for place, message in enumerate(self._messages()))

    def _rename(self, place: int, message: Message) -> Message:
        before = list_at(message.body, "content")
        after = [self._block(place, block, message.card_id) for block in before]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return message
        return msgspec.structs.replace(message, body={**message.body, "content": after})

    def _block(self, place: int, block: Any, card_id: str | None) -> Any:
        if not _is_call(block):
            return replace_id(block, self._answer_id)
        old, new = block["id"], self._new_id(block["id"])
        self._waiting.setdefault(old, []).append((place, new))
        if new != old:
            self.changes.append(RenamedCall(card_id=card_id, old=old, new=new))
        return replace_id(block, lambda _: new)

    def _new_id(self, old: str) -> str:
        new = allowed = self._allowed.get(old, old)
        while new in self._given or (new != allowed and new in self._wanted):
            self._times[allowed] = self._times.get(allowed, 1) + 1
            new = f"{allowed}_{self._times[allowed]}"
        self._given.add(new)
        return new

    def _answer_id(self, old: str) -> str:
        """Return the new id of the call that a result answers: the first such call in the nearest message."""
        waiting = self._waiting.get(old)
        if not waiting:
            return self._allowed.get(old, old)
        nearest = waiting[-1][0]
        first = next(index for index, (place, _) in enumerate(waiting) if place == nearest)
        return waiting.pop(first)[1]
