"""The items of OpenAI's Responses, and how they become messages of the chat form and are made of them.

Pure functions of single values. Items of the assistant's side that stand side by side are one message here.
Sources: OpenAI API reference, "Create a model response"; the types of the package `openai`.
"""

from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.parts import is_text, kind, text_at, texts_in
from cardbox_cli.context.providers.data_urls import address_of
from cardbox_cli.context.providers.parted import Answered, Part, Parting
from cardbox_cli.context.providers.provider import Body
from cardbox_cli.context.tool_calls import arguments_text
from cardbox_cli.model import exact_json

NAME = "openai-responses"
_ANSWERS = ("function_call_output", "custom_tool_call_output")
# The items that are no messages, functions or thoughts: tools that OpenAI or its clients run, and marks.
OTHERS = (
    *("file_search_call", "web_search_call", "image_generation_call", "code_interpreter_call"),
    *("computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output"),
    *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"),
    *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call"),
    *("tool_search_call", "tool_search_output", "additional_tools", "compaction", "item_reference"),
    *("compaction_trigger", "program", "program_output"),
)
KINDS = (*_ANSWERS, "function_call", "custom_tool_call", "reasoning", "message", *OTHERS)
# The parts of a message's content.
PARTS = ("input_text", "input_image", "input_file", "output_text", "refusal", "text", "summary_text")


def kind_of(item: Any) -> str:
    """The type of an item; a message may leave it out."""
    return kind(item) or ("message" if text_at(item, "role") is not None else "")


def role_of_item(item: Any) -> str:
    """Whose item it is: system, user (who also brings the tools' results) or assistant."""
    name = kind_of(item)
    if name != "message":
        return "user" if name in _ANSWERS else "assistant"
    role = text_at(item, "role")
    return "system" if role in ("system", "developer") else "assistant" if role == "assistant" else "user"


def call_of(item: Part) -> dict[str, Any] | None:
    """The tool call that an item is."""
    name, call_id = text_at(item, "name"), text_at(item, "call_id")
    if not name or not call_id:
        return None
    sort = kind_of(item)
    if sort == "function_call" and text_at(item, "arguments") is not None:
        return {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": item["arguments"]},
        }
    if sort == "custom_tool_call" and text_at(item, "input") is not None:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": item["input"]}}
    return None


def answered_by(item: Part) -> Answered | None:
    """The call that an item is the result of."""
    call_id = text_at(item, "call_id") if kind_of(item) in _ANSWERS else None
    return Answered(call_id) if call_id else None


def _is_exact(item: Part) -> bool:
    """Whether a call of a function, or the result of one, has nothing beside what each must have."""
    if item["type"] == "function_call":
        return len(item) == 4
    return item["type"] == "function_call_output" and len(item) == 3 and text_at(item, "output") is not None


def words_of_item(item: Part) -> str:
    """The text of an item as a reader wants it."""
    name = kind_of(item)
    if name == "message":
        return _words(item.get("content"))
    if name in _ANSWERS:
        return _words(item.get("output"))
    if name == "reasoning":
        return "\n".join(filter(None, (_words(item.get("summary")), _words(item.get("content")))))
    return "\n".join(text for key in ("code", "query") if (text := text_at(item, key)))


def text_alone(role: str, item: Part) -> str | None:
    """The text of a message that says nothing else; None where it is blank, too."""
    if type(item) is not dict or len(item) != 2 or item.get("role") != role:
        return None
    text = item.get("content")
    return text if type(text) is str and not text.isspace() and text else None


def _words(content: Any) -> str:
    """The texts of content parts, and a word for what is none."""
    if isinstance(content, str):
        return content
    lines = []
    for part in content if isinstance(content, list) else []:
        text = text_at(part, "text")
        text = text_at(part, "refusal") if text is None else text
        lines.append(f"[{kind(part) or 'part'}]" if text is None else text)
    return "\n".join(filter(None, lines))


def chat_parts(item: Part) -> list[dict[str, Any]]:
    """The content parts in the chat form of a message with files or refusals; none for any other item."""
    content = item.get("content") if kind_of(item) == "message" else None
    made = [_chat_part(part) for part in content] if isinstance(content, list) else []
    return made if any(kind(part) != "text" for part in made) else []


def _chat_part(part: Any) -> dict[str, Any]:
    if kind(part) == "input_image" and (address := text_at(part, "image_url")) is not None:
        detail = {"detail": part["detail"]} if text_at(part, "detail") else {}
        return {"type": "image_url", "image_url": {"url": address, **detail}}
    if kind(part) == "input_file":
        file = {key: part[key] for key in ("filename", "file_data", "file_id") if text_at(part, key)}
        if "file_data" in file or "file_id" in file:
            return {"type": "file", "file": file}
    if kind(part) == "refusal" and text_at(part, "refusal") is not None:
        return {"type": "refusal", "refusal": part["refusal"]}
    return {"type": "text", "text": _words([part])}


def make(body: Body, failed: bool) -> list[Part]:
    """The items that a message in the chat form is."""
    content, role = body.get("content"), body["role"]
    if role in ("tool", "function"):
        return [_output(body, texts_in(content))]
    items: list[Part] = []
    said = _content(content, role)
    said = said if not isinstance(said, str) or said.strip() else ""
    if role == "assistant":
        said = _refused(content, text_at(body, "refusal")) or said
    if said:
        items.append({"role": role, "content": said})
    calls = body.get("tool_calls")
    items += [_call(call) for call in calls] if isinstance(calls, list) else []
    old = body.get("function_call")
    if old:
        items.append({"role": role, "content": f"[call of {exact_json.encode(old).decode()}]"})
    return items


def _content(content: Any, role: str) -> str | list[dict[str, Any]]:
    if not isinstance(content, list):
        return content or ""
    if role == "assistant":
        return _words(content)
    return [_part(part) for part in content]


def _part(part: Any) -> dict[str, Any]:
    if is_text(part):
        return {"type": "input_text", "text": part["text"]}
    value = part.get(kind(part)) if isinstance(part, dict) and kind(part) else None
    address = address_of(part)
    if address is not None:
        detail = text_at(value, "detail") or "auto"
        return {"type": "input_image", "image_url": address, "detail": detail}
    if kind(part) == "file" and isinstance(value, dict):
        file = {key: value[key] for key in ("filename", "file_data", "file_id") if text_at(value, key)}
        if "file_data" in file or "file_id" in file:
            return {"type": "input_file", **file}
    return {"type": "input_text", "text": _words([part])}


def _refused(content: Any, refusal: Any) -> list[dict[str, Any]]:
    """What an assistant says in parts, where one is a refusal; else none."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    parts = [*parts, *([{"type": "refusal", "refusal": refusal}] if refusal else [])]
    said = [_said_part(part) for part in parts]
    return said if any(kind(part) == "refusal" for part in said) else []


def _said_part(part: Any) -> dict[str, Any]:
    if kind(part) == "refusal" and text_at(part, "refusal") is not None:
        return {"type": "refusal", "refusal": part["refusal"]}
    return {"type": "output_text", "text": _words([part])}


def _call(call: Any) -> Part:
    function, custom = (call.get(key) if isinstance(call, dict) else None for key in ("function", "custom"))
    call_id = text_at(call, "id") or ""
    if isinstance(function, dict):
        arguments = arguments_text(function.get("arguments"))
        name = text_at(function, "name") or ""
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    if isinstance(custom, dict) and text_at(custom, "name"):
        text = text_at(custom, "input") or ""
        return {"type": "custom_tool_call", "call_id": call_id, "name": custom["name"], "input": text}
    return {"role": "assistant", "content": f"[tool call: {exact_json.encode(call).decode()}]"}


def _output(body: Body, text: str) -> Part:
    return {"type": "function_call_output", "call_id": text_at(body, "tool_call_id") or "", "output": text}


def _of_custom(item: Part) -> Part:
    """The result of a custom tool, made of that of a function."""
    return {**item, "type": "custom_tool_call_output"}


def lost(item: Part) -> Iterator[str]:
    """What the chat form leaves out of an item."""
    if kind_of(item) == "message":
        content = item.get("content")
        for part in content if isinstance(content, list) else []:
            if part.get("annotations") if isinstance(part, dict) else None:
                yield "annotations are not sent"
            if kind(part) in ("input_image", "input_file") and kind(_chat_part(part)) == "text":
                yield f"a part of type {kind(part)!r} is sent as text"
        if text_at(item, "phase"):
            yield "the message's 'phase' is not sent"
    elif kind_of(item) in _ANSWERS and isinstance(item.get("output"), list):
        for part in item["output"]:
            if kind(part) != "input_text":
                yield f"a part of type {kind(part)!r} in a tool result is sent as text"
    elif text_at(item, "namespace"):
        yield "the 'namespace' of a call is not sent"


PARTING = Parting(
    name=NAME,
    title="OpenAI",
    is_thought=lambda item: kind_of(item) == "reasoning",
    is_plain=lambda item: kind_of(item) == "message",
    words=words_of_item,
    call=call_of,
    answered=answered_by,
    files=chat_parts,
    make=make,
    sends_other=lambda call: kind_of(_call(call)) == "custom_tool_call",
    other_answer=_of_custom,
    has_detail=True,
    has_refusals=True,
    is_exact=_is_exact,
    lost=lost,
    text=text_alone,
)
