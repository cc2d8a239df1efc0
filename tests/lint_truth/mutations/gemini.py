"""Requests to generate content that Gemini refuses."""

from functools import partial
from typing import Any

from tests.lint_truth.mutations.mutation import Body, Edit, Mutation, drop, put
from tests.lint_truth.mutations.mutation import begin as begin_at
from tests.lint_truth.mutations.mutation import end as end_at

_GENERATION = "Gemini API reference, GenerationConfig"
_TYPES = "google.genai.types"
_CONTENTS = "Gemini API reference, Content"
_TOOLS = "Gemini API reference, Tool and FunctionDeclaration"
_CALLING = "Gemini API docs, Function calling"
_CACHE = "Gemini API docs, Context caching"
_SAFETY = "Gemini API reference, SafetySetting"

end, begin = partial(end_at, at="contents"), partial(begin_at, at="contents")
_OBJECT: Body = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}
_CALL: Body = {"functionCall": {"name": "f", "args": {}}}
_ANSWER: Body = {"functionResponse": {"name": "f", "response": {"output": "ok"}}}


def _config(**keys: Any) -> Edit:
    return put(generationConfig=keys)


def _tool(**keys: Any) -> Body:
    return {"functionDeclarations": [{"name": "f", "parameters": _OBJECT, **keys}]}


def _calling(**keys: Any) -> Body:
    return {"functionCallingConfig": keys}


def _user(*parts: Any) -> Body:
    return {"role": "user", "parts": list(parts)}


def _model(*parts: Any) -> Body:
    return {"role": "model", "parts": list(parts)}


def _inline(**keys: Any) -> Body:
    return _user({"inlineData": keys})


_LAST = _user({"text": "Go on."})

MUTATIONS = (
    Mutation("contents empty", _CONTENTS, put(contents=[], generationConfig={})),
    Mutation("contents a text", _TYPES, put(contents="Hi", generationConfig={})),
    Mutation("a misspelt key", _TYPES, put(generationConfigs={})),
    Mutation("OpenAI's model and messages", _TYPES, put(messages=[])),
    Mutation("OpenAI's temperature", _TYPES, put(temperature=0.5, generationConfig={})),
    Mutation("OpenAI's max_tokens", _TYPES, put(max_tokens=5, generationConfig={})),
    Mutation("temperature 2.5", _GENERATION, _config(temperature=2.5)),
    Mutation("temperature below 0", _GENERATION, _config(temperature=-0.1)),
    Mutation("temperature a word", _TYPES, _config(temperature="hot")),
    Mutation("topP 1.5", _GENERATION, _config(topP=1.5)),
    Mutation("topP below 0", _GENERATION, _config(topP=-0.5)),
    Mutation("topK 0", _GENERATION, _config(topK=0)),
    Mutation("candidateCount 0", _GENERATION, _config(candidateCount=0)),
    Mutation("candidateCount 9", _GENERATION, _config(candidateCount=9)),
    Mutation("maxOutputTokens 0", _GENERATION, _config(maxOutputTokens=0)),
    Mutation("maxOutputTokens a word", _TYPES, _config(maxOutputTokens="many")),
    Mutation("maxTokens", _TYPES, _config(maxTokens=5)),
    Mutation("presencePenalty 2.5", _GENERATION, _config(presencePenalty=2.5)),
    Mutation("frequencyPenalty -2.5", _GENERATION, _config(frequencyPenalty=-2.5)),
    Mutation("six stopSequences", _GENERATION, _config(stopSequences=list("abcdef"))),
    Mutation("stopSequences a text", _TYPES, _config(stopSequences="a")),
    Mutation("OpenAI's stop", _TYPES, _config(stop=["a"])),
    Mutation("seed a word", _TYPES, _config(seed="one")),
    Mutation("logprobs alone", _GENERATION, _config(logprobs=2)),
    Mutation("logprobs 21", _GENERATION, _config(logprobs=21, responseLogprobs=True)),
    Mutation("responseLogprobs a number", _TYPES, _config(responseLogprobs=3)),
    Mutation("responseMimeType a number", _TYPES, _config(responseMimeType=5)),
    Mutation("responseSchema without type", _GENERATION, _config(responseSchema=_OBJECT)),
    Mutation("responseJsonSchema without type", _GENERATION, _config(responseJsonSchema={"type": "object"})),
    Mutation("both schemas", _GENERATION, _config(responseMimeType="application/json", responseSchema=_OBJECT, responseJsonSchema={"type": "object"})),
    Mutation("responseSchema of a type unknown", _TYPES, _config(responseMimeType="application/json", responseSchema={"type": "DATE"})),
    Mutation("responseSchema with another key", _TYPES, _config(responseMimeType="application/json", responseSchema={**_OBJECT, "unevaluatedProperties": False})),
    Mutation("thinkingConfig a number", _TYPES, _config(thinkingConfig=5)),
    Mutation("thinkingConfig with another key", _TYPES, _config(thinkingConfig={"budget": 5})),
    Mutation("thinkingBudget -2", "Gemini API docs, Thinking", _config(thinkingConfig={"thinkingBudget": -2})),
    Mutation("an array without items", _TOOLS, put(tools=[_tool(parameters={"type": "OBJECT", "properties": {"a": {"type": "ARRAY"}}})])),
    Mutation("thinkingBudget a word", _TYPES, _config(thinkingConfig={"thinkingBudget": "much"})),
    Mutation("thinkingLevel unknown", _TYPES, _config(thinkingConfig={"thinkingLevel": "HUGE"})),
    Mutation("a level and a budget", "Gemini API docs, Thinking", _config(thinkingConfig={"thinkingLevel": "LOW", "thinkingBudget": 5})),
    Mutation("generationConfig a list", _TYPES, put(generationConfig=[])),
    Mutation("systemInstruction a text", _TYPES, put(systemInstruction="Be brief.")),
    Mutation("systemInstruction as OpenAI has it", _TYPES, put(systemInstruction={"role": "system", "content": "Be brief."})),
    Mutation("safetySettings an object", _TYPES, put(safetySettings={})),
    Mutation("a category unknown", _TYPES, put(safetySettings=[{"category": "RUDENESS", "threshold": "BLOCK_NONE"}])),
    Mutation("a threshold unknown", _TYPES, put(safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_SOME"}])),
    Mutation("a category twice", _SAFETY, put(safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}] * 2)),
    Mutation("cachedContent with a system instruction", _CACHE, put(cachedContent="cachedContents/1", systemInstruction={"parts": [{"text": "a"}]})),
    Mutation("cachedContent with tools", _CACHE, put(cachedContent="cachedContents/1", tools=[_tool()])),
    Mutation("labels of numbers", _TYPES, put(labels={"a": 1})),
    Mutation("tools an object", _TYPES, put(tools=_tool())),
    Mutation("a tool unknown", _TYPES, put(tools=[{"webSearch": {}}])),
    Mutation("a tool as OpenAI has it", _TYPES, put(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])),
    Mutation("a tool as Anthropic has it", _TYPES, put(tools=[{"name": "f", "input_schema": {}}])),
    Mutation("a tool that is empty", _TOOLS, put(tools=[{}])),
    Mutation("functionDeclarations an object", _TYPES, put(tools=[{"functionDeclarations": {}}])),
    Mutation("a function without name", _TOOLS, put(tools=[{"functionDeclarations": [{"parameters": _OBJECT}]}])),
    Mutation("a function named with a space", _TOOLS, put(tools=[_tool(name="a b")])),
    Mutation("a function named with a digit first", _TOOLS, put(tools=[_tool(name="1a")])),
    Mutation("a function named with 129 letters", _TOOLS, put(tools=[_tool(name="a" * 129)])),
    Mutation("a function of a text", _TOOLS, put(tools=[_tool(parameters={"type": "STRING"})])),
    Mutation("a function of both schemas", _TOOLS, put(tools=[_tool(parametersJsonSchema={"type": "object"})])),
    Mutation("a function of a type unknown", _TYPES, put(tools=[_tool(parameters={"type": "OBJECT", "properties": {"a": {"type": "DATE"}}})])),
    Mutation("two functions of one name", _TOOLS, put(tools=[{"functionDeclarations": [{"name": "f"}, {"name": "f"}]}])),
    Mutation("toolConfig as OpenAI has it", _TYPES, put(tools=[_tool()], toolConfig="auto")),
    Mutation("a mode unknown", _TYPES, put(tools=[_tool()], toolConfig=_calling(mode="REQUIRED"))),
    Mutation("functions allowed in mode AUTO", _CALLING, put(tools=[_tool()], toolConfig=_calling(mode="AUTO", allowedFunctionNames=["f"]))),
    Mutation("a missing function allowed", _CALLING, put(tools=[_tool()], toolConfig=_calling(mode="ANY", allowedFunctionNames=["g"]))),
    Mutation("a role unknown", _CONTENTS, end({"role": "assistant", "parts": [{"text": "a"}]})),
    Mutation("the role system", _CONTENTS, begin({"role": "system", "parts": [{"text": "a"}]})),
    Mutation("content of OpenAI's", _TYPES, end({"role": "user", "content": "Hi"})),
    Mutation("parts a text", _TYPES, end({"role": "user", "parts": "Hi"})),
    Mutation("parts empty", _CONTENTS, end(_user())),
    Mutation("a part that is a text", _TYPES, end(_user("Hi"))),
    Mutation("a part as OpenAI has it", _TYPES, end(_user({"type": "text", "text": "Hi"}))),
    Mutation("a text of a number", _TYPES, end(_user({"text": 5}))),
    Mutation("a part unknown", _TYPES, end(_user({"image": {"url": "https://h/p.png"}}))),
    Mutation("a part of two kinds", _CONTENTS, end(_user({"text": "a", "fileData": {"fileUri": "https://h/p.png", "mimeType": "image/png"}}))),
    Mutation("bytes without type", _CONTENTS, end(_inline(data="aGVsbG8="))),
    Mutation("bytes missing", _CONTENTS, end(_inline(mimeType="image/png", data=""))),
    Mutation("bytes not in base64", _CONTENTS, end(_inline(mimeType="image/png", data="*"))),
    Mutation("bytes with another key", _TYPES, end(_inline(mimeType="image/png", data="aGVsbG8=", detail="low"))),
    Mutation("a content with a name", _TYPES, end({**_LAST, "name": "ann"})),
    Mutation("a call whose args are a text", _TYPES, end(_model({"functionCall": {"name": "f", "args": "{}"}}), _user(_ANSWER))),
    Mutation("a call without name", _CALLING, end(_model({"functionCall": {"args": {}}}), _user(_ANSWER))),
    Mutation("a call without answer", _CALLING, end(_model(_CALL), _LAST)),
    Mutation("an answer without call", _CALLING, end(_user({"functionResponse": {"name": "g", "response": {}}}))),
    Mutation("an answer that is a text", _TYPES, end(_model(_CALL), _user({"functionResponse": {"name": "f", "response": "ok"}}))),
    Mutation("an answer without name", _CALLING, end(_model(_CALL), _user({"functionResponse": {"response": {}}}))),
    Mutation("a call first", _CALLING, begin(_model(_CALL), _user(_ANSWER))),
    Mutation("a thoughtSignature of a number", _TYPES, end(_model({"text": "a", "thoughtSignature": 5}), _LAST)),
    Mutation("no contents", _CONTENTS, drop("contents", generationConfig={})),
)  # fmt: skip
