"""A corpus of Anthropic messages: one of every kind, and hypothesis strategies for the rest."""

from typing import Any

from hypothesis import strategies as st

from tests import jsonb_values

PNG = {"type": "base64", "media_type": "image/png", "data": "AA=="}
CACHED = {"cache_control": {"type": "ephemeral"}}
CITED = {
    "citations": [
        {
            "type": "char_location",
            "cited_text": "green",
            "document_index": 0,
            "document_title": "Grass",
            "start_char_index": 0,
            "end_char_index": 5,
        }
    ]
}

TEXT = {"type": "text", "text": "Let me look."}
IMAGE = {"type": "image", "source": PNG}
USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1.50, "a": ["é"]}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
THINKING = {"type": "thinking", "thinking": "6 times 7", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "grass colour"},
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "title": "Meadows", "url": "https://m.example", "encrypted_content": "Zm9v"}],
}  # fmt: skip


def user(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks), **more}


def assistant(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **more}


# What only a person would call an Anthropic message, each by what is special about it.
MESSAGES: dict[str, dict[str, Any]] = {
    "text": {"role": "user", "content": "Hi"},
    "empty text": {"role": "user", "content": ""},
    "an answer": {"role": "assistant", "content": "Hello"},
    "a text block": user({"type": "text", "text": "Hi"}),
    "an empty text block": user({"type": "text", "text": ""}),
    "no blocks": user(),
    "two text blocks": assistant({"type": "text", "text": "a"}, {"type": "text", "text": "b"}),
    "cached text": user({**TEXT, **CACHED}),
    "cited text": assistant({"type": "text", "text": "Grass is "}, {"type": "text", "text": "green", **CITED}),
    "an image": user(IMAGE, {"type": "text", "text": "What is it?"}),
    "an image by its address": user({"type": "image", "source": {"type": "url", "url": "https://h/p.png"}}),
    "an uploaded image": user({"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
    "a text document": user(
        {"type": "document", "title": "Notes", "context": "of May", "citations": {"enabled": True},
         "source": {"type": "text", "media_type": "text/plain", "data": "Rain on Monday."}}
    ),
    "a PDF": user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}),
    "a search result": user(
        {"type": "search_result", "source": "https://h", "title": "T", "content": [{"type": "text", "text": "snippet"}]}
    ),
    "thinking": assistant(THINKING, TEXT),
    "thinking alone": assistant(THINKING),
    "thinking without a signature": assistant({"type": "thinking", "thinking": "hm"}, TEXT),
    "redacted thinking": assistant(REDACTED, THINKING, TEXT),
    "a call": assistant(USE),
    "text and calls": assistant(TEXT, USE, {**USE, "id": "toolu_2", "input": {}}),
    "a call before text": assistant(USE, TEXT),
    "a cached call": assistant({**USE, **CACHED}),
    "thinking between calls": assistant(THINKING, USE, {**THINKING, "thinking": "and now"}, {**USE, "id": "toolu_2"}),
    "a result": user(RESULT),
    "a failed result": user({**RESULT, "is_error": True}),
    "a result that says it did not fail": user({**RESULT, "is_error": False}),
    "a result in blocks": user({**RESULT, "content": [TEXT, IMAGE]}),
    "a result without content": user({"type": "tool_result", "tool_use_id": "toolu_1"}),
    "a cached result": user({**RESULT, **CACHED}),
    "results and text": user(RESULT, {**RESULT, "tool_use_id": "toolu_2"}, TEXT),
    "text before a result": user(TEXT, RESULT, TEXT),
    "a server's tool": assistant(TEXT, SEARCH, FOUND, {"type": "text", "text": "Grass is green."}),
    "a server's tool that failed": assistant(
        SEARCH,
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
         "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}},
    ),
    "code execution": assistant(
        {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_2",
         "content": {"type": "code_execution_result", "stdout": "42", "stderr": "", "return_code": 0, "content": []}}
    ),
    "a container upload": user({"type": "container_upload", "file_id": "file_1"}),
    "an unknown block": assistant({"type": "hologram", "beams": [1, {"text": "shine"}]}),
    "an unknown block of a user": user({"type": "hologram", "beams": 3}, TEXT),
    "a call without an id": assistant({"type": "tool_use", "name": "f", "input": {}}),
    "a call whose id OpenAI would take": assistant({**USE, "id": "functions.f:0"}),
    "a result from the wrong side": assistant(RESULT),
    "a call from the wrong side": user(USE),
    "blocks that are none": user("x", None, 3, [], {}),
    "null content": {"role": "assistant", "content": None},
    "no content": {"role": "user"},
    "content of no kind": {"role": "user", "content": {"type": "text", "text": "x"}},
    "a response": assistant(
        THINKING, TEXT, id="msg_1", type="message", model="m", stop_reason="end_turn", usage={"input_tokens": 3}
    ),
    "unknown keys": {"role": "user", "content": "x", "cache": [1.10, None], "source_format": "openai"},
    "a system message": {"role": "system", "content": "From now on in French."},
    "a system message in blocks": {"role": "system", "content": [{**TEXT, **CACHED}]},
}  # fmt: skip

PROMPTS: dict[str, Any] = {
    "text": "Be kind.",
    "empty": "",
    "blocks": [{"type": "text", "text": "Be kind."}],
    "cached": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief.", **CACHED}],
    "no blocks": [],
    "null": None,
}

_texts = st.sampled_from(["", " ", "a", "b\nc"]) | jsonb_values.texts
_ids = st.sampled_from(["", "toolu_1", "toolu_2", "a.b:0"]) | jsonb_values.texts
_extra = st.fixed_dictionaries(
    {},
    optional={
        "cache_control": st.just({"type": "ephemeral"}),
        "citations": st.none() | st.just(CITED["citations"]),
        "is_error": st.booleans() | st.integers(0, 1),
        "signature": _texts,
        "extra": jsonb_values.values,
    },
)


def _block(name: str, /, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    whole = st.fixed_dictionaries({"type": st.just(name), **keys})
    lacking = st.fixed_dictionaries({"type": st.just(name)}, optional=keys)
    return st.builds(lambda block, extra: {**extra, **block}, whole | lacking, _extra)


_simple = st.one_of(
    _block("text", text=_texts | jsonb_values.values),
    _block("image", source=st.just(PNG) | jsonb_values.objects),
    _block("document", source=st.just(PNG) | jsonb_values.objects, title=_texts),
    _block("search_result", content=jsonb_values.values, title=_texts),
)
blocks = st.one_of(
    _simple,
    _block("tool_use", id=_ids, name=_texts, input=jsonb_values.objects | jsonb_values.values),
    _block("tool_result", tool_use_id=_ids, content=_texts | st.lists(_simple, max_size=2) | jsonb_values.values),
    _block("thinking", thinking=_texts, signature=_texts),
    _block("redacted_thinking", data=_texts),
    _block("server_tool_use", id=_ids, name=st.just("web_search"), input=jsonb_values.objects),
    _block("web_search_tool_result", tool_use_id=_ids, content=jsonb_values.values),
    _block("hologram", beams=jsonb_values.values),
    jsonb_values.values,
)  # fmt: skip
contents = _texts | st.lists(blocks, max_size=5)
messages = st.builds(
    lambda extra, message: {**extra, **message},
    st.dictionaries(jsonb_values.texts | st.sampled_from(["id", "type", "source_line"]), jsonb_values.values, max_size=2),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "user", "assistant", "system"])},
        optional={"content": contents | jsonb_values.values},
    ),
)  # fmt: skip
conversations = st.fixed_dictionaries(
    {"messages": st.lists(messages, min_size=1, max_size=5)},
    optional={
        "system": _texts | st.lists(_simple, max_size=2) | jsonb_values.values,
        "max_tokens": st.just(10),
        "tools": st.just([]),
    },
)
