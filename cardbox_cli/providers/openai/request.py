"""OpenAI's chat completions: cards as messages, and the body of a request.

Source: OpenAI API reference, "Create chat completion".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import kind, list_at, text_at
from cardbox_cli.context.provider import AnyCard, Body, ExchangedIds, Members, Provider, SentMessage
from cardbox_cli.context.request import Request
from cardbox_cli.providers import tools as shared
from cardbox_cli.providers.openai.answers import OpenAIAnswers
from cardbox_cli.providers.openai.cards import FORMATS, MAX_STOPS, NAME, OpenAIFiles, are_one, join, runs

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintRule

# The keys of a profile's llm_config that are parameters of a request. `stream` and `stream_options` are not
# among them, because the command that sends the request decides whether an answer comes in chunks.
PARAMETERS = (
    *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "n"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
    *("response_format", "reasoning_effort", "verbosity", "modalities", "audio", "prediction"),
    *("web_search_options", "functions", "function_call", "user", "safety_identifier", "moderation"),
    *("metadata", "store", "service_tier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)
TOOL_PARAMETERS = ("tool_choice", "parallel_tool_calls")


class OpenAI(Provider):
    name = NAME
    title = "OpenAI"
    sends = "a chat-completions body"
    # OpenAI docs, "Prompt caching": tools and the schema of the answer come before the messages.
    message_keys = ("messages",)
    cached_parameters = ("response_format",)
    schema_package = __package__
    files_class = OpenAIFiles
    answers_class = OpenAIAnswers

    encode = Provider.chat_message

    def chat_original(self, card: AnyCard) -> Body | None:
        source = card.metadata.get(sources.MESSAGE)
        if not isinstance(source, dict) or card.metadata.get(sources.FORMAT, NAME) not in FORMATS:
            return None
        return dict(source) if isinstance(source.get("role"), str) else None

    def members(self, request: Request) -> Members:
        if request.model is not None:
            yield "model", request.model
        yield "messages", join(request.messages)
        tools = self.offered_tools(request)
        if tools:
            yield "tools", [_tool(tool) for tool in tools]
        config = _openai_config(request.config, shared.choice_for(request, tools))
        names = (*PARAMETERS, *(TOOL_PARAMETERS if tools else ()))
        yield from shared.copy_parameters(config, names, self, nulls=True).items()

    def exchanged_ids(self, body: Body) -> ExchangedIds:
        answered = text_at(body, "tool_call_id")
        calls = [text_at(call, "id") or "" for call in list_at(body, "tool_calls")]
        return ExchangedIds(calls, [] if answered is None else [answered])

    def steps(self, messages: Sequence[Message]) -> list[int]:
        """Return the step of each message. Adjacent results share a step, and so do messages sent as one."""
        numbers: list[int] = []
        number, before = 0, None
        for message in messages:
            are_results = before is not None and message.body["role"] == before.body["role"] == "tool"
            number += before is None or not (are_results or are_one(before, message))
            numbers.append(number)
            before = message
        return numbers

    def sent_messages(self, request: Request) -> Iterator[SentMessage]:
        end = 0
        for number, run in enumerate(runs(request.messages), 1):
            [body] = join(run)
            start, end = end, end + len(run)
            yield SentMessage("messages", number, body, list(range(start, end)))

    def runs_tool(self, tool: Mapping[str, Any]) -> bool:
        return shared.is_custom(tool)

    def rules(self) -> "Sequence[LintRule]":
        from cardbox_cli.providers.openai.rules import RULES

        return RULES


class OpenAICompatible(OpenAI):
    """Hosts that take OpenAI's chat completions for other models: Mistral, Groq, OpenRouter, vLLM, Ollama.

    Each host has its own parameters, values and models, so only rules about the form of a request apply.
    """

    name = "openai-compatible"
    title = "An OpenAI-compatible host"

    @property
    def format(self) -> str:
        return NAME

    def rules(self) -> "Sequence[LintRule]":
        """Return OpenAI's rules without those about OpenAI's own limits, values and models."""
        from cardbox_cli.providers.openai.rules import COMPATIBLE

        return COMPATIBLE


def _openai_config(llm_config: dict[str, Any], choice: Any) -> dict[str, Any]:
    """Return the llm_config with `stop` and `tool_choice` in OpenAI's form."""
    config = {key: value for key, value in llm_config.items() if key not in TOOL_PARAMETERS}
    config |= shared.compact(tool_choice=_choice(choice), parallel_tool_calls=shared.is_parallel(llm_config))
    stops = shared.stops_of(config, MAX_STOPS)
    return config if stops is None or "stop" in config else {**config, "stop": stops}


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict) and isinstance(allowed := choice.get("allowed_tools"), dict):
        tools = allowed.get("tools")
        named = [_chosen(each) for each in tools] if isinstance(tools, list) else tools
        return {**choice, "allowed_tools": {**allowed, "tools": named}}
    if kind(choice) == "tool" and (name := shared.choice_of(choice)):
        return {"type": "function", "function": {"name": name}}
    return shared.choice_mode(choice) or _chosen(choice)


def _chosen(tool: Any) -> Any:
    """Return the choice of a tool in OpenAI's form, with the name in an object under the type."""
    sort, name = kind(tool), text_at(tool, "name")
    return {"type": sort, sort: {"name": name}} if sort in ("function", "custom") and name else tool


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool definition in OpenAI's form. Converts a definition without `function`."""
    if shared.is_custom(tool):
        return {**tool, "custom": shared.custom_tool(tool, nested=True)}
    function = None if isinstance(tool.get("function"), dict) else shared.function_of(tool)
    return tool if function is None else shared.chat_tool(function._replace(others={}))
