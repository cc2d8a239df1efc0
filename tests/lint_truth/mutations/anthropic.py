"""Requests for messages that Anthropic refuses."""

from typing import Any

from tests.lint_truth.mutations.mutation import Body, Mutation, begin, by_role, drop, end, put, within

_REFERENCE = "Anthropic API reference, Create a Message"
_TYPES = "anthropic.types.beta, request parameters"
_MESSAGES = f"{_REFERENCE}: messages"
_TOOLS = f"{_REFERENCE}: tools"
_TOOL_USE = "Anthropic docs, Handle tool calls: formatting requirements"
_VISION = "Anthropic docs, Vision: image formats"
_CACHING = "Anthropic docs, Prompt caching"
_THINKING = "Anthropic docs, Extended thinking"
_EFFORT = "Anthropic docs, Effort"
_MODELS = "Anthropic docs, Models overview"
_MIGRATION = "Anthropic docs, Migration guide"
_SEARCH = "Anthropic docs, Web search tool: domain filtering"

_OBJECT: Body = {"type": "object", "properties": {"a": {"type": "string"}}}
_TOOL: Body = {"name": "f", "input_schema": _OBJECT}
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_TEXT: Body = {"type": "text", "text": "Go on."}
_CACHED: Body = {**_TEXT, "cache_control": {"type": "ephemeral"}}
_EMPTY: Body = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}
_CALL: Body = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
_RESULT: Body = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
_THOUGHT: Body = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
_ON: Body = {"type": "enabled", "budget_tokens": 1024}


def _user(*blocks: Any) -> Body:
    return {"role": "user", "content": list(blocks)}


def _assistant(*blocks: Any) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def _image(**source: Any) -> Body:
    return _user({"type": "image", "source": source}, _TEXT)


def _base64(media_type: str = "image/png", data: str = _PNG) -> Body:
    return _image(type="base64", media_type=media_type, data=data)


_LAST = _user(_TEXT)

_SCHEMAS = (
    Mutation("anyOf at the top", _TOOLS, put(tools=[{**_TOOL, "input_schema": {**_OBJECT, "anyOf": [{"required": ["a"]}]}}])),
    Mutation("a type that is none", _TOOLS, put(tools=[{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "strin"}}}}])),
    Mutation("an hour behind five minutes", _CACHING, end(_user(_CACHED, {**_TEXT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}))),
    Mutation("a document without data", "Anthropic docs, PDF support", end(_user(_EMPTY, _TEXT))),
)  # fmt: skip

_PARAMETERS = (
    Mutation("no model", _TYPES, drop("model")),
    Mutation("model a number", _TYPES, put(model=5)),
    Mutation("no max_tokens", _TYPES, drop("max_tokens")),
    Mutation("max_tokens null", _TYPES, put(max_tokens=None)),
    Mutation("max_tokens a text", _TYPES, put(max_tokens="100")),
    Mutation("max_tokens below 0", _REFERENCE, put(max_tokens=-1)),
    Mutation("max_tokens a fraction", _TYPES, put(max_tokens=10.5)),
    Mutation("no messages", _TYPES, drop("messages")),
    Mutation("messages empty", _MESSAGES, put(messages=[])),
    Mutation("messages a text", _TYPES, put(messages="Hi")),
    Mutation("a misspelt key", _TYPES, put(temprature=0.5)),
    Mutation("OpenAI's max_completion_tokens", _TYPES, put(max_completion_tokens=5)),
    Mutation("OpenAI's stop", _TYPES, put(stop=["a"])),
    Mutation("OpenAI's n", _TYPES, put(n=1)),
    Mutation("OpenAI's response_format", _TYPES, put(response_format={"type": "json_object"})),
    Mutation("OpenAI's frequency_penalty", _TYPES, put(frequency_penalty=0.5)),
    Mutation("OpenAI's parallel_tool_calls", _TYPES, put(parallel_tool_calls=False)),
    Mutation("temperature 1.5", f"{_REFERENCE}: temperature", put(temperature=1.5)),
    Mutation("temperature below 0", f"{_REFERENCE}: temperature", put(temperature=-0.1)),
    Mutation("temperature a text", _REFERENCE, put(temperature="0.5")),
    Mutation("top_p 1.5", f"{_REFERENCE}: top_p", drop("max_tokens", max_tokens=64, top_p=1.5)),
    Mutation("top_k below 0", f"{_REFERENCE}: top_k", put(top_k=-5)),
    Mutation("top_k a fraction", f"{_REFERENCE}: top_k", put(top_k=1.5)),
    Mutation("stop_sequences a text", _TYPES, put(stop_sequences="a")),
    Mutation("stop_sequences white", f"{_REFERENCE}: stop_sequences", put(stop_sequences=[" "])),
    Mutation("stream a text", _TYPES, put(stream="yes")),
    Mutation("metadata of another key", _TYPES, put(metadata={"session": "a"})),
    Mutation("metadata with a long user", f"{_REFERENCE}: metadata", put(metadata={"user_id": "x" * 257})),
    Mutation("metadata a text", _TYPES, put(metadata="a")),
    Mutation("service_tier unknown", _TYPES, put(service_tier="priority")),
    Mutation("system a number", _TYPES, put(system=5)),
    Mutation("system an image", _TYPES, put(system=_base64()["content"])),
    Mutation("system an object", _TYPES, put(system=_TEXT)),
    Mutation("system empty", _REFERENCE, put(system=[{"type": "text", "text": ""}])),
    Mutation("thinking true", _TYPES, put(thinking=True)),
    Mutation("thinking of no type", _TYPES, put(thinking={"budget_tokens": 1024})),
    Mutation("thinking of another type", _TYPES, put(thinking={"type": "on"})),
    Mutation("thinking without budget", _TYPES, put(thinking={"type": "enabled"})),
    Mutation("a budget of 100", _THINKING, put(model="claude-sonnet-4-5", temperature=1, thinking={"type": "enabled", "budget_tokens": 100})),
    Mutation("a budget above max_tokens", _THINKING, put(model="claude-sonnet-4-5", temperature=1, tools=[], max_tokens=1024, thinking=_ON)),
    Mutation("a cool thinker", _THINKING, put(model="claude-sonnet-4-5", max_tokens=4096, temperature=0.5, thinking=_ON)),
    Mutation("a thinker with top_k", _THINKING, put(model="claude-sonnet-4-5", max_tokens=4096, temperature=1, top_k=5, thinking=_ON)),
    Mutation("a thinker that is forced", _THINKING, put(model="claude-sonnet-4-5", max_tokens=4096, temperature=1, thinking=_ON, tools=[_TOOL], tool_choice={"type": "any"})),
    Mutation("effort unknown", _TYPES, put(output_config={"effort": "huge"})),
    Mutation("output_config of another key", _TYPES, put(output_config={"schema": _OBJECT})),
    Mutation("an answer's format without schema", _TYPES, put(output_config={"format": {"type": "json_schema"}})),
    Mutation("mcp_servers without url", _TYPES, put(mcp_servers=[{"type": "url", "name": "m"}])),
    Mutation("context_management of an edit unknown", _TYPES, put(context_management={"edits": [{"type": "forget"}]})),
)  # fmt: skip

_OF_TOOLS = (
    Mutation("tools an object", _TYPES, put(tools={"f": {}})),
    Mutation("tool_choice a text", _TYPES, put(tools=[_TOOL], tool_choice="auto")),
    Mutation("tool_choice OpenAI's", _TYPES, put(tools=[_TOOL], tool_choice={"type": "function", "function": {"name": "f"}})),
    Mutation("tool_choice required", _TYPES, put(tools=[_TOOL], tool_choice={"type": "required"})),
    Mutation("tool_choice without name", _TYPES, put(tools=[_TOOL], tool_choice={"type": "tool"})),
    Mutation("tool_choice of a missing tool", f"{_REFERENCE}: tool_choice", put(tools=[_TOOL], tool_choice={"type": "tool", "name": "g"})),
    Mutation("tool_choice alone", f"{_REFERENCE}: tool_choice", drop("max_tokens", max_tokens=64, tools=[], tool_choice={"type": "auto"})),
    Mutation("a tool as OpenAI has it", _TYPES, put(tools=[{"type": "function", "function": {"name": "f", "parameters": _OBJECT}}])),
    Mutation("a tool with parameters", _TYPES, put(tools=[{"name": "f", "parameters": _OBJECT}])),
    Mutation("a tool without name", _TYPES, put(tools=[{"input_schema": _OBJECT}])),
    Mutation("a tool without schema", _TYPES, put(tools=[{"name": "f"}])),
    Mutation("a tool of a text", _TOOLS, put(tools=[{"name": "f", "input_schema": {"type": "string"}}])),
    Mutation("a tool whose schema is a text", _TYPES, put(tools=[{"name": "f", "input_schema": "{}"}])),
    Mutation("a tool named with a dot", _TOOLS, put(tools=[{**_TOOL, "name": "a.b"}])),
    Mutation("a tool named with 129 letters", _TOOLS, put(tools=[{**_TOOL, "name": "a" * 129}])),
    Mutation("two tools of one name", _TOOLS, put(tools=[_TOOL, _TOOL])),
    Mutation("a tool unknown", _TYPES, put(tools=[{"type": "telephone_20990101", "name": "telephone"}])),
    Mutation("a server's tool misnamed", _TYPES, put(tools=[{"type": "web_search_20250305", "name": "search"}])),
    Mutation("a search of both lists", _SEARCH, put(tools=[{"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.b"], "blocked_domains": ["c.d"]}])),
    Mutation("a tool with another key", _TYPES, put(tools=[{**_TOOL, "returns": {}}])),
)  # fmt: skip

_CONVERSATIONS = (
    Mutation("a role unknown", _TYPES, end({"role": "tool", "content": "ok"})),
    Mutation("a role missing", _TYPES, within(lambda each: each.pop("role"), where=by_role("user"))),
    Mutation("the user says a number", _TYPES, end({"role": "user", "content": 5})),
    Mutation("the user says null", _TYPES, end({"role": "user", "content": None})),
    Mutation("the user says no content", _TYPES, end({"role": "user"})),
    Mutation("the user says nothing", _MESSAGES, begin({"role": "user", "content": ""})),
    Mutation("the user says no blocks", _MESSAGES, begin(_user())),
    Mutation("the assistant says nothing", _MESSAGES, end({"role": "assistant", "content": ""}, _LAST)),
    Mutation("an empty text", _MESSAGES, end(_user({"type": "text", "text": ""}))),
    Mutation("a white text", _MESSAGES, end(_user({"type": "text", "text": " \n"}))),
    Mutation("a block of no type", _TYPES, end(_user({"text": "a"}))),
    Mutation("a block unknown", _TYPES, end(_user({"type": "video", "source": {}}))),
    Mutation("a block that is a text", _TYPES, end(_user("a"))),
    Mutation("an image_url of OpenAI's", _TYPES, end(_user({"type": "image_url", "image_url": {"url": "https://h/p.png"}}))),
    Mutation("a text without text", _TYPES, end(_user({"type": "text"}))),
    Mutation("a text of a number", _TYPES, end(_user({"type": "text", "text": 5}))),
    Mutation("a text with another key", _TYPES, end(_user({**_TEXT, "id": "t1"}))),
    Mutation("a message with an id", _TYPES, end({**_LAST, "id": "m1"})),
    Mutation("a message with a name", _TYPES, end({**_LAST, "name": "ann"})),
    Mutation("an image of SVG", _TYPES, end(_base64("image/svg+xml", "PHN2Zy8+"))),
    Mutation("an image that is none", _VISION, end(_base64(data="aGVsbG8="))),
    Mutation("an image without bytes", _VISION, end(_base64(data=""))),
    Mutation("an image not in base64", _VISION, end(_base64(data="*"))),
    Mutation("an image of another type than it says", _VISION, end(_base64("image/jpeg"))),
    Mutation("an image as a data URL", _VISION, end(_image(type="url", url=f"data:image/png;base64,{_PNG}"))),
    Mutation("an image without source", _TYPES, end(_user({"type": "image"}))),
    Mutation("an image without media type", _TYPES, end(_image(type="base64", data=_PNG))),
    Mutation("a document of another type", _TYPES, end(_user({"type": "document", "source": {"type": "base64", "media_type": "text/html", "data": "AA=="}}))),
    Mutation("five cache breakpoints", _CACHING, end(_user(*[_CACHED] * 5))),
    Mutation("a cache breakpoint of another kind", _TYPES, end(_user({**_TEXT, "cache_control": {"type": "forever"}}))),
    Mutation("a cache breakpoint for a day", _TYPES, end(_user({**_TEXT, "cache_control": {"type": "ephemeral", "ttl": "24h"}}))),
    Mutation("a call by the user", _TYPES, end(_user(_CALL), _user(_RESULT))),
    Mutation("a call without id", _TYPES, end(_assistant({"type": "tool_use", "name": "f", "input": {}}), _user(_RESULT))),
    Mutation("a call without name", _TYPES, end(_assistant({"type": "tool_use", "id": "toolu_1", "input": {}}), _user(_RESULT))),
    Mutation("a call with a text as input", _TYPES, end(_assistant({**_CALL, "input": "{}"}), _user(_RESULT))),
    Mutation("a call with a dotted id", _MESSAGES, end(_assistant({**_CALL, "id": "a.b"}), _user({**_RESULT, "tool_use_id": "a.b"}))),
    Mutation("two calls of one id", _MESSAGES, end(_assistant(_CALL), _user(_RESULT), _assistant(_CALL), _user(_RESULT))),
    Mutation("OpenAI's tool_calls", _TYPES, end({"role": "assistant", "content": "a", "tool_calls": []}, _LAST)),
    Mutation("a call without result", _TOOL_USE, end(_assistant(_CALL), _LAST)),
    Mutation("a result without call", _TOOL_USE, end(_user({**_RESULT, "tool_use_id": "toolu_9"}))),
    Mutation("a result without id", _TYPES, end(_assistant(_CALL), _user({"type": "tool_result", "content": "ok"}))),
    Mutation("a result twice", _TOOL_USE, end(_assistant(_CALL), _user(_RESULT, _RESULT))),
    Mutation("a result by the assistant", _TYPES, end(_assistant(_CALL), _assistant(_RESULT))),
    Mutation("a result that comes late", _TOOL_USE, end(_assistant(_CALL), _LAST, _assistant(_TEXT), _user(_RESULT))),
    Mutation("words before a result", _TOOL_USE, end(_assistant(_CALL), _user(_TEXT, _RESULT))),
    Mutation("a result that holds a call", _TYPES, end(_assistant(_CALL), _user({**_RESULT, "content": [_CALL]}))),
    Mutation("a recorded result cut off", _TOOL_USE, lambda body: _without_result(body)),
    Mutation("a thought without signature", _TYPES, end(_assistant({"type": "thinking", "thinking": "hm"}, _TEXT), _LAST)),
    Mutation("a thought of the user's", _TYPES, end(_user(_THOUGHT, _TEXT))),
    Mutation("a thought at the end", _THINKING, put(model="claude-sonnet-4-5", temperature=1, messages=[_LAST, _assistant(_TEXT, _THOUGHT)])),
    Mutation("a thought behind a call", _THINKING, end(_assistant(_CALL, _THOUGHT), _user(_RESULT), model="claude-sonnet-4-5", max_tokens=4096, temperature=1, thinking=_ON)),
    Mutation("a thought missing", _THINKING, end(_assistant(_CALL), _user(_RESULT), model="claude-sonnet-4-5", max_tokens=4096, temperature=1, thinking=_ON)),
    Mutation("an answer begun that ends in a blank", _MESSAGES, put(model="claude-sonnet-4-5", messages=[_LAST, _assistant({"type": "text", "text": "It is "})])),
)  # fmt: skip

_OF_MODELS = (
    Mutation("opus 4.6 with an answer begun", f"{_MIGRATION}: prefill removal", end(_assistant(_TEXT), model="claude-opus-4-6")),
    Mutation("opus 4.7 with a temperature", f"{_MIGRATION}: Opus 4.7", put(model="claude-opus-4-7", temperature=0.5)),
    Mutation("opus 4.7 with top_k", f"{_MIGRATION}: Opus 4.7", put(model="claude-opus-4-7", top_k=5)),
    Mutation("opus 4.7 with a budget", f"{_MIGRATION}: Opus 4.7", put(model="claude-opus-4-7", max_tokens=4096, thinking=_ON)),
    Mutation("opus 4.6 of extra high effort", _EFFORT, put(model="claude-opus-4-6", output_config={"effort": "xhigh"})),
    Mutation("sonnet 4.5 asked for effort", _EFFORT, put(model="claude-sonnet-4-5", output_config={"effort": "low"})),
    Mutation("opus 4.5 of the highest effort", _EFFORT, put(model="claude-opus-4-5", output_config={"effort": "max"})),
    Mutation("sonnet 4.5 told in between", "Anthropic docs, Mid-conversation system messages", end({"role": "system", "content": "Be brief."}, _LAST, model="claude-sonnet-4-5")),
    Mutation("haiku 3.5 that shall think", _THINKING, put(model="claude-3-5-haiku-20241022", temperature=1, max_tokens=4096, thinking=_ON)),
    Mutation("sonnet 4.5 that shall adapt", _THINKING, put(model="claude-sonnet-4-5", thinking={"type": "adaptive"})),
    Mutation("haiku 3 that shall write a book", _MODELS, put(model="claude-3-haiku-20240307", max_tokens=8192)),
    Mutation("sonnet 3.5 that shall write a book", _MODELS, put(model="claude-3-5-sonnet-20240620", max_tokens=64000)),
    Mutation("sonnet 4.5 with two ways to sample", f"{_MIGRATION}: sampling parameters", put(model="claude-sonnet-4-5", temperature=0.5, top_p=0.9)),
    Mutation("haiku 3 that is spoken to first", _MESSAGES, begin(_assistant(_TEXT), model="claude-3-haiku-20240307")),
)  # fmt: skip

MUTATIONS = (*_PARAMETERS, *_OF_TOOLS, *_SCHEMAS, *_CONVERSATIONS, *_OF_MODELS)


def _without_result(body: Body) -> bool:
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if results:
            blocks.remove(results[0])
            if not blocks:
                blocks.append(_TEXT)
            return True
    return False
