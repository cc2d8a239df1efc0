"""The Anthropic Messages request body, and what a card is as content blocks.

Source: `anthropic.types.message_create_params` of the package `anthropic`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.blocks import (
    Block,
    block_id,
    block_of_call,
    blocks_of_content,
    is_text,
    kind,
    text_block,
)
from cardbox_cli.context.messages import Message, Silence, silence, spoken_body
from cardbox_cli.context.request import Request
from cardbox_cli.context.tool_use_ids import Renamed, with_id, with_unique_ids
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import SYSTEM_ROLES, Card, CardDraft, card_text
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.layers import CHECKPOINT

# The API requires max_tokens; this is sent where the profile names none.
MAX_TOKENS = 4096

# Keys of a profile's llm_config that are the same parameter here.
SAME_PARAMETERS = (
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "output_config",
    "stop_sequences",
    "metadata",
    "service_tier",
    "speed",
    "container",
    "inference_geo",
    "user_profile_id",
    "workspace_id",
    "diagnostics",
    "cache_control",
)
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


# --- cards


def role_of(card: Card | CardDraft) -> str:
    """Who speaks: system, assistant or user, who also brings the tools' results."""
    if card.role in SYSTEM_ROLES:
        return "system"
    return "assistant" if card.role == "assistant" else "user"


def content_of(card: Card | CardDraft) -> Any:
    """What a card is as the content of a message: its original, or a string, or a list of blocks.

    Calls have the ids that the card says; which ones are sent is decided for all of a request's messages.
    """
    original = sources.anthropic_blocks(card)
    return standard_content(card) if original is msgspec.UNSET else original


def standard_content(card: Card | CardDraft) -> str | list[Block]:
    """The content that a card's own fields spell: a string where they hold text and no more."""
    if card.type == "agent.aside":
        return []
    if card.type == "agent.reasoning":
        return [_thinking_block(card)]
    body = spoken_body(card)
    if body["role"] in ("tool", "function"):
        return [_result_block(card, body)]
    content = body.get("content")
    if isinstance(content, str) and len(body) == 2:
        return content
    blocks = blocks_of_content(content)
    blocks += [text_block(body["refusal"])] if isinstance(body.get("refusal"), str) else []
    calls = body.get("tool_calls")
    blocks += [block_of_call(call) for call in calls] if isinstance(calls, list) else []
    if body.get("function_call"):
        blocks.append(text_block(f"[call of {exact_json.encode(body['function_call']).decode()}]"))
    is_text_alone = isinstance(content, str) and len(blocks) == (1 if content else 0)
    return content if isinstance(content, str) and is_text_alone else blocks


def as_blocks(content: Any) -> list[Any]:
    """Content as a list of blocks."""
    return content if isinstance(content, list) else blocks_of_content(content)


def _thinking_block(card: Card | CardDraft) -> Block:
    signature = card.metadata.get("signature")
    block = {"type": "thinking", "thinking": card_text(card.content)}
    return {**block, "signature": signature} if isinstance(signature, str) else block


def _result_block(card: Card | CardDraft, body: dict[str, Any]) -> Block:
    content = body.get("content")
    call_id = body.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        # OpenAI's older functions have no ids, and a tool_result cannot do without.
        return text_block(f"[result of {body.get('name') or 'a tool'}: {card_text(card.content)}]")
    said = content if isinstance(content, str) else blocks_of_content(content) or ""
    block = {"type": "tool_result", "tool_use_id": call_id, "content": said}
    failed = isinstance(card.content, ToolResultContent) and card.content.status != "success"
    return {**block, "is_error": True} if failed else block


# --- requests


def spell(card: Card) -> dict[str, Any] | Silence:
    """The Anthropic message that `card` is, or the reason why it is none.

    The API refuses empty content, and thinking that it has not signed.
    """
    silent = silence(card)
    if silent is not None:
        return silent
    content = content_of(card)
    if isinstance(content, list):
        content = [block for block in content if not _is_refused(block)]
    if not content or (isinstance(content, str) and not content.strip()):
        return Silence("nothing that Anthropic would take: empty, or thinking without its signature")
    return {"role": role_of(card), "content": content if isinstance(content, str) else as_blocks(content)}


def body(request: Request) -> dict[str, Any]:
    """The JSON body of `request`; without a model when none is known.

    All system text stands in `system`, in its order: histories have no place for it. Only layers that stand
    behind the history keep their place, as words of the user's.
    """
    said = placed(request.messages)
    system = [message.body["content"] for message in said if message.body["role"] == "system"]
    messages, _ = spoken(request.messages)
    return {
        **({} if request.model is None else {"model": request.model}),
        "max_tokens": _max_tokens(request.config),
        **({"system": _system(system)} if system else {}),
        "messages": [_merged(run) for run in runs(messages)],
        **({"tools": [_tool(tool) for tool in request.tools]} if request.tools else {}),
        **_tool_choice(request),
        **_parameters(request.config),
    }


def spoken(messages: Iterable[Message]) -> tuple[list[Message], list[Renamed]]:
    """The messages without system text, each tool call under an id of its own; and what was renamed."""
    return with_unique_ids([message for message in placed(messages) if message.body["role"] != "system"])


def placed(messages: Iterable[Message]) -> list[Message]:
    """The messages, with the layers behind the history said by the user: system text has no place there."""
    said: list[Message] = []
    is_behind = False
    for message in messages:
        is_behind = is_behind or message.layer == CHECKPOINT
        if is_behind and message.layer != CHECKPOINT and message.body["role"] == "system":
            message = msgspec.structs.replace(message, body={**message.body, "role": "user"})
        said.append(message)
    return said


def runs(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The messages, in lists of neighbours of one role, which are sent as one."""
    for _, run in groupby(messages, key=lambda message: message.body["role"]):
        yield list(run)


def results_first(block: Any) -> bool:
    """The key by which the blocks of a user's message are sorted."""
    return kind(block) != "tool_result"


def _is_refused(block: Any) -> bool:
    if is_text(block):
        return not block["text"].strip()
    return kind(block) == "thinking" and not block.get("signature")


def _system(contents: Sequence[Any]) -> str | list[Block]:
    """One text; blocks where an original marks what to cache."""
    blocks = [block for content in contents for block in as_blocks(content)]
    if all(is_text(block) and not block.get("cache_control") for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return [with_id(block, block_id) for block in blocks]


def _merged(run: Sequence[Message]) -> dict[str, Any]:
    """One message of neighbours of one role; results of tools come first in it."""
    role, content = run[0].body["role"], run[0].body["content"]
    if len(run) > 1:
        content = [block for message in run for block in as_blocks(message.body["content"])]
    if role == "user" and not isinstance(content, str):
        content = sorted(content, key=results_first)
    return {"role": role, "content": content}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool definition; one that is stored as OpenAI writes it, with parameters, is translated."""
    function = tool["function"] if isinstance(tool.get("function"), dict) else tool
    if "input_schema" in tool or (function is tool and "parameters" not in tool and "type" in tool):
        return tool
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    kept = {key: function[key] for key in ("name", "description", "strict") if function.get(key) is not None}
    return {**kept, "input_schema": schema}


def _tool_choice(request: Request) -> dict[str, Any]:
    if not request.tools:
        return {}
    choice = _choice(request.config.get("tool_choice"))
    if request.config.get("parallel_tool_calls") is False and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return {} if choice is None else {"tool_choice": choice}


def _choice(choice: Any) -> dict[str, Any] | None:
    if isinstance(choice, dict):
        function = choice.get("function")
        return {"type": "tool", "name": function.get("name")} if isinstance(function, dict) else choice
    return {"type": _CHOICES[choice]} if isinstance(choice, str) and choice in _CHOICES else None


def _max_tokens(config: dict[str, Any]) -> int:
    named = (config.get(key) for key in ("max_tokens", "max_completion_tokens"))
    return next((number for number in named if type(number) is int), MAX_TOKENS)


def _parameters(config: dict[str, Any]) -> dict[str, Any]:
    """The parameters of `config` in Anthropic's names; those that it has no name for are left out."""
    parameters = {key: config[key] for key in SAME_PARAMETERS if config.get(key) is not None}
    stop = config.get("stop")
    if stop:
        parameters.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
    output = _output_config(config)
    if output:
        parameters.setdefault("output_config", output)
    return parameters


def _output_config(config: dict[str, Any]) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if config.get("reasoning_effort") in _EFFORTS:
        output["effort"] = config["reasoning_effort"]
    wanted = config.get("response_format")
    schema = wanted.get("json_schema") if isinstance(wanted, dict) else None
    if isinstance(schema, dict) and isinstance(schema.get("schema"), dict):
        output["format"] = {"type": "json_schema", "schema": schema["schema"]}
    return output
