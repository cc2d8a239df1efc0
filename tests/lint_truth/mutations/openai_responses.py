"""Requests for responses that OpenAI refuses."""

from functools import partial
from typing import Any

from tests.lint_truth.mutations.mutation import Body, Mutation, drop, put
from tests.lint_truth.mutations.mutation import end as end_at

_REFERENCE = "OpenAI API reference, Create a model response"
_TYPES = "openai.types.responses, request parameters"
_INPUT = f"{_REFERENCE}: input"
_TOOLS = f"{_REFERENCE}: tools"
_VISION = "OpenAI docs, Images and vision: image input requirements"
_STRUCTURED = "OpenAI docs, Structured model outputs: supported schemas"
_REASONING = "OpenAI docs, Reasoning models"
_SCHEMA = "what the API answers: Invalid schema for function"

end = partial(end_at, at="input")
_OBJECT: Body = {"type": "object", "properties": {"a": {"type": "string"}}}
_CLOSED: Body = {**_OBJECT, "additionalProperties": False, "required": ["a"]}
_CALL: Body = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
_OUTPUT: Body = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
_LAST: Body = {"role": "user", "content": "Go on."}
_THOUGHT: Body = {"type": "reasoning", "id": "rs_1", "summary": []}


def _of(schema: Body) -> Body:
    return {"type": "object", "properties": {"a": schema}}


def _function(name: str = "f", **more: Any) -> Body:
    return {"type": "function", "name": name, "parameters": _OBJECT, "strict": False, **more}


def _user(*parts: Any) -> Body:
    return {"role": "user", "content": list(parts)}


def _image(url: Any) -> Body:
    return _user({"type": "input_image", "image_url": url, "detail": "auto"})


def _format(**keys: Any) -> Body:
    return {"format": {"type": "json_schema", **keys}}


MUTATIONS = (
    Mutation("model a number", _TYPES, put(model=5)),
    Mutation("input a number", _TYPES, put(input=5)),
    Mutation("a misspelt key", _TYPES, put(temprature=0.5)),
    Mutation("chat's messages", _TYPES, put(messages=[_LAST])),
    Mutation("chat's max_tokens", _TYPES, put(max_tokens=100)),
    Mutation("chat's max_completion_tokens", _TYPES, put(max_completion_tokens=100)),
    Mutation("chat's stop", _TYPES, put(stop=["a"])),
    Mutation("chat's n", _TYPES, put(n=2)),
    Mutation("chat's response_format", _TYPES, put(response_format={"type": "json_object"})),
    Mutation("chat's reasoning_effort", _TYPES, put(reasoning_effort="low")),
    Mutation("chat's frequency_penalty", _TYPES, put(frequency_penalty=0.5)),
    Mutation("chat's seed", _TYPES, put(seed=1)),
    Mutation("Anthropic's system", _TYPES, put(system="Be brief.")),
    Mutation("temperature 2.5", f"{_REFERENCE}: temperature", put(temperature=2.5)),
    Mutation("temperature below 0", f"{_REFERENCE}: temperature", put(temperature=-0.1)),
    Mutation("temperature a text", _TYPES, put(temperature="0.5")),
    Mutation("top_p 1.5", f"{_REFERENCE}: top_p", put(top_p=1.5)),
    Mutation("max_output_tokens 0", f"{_REFERENCE}: max_output_tokens", put(max_output_tokens=0)),
    Mutation("max_output_tokens a text", _TYPES, put(max_output_tokens="100")),
    Mutation("max_tool_calls a text", _TYPES, put(max_tool_calls="1")),
    Mutation("top_logprobs 21", f"{_REFERENCE}: top_logprobs", put(top_logprobs=21)),
    Mutation("instructions a number", _TYPES, put(instructions=5)),
    Mutation("include unknown", _TYPES, put(include=["everything"])),
    Mutation("include a text", _TYPES, put(include="reasoning.encrypted_content")),
    Mutation("metadata of numbers", _TYPES, put(metadata={"a": 1})),
    Mutation("17 pairs of metadata", f"{_REFERENCE}: metadata", put(metadata=dict.fromkeys("abcdefghijklmnopq", "x"))),
    Mutation("service_tier unknown", _TYPES, put(service_tier="fastest")),
    Mutation("truncation unknown", _TYPES, put(truncation="middle")),
    Mutation("store a text", _TYPES, put(store="yes")),
    Mutation("stream a text", _TYPES, put(stream="yes")),
    Mutation("stream_options alone", f"{_REFERENCE}: stream_options", put(stream=False, stream_options={"include_obfuscation": False})),
    Mutation("both ways to go on", f"{_REFERENCE}: conversation", put(conversation="conv_1", previous_response_id="resp_1")),
    Mutation("effort unknown", _TYPES, put(reasoning={"effort": "huge"})),
    Mutation("a summary unknown", _TYPES, put(reasoning={"summary": "long"})),
    Mutation("reasoning a text", _TYPES, put(reasoning="low")),
    Mutation("gpt-4o asked for effort", _REASONING, put(model="gpt-4o", reasoning={"effort": "low"})),
    Mutation("gpt-5-mini asked for no effort", _REASONING, put(model="gpt-5-mini", reasoning={"effort": "none"})),
    Mutation("o3-mini at 0.5", _REASONING, put(model="o3-mini", reasoning={}, temperature=0.5)),
    Mutation("o4-mini with top_p", _REASONING, put(model="o4-mini", reasoning={}, top_p=0.5)),
    Mutation("text a text", _TYPES, put(text="json")),
    Mutation("a format unknown", _TYPES, put(text={"format": {"type": "json"}})),
    Mutation("a schema without name", _TYPES, put(text=_format(schema=_CLOSED))),
    Mutation("a schema missing", _TYPES, put(text=_format(name="a"))),
    Mutation("a schema named with a space", f"{_REFERENCE}: text", put(text=_format(name="a b", schema=_CLOSED))),
    Mutation("a schema open and strict", _STRUCTURED, put(text=_format(name="a", strict=True, schema=_OBJECT))),
    Mutation("verbosity unknown", _TYPES, put(text={"verbosity": "chatty"})),
    Mutation("json_object unsaid", "OpenAI docs, Structured model outputs: JSON mode", put(input=[_LAST], instructions=None, text={"format": {"type": "json_object"}})),
    Mutation("tools an object", _TYPES, put(tools={"f": {}})),
    Mutation("a tool without type", _TYPES, put(tools=[{"name": "f"}])),
    Mutation("a tool unknown", _TYPES, put(tools=[{"type": "retrieval"}])),
    Mutation("a tool as chat has it", _TYPES, put(tools=[{"type": "function", "function": {"name": "f", "parameters": _OBJECT}}])),
    Mutation("a tool as Anthropic has it", _TYPES, put(tools=[{"name": "f", "input_schema": _OBJECT}])),
    Mutation("a tool without name", _TYPES, put(tools=[{"type": "function", "parameters": _OBJECT}])),
    Mutation("a tool named with a dot", _TOOLS, put(tools=[_function("a.b")])),
    Mutation("a strict tool that is open", _STRUCTURED, put(tools=[_function(strict=True)])),
    Mutation("a file search without stores", _TYPES, put(tools=[{"type": "file_search"}])),
    Mutation("an mcp tool without label", _TYPES, put(tools=[{"type": "mcp", "server_url": "https://h"}])),
    Mutation("tool_choice any", _TYPES, put(tools=[_function()], tool_choice="any")),
    Mutation("tool_choice as chat has it", _TYPES, put(tools=[_function()], tool_choice={"type": "function", "function": {"name": "f"}})),
    Mutation("tool_choice of a missing tool", f"{_REFERENCE}: tool_choice", put(tools=[_function()], tool_choice={"type": "function", "name": "g"})),
    Mutation("tool_choice required, no tools", f"{_REFERENCE}: tool_choice", drop("tools", input=[_LAST], tool_choice="required")),
    Mutation("a role unknown", _TYPES, end({"role": "bot", "content": "Hi"})),
    Mutation("chat's tool message", _TYPES, end({"role": "tool", "tool_call_id": "call_1", "content": "ok"})),
    Mutation("the user says a number", _TYPES, end({"role": "user", "content": 5})),
    Mutation("the user says null", _TYPES, end({"role": "user", "content": None})),
    Mutation("an item of no type", _TYPES, end({"call_id": "call_1", "output": "ok"})),
    Mutation("an item unknown", _TYPES, end({"type": "hologram", "id": "h1"})),
    Mutation("chat's tool_calls", _TYPES, end({"role": "assistant", "content": "a", "tool_calls": []}, _LAST)),
    Mutation("a part of chat's", _TYPES, end(_user({"type": "text", "text": "a"}))),
    Mutation("a part unknown", _TYPES, end(_user({"type": "input_video", "video_url": "https://h/v"}))),
    Mutation("a text without text", _TYPES, end(_user({"type": "input_text"}))),
    Mutation("an image as chat has it", _TYPES, end(_user({"type": "image_url", "image_url": {"url": "https://h/p.png"}}))),
    Mutation("an image that is an object", _TYPES, end(_image({"url": "https://h/p.png"}))),
    Mutation("an image that is none", _VISION, end(_image("data:image/png;base64,aGVsbG8="))),
    Mutation("an image of SVG", _VISION, end(_image("data:image/svg+xml;base64,PHN2Zy8+"))),
    Mutation("a message with a name", _TYPES, end({**_LAST, "name": "ann"})),
    Mutation("a call without call_id", _TYPES, end({"type": "function_call", "name": "f", "arguments": "{}"}, _OUTPUT)),
    Mutation("a call without name", _TYPES, end({"type": "function_call", "call_id": "call_1", "arguments": "{}"}, _OUTPUT)),
    Mutation("a call without arguments", _TYPES, end({"type": "function_call", "call_id": "call_1", "name": "f"}, _OUTPUT)),
    Mutation("arguments that are an object", _TYPES, end({**_CALL, "arguments": {}}, _OUTPUT)),
    Mutation("a call without output", _INPUT, end(_CALL, _LAST)),
    Mutation("an output without call", _INPUT, lambda body: _alone(body)),
    Mutation("an output without call_id", _TYPES, end(_CALL, {"type": "function_call_output", "output": "ok"})),
    Mutation("an output of a number", _TYPES, end(_CALL, {**_OUTPUT, "output": 5})),
    Mutation("an assistant with a part of input", _INPUT, end({"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}, _LAST)),
    Mutation("a tool with an array without items", _SCHEMA, put(tools=[_function(parameters=_of({"type": ["array", "null"]}))])),
    Mutation("a tool with a type that is none", _SCHEMA, put(tools=[_function(parameters=_of({"type": "strin"}))])),
    Mutation("reasoning at the end", _REASONING, end(_THOUGHT)),
    Mutation("reasoning before the user", _REASONING, end(_THOUGHT, _LAST)),
    Mutation("reasoning before a plain answer", _REASONING, end(_THOUGHT, {"role": "assistant", "content": "42"}, _LAST)),
    Mutation("reasoning without summary", _TYPES, end({"type": "reasoning", "id": "rs_1"}, {**_CALL, "id": "fc_1"}, _OUTPUT)),
)  # fmt: skip


def _alone(body: Body) -> bool:
    if body.get("previous_response_id") or body.get("conversation"):
        return False
    return end({**_OUTPUT, "call_id": "call_9"})(body)
