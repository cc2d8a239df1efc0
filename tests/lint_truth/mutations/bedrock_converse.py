"""Requests to converse that Amazon Bedrock refuses."""

from typing import Any

from tests.lint_truth.mutations.mutation import Body, Edit, Mutation, begin, drop, end, put

_SHAPES = "botocore, service model of bedrock-runtime: ConverseRequest"
_MESSAGE = "Amazon Bedrock API reference, Message"
_TOOLS = "Amazon Bedrock user guide, Call a tool with the Converse API"
_DOCUMENT = "Amazon Bedrock API reference, DocumentBlock"

_SCHEMA: Body = {"json": {"type": "object", "properties": {"a": {"type": "string"}}}}
_CALL: Body = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {}}}
_RESULT: Body = {"toolResult": {"toolUseId": "t1", "content": [{"text": "ok"}]}}


def _config(**keys: Any) -> Edit:
    return put(inferenceConfig=keys)


def _spec(**keys: Any) -> Body:
    return {"toolSpec": {"name": "f", "inputSchema": _SCHEMA, **keys}}


def _tools(*tools: Any, **keys: Any) -> Body:
    return {"tools": list(tools), **keys}


_WITH_TOOLS = _tools(_spec())


def _user(*blocks: Any) -> Body:
    return {"role": "user", "content": list(blocks)}


def _assistant(*blocks: Any) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def _image(**keys: Any) -> Body:
    return _user({"image": {"format": "png", "source": {"bytes": "aGVsbG8="}, **keys}}, {"text": "a"})


def _document(**keys: Any) -> Body:
    made = {"name": "a", "format": "txt", "source": {"bytes": "aGVsbG8="}, **keys}
    return {"document": made}


_TEXT: Body = {"text": "Go on."}
_LAST = _user(_TEXT)

MUTATIONS = (
    Mutation("messages empty", _MESSAGE, put(messages=[], inferenceConfig={})),
    Mutation("messages a text", _SHAPES, put(messages="Hi")),
    Mutation("no messages", _MESSAGE, drop("messages", inferenceConfig={})),
    Mutation("a misspelt key", _SHAPES, put(inferenceConfigs={}, inferenceConfig={})),
    Mutation("Anthropic's max_tokens", _SHAPES, put(max_tokens=5, inferenceConfig={})),
    Mutation("Anthropic's tools", _SHAPES, put(tools=[], inferenceConfig={})),
    Mutation("temperature 1.5", _SHAPES, _config(temperature=1.5)),
    Mutation("temperature below 0", _SHAPES, _config(temperature=-0.1)),
    Mutation("temperature a text", _SHAPES, _config(temperature="0.5")),
    Mutation("topP 1.5", _SHAPES, _config(topP=1.5)),
    Mutation("topP below 0", _SHAPES, _config(topP=-0.5)),
    Mutation("maxTokens 0", _SHAPES, _config(maxTokens=0)),
    Mutation("maxTokens a text", _SHAPES, _config(maxTokens="100")),
    Mutation("maxTokens a fraction", _SHAPES, _config(maxTokens=1.5)),
    Mutation("topK", _SHAPES, _config(topK=5)),
    Mutation("max_tokens within", _SHAPES, _config(max_tokens=5)),
    Mutation("stopSequences a text", _SHAPES, _config(stopSequences="a")),
    Mutation("stopSequences of an empty text", _SHAPES, _config(stopSequences=[""])),
    Mutation("inferenceConfig a list", _SHAPES, put(inferenceConfig=[])),
    Mutation("system a text", _SHAPES, put(system="Be brief.")),
    Mutation("system of an empty text", _SHAPES, put(system=[{"text": ""}])),
    Mutation("system as Anthropic has it", _SHAPES, put(system=[{"type": "text", "text": "a"}])),
    Mutation("system with an image", _SHAPES, put(system=[{"image": {"format": "png", "source": {"bytes": "aGVsbG8="}}}])),
    Mutation("guardrailConfig of a trace unknown", _SHAPES, put(guardrailConfig={"guardrailIdentifier": "g1", "guardrailVersion": "1", "trace": "yes"})),
    Mutation("guardrailConfig misnamed", _SHAPES, put(guardrailConfig={"guardrailIdentifier": "G 1", "guardrailVersion": "1"})),
    Mutation("performanceConfig unknown", _SHAPES, put(performanceConfig={"latency": "low"})),
    Mutation("serviceTier unknown", _SHAPES, put(serviceTier={"type": "fastest"})),
    Mutation("additionalModelResponseFieldPaths a text", _SHAPES, put(additionalModelResponseFieldPaths="/a")),
    Mutation("requestMetadata of numbers", _SHAPES, put(requestMetadata={"a": 1})),
    Mutation("toolConfig a list", _SHAPES, put(toolConfig=[_spec()])),
    Mutation("toolConfig without tools", _SHAPES, put(toolConfig={"toolChoice": {"auto": {}}})),
    Mutation("tools empty", _SHAPES, put(toolConfig=_tools())),
    Mutation("a tool as OpenAI has it", _SHAPES, put(toolConfig=_tools({"type": "function", "function": {"name": "f"}}))),
    Mutation("a tool as Anthropic has it", _SHAPES, put(toolConfig=_tools({"name": "f", "input_schema": {}}))),
    Mutation("a tool without schema", _SHAPES, put(toolConfig=_tools({"toolSpec": {"name": "f"}}))),
    Mutation("a tool without name", _SHAPES, put(toolConfig=_tools({"toolSpec": {"inputSchema": _SCHEMA}}))),
    Mutation("a tool whose schema stands bare", _SHAPES, put(toolConfig=_tools(_spec(inputSchema={"type": "object"})))),
    Mutation("a tool of a text", _TOOLS, put(toolConfig=_tools(_spec(inputSchema={"json": {"type": "string"}})))),
    Mutation("a tool named with a dot", _SHAPES, put(toolConfig=_tools(_spec(name="a.b")))),
    Mutation("a tool named with 65 letters", _SHAPES, put(toolConfig=_tools(_spec(name="a" * 65)))),
    Mutation("a tool described by nothing", _SHAPES, put(toolConfig=_tools(_spec(description="")))),
    Mutation("two tools of one name", _TOOLS, put(toolConfig=_tools(_spec(), _spec()))),
    Mutation("toolChoice a text", _SHAPES, put(toolConfig=_tools(_spec(), toolChoice="auto"))),
    Mutation("toolChoice of two ways", _SHAPES, put(toolConfig=_tools(_spec(), toolChoice={"auto": {}, "any": {}}))),
    Mutation("toolChoice as Anthropic has it", _SHAPES, put(toolConfig=_tools(_spec(), toolChoice={"type": "auto"}))),
    Mutation("toolChoice of a missing tool", _TOOLS, put(toolConfig=_tools(_spec(), toolChoice={"tool": {"name": "g"}}))),
    Mutation("a role unknown", _SHAPES, end({"role": "tool", "content": [_TEXT]})),
    Mutation("a role missing", _SHAPES, end({"content": [_TEXT]})),
    Mutation("content a text", _SHAPES, end({"role": "user", "content": "Hi"})),
    Mutation("content missing", _SHAPES, end({"role": "user"})),
    Mutation("content empty", _MESSAGE, end(_user())),
    Mutation("an empty text", _MESSAGE, end(_user({"text": ""}))),
    Mutation("a text of a number", _SHAPES, end(_user({"text": 5}))),
    Mutation("a block as Anthropic has it", _SHAPES, end(_user({"type": "text", "text": "a"}))),
    Mutation("a block unknown", _SHAPES, end(_user({"hologram": {}}))),
    Mutation("a block of two kinds", _SHAPES, end(_user({"text": "a", "cachePoint": {"type": "default"}}))),
    Mutation("a block that is a text", _SHAPES, end(_user("a"))),
    Mutation("a message with another key", _SHAPES, end({**_LAST, "name": "ann"})),
    Mutation("the assistant first", "Amazon Bedrock user guide, Converse: messages begin with the user's", begin(_assistant(_TEXT))),
    Mutation("an image of another format", _SHAPES, end(_image(format="svg"))),
    Mutation("an image without format", _SHAPES, end(_user({"image": {"source": {"bytes": "aGVsbG8="}}}, _TEXT))),
    Mutation("an image without bytes", _SHAPES, end(_image(source={"bytes": ""}))),
    Mutation("an image not in base64", _SHAPES, end(_image(source={"bytes": "*"}))),
    Mutation("an image at an address", _SHAPES, end(_image(source={"url": "https://h/p.png"}))),
    Mutation("an image in another bucket's words", _SHAPES, end(_image(source={"s3Location": {"uri": "https://h/p.png"}}))),
    Mutation("an image of the assistant's", _MESSAGE, end(_assistant(_image()["content"][0]), _LAST)),
    Mutation("a document alone", _MESSAGE, end(_user(_document()))),
    Mutation("a document of another format", _SHAPES, end(_user(_document(format="odt"), _TEXT))),
    Mutation("a document without name", _SHAPES, end(_user({"document": {"format": "txt", "source": {"bytes": "aGVsbG8="}}}, _TEXT))),
    Mutation("a document named with a dot", _DOCUMENT, end(_user(_document(name="a.txt"), _TEXT))),
    Mutation("a document named with two blanks", _DOCUMENT, end(_user(_document(name="a  b"), _TEXT))),
    Mutation("two documents of one name", _DOCUMENT, end(_user(_document(), _document(), _TEXT))),
    Mutation("a cache point of another type", _SHAPES, end(_user(_TEXT, {"cachePoint": {"type": "ephemeral"}}))),
    Mutation("a call by the user", _MESSAGE, end(_user(_CALL), toolConfig=_WITH_TOOLS)),
    Mutation("a call without id", _SHAPES, end(_assistant({"toolUse": {"name": "f", "input": {}}}), _user(_RESULT), toolConfig=_WITH_TOOLS)),
    Mutation("a call without name", _SHAPES, end(_assistant({"toolUse": {"toolUseId": "t1", "input": {}}}), _user(_RESULT), toolConfig=_WITH_TOOLS)),
    Mutation("a call without input", _SHAPES, end(_assistant({"toolUse": {"toolUseId": "t1", "name": "f"}}), _user(_RESULT), toolConfig=_WITH_TOOLS)),
    Mutation("a call with a dotted id", _SHAPES, end(_assistant({"toolUse": {"toolUseId": "a.b", "name": "f", "input": {}}}), _user({"toolResult": {"toolUseId": "a.b", "content": []}}), toolConfig=_WITH_TOOLS)),
    Mutation("a call without result", _TOOLS, end(_assistant(_CALL), _LAST, toolConfig=_WITH_TOOLS)),
    Mutation("a result without call", _TOOLS, end(_user({"toolResult": {"toolUseId": "t9", "content": []}}), toolConfig=_WITH_TOOLS)),
    Mutation("a result twice", _TOOLS, end(_assistant(_CALL), _user(_RESULT, _RESULT), toolConfig=_WITH_TOOLS)),
    Mutation("a result of a text", _SHAPES, end(_assistant(_CALL), _user({"toolResult": {"toolUseId": "t1", "content": "ok"}}), toolConfig=_WITH_TOOLS)),
    Mutation("a result of a status unknown", _SHAPES, end(_assistant(_CALL), _user({"toolResult": {**_RESULT["toolResult"], "status": "failed"}}), toolConfig=_WITH_TOOLS)),
    Mutation("a result by the assistant", _MESSAGE, end(_assistant(_CALL), _assistant(_RESULT), toolConfig=_WITH_TOOLS)),
    Mutation("calls without toolConfig", _TOOLS, drop("toolConfig", inferenceConfig={}, messages=[_LAST, _assistant(_CALL), _user(_RESULT)])),
    Mutation("a thought without text", _SHAPES, end(_assistant({"reasoningContent": {"reasoningText": {"signature": "a"}}}, _TEXT), _LAST)),
    Mutation("a thought of the user's", _MESSAGE, end(_user({"reasoningContent": {"reasoningText": {"text": "a"}}}, _TEXT))),
)  # fmt: skip
