"""The Anthropic Messages request body, and how messages are joined and cached in it.

Source: `anthropic.types.message_create_params` of the package `anthropic`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

import msgspec

from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import is_text, kind
from cardbox_cli.context.providers.anthropic.blocks import OF_SYSTEM_INSIDE, Block, block_id
from cardbox_cli.context.providers.anthropic.encoding import NAME, as_blocks
from cardbox_cli.context.providers.anthropic.models import takes_system_inside
from cardbox_cli.context.providers.anthropic.tool_ids import Naming, with_id, with_unique_ids
from cardbox_cli.context.providers.copied import copied
from cardbox_cli.context.providers.provider import Body, Members, RenamedCall, SentMessage
from cardbox_cli.context.providers.tools import choice_for, function_of, tools_for
from cardbox_cli.context.providers.turns import runs
from cardbox_cli.context.request import Request
from cardbox_cli.model.layers import CHECKPOINT

# The API requires max_tokens; this is sent where the profile names none.
MAX_TOKENS = 4096

# Keys of a profile's llm_config that are the same parameter here.
SAME_PARAMETERS = (
    *("temperature", "top_p", "top_k", "thinking", "output_config", "stop_sequences", "metadata"),
    *("service_tier", "speed", "container", "inference_geo", "user_profile_id", "workspace_id"),
    *("diagnostics", "cache_control"),
)
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_VERSIONED = re.compile(r"_20\d{6}$|^mcp_toolset$")
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def members(request: Request) -> Members:
    """The JSON body of `request`; without a model when none is known.

    System text stands in `system`, in its order, as most models have no place for it within a history; there
    it stays for those that have. Layers behind the history keep their place, as the user's text.
    """
    if request.model is not None:
        yield "model", request.model
    yield "max_tokens", _max_tokens(request.config)
    system = [message.body["content"] for message in at_the_top(request.messages, request.model)]
    if system:
        yield "system", _system(system)
    naming = Naming(lambda: _others(request.messages, request.model))
    yield "messages", map(_merged, runs(naming.renamed()))
    if tools := tools_for(request, NAME):
        yield "tools", [_tool(tool) for tool in tools]
    yield from _tool_choice(request.config, choice_for(request, tools), bool(tools)).items()
    yield from _parameters(request.config).items()


def conversation(messages: Iterable[Message], model: str | None) -> tuple[list[Message], list[RenamedCall]]:
    """The messages without the system text at the top, each tool call under an id of its own; and what was
    renamed."""
    return with_unique_ids(list(_others(messages, model)))


def renamed_calls(messages: Sequence[Message]) -> list[RenamedCall]:
    """The calls that have other ids as they are sent, whatever the model."""
    naming = Naming(lambda: _others(messages, None))
    for _ in naming.renamed():
        pass
    return naming.changes


def at_the_top(messages: Iterable[Message], model: str | None) -> Iterator[Message]:
    """The system text that is sent before all messages."""
    return (message for is_top, message in _placed(messages, model) if is_top)


def moved(messages: Iterable[Message], model: str | None) -> Iterator[Message]:
    """The system text that stands behind a message of the history, and is sent at the top."""
    behind = dropwhile(lambda each: each[1].body["role"] == "system", _placed(messages, model))
    return (message for is_top, message in behind if is_top)


def _others(messages: Iterable[Message], model: str | None) -> Iterator[Message]:
    """The messages that are not at the top, the layers behind the history as the user's."""
    is_behind = False
    for is_top, message in _placed(messages, model):
        is_behind = is_behind or message.layer == CHECKPOINT
        if is_behind and message.layer != CHECKPOINT and message.body["role"] == "system":
            message = msgspec.structs.replace(message, body={**message.body, "role": "user"})
        if not is_top:
            yield message


def _placed(messages: Iterable[Message], model: str | None) -> Iterator[tuple[bool, Message]]:
    """The messages, each with whether it is sent at the top."""
    stays, is_behind, is_begun = takes_system_inside(model), False, False
    for message in messages:
        is_behind = is_behind or message.layer == CHECKPOINT
        is_layer_behind = is_behind and message.layer != CHECKPOINT
        is_top = message.body["role"] == "system" and not is_layer_behind and not (stays and is_begun)
        is_begun = is_begun or not is_top
        yield is_top, message


def results_first(block: Any) -> bool:
    """The key by which the blocks of a user's message are sorted."""
    return kind(block) != "tool_result"


def sent(request: Request) -> Iterator[SentMessage]:
    """The messages as a prefix cache finds them: system text first, then the parts of the others."""
    messages, model = request.messages, request.model
    placed = list(enumerate(_placed(messages, model)))
    system = ((place, message) for place, (is_top, message) in placed if is_top)
    for number, (place, message) in enumerate(system, 1):
        yield SentMessage("system", number, _in_blocks(message), [place])
    # The conversation is every other message, in the same order.
    places = (place for place, (is_top, _) in placed if not is_top)
    for number, run in enumerate(runs(conversation(messages, model)[0]), 1):
        parts = [(_in_blocks(message), [next(places)]) for message in run]
        if run[0].body["role"] == "user":
            parts.sort(key=lambda part: results_first(next(iter(part[0]["content"]), None)))
        yield from (SentMessage("messages", number, *part) for part in parts)


def _in_blocks(message: Message) -> Body:
    return {**message.body, "content": as_blocks(message.body["content"])}


def _system(contents: Sequence[Any]) -> str | list[Block]:
    """One text; blocks where an original marks what to cache. Nothing but text has a place there."""
    blocks = [
        block for content in contents for block in as_blocks(content) if kind(block) not in OF_SYSTEM_INSIDE
    ]
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
    return {**(run[0].body if role == "system" else {}), "role": role, "content": content}


def runs_tool(tool: Mapping[str, Any]) -> bool:
    """Whether it is a tool of Anthropic's, which has a version in its type."""
    return "input_schema" not in tool and _VERSIONED.search(kind(tool)) is not None


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool definition; one that is stored as OpenAI writes it, with parameters, is translated."""
    function = None if "input_schema" in tool else function_of(tool)
    if function is None:
        return tool
    said = {"description": function.description, "strict": function.strict}
    kept = {key: value for key, value in said.items() if value is not None}
    schema = function.schema or {"type": "object", "properties": {}}
    return {"name": function.name, **kept, "input_schema": schema}


def _tool_choice(config: dict[str, Any], wanted: Any, has_tools: bool) -> dict[str, Any]:
    choice = _choice(wanted)
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
    named = (config.get(key) for key in ("max_tokens", "max_completion_tokens"))
    return next((number for number in named if type(number) is int), MAX_TOKENS)


def _parameters(config: dict[str, Any]) -> dict[str, Any]:
    """The parameters of `config` in Anthropic's names; those that it has no name for are left out."""
    parameters = copied({key: config[key] for key in SAME_PARAMETERS if config.get(key) is not None}, NAME)
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
