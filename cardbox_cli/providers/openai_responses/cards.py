"""OpenAI's items as cards, and back without loss; and the other keys of a request.

Adjacent items of the assistant count as one message. Sources: OpenAI API reference, "Create a model
response"; the types of the package `openai`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import never_a_message, role_of
from cardbox_cli.context.parts import answering, kind, text_at
from cardbox_cli.context.provider import Body, MessageFiles, MessageShape
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.model.card_types import INSTRUCTION, RENDERED_PROMPT
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.providers.parts import PartsProvider
from cardbox_cli.providers.tools import chat_tool, function_of

NAME = "openai-responses"
RESULTS = ("function_call_output", "custom_tool_call_output")
# The types of all other items, for example of tools that OpenAI or its clients run.
_OTHERS = (
    *("file_search_call", "web_search_call", "image_generation_call", "code_interpreter_call"),
    *("computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output"),
    *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"),
    *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call"),
    *("tool_search_call", "tool_search_output", "additional_tools", "compaction", "item_reference"),
    *("compaction_trigger", "program", "program_output"),
)
_KINDS = (*RESULTS, "function_call", "custom_tool_call", "reasoning", "message", *_OTHERS)
# The parts of a message's content.
_PARTS = ("input_text", "input_image", "input_file", "output_text", "refusal", "text", "summary_text")
_INPUT, _INSTRUCTIONS = "input", "instructions"
_ROLES = ("user", "assistant", "system", "developer")
# Keys that only a request to the Responses has.
_OWN_KEYS = (_INSTRUCTIONS, "previous_response_id", "max_output_tokens", "truncation")
# Keys that other formats also have, and functions that recognize the values of this format.
_OWN_VALUES: Mapping[str, Callable[[Any], bool]] = {
    "prompt": lambda value: text_at(value, "id") is not None,
    "conversation": lambda value: text_at(value, "id") is not None or str(value).startswith("conv_"),
    "reasoning": lambda value: isinstance(value, dict),
    "text": lambda value: isinstance(value, dict),
    "background": lambda value: isinstance(value, bool),
    "max_tool_calls": lambda value: isinstance(value, int),
}
# The types of parts that no chat message has.
_OWN_PARTS = _PARTS[:4]
# The key of a message that joins adjacent items of the assistant.
_ITEMS = "items"


def kind_of(item: Any) -> str:
    """Return the type of an item, or "". A message need not have the key `type`."""
    return kind(item) or ("message" if text_at(item, "role") is not None else "")


def role_of_item(item: Any) -> str:
    """Return the role of an item: system, assistant or user. Tool results have the role user."""
    name = kind_of(item)
    if name != "message":
        return "user" if name in RESULTS else "assistant"
    role = text_at(item, "role")
    return "system" if role in ("system", "developer") else "assistant" if role == "assistant" else "user"


def _is_item(value: Any) -> bool:
    if not isinstance(value, dict) or _is_chat(value):
        return False
    return kind(value) in _KINDS if "type" in value else value.get("role") in _ROLES


def _is_chat(value: Any) -> bool:
    """Return whether a value is a message that only chat completions can have."""
    return isinstance(value, dict) and ("tool_calls" in value or value.get("role") in ("tool", "function"))


def _run(message: Any) -> list[Any] | None:
    """Return the items that `gather` joined to this message, or None for a single item."""
    return message.get(_ITEMS) if isinstance(message, dict) and len(message) == 1 else None


def _is_assistants(item: Any) -> bool:
    return role_of_item(item) == "assistant" and _is_item(item)


class ResponsesFiles(MessageFiles):
    provider: PartsProvider
    shape = MessageShape(_INPUT, _is_item, is_own=True, takes_text=True)
    checks_roles = True
    roles = _ROLES
    system_keys = (_INSTRUCTIONS,)
    nested_parameters = ("reasoning", "text")
    endpoints = ("/responses",)
    request_keys = (_INPUT, _INSTRUCTIONS, "previous_response_id")
    parameters = (
        *("max_output_tokens", "reasoning", "text", "previous_response_id", "conversation", "truncation"),
        "include",
    )

    def marks_message(self, message: Any) -> str | None:
        if not _is_item(message):
            return None
        if (name := kind(message)) and name != "message":
            return f"an item is of type {name!r}"
        content = message.get("content")
        if not isinstance(content, list):
            return None
        own_part = next((name for name in map(kind, content) if name in _OWN_PARTS), None)
        return None if own_part is None else f"a part is of type {own_part!r}"

    def marks_beside(self, beside: Mapping[str, Any]) -> str | None:
        items = beside.get(_INPUT)
        if "messages" in beside or items is None:
            return None
        if not isinstance(items, str) and (any(map(_is_chat, items)) or not all(map(_is_item, items))):
            return None
        owned = (key for key, is_own in _OWN_VALUES.items() if key in beside and is_own(beside[key]))
        own_key = next((key for key in _OWN_KEYS if key in beside), None) or next(owned, None)
        if own_key is not None:
            return f"{own_key!r} is next to 'input'"
        return "'input' is next to 'model'" if isinstance(beside.get("model"), str) else None

    def problem(self, message: Any) -> str | None:
        if isinstance(message, str):
            return None
        if (run := _run(message)) is not None:
            return next(filter(None, map(self.problem, run)), None)
        name = kind_of(message)
        if not name or _is_chat(message):
            return "an item has a type or a role of OpenAI's Responses, and is not a chat completions message"
        if name == "message" and text_at(message, "role") not in _ROLES:
            return f"the role {message.get('role')!r} is none of OpenAI's: roles are {', '.join(_ROLES)}"
        return None

    def gather(self, messages: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Join adjacent items of the assistant to one message. Yields (number of the first item, message)."""
        for is_assistants, run in groupby(enumerate(messages), key=lambda each: _is_assistants(each[1])):
            if is_assistants:
                (number, first), *others = run
                yield number, {_ITEMS: [first, *(item for _, item in others)]}
            else:
                yield from run

    def separate(self, message: Any) -> Sequence[Any]:
        return _run(message) or [message]

    def draft(self, message: Any) -> list[CardDraft]:
        if isinstance(message, str):
            return [keep(imported_card(INSTRUCTION, message), NAME, source_message={_INPUT: message})]
        items = _run(message) or [message]
        role = role_of_item(items[0])
        cards = self.provider.draft_parts(role, items)
        if role != "system":
            return cards
        # Always store the items. System text of a card without items becomes the instructions.
        return [_set_item_role(keep(card, NAME, source_blocks=items), items[0]) for card in cards]

    def draft_system(self, key: str, value: Any) -> CardDraft:
        if isinstance(value, str):
            return imported_card(RENDERED_PROMPT, value)
        return keep(imported_card(RENDERED_PROMPT, ""), NAME, source_message={key: value})

    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        return keep(changed, NAME, source_blocks=self.provider.parts_of(original))

    def read_request(self, beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        config: dict[str, Any] = {}
        for key, value in beside.items():
            if key == "max_output_tokens":
                config["max_completion_tokens"] = value
            elif key == "reasoning" and isinstance(value, dict):
                config |= _reasoning(value)
            elif key == "text" and isinstance(value, dict):
                config |= _text(value)
            elif key == "tool_choice":
                config[key] = _choice(value)
            elif key != "tools":
                config[key] = value
        tools = beside.get("tools")
        listed = tools if isinstance(tools, list) else []
        return config, [_tool(each) for each in listed if isinstance(each, dict)]

    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Any]]:
        """Return the instructions and the items. An input that was only a text is the only item, as text."""
        prompts = [card for card in cards if self._is_prompt(card)]
        envelope = sources.envelope(prompts[0], NAME, sources.MESSAGE) if len(prompts) == 1 else None
        texts = [card_text(card.content) for card in prompts]
        beside = envelope or ({_INSTRUCTIONS: "\n\n".join(texts)} if texts else {})
        others = (card for card in answering(cards) if not self._is_prompt(card))
        return beside, self._items(card for card in others if never_a_message(card) is None)

    def _is_prompt(self, card: Card) -> bool:
        if never_a_message(card) is not None or role_of(card) != "system":
            return False
        return self.provider.own_parts(card) is None

    def _items(self, cards: Iterable[Card]) -> Iterator[Any]:
        before: str | None = None
        for number, card in enumerate(cards):
            text = (sources.envelope(card, NAME, sources.MESSAGE) or {}).get(_INPUT)
            if number == 0 and isinstance(text, str):
                before = text
                continue
            if before is not None:
                yield {"role": "user", "content": before}
                before = None
            yield from self.provider.parts_of(card)
        if before is not None:
            yield before


def _set_item_role(card: CardDraft, item: Body) -> CardDraft:
    card.metadata["role"] = item["role"]
    return card


def _reasoning(value: dict[str, Any]) -> dict[str, Any]:
    rest = {key: each for key, each in value.items() if key != "effort"}
    effort = {"reasoning_effort": value["effort"]} if "effort" in value else {}
    return {**effort, **({"reasoning": rest} if rest else {})}


def _text(value: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    rest = dict(value)
    answer_format = rest.pop("format", None)
    if text_at(answer_format, "type") == "json_schema":
        schema = {key: each for key, each in answer_format.items() if key != "type"}
        config["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif answer_format is not None:
        config["response_format"] = answer_format
    if "verbosity" in rest:
        config["verbosity"] = rest.pop("verbosity")
    return {**config, **({"text": rest} if rest else {})}


def _choice(value: Any) -> Any:
    if kind(value) == "allowed_tools":
        tools = value.get("tools")
        named = [_choice(each) for each in tools] if isinstance(tools, list) else tools
        allowed = {key: each for key, each in value.items() if key != "type"}
        return {"type": "allowed_tools", "allowed_tools": {**allowed, "tools": named}}
    name = text_at(value, "name")
    return {"type": "function", "function": {"name": name}} if kind(value) == "function" and name else value


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if kind(tool) == "custom" and "custom" not in tool:
        return {"type": "custom", "custom": {key: value for key, value in tool.items() if key != "type"}}
    function = function_of(tool) if kind(tool) == "function" else None
    return tool if function is None else chat_tool(function)
