"""Requests for chat completions that OpenAI refuses."""

from typing import Any

from tests.lint_truth.mutations.mutation import Body, Mutation, begin, by_role, drop, end, put, within

_REFERENCE = "OpenAI API reference, Create chat completion"
_TYPES = "openai.types.chat, request parameters"
_MESSAGES = f"{_REFERENCE}: messages"
_TOOLS = f"{_REFERENCE}: tools"
_VISION = "OpenAI docs, Images and vision: image input requirements"
_STRUCTURED = "OpenAI docs, Structured model outputs: supported schemas"
_REASONING = "OpenAI docs, Reasoning models"
_MODELS = "OpenAI docs, Models"
_SCHEMA = "what the API answers: Invalid schema for function"

_OBJECT: Body = {"type": "object", "properties": {"a": {"type": "string"}}}
_PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _of(schema: Body) -> Body:
    return {"type": "object", "properties": {"a": schema}}


def _function(name: str = "f", **more: Any) -> Body:
    return {"type": "function", "function": {"name": name, "parameters": _OBJECT, **more}}


def _call(call_id: Any = "call_1", arguments: Any = "{}", **more: Any) -> Body:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def _calls(*calls: Body) -> Body:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def _result(call_id: str = "call_1") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def _user(*parts: Any) -> Body:
    return {"role": "user", "content": list(parts)}


def _image(url: Any, **more: Any) -> Body:
    return _user({"type": "image_url", "image_url": {"url": url, **more}})


def _schema(**keys: Any) -> Body:
    return {"type": "json_schema", "json_schema": keys}


_CLOSED = {**_OBJECT, "additionalProperties": False, "required": ["a"]}
_LAST: Body = {"role": "user", "content": "Go on."}

_PARAMETERS = (
    Mutation("no model", _TYPES, drop("model", temperature=0.5)),
    Mutation("model null", _TYPES, put(model=None)),
    Mutation("model a number", _TYPES, put(model=5)),
    Mutation("no messages", _TYPES, drop("messages")),
    Mutation("messages empty", _MESSAGES, put(messages=[])),
    Mutation("messages a text", _TYPES, put(messages="Hi")),
    Mutation("a misspelt key", _TYPES, put(temprature=0.5)),
    Mutation("Anthropic's stop_sequences", _TYPES, put(stop_sequences=["a"])),
    Mutation("Anthropic's top_k", _TYPES, put(top_k=5)),
    Mutation("Anthropic's system", _TYPES, put(system="Be brief.")),
    Mutation("Responses' max_output_tokens", _TYPES, put(max_output_tokens=5)),
    Mutation("Responses' input", _TYPES, put(input="Hi")),
    Mutation("temperature 2.5", f"{_REFERENCE}: temperature", put(temperature=2.5)),
    Mutation("temperature below 0", f"{_REFERENCE}: temperature", put(temperature=-0.1)),
    Mutation("temperature a text", _TYPES, put(temperature="0.5")),
    Mutation("top_p 1.5", f"{_REFERENCE}: top_p", put(top_p=1.5)),
    Mutation("top_p below 0", f"{_REFERENCE}: top_p", put(top_p=-0.5)),
    Mutation("n 0", f"{_REFERENCE}: n", put(n=0)),
    Mutation("n 129", f"{_REFERENCE}: n", put(n=129)),
    Mutation("n a text", _TYPES, put(n="2")),
    Mutation("max_tokens 0", f"{_REFERENCE}: max_tokens", put(max_tokens=0)),
    Mutation("max_tokens below 0", f"{_REFERENCE}: max_tokens", put(max_tokens=-1)),
    Mutation("max_tokens a text", _TYPES, put(max_tokens="100")),
    Mutation("max_tokens a fraction", _TYPES, put(max_tokens=1.5)),
    Mutation("both limits", f"{_REFERENCE}: max_tokens", put(max_tokens=9, max_completion_tokens=9)),
    Mutation("five stops", f"{_REFERENCE}: stop", put(stop=list("abcde"))),
    Mutation("stop an object", _TYPES, put(stop={"a": 1})),
    Mutation("stop of numbers", _TYPES, put(stop=[1])),
    Mutation("frequency_penalty 2.5", f"{_REFERENCE}: frequency_penalty", put(frequency_penalty=2.5)),
    Mutation("presence_penalty -3", f"{_REFERENCE}: presence_penalty", put(presence_penalty=-3)),
    Mutation("logit_bias 101", f"{_REFERENCE}: logit_bias", put(logit_bias={"50256": 101})),
    Mutation("logit_bias a list", _TYPES, put(logit_bias=[1])),
    Mutation("top_logprobs alone", f"{_REFERENCE}: top_logprobs", put(top_logprobs=2, logprobs=False)),
    Mutation("top_logprobs 21", f"{_REFERENCE}: top_logprobs", put(top_logprobs=21, logprobs=True)),
    Mutation("logprobs a number", _TYPES, put(logprobs=3)),
    Mutation("stream_options alone", f"{_REFERENCE}: stream_options", put(stream=False, stream_options={})),
    Mutation("stream a text", _TYPES, put(stream="yes")),
    Mutation("seed a text", _TYPES, put(seed="1")),
    Mutation("user a number", _TYPES, put(user=5)),
    Mutation("metadata of numbers", _TYPES, put(metadata={"a": 1})),
    Mutation("17 pairs of metadata", f"{_REFERENCE}: metadata", put(metadata=dict.fromkeys("abcdefghijklmnopq", "x"))),
    Mutation("a long key of metadata", f"{_REFERENCE}: metadata", put(metadata={"k" * 65: "x"})),
    Mutation("service_tier unknown", _TYPES, put(service_tier="fastest")),
    Mutation("reasoning_effort unknown", _TYPES, put(reasoning_effort="huge")),
    Mutation("verbosity unknown", _TYPES, put(verbosity="chatty")),
    Mutation("modalities unknown", _TYPES, put(modalities=["video"])),
    Mutation("audio without a voice", f"{_REFERENCE}: audio", put(modalities=["text", "audio"])),
    Mutation("a safety_identifier of 129", f"{_REFERENCE}: safety_identifier", put(safety_identifier="x" * 129)),
)  # fmt: skip

_FORMATS_AND_TOOLS = (
    Mutation("response_format a text", _TYPES, put(response_format="json")),
    Mutation("response_format unknown", _TYPES, put(response_format={"type": "json"})),
    Mutation("json_schema missing", _TYPES, put(model="gpt-4o", response_format={"type": "json_schema"})),
    Mutation("json_schema without name", _TYPES, put(model="gpt-4o", response_format=_schema(schema=_CLOSED))),
    Mutation("json_schema named with a space", f"{_REFERENCE}: response_format", put(model="gpt-4o", response_format=_schema(name="a b", schema=_CLOSED))),
    Mutation("json_schema open and strict", _STRUCTURED, put(model="gpt-4o", response_format=_schema(name="a", strict=True, schema=_OBJECT))),
    Mutation("json_schema strict with an optional key", _STRUCTURED, put(model="gpt-4o", response_format=_schema(name="a", strict=True, schema={**_CLOSED, "required": []}))),
    Mutation("json_object unsaid", "OpenAI docs, Structured model outputs: JSON mode", put(messages=[_LAST], response_format={"type": "json_object"})),
    Mutation("tools empty", _TOOLS, put(tools=[])),
    Mutation("tools an object", _TYPES, put(tools={"f": {}})),
    Mutation("tool_choice alone", f"{_REFERENCE}: tool_choice", drop("tools", tool_choice="auto")),
    Mutation("tool_choice alone, no tools before", f"{_REFERENCE}: tool_choice", put(tools=None, tool_choice="none")),
    Mutation("parallel_tool_calls alone", f"{_REFERENCE}: parallel_tool_calls", drop("tools", parallel_tool_calls=False)),
    Mutation("tool_choice any", _TYPES, put(tools=[_function()], tool_choice="any")),
    Mutation("tool_choice Anthropic's", _TYPES, put(tools=[_function()], tool_choice={"type": "tool", "name": "f"})),
    Mutation("tool_choice of a missing tool", f"{_REFERENCE}: tool_choice", put(tools=[_function()], tool_choice={"type": "function", "function": {"name": "g"}})),
    Mutation("a tool without type", _TYPES, put(tools=[{"function": {"name": "f"}}])),
    Mutation("a tool of another type", _TYPES, put(tools=[{"type": "retrieval"}])),
    Mutation("a tool without function", _TYPES, put(tools=[{"type": "function"}])),
    Mutation("a tool as Responses has it", _TYPES, put(tools=[{"type": "function", "name": "f", "parameters": _OBJECT}])),
    Mutation("a tool as Anthropic has it", _TYPES, put(tools=[{"name": "f", "input_schema": _OBJECT}])),
    Mutation("a tool without name", _TYPES, put(tools=[{"type": "function", "function": {"parameters": _OBJECT}}])),
    Mutation("a tool named with a dot", _TOOLS, put(tools=[_function("a.b")])),
    Mutation("a tool named with 65 letters", _TOOLS, put(tools=[_function("a" * 65)])),
    Mutation("a tool of a text", _TOOLS, put(tools=[_function(parameters={"type": "string"})])),
    Mutation("a tool with an array without items", _SCHEMA, put(tools=[_function(parameters=_of({"type": "array"}))])),
    Mutation("a tool with a type that is none", _SCHEMA, put(tools=[_function(parameters=_of({"type": "strin"}))])),
    Mutation("a tool described at length", _TOOLS, put(tools=[_function(description="a" * 1025)])),
    Mutation("an answer too long for gpt-4o", _MODELS, put(model="gpt-4o", max_tokens=16385)),
    Mutation("stop for gpt-5", "what the API answers: Unsupported parameter: 'stop'", put(model="gpt-5", stop=["a"])),
    Mutation("logit_bias of a word", f"{_REFERENCE}: logit_bias", put(logit_bias={"hello": 1})),
    Mutation("a tool described by a number", _TYPES, put(tools=[_function(description=5)])),
    Mutation("129 tools", _TOOLS, put(tools=[_function(f"f{number}") for number in range(129)])),
    Mutation("a strict tool that is open", _STRUCTURED, put(tools=[_function(strict=True)])),
    Mutation("a strict tool with an optional key", _STRUCTURED, put(tools=[_function(strict=True, parameters={**_CLOSED, "required": []})])),
    Mutation("functions empty", f"{_REFERENCE}: functions", put(functions=[])),
    Mutation("function_call alone", f"{_REFERENCE}: function_call", drop("functions", function_call="auto")),
)  # fmt: skip

_CONVERSATIONS = (
    Mutation("a role unknown", _TYPES, end({"role": "bot", "content": "Hi"})),
    Mutation("a role missing", _TYPES, within(lambda each: each.pop("role"), where=by_role("user"))),
    Mutation("the user says a number", _TYPES, end({"role": "user", "content": 5})),
    Mutation("the user says null", _TYPES, end({"role": "user", "content": None})),
    Mutation("the user says nothing at all", _TYPES, end({"role": "user"})),
    Mutation("the user says no parts", _MESSAGES, end(_user())),
    Mutation("the assistant says null", _MESSAGES, end({"role": "assistant", "content": None}, _LAST)),
    Mutation("a part of no type", _TYPES, end(_user({"text": "a"}))),
    Mutation("a part unknown", _TYPES, end(_user({"type": "video_url", "video_url": {"url": "https://h/v"}}))),
    Mutation("a part that is a text", _TYPES, end(_user("a"))),
    Mutation("a part of Responses", _TYPES, end(_user({"type": "input_text", "text": "a"}))),
    Mutation("a text without text", _TYPES, end(_user({"type": "text"}))),
    Mutation("a text with cache_control", _TYPES, end(_user({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}))),
    Mutation("an image of Anthropic's", _TYPES, end(_user({"type": "image", "source": {"type": "url", "url": "https://h/p.png"}}))),
    Mutation("an image that is an address alone", _TYPES, end(_user({"type": "image_url", "image_url": "https://h/p.png"}))),
    Mutation("an image in a file", _VISION, end(_image("file:///p.png"))),
    Mutation("an image without bytes", _VISION, end(_image("data:image/png;base64,"))),
    Mutation("an image that is none", _VISION, end(_image("data:image/png;base64,aGVsbG8="))),
    Mutation("an image not in base64", _VISION, end(_image("data:image/png;base64,*"))),
    Mutation("an image of SVG", _VISION, end(_image("data:image/svg+xml;base64,PHN2Zy8+"))),
    Mutation("an image of another detail", _TYPES, end(_image(_PNG, detail="max"))),
    Mutation("an image in system text", _TYPES, begin({"role": "system", "content": _image(_PNG)["content"]})),
    Mutation("an image of the assistant's", _TYPES, end({"role": "assistant", "content": _image(_PNG)["content"]}, _LAST)),
    Mutation("audio of another format", _TYPES, end(_user({"type": "input_audio", "input_audio": {"data": "AA==", "format": "ogg"}}))),
    Mutation("a speaker with a space", f"{_MESSAGES}, name", end({**_LAST, "name": "ann lee"})),
    Mutation("a message with an id", _TYPES, end({**_LAST, "id": "m1"})),
    Mutation("a message with a time", _TYPES, end({**_LAST, "timestamp": 5})),
    Mutation("a user that calls", _TYPES, end({**_LAST, "tool_calls": [_call()]})),
    Mutation("tool_calls empty", _MESSAGES, end({"role": "assistant", "content": "a", "tool_calls": []}, _LAST)),
    Mutation("a call without id", _TYPES, end(_calls({"type": "function", "function": {"name": "f", "arguments": "{}"}}), _result())),
    Mutation("a call without type", _TYPES, end(_calls({"id": "call_1", "function": {"name": "f", "arguments": "{}"}}), _result())),
    Mutation("a call without name", _TYPES, end(_calls({**_call(), "function": {"arguments": "{}"}}), _result())),
    Mutation("a call with a long id", _MESSAGES, end(_calls(_call("c" * 41)), _result("c" * 41))),
    Mutation("arguments that are an object", _TYPES, end(_calls(_call(arguments={})), _result())),
    Mutation("arguments missing", _TYPES, end(_calls({**_call(), "function": {"name": "f"}}), _result())),
    Mutation("a call without result", _MESSAGES, end(_calls(_call()), _LAST)),
    Mutation("one of two calls without result", _MESSAGES, end(_calls(_call("a"), _call("b")), _result("a"))),
    Mutation("a result without call", _MESSAGES, end(_result("call_9"))),
    Mutation("a result without id", _TYPES, end(_calls(_call()), {"role": "tool", "content": "ok"})),
    Mutation("a result twice", _MESSAGES, end(_calls(_call()), _result(), _result())),
    Mutation("a result that comes late", _MESSAGES, end(_calls(_call()), _LAST, _result())),
    Mutation("a recorded result cut off", _MESSAGES, lambda body: _without(body, "tool")),
    Mutation("a recorded call cut off", _MESSAGES, lambda body: _without_calls(body)),
    Mutation("a function without name", _TYPES, end({"role": "function", "content": "ok"})),
    Mutation("a user's refusal", _TYPES, end(_user({"type": "refusal", "refusal": "No."}))),
)  # fmt: skip

_OF_MODELS = (
    Mutation("o1-mini told by the system", f"{_REASONING}: o1-mini", begin({"role": "system", "content": "Be brief."}, model="o1-mini")),
    Mutation("o1-mini with tools", f"{_REASONING}: o1-mini", put(model="o1-mini", tools=[_function()])),
    Mutation("o3-mini with max_tokens", _REASONING, put(model="o3-mini", max_tokens=9)),
    Mutation("gpt-5 at 0.5", _REASONING, put(model="gpt-5", temperature=0.5)),
    Mutation("o3-mini with top_p", _REASONING, put(model="o3-mini", top_p=0.5)),
    Mutation("o4-mini with stop", f"{_REFERENCE}: stop", put(model="o4-mini", stop=["a"])),
    Mutation("o3 with logprobs", _REASONING, put(model="o3", logprobs=True)),
    Mutation("gpt-4o asked for effort", _REASONING, put(model="gpt-4o", reasoning_effort="low")),
    Mutation("gpt-5 asked for no effort", _REASONING, put(model="gpt-5-mini", reasoning_effort="none")),
    Mutation("gpt-5.1 asked for minimal effort", _REASONING, put(model="gpt-5.1", reasoning_effort="minimal")),
    Mutation("gpt-4o that shall search", "OpenAI docs, Web search", put(model="gpt-4o", web_search_options={})),
    Mutation("gpt-4o that shall hear", _MODELS, end(_user({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}), model="gpt-4o")),
    Mutation("gpt-4o that shall speak", _MODELS, put(model="gpt-4o", modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"})),
    Mutation("gpt-3.5-turbo that shall see", _MODELS, end(_image(_PNG), model="gpt-3.5-turbo")),
    Mutation("gpt-4 held to a schema", _STRUCTURED, put(model="gpt-4", response_format=_schema(name="a", schema=_OBJECT))),
)  # fmt: skip

MUTATIONS = (*_PARAMETERS, *_FORMATS_AND_TOOLS, *_CONVERSATIONS, *_OF_MODELS)


def _without(body: Body, role: str) -> bool:
    place = next((place for place, each in enumerate(body["messages"]) if each.get("role") == role), None)
    if place is None:
        return False
    del body["messages"][place]
    return True


def _without_calls(body: Body) -> bool:
    found = next((each for each in body["messages"] if each.get("tool_calls")), None)
    if found is None or "tool" not in [each.get("role") for each in body["messages"]]:
        return False
    del found["tool_calls"]
    found["content"] = "Let me look."
    return True
