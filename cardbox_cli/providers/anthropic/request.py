"""Anthropic's Messages: cards as messages in blocks, and the body of a request.

Calls have the ids of their cards until `members` builds the messages of a request. The losses omit problems
that the lint reports: repeated ids, arguments that are not JSON, thinking without a signature. Source:
`anthropic.types.message_create_params` of the package `anthropic`.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.context import messages as speakers
from cardbox_cli.context import sources
from cardbox_cli.context.losses import unsent_detail, unsent_keys, unsent_of_message
from cardbox_cli.context.messages import OF_ONE_FORMAT, Message, NoMessage, never_a_message, standard_body
from cardbox_cli.context.parts import (
    are_functions,
    dict_at,
    ensure_list,
    is_nothing,
    is_text,
    kind,
    list_at,
    list_of,
    lost_result,
)
from cardbox_cli.context.provider import (
    UNKNOWN_MODEL,
    AnyCard,
    Body,
    ExchangedIds,
    Members,
    Provider,
    RenamedCall,
    SentMessage,
)
from cardbox_cli.context.request import Request
from cardbox_cli.model.card_types import ASIDE, REASONING, TOOL_RESULT
from cardbox_cli.model.cards import Card
from cardbox_cli.providers.anthropic.answers import AnthropicAnswers
from cardbox_cli.providers.anthropic.blocks import (
    FORMATS,
    NAME,
    SYSTEM_BLOCKS,
    Block,
    CallNaming,
    block_id,
    blocks_of_content,
    content_of,
    conversation,
    ensure_blocks,
    has_files,
    is_call,
    is_result,
    is_sent_as_text,
    leading_system_messages,
    make_ids_unique,
    own_blocks,
    parts_of,
    place_system_text,
    plain_text,
    replace_id,
    results_first,
)
from cardbox_cli.providers.anthropic.cards import AnthropicFiles
from cardbox_cli.providers.tools import NO_ARGUMENTS, choice_for, compact, copy_parameters, function_of

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintRule

# The API requires max_tokens. This value is sent if the profile has none.
MAX_TOKENS = 4096
# The keys of a profile's llm_config that the API takes under the same name.
SAME_PARAMETERS = (
    *("temperature", "top_p", "top_k", "thinking", "output_config", "stop_sequences", "metadata"),
    *("service_tier", "speed", "container", "inference_geo", "user_profile_id", "workspace_id"),
    *("diagnostics", "cache_control"),
)
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_VERSIONED = re.compile(r"_20\d{6}$|^mcp_toolset$")
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_LATE_SYSTEM_KEYS = ("clear_at", "output_config")


class Anthropic(Provider):
    name = NAME
    title = "Anthropic"
    sends = "a Messages body"
    has_failures = True
    keeps_late_system = True
    # Anthropic docs, "Prompt caching": a change of these parameters makes the cached messages unusable.
    cached_parameters = ("tool_choice", "thinking")
    max_temperature = 1
    schema_package = __package__
    files_class = AnthropicFiles
    answers_class = AnthropicAnswers

    def encode(self, card: Card) -> Body | NoMessage:
        """Return the message of a card, or the reason for none. The API refuses empty or unsigned content."""
        nothing = never_a_message(card)
        if nothing is not None:
            return nothing
        content = content_of(card, self)
        if isinstance(content, list):
            content = [block for block in content if not _is_refused(block)]
        if not content or (isinstance(content, str) and not content.strip()):
            return NoMessage("nothing that Anthropic would take: empty, or thinking without its signature")
        role = speakers.role_of(card)
        message = {"role": role, "content": content if isinstance(content, str) else ensure_blocks(content)}
        if role != "system":
            return message
        # System text within the messages has extra keys: when it expires, and the form of the answer.
        around = sources.envelope(card, NAME, sources.MESSAGE) or {}
        return {**{key: around[key] for key in _LATE_SYSTEM_KEYS if key in around}, **message}

    def chat_original(self, card: AnyCard) -> Body | None:
        blocks = own_blocks(card)
        if blocks is msgspec.UNSET:
            return None
        body = standard_body(card)
        if card.type == TOOL_RESULT:
            return {**body, "content": _result_text(blocks, body["content"])}
        if body["role"] == "user" and has_files(blocks):
            return {**body, "content": parts_of(blocks)}
        return body

    def keeps_failure(self, card: AnyCard) -> bool:
        return any(is_result(block) and block.get("is_error") for block in ensure_list(own_blocks(card)))

    def members(self, request: Request) -> Members:
        """Yield the members of a request's JSON body. There is no `model` if the model is unknown.

        System text is in `system`, in order. Some models take it within the history, where it then remains.
        Layers after the history remain there, as text of the user.
        """
        if request.model is not None:
            yield "model", request.model
        yield "max_tokens", _max_tokens(request.config)
        facts = self.facts(request.model)
        system = [message.body["content"] for message in leading_system_messages(request, facts)]
        if system:
            yield "system", _system(system)
        naming = CallNaming(lambda: conversation(request.messages, facts))
        yield "messages", map(_merged, speakers.runs(naming.renamed()))
        if tools := self.offered_tools(request):
            yield "tools", [_tool(tool) for tool in tools]
        yield from _tool_choice(request.config, choice_for(request, tools), bool(tools)).items()
        yield from self._parameters(request.config).items()

    def renamed_calls(self, messages: Sequence[Message]) -> list[RenamedCall]:
        """Return the calls whose ids change in a request, whichever model it is for."""
        naming = CallNaming(lambda: conversation(messages, UNKNOWN_MODEL))
        # Discard the messages, because a long history would need much memory.
        deque(naming.renamed(), maxlen=0)
        return naming.changes

    def exchanged_ids(self, body: Body) -> ExchangedIds:
        blocks = list_at(body, "content")
        calls = [block["id"] for block in blocks if is_call(block)]
        return ExchangedIds(calls, [block["tool_use_id"] for block in blocks if is_result(block)])

    def sent_messages(self, request: Request) -> Iterator[SentMessage]:
        facts = self.facts(request.model)
        placed = list(enumerate(place_system_text(request.messages, facts)))
        system = ((place, message) for place, (is_top, message) in placed if is_top)
        for number, (place, message) in enumerate(system, 1):
            yield SentMessage("system", number, _convert_to_blocks(message), [place])
        # The conversation has all messages that are not at the top, in the same order.
        others, _ = make_ids_unique(list(conversation(request.messages, facts)))
        places = (place for place, (is_top, _) in placed if not is_top)
        for number, run in enumerate(speakers.runs(others), 1):
            parts = [(_convert_to_blocks(message), [next(places)]) for message in run]
            if run[0].body["role"] == "user":
                parts.sort(key=lambda part: results_first(next(iter(part[0]["content"]), None)))
            yield from (SentMessage("messages", number, *part) for part in parts)

    def runs_tool(self, tool: Mapping[str, Any]) -> bool:
        """Return whether a tool is Anthropic's own, with a version in its type."""
        return "input_schema" not in tool and _VERSIONED.search(kind(tool)) is not None

    def _parameters(self, config: dict[str, Any]) -> dict[str, Any]:
        parameters = copy_parameters(config, SAME_PARAMETERS, self)
        if stop := config.get("stop"):
            parameters.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
        if output := _output_config(config):
            parameters.setdefault("output_config", output)
        return parameters

    def losses_in_request(self, request: Request) -> Iterator[tuple[str | None, str]]:
        facts = self.facts(request.model)
        placed = place_system_text(request.messages, facts)
        behind = dropwhile(lambda each: each[1].body["role"] == "system", placed)
        yield from speakers.moved_texts(request, (message for is_top, message in behind if is_top))
        for message in leading_system_messages(request, facts):
            for name in {kind(block) for block in ensure_blocks(message.body["content"])} & {*SYSTEM_BLOCKS}:
                yield message.card_id, f"a block of type {name!r} in system text is left out"

    def losses_to_chat(self, card: Card) -> Iterator[str]:
        if sources.FORMAT in card.metadata and card.metadata[sources.FORMAT] not in FORMATS:
            return  # a card of another provider's format, which reports its own losses
        yield from _unsent("the message's", card.metadata.get(sources.MESSAGE), ("role", "content"))
        if card.type == REASONING:
            yield "thinking is left out"
        elif card.type == ASIDE:
            yield "blocks that only Anthropic knows are left out"
        else:
            for block in list_of(own_blocks(card)):
                is_result_card = card.type == TOOL_RESULT
                yield from _losses_of_result(block) if is_result_card else _losses_of_block(card, block)

    def losses_from_chat(self, card: Card) -> Iterator[str]:
        if own_blocks(card) is not msgspec.UNSET or card.type in OF_ONE_FORMAT:
            return  # sent unchanged, or not in the chat form
        body = self.chat_body(card)
        is_result_body = body["role"] in ("tool", "function")
        # The name of a result is a loss only if a person wrote it and the text does not contain it.
        is_said = not (sources.is_named_result(card) and card.tool_call_id)
        if is_sent_as_text(card, body):
            yield lost_result(card)
        yield from unsent_of_message(body, ("name",) if is_result_body and is_said else ())
        if not are_functions(body.get("tool_calls")):
            yield "a tool call that is not a function's is sent as text"
        for part in list_at(body, "content"):
            [block] = blocks_of_content([part])
            yield from unsent_keys(part)
            if kind(block) == "text" and not is_text(part):
                yield f"a part of type {kind(part)!r} is sent as text"
            yield from unsent_detail(part)

    def rules(self) -> "Sequence[LintRule]":
        from cardbox_cli.providers.anthropic.rules import RULES

        return RULES


def _result_text(blocks: Any, text: Any) -> Any:
    """Return the text of a tool result, with the types of its other blocks. Tool messages hold only text."""
    content = list_at(blocks[0], "content") if isinstance(blocks, list) and len(blocks) == 1 else []
    return plain_text(content) if content else text


def _is_refused(block: Any) -> bool:
    if is_text(block):
        return not block["text"].strip()
    return kind(block) == "thinking" and not block.get("signature")


def _convert_to_blocks(message: Message) -> Body:
    return {**message.body, "content": ensure_blocks(message.body["content"])}


def _system(contents: Sequence[Any]) -> str | list[Block]:
    """Return the system prompt as one text, or as blocks if one has `cache_control` or is not text."""
    every = (block for content in contents for block in ensure_blocks(content))
    blocks = [block for block in every if kind(block) not in SYSTEM_BLOCKS]
    if all(is_text(block) and not block.get("cache_control") for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return [replace_id(block, block_id) for block in blocks]


def _merged(run: Sequence[Message]) -> dict[str, Any]:
    """Join adjacent messages of one role to one message. Tool results come first."""
    role, content = run[0].body["role"], run[0].body["content"]
    if len(run) > 1:
        content = [block for message in run for block in ensure_blocks(message.body["content"])]
    if role == "user" and not isinstance(content, str):
        content = sorted(content, key=results_first)
    return {**(run[0].body if role == "system" else {}), "role": role, "content": content}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool definition in Anthropic's form. Converts a function in OpenAI's form."""
    function = None if "input_schema" in tool else function_of(tool)
    if function is None:
        return tool
    known = compact(name=function.name, description=function.description, strict=function.strict)
    return {**known, "input_schema": function.schema or NO_ARGUMENTS}


def _tool_choice(config: dict[str, Any], chosen: Any, has_tools: bool) -> dict[str, Any]:
    choice = _choice(chosen)
    is_single = has_tools and config.get("parallel_tool_calls") is False
    if is_single and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return {} if choice is None else {"tool_choice": choice}


def _choice(choice: Any) -> dict[str, Any] | None:
    if isinstance(choice, dict):
        function = choice.get("function")
        if isinstance(function, dict):
            return {"type": "tool", "name": function.get("name")}
        return choice if choice.get("type") in ("tool", *_CHOICES.values()) else None
    return {"type": _CHOICES[choice]} if isinstance(choice, str) and choice in _CHOICES else None


def _max_tokens(config: dict[str, Any]) -> int:
    limits = (config.get(key) for key in ("max_tokens", "max_completion_tokens"))
    return next((number for number in limits if type(number) is int), MAX_TOKENS)


def _output_config(config: dict[str, Any]) -> dict[str, Any]:
    effort = config.get("reasoning_effort")
    output = {"effort": effort} if effort in _EFFORTS else {}
    schema = dict_at(dict_at(config, "response_format"), "json_schema").get("schema")
    if isinstance(schema, dict):
        output["format"] = {"type": "json_schema", "schema": schema}
    return output


def _unsent(whose: str, value: Any, known: Iterable[str]) -> Iterator[str]:
    """Yield a loss for each key of an object that the chat form lacks."""
    for key in sorted(value.keys() - set(known)) if isinstance(value, dict) else ():
        if not is_nothing(value[key]):
            yield f"{whose} {key!r} is not sent"


def _losses_of_result(block: Any) -> Iterator[str]:
    yield from _unsent("the result's", block, ("type", "tool_use_id", "content", "is_error"))
    others = (kind(inner) for inner in list_at(block, "content") if not is_text(inner))
    yield from (f"a block of type {name!r} in a tool result is sent as text" for name in others)


def _losses_of_block(card: Card, block: Any) -> Iterator[str]:
    if is_text(block):
        if block.get("citations"):
            yield "citations are not sent"
        yield from _unsent("the text's", block, ("type", "text", "citations"))
    elif card.role == "assistant" and is_call(block):
        yield from _unsent("the call's", block, ("type", "id", "name", "input"))
    elif card.role == "user" and has_files([block]):
        yield from _unsent("the file's", block, ("type", "source", "title"))
    else:
        yield f"a block of type {kind(block)!r} is sent as text"
