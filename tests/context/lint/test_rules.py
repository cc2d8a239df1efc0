"""Every rule of every provider: a minimal context that it finds at the right card, and near misses."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
import pytest
from anthropic.types import ContentBlockParam
from anthropic.types.tool_result_block_param import Content

from cardbox_cli.context.composer import compose
from cardbox_cli.context.lint import card_rules, request_rules
from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import JsonContent, TextContent, ToolContent
from cardbox_cli.providers.models import window
from cardbox_cli.providers.registry import PROVIDERS, provider_named
from tests.context.lint.cards import (
    blocks,
    call,
    found,
    message,
    placed,
    places,
    profile,
    result,
    system,
    thinking,
    thought,
    tools,
    user,
)
from tests.context.test_request import card
from tests.conversations.anthropic_messages import CACHED
from tests.test_lint_truth import rules_found

RULES = {name: provider_named(name).rules() for name in PROVIDERS}
SHARED = (
    card_rules.EXCHANGES,
    card_rules.CARDS,
    request_rules.TEMPERATURE,
    request_rules.TOOL_CHOICE,
    request_rules.LIMITS,
    request_rules.CACHING,
    request_rules.SHAPE,
)
BOTH = ("openai", "anthropic")
ALL = (*BOTH, "openai-responses", "gemini", "bedrock-converse")
# Those where a result must follow its call, and those that have no object of parameters within the body.
STRICT, FLAT = (*BOTH, "gemini", "bedrock-converse"), (*BOTH, "openai-responses")
A, C, R, G, B = ("anthropic",), ("openai",), ("openai-responses",), ("gemini",), ("bedrock-converse",)
INHERITED = "inherit_context a (box 1)"

Cards = tuple[Card | RequestEntry, ...]


class Case(NamedTuple):
    """What a rule finds in `broken`, at the card of this position (None: no card), and not in `sound`."""

    rule: str
    broken: Cards
    position: int | None
    sound: Cards
    providers: tuple[str, ...] = ALL
    model: str | None = None


# So many tokens of a message's text gpt-4 holds, and no more: 3 + 1 are counted for the message, 3 for the reply.
FULL = 8_192 - 7
LONG = "All quiet on the western front. " * 20
PAIR = (thought(call()), result())
WORKER = card("sys.profile", JsonContent({"name": "w", "process": "mapreduce_worker"}), "system")
BLANK_RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": " "}]}
WORDS_RESULT = {**BLANK_RESULT, "content": [{"type": "text", "text": "ok"}]}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
JSON_MODE = {"response_format": {"type": "json_object"}}
OBJECT = {"type": "object", "properties": {}}
FORCED = {"type": "function", "function": {"name": "f"}}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT_PART = {"type": "text", "text": "a"}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "https://h/p.png"}}


def words(tokens: int) -> str:
    return "word" + " word" * (tokens - 1)


def said(content: Any, role: str = "user", **more: Any) -> Card:
    """A card that keeps an OpenAI message with this content."""
    return message({"role": role, "content": content, **more}, "chat.message", role)


def image(media_type: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": PNG}}


def shown(*content: Any) -> Card:
    """A user's message of these Anthropic blocks."""
    return blocks(*content, card_type="task.instruction", role="user")


def message_blocks(role: str, *content: Any) -> Card:
    """What this role says in these Anthropic blocks."""
    return blocks(*content, card_type="sys.rendered_prompt", role=role)


def answered(*content: Any) -> Card:
    """The result of the call "c" with these Anthropic blocks in it."""
    made = {"type": "tool_result", "tool_use_id": "c", "content": list(content)}
    return msgspec.structs.replace(blocks(made, card_type="tool.result", role="tool"), tool_call_id="c")


def kept(source_format: str, *parts: Any, card_type: str = "agent.thought", role: str = "assistant") -> Card:
    """A card that keeps parts of this format."""
    metadata = {"source_format": source_format, "source_blocks": list(parts)}
    return card(card_type, TextContent("x"), role, metadata=metadata)


def called(signature: dict[str, Any]) -> Card:
    """Gemini's call of the function "f", with what vouches for its thought."""
    part = {"functionCall": {"id": "c", "name": "f", "args": {}}, **signature}
    return msgspec.structs.replace(kept("gemini", part), tool_calls=[call()])


def defined(*definitions: dict[str, Any]) -> Card:
    return card("sys.tools", ToolContent(list(definitions)), "system")


def items(*made: dict[str, Any]) -> Card:
    """What OpenAI's model answered, in these items of Responses."""
    kept = {"source_format": "openai-responses", "source_blocks": list(made)}
    return card("agent.reasoning", TextContent("hm"), "assistant", metadata=kept)


def parts(*, signed: bool) -> Card:
    """A call of Gemini's, with the signature of its thought or without."""
    part = {
        "functionCall": {"id": "c", "name": "f", "args": {}},
        **({"thoughtSignature": "c2ln"} if signed else {}),
    }
    kept = {"source_format": "gemini", "source_blocks": [part]}
    return thought(call(), metadata=kept)


def cached(times: int) -> Card:
    text = {"type": "text", "text": "a", **CACHED}
    return blocks(*[text] * times, card_type="task.instruction", role="user")


def summary(*covers: str) -> Card:
    return system("In short.", "context.compression", metadata={"covers": list(covers)})


CASES = [
    # exchanges
    Case("call-without-result", (user(), thought(call())), 1, (user(), *PAIR)),
    Case("call-without-result", (user(), thought(call("a"), call("b")), result("a")), 1,
         (user(), thought(call("a"), call("b")), result("a"), result("b"))),
    Case("result-without-call", (user(), result()), 1, (user(), *PAIR)),
    Case("result-without-call", (user(), result(), thought(call()), result()), 1, (user(), *PAIR, *PAIR)),
    Case("result-repeated", (user(), *PAIR, result()), 3, (user(), *PAIR, thought(call()), result())),
    Case("result-not-after-call", (user(), thought(call()), user("wait"), thought(text="Hm."), result()), 4,
         (user(), thought(call("a"), call("b")), result("b"), result("a")), STRICT),
    Case("result-not-after-call", (user(), thought(call()), user("wait"), result()), 3,
         (user(), thought(call()), result(), user("wait")), C),
    Case("result-not-after-call", (user(), thought(call()), user("wait"), thought(text="Hm."), result()), 4,
         (user(), thought(call()), user("wait"), result()), A),
    Case("result-not-after-call", (user(), card("agent.thought", TextContent(""), "system", tool_calls=[call()]), result()), 2,
         (user(), *PAIR), A),
    Case("result-not-after-call", (user(), thought(call("a"), call("b")), result("a"), user(), thought(text="Hm."), result("b")), 5,
         (user(), thought(call("a"), call("b")), result("a"), result("b"), user(), thought(text="Hm.")), STRICT),
    Case("exchange-split", (user(), placed(thought(call()), rule=INHERITED)), 1,
         (user(), *(placed(each, rule=INHERITED) for each in PAIR))),
    Case("exchange-split", (user(), placed(result(), rule=INHERITED)), 1,
         (user(), placed(thought(call()), rule=INHERITED), placed(result(), rule="inherit_context b (box 2)"))),
    Case("exchange-split", (user(), placed(thought(call()), box_id="a"), user("wait"), thought(text="Hm."), placed(result(), box_id="z")), 4,
         (user(), placed(thought(call()), box_id="a"), placed(result(), box_id="z"))),
    Case("tool-id-missing", (user(), thought(call(None))), 1, (user(), *PAIR)),
    Case("tool-id-missing", (user(), thought(call("")), result()), 1, (user(), *PAIR)),
    Case("call-without-result", (user(), thought(call())), 1, (user(), thought(call("")), result(""))),
    Case("result-without-call", (user(), result()), 1, (user(), thought(call("")), result(""))),
    Case("tool-id-missing", (user(), card("task.instruction", TextContent("ok"), "tool")), 1,
         (user(), card("task.instruction", TextContent("ok"), "assistant")), C),
    Case("tool-id-missing", (user(), result(None)), 1,
         (user(), message({"role": "function", "name": "f", "content": "ok"}, "tool.result", "function"))),
    # cards and contents
    Case("card-missing", (user(), placed(user("b"), state="dangling")), 1, (user(), user("b"))),
    Case("card-deleted", (user(), placed(user("b"), state="deleted")), 1, (user(), user("b"))),
    Case("card-expired", (user(), placed(user("b"), state="expired")), 1, (user(), user("b"))),
    Case("role-unknown", (card("chat.message", None, None),), 0, (card("chat.message", None, "user"),)),
    Case("role-unknown", (user(), card("chat.message", None, "narrator")), 1, (user(), card("sys.tools", ToolContent([]), None))),
    Case("message-unreadable", (card("chat.message", None, metadata={"unreadable": "no message"}),), 0,
         (card("chat.message", None, metadata={"readable": "yes"}),)),
    Case("type-unknown", (card("chat.massage", None),), 0, (card("chat.message", None),)),
    Case("content-unknown", (card("chat.message", {"__type__": "New"}),), 0, (user(),)),
    Case("content-empty", (user(), user(" \n")), 1, (user(), thought(call()), result(text=""))),
    Case("system-in-history", (user(), system("Be brief.")), 1,
         (system("Be brief."), user(), system("{}", "meta.parent_pointer"), system("a", "task.result_fields"))),
    Case("query-repeated", (user("Go on."), user("Go on.")), 1, (user("Go on."), thought(text="Done."), user("Go on."))),
    Case("content-repeated", (user(LONG), thought(text="Yes."), user(LONG)), 2, (user("ok"), thought(text="Yes."), user("ok"))),
    Case("answer-repeated", (user(), thought(text="Rome."), card("task.deliverable", TextContent("Rome."), "assistant"), user("b")), 2,
         (user(), thought(text="Rome."), card("task.deliverable", TextContent("Rome."), "assistant"))),
    Case("answer-repeated", (user(), thought(text="Rome."), card("task.deliverable", TextContent(" Rome.\n"), "assistant"), user("b")), 2,
         (user(), thought(text="Let me see."), card("task.deliverable", TextContent("Rome."), "assistant"), user("b"))),
    Case("summary-and-raw", (summary("k1"), user()), 0, (summary("gone"), user())),
    Case("summary-and-raw", (summary("k1"), user()), 0, (system("Short.", "context.compression", metadata={"covers": [["k1"]]}), user())),
    Case("history-left-out", (WORKER, user(), said("By the way.")), 2, (WORKER, user(), placed(said("A page."), rule=INHERITED))),
    Case("history-left-out", (WORKER, user(), placed(user("Then."), rule="output")), 2, (profile(), user(), said("By the way."))),
    Case("tool-not-offered", (tools("g"), user(), *PAIR), 2, (tools("f"), user(), *PAIR)),
    Case("tool-not-offered", (tools("g"), user(), *PAIR), 2, (user(), *PAIR)),
    Case("not-expressible", (user(), thinking()), 1, (user(), thought(call())), C),
    Case("not-expressible", (user(), message({"role": "function", "content": "a"}, "tool.result", "function")), 1,
         (user(), card("session.event", TextContent("a"), "tool")), A),
    Case("not-expressible", (message({"role": "user", "content": "a", "name": "ann"}, "task.instruction", "user"),), 0,
         (message({"role": "tool", "tool_call_id": "c", "content": "a", "name": "f"}, "tool.result", "tool"),), A),
    Case("not-expressible", (profile(seed=1), user()), None, (profile(top_p=1), user()), A),
    Case("not-expressible", (profile(foo=1), user()), None, (profile(stream=True, provider_options={}, save_reasoning_content=True), user())),
    Case("not-expressible", (profile(max_tokens="9"), user()), None, (profile(max_tokens=9, max_completion_tokens=9), user()), A),
    Case("not-expressible", (profile(n=2), user()), None, (profile(max_tokens=4096), user()), A),
    Case("not-expressible", (profile(top_k=2), user()), None, (profile(n=2, user="u", logprobs=True, store=False), user()), C),
    Case("no-messages", (profile(), system("a")), None, (profile(), user()), A),
    Case("no-messages", (), None, (profile(), system("a"))[:1], C),
    Case("nothing-asked", (profile(), system("a")), None, (profile(), user()), C),
    # OpenAI
    Case("content-null", (message({"role": "user", "content": None}, "task.instruction", "user"),), 0,
         (user(), message({"role": "assistant", "content": None, "refusal": "No."}, "agent.thought", "assistant")), C),
    Case("arguments-invalid", (user(), thought(call(arguments={})), result()), 1, (user(), *PAIR), C),
    Case("arguments-invalid", (user(), thought(call(arguments="{")), result()), 1,
         (user(), thought(call(arguments='{"a": 1' + "0" * 400 + "}")), result()), C),
    Case("arguments-invalid", (user(), thought(call(arguments="[1]")), result()), 1, (user(), *PAIR), C),
    Case("arguments-invalid", (user(), thought(call(arguments='{"a":' * 3000 + "1" + "}" * 3000)), result()), 1,
         (user(), thought(call(arguments='{"a":' * 300 + "1" + "}" * 300)), result())),
    Case("tool-id-too-long", (user(), thought(call("c" * 41)), result("c" * 41)), 1,
         (user(), thought(call("c" * 40)), result("c" * 40)), C),
    Case("tool-name-invalid", (user(), thought(call(name="a.b")), result()), 1, (user(), thought(call(name="a-b")), result()), C),
    Case("tool-name-invalid", (tools("x" * 65), user()), None, (tools("x" * 64), user()), C),
    Case("too-many-tools", (tools(*map(str, range(129))), user()), None, (tools(*map(str, range(128))), user()), C),
    Case("content-malformed", (said(5),), 0, (said("5"),), C),
    Case("content-malformed", (said([]),), 0, (said([TEXT_PART]),), C),
    Case("content-malformed", (said(["a"]),), 0, (said([IMAGE_PART]),), C),
    Case("content-malformed", (said([{"type": "text"}]),), 0, (said([TEXT_PART]),), C),
    Case("content-malformed", (said([{"type": "image_url", "image_url": {"url": ""}}]),), 0, (said([{"type": "file", "file": {"file_id": "f"}}]),), C),
    Case("content-malformed", (said([{"type": "video", "video": {}}]),), 0,
         (said([{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]),), C),
    Case("part-on-wrong-side", (said([TEXT_PART, IMAGE_PART], "system"), user()), 0, (said([TEXT_PART, IMAGE_PART]),), C),
    Case("part-on-wrong-side", (said([{"type": "refusal", "refusal": "No."}]),), 0, (user(), said([{"type": "refusal", "refusal": "No."}], "assistant")), C),
    Case("speaker-name-invalid", (user(), message({"role": "function", "content": "ok"}, "tool.result", "function")), 1,
         (user(), message({"role": "function", "name": "f", "content": "ok"}, "tool.result", "function")), C),
    Case("speaker-name-invalid", (said("a", name="ann lee"),), 0, (said("a", name="ann.lee-é"),), C),
    Case("tool-id-repeated", (user(), thought(call(), call()), result(), result()), 1, (user(), *PAIR, *PAIR), C),
    Case("tool-id-repeated", (user(), *(thought(call(), metadata={"source_group": "g"}) for _ in "ab"), result(), result()), 2,
         (user(), thought(call("a"), call("b")), result("a"), result("b")), C),
    Case("tool-malformed", (user(), said("a", "assistant", tool_calls="abc")), 1, (user(), said("a", "assistant", tool_calls=None)), C),
    Case("tool-malformed", (user(), said("a", "assistant", tool_calls=[])), 1, (user(), *PAIR), C),
    Case("tool-malformed", (user(), card("agent.thought", TextContent("a"), "assistant", tool_calls={"id": "c"})), 1,
         (user(), card("agent.thought", TextContent("a"), "assistant", tool_calls=[])), C),
    Case("tool-malformed", (user(), thought({**call(), "type": None}), result()), 1,
         (user(), thought({"id": "c", "type": "custom", "custom": {"name": "f", "input": ""}}), result()), C),
    Case("tool-malformed", (user(), thought({"id": "c", "type": "function"}), result()), 1, (user(), *PAIR), C),
    Case("key-missing", (defined({}), user()), None, (tools("f"), user()), C),
    Case("value-unknown", (profile(service_tier="fastest"), user()), None, (profile(service_tier="auto"), user()), C),
    Case("key-missing", (defined({"type": "custom", "custom": {}}), user()), None,
         (defined({"name": "f", "input_schema": OBJECT}, {"type": "custom", "custom": {"name": "g"}}), user()), C),
    Case("tool-malformed", (defined({"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}), user()), None,
         (defined({"type": "function", "function": {"name": "f", "parameters": OBJECT}}), user()), C),
    # Anthropic
    Case("first-message-not-user", (system("s"), thought(text="Hello.")), 1, (system("s"), user(), thought(text="Hello.")), A),
    Case("prefill-refused", (user(), thought(text="{")), 1, (user(), thought(text="{"), user()), A, "claude-opus-4-6"),
    Case("prefill-refused", (user(), thought(text="{")), 1, (user(),), A, "anthropic/claude-sonnet-5"),
    Case("prefill-refused", (profile(**THINKS), user(), thought(text="{")), 2, (profile(), user(), thought(text="{")), A, "claude-sonnet-4-5-20250929"),
    Case("trailing-whitespace", (user(), thought(text="{ ")), 1, (user(), thought(text="{ "), user()), A),
    Case("block-on-wrong-side", (user(), blocks(SIGNED, card_type="task.instruction", role="user")), 1,
         (user(), blocks(SIGNED, {"type": "text", "text": "a"}, card_type="agent.thought")), A),
    Case("block-unknown", (user(), blocks({"type": "hologram"}, card_type="agent.thought"), user()), 1,
         (user(), blocks({"type": "server_tool_use", "id": "s", "name": "f", "input": {}}), user()), A),
    Case("block-unknown", (user(), thought(call()), answered({"type": "tool_use", "id": "d", "name": "f", "input": {}})), 2,
         (user(), thought(call()), answered({"type": "tool_reference", "tool_name": "f"})), A),
    Case("block-malformed", (user(), shown({"type": "text"})), 1, (user(), shown(TEXT_PART)), A),
    Case("block-malformed", (user(), shown({"type": "text", "text": 5})), 1, (user(), shown({"type": "text", "text": ""})), A),
    Case("block-malformed", (message_blocks("system", {"type": "text"}), user()), 0, (message_blocks("system", {**TEXT_PART, **CACHED}), user()), A),
    Case("block-malformed", (user(), blocks({**USE, "id": 5})), 1, (user(), blocks(USE)), A),
    Case("block-malformed", (user(), blocks({**USE, "id": ""})), 1, (user(), thought(call(""))), A),
    Case("block-malformed", (user(), blocks({"type": "tool_use", "name": "f", "input": {}})), 1, (user(), thought(call(name=""))), A),
    Case("block-malformed", (user(), blocks({**USE, "name": None})), 1, (user(), blocks({**USE, "name": ""})), A),
    Case("block-malformed", (user(), blocks({**USE, "input": "{}"})), 1, (user(), thought(call(arguments="["))), A),
    Case("block-malformed", (user(), blocks({"type": "tool_use", "id": "c", "name": "f"})), 1, (user(), blocks(USE)), A),
    Case("block-malformed", (user(), *PAIR, shown({"type": "tool_result", "content": "ok"})), 3,
         (user(), *PAIR, shown({"type": "tool_result", "tool_use_id": "c"})), A),
    Case("block-malformed", (shown({"type": "image", "source": "AA=="}),), 0, (shown({"type": "image", "source": {"type": "file", "file_id": "f"}}),), A),
    Case("block-malformed", (shown({"type": "document", "title": "a"}),), 0,
         (shown({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}),), A),
    Case("block-malformed", (user(), thought(call()), answered({"type": "image"})), 2, (user(), thought(call()), answered(image("image/png"))), A),
    Case("block-malformed", (user(), thought(call()), answered({"type": "text", "text": None})), 2,
         (user(), thought(call()), answered({"type": "tool_reference", "tool_name": "f"})), A),
    Case("block-malformed", (user(), blocks({"type": "thinking", "signature": "c2ln"})), 1,
         (user(), blocks({"type": "thinking", "thinking": "", "signature": "c2ln"})), A),
    Case("block-malformed", (user(), blocks({"type": "redacted_thinking"})), 1, (user(), blocks({"type": "redacted_thinking", "data": "b3A="})), A),
    Case("image-invalid", (shown(image("image/tiff")),), 0, (shown(image("image/png")),), A),
    Case("image-invalid", (shown(image("image/webp")),), 0, (shown({"type": "image", "source": {"type": "url", "url": "https://h/p"}}),), A),
    Case("image-invalid", (user(), thought(call()), answered(image("image/bmp"))), 2, (user(), thought(call()), answered(image("image/png"))), A),
    Case("image-invalid", (said([{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}]),), 0, (said([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]),), C),
    Case("tool-malformed", (defined({"name": "f", "input_schema": {}}), user()), None, (tools("f"), user()), A),
    Case("tool-malformed", (defined({"name": "f", "input_schema": [OBJECT]}), user()), None,
         (defined({"name": "f", "input_schema": OBJECT}, {"type": "web_search_20250305", "name": "web_search"}), user()), A),
    Case("text-blank", (profile(" "), user()), 0, (profile("a"), user()), A),
    Case("text-blank", (user(), thought(call()), msgspec.structs.replace(blocks(BLANK_RESULT, card_type="tool.result", role="tool"), tool_call_id="c")), 2,
         (user(), thought(call()), msgspec.structs.replace(blocks(WORDS_RESULT, card_type="tool.result", role="tool"), tool_call_id="c")), A),
    Case("cache-breakpoints", (cached(3), cached(2)), 1, (cached(2), cached(2)), A),
    Case("thinking-unsigned", (user(), thinking(signature=None), thought(text="a")), 1, (user(), thinking(), thought(text="a")), A),
    Case("thinking-modified", (user(), thinking(edited_from="x"), thought(text="a")), 1, (user(), thinking(), thought(text="a", metadata={"edited_from": "x"})), A),
    Case("thinking-modified", (user(), thinking("a"), thought(text="a"), user(), thinking("b"), thought(text="b")), 4,
         (user(), thinking("a"), thought(text="a"), user(), thinking("b", "d3Jvbmc="), thought(text="b")), A),
    Case("thinking-out-of-order", (user(), thought(text="a"), thinking()), 2, (user(), thinking(), thought(text="a")), A),
    Case("thinking-out-of-order",
         (user(), thinking(source_group="g"), thought(text="a", metadata={"source_group": "g"}), user(), thinking(source_group="g"), thought(text="b")), 4,
         (user(), thinking(source_group="g"), thought(call(), metadata={"source_group": "g"}), result(), thought(text="b", metadata={"source_group": "g"})), A),
    Case("thinking-out-of-order", (user(), thought(text="a"), thinking(), thought(text="b")), 2,
         (profile(thinking={"type": "adaptive"}), user(), thought(text="a"), thinking(), thought(text="b")), A),
    Case("thinking-last", (user(), thinking()), 1, (user(), thinking(), user()), A),
    Case("thinking-missing", (profile(**THINKS), user(), *PAIR), 2, (profile(**THINKS), user(), thinking(), *PAIR), A),
    Case("thinking-missing", (profile(**THINKS), user(), *PAIR), 2, (profile(), user(), *PAIR), A),
    Case("tool-id-repeated", (user(), *PAIR, *PAIR), 3, (user(), *PAIR, thought(call("d")), result("d")), A),
    Case("tool-id-characters", (user(), thought(call("a.b")), result("a.b")), 1, (user(), thought(call("a-b")), result("a-b")), A),
    Case("tool-name-invalid", (user(), thought(call(name="a.b")), result()), 1, (user(), thought(call(name="a" * 128)), result()), A),
    Case("tool-name-invalid", (user(), thought({"id": "c", "type": "function", "function": {"arguments": "{}"}}), result()), 1,
         (user(), *PAIR), A),
    Case("tool-name-invalid", (user(), thought({"id": "c", "type": "function", "function": {"name": 5}}), result()), 1, (user(), *PAIR), A),
    Case("tool-id-characters", (user(), thought(call("c.1"), call("c_1")), result("c.1"), result("c_1")), 1,
         (user(), *PAIR, *PAIR), A),
    Case("tool-id-repeated", (user(), thought(call("c.1")), result("c.1"), thought(call("c.1")), result("c.1")), 3,
         (user(), thought(call("c.1"), call("c_1"), call("c:1")), result("c_1"), result("c:1"), result("c.1")), A),
    Case("result-without-call", (user(), thought(call("c_1")), result("c.1")), 2, (user(), thought(call("c_1")), result("c_1")), BOTH),
    Case("tool-name-invalid", (tools("x" * 129), user()), None, (tools("x" * 128), user()), A),
    Case("tool-repeated", (tools("f", "f"), user()), None, (tools("f", "g"), user()), A),
    Case("arguments-invalid", (user(), thought(call(arguments="{")), result()), 1, (user(), thought(call(arguments=" ")), result()), A),
    # the others
    Case("arguments-invalid", (user(), thought(call(arguments="{")), result()), 1, (user(), *PAIR), ("openai-responses",)),
    Case("reasoning-last", (user(), items({"type": "reasoning", "id": "rs_1", "summary": []})), 1,
         (user(), items({"type": "reasoning", "id": "rs_1", "summary": []}), thought(text="a")), ("openai-responses",)),
    Case("thought-signature-missing", (user(), parts(signed=True), result(), parts(signed=False), result()), 3,
         (user(), parts(signed=True), result(), parts(signed=True), result()), ("gemini",)),
    # parameters
    Case("temperature-out-of-range", (profile(temperature=2.1), user()), None, (profile(temperature=2), user()), C),
    Case("temperature-out-of-range", (profile(temperature=1.5), user()), None, (profile(temperature=1), user()), A),
    Case("temperature-out-of-range", (profile(temperature=Decimal("2.10")), user()), None, (profile(temperature=Decimal("0.10")), user())),
    Case("temperature-out-of-range", (profile(temperature=-1), user()), None, (profile(temperature=0), user())),
    Case("tool-choice-unknown", (profile(tool_choice=FORCED), tools("g"), user()), None, (profile(tool_choice=FORCED), tools("f"), user()), FLAT),
    Case("tool-choice-unknown", (profile(tool_choice=FORCED), tools("g"), user()), None, (profile(tool_choice=FORCED), user()), FLAT),
    Case("json-unsaid", (profile(**JSON_MODE), user()), None, (profile("Answer in Json.", **JSON_MODE), user()), C),
    Case("json-unsaid", (profile(**JSON_MODE), said([TEXT_PART])), None, (profile(**JSON_MODE), said([TEXT_PART, {"type": "text", "text": "as JSON"}])), C),
    Case("reasoning-parameters", (profile(max_tokens=9), user()), None, (profile(max_completion_tokens=9), user()), C, "o3-mini"),
    Case("reasoning-parameters", (profile(temperature=0), user()), None, (profile(temperature=1), user()), C, "gpt-5-mini-2025-08-07"),
    Case("reasoning-parameters", (profile(temperature=0, reasoning_effort="low"), user()), None, (profile(temperature=0), user()), C, "gpt-5.2"),
    Case("thinking-budget", (profile(**THINKS, max_tokens=1024), user()), None, (profile(**THINKS, max_tokens=1025), user()), A),
    Case("thinking-budget", (profile(thinking={"type": "enabled", "budget_tokens": 4096}), user()), None,
         (profile(**THINKS, max_tokens=1024), tools("f"), user()), A),
    Case("thinking-budget", (profile(thinking={"type": "enabled", "budget_tokens": 100}), user()), None, (profile(**ADAPTIVE, max_tokens=9), user()), A),
    Case("thinking-budget-interleaved", (profile(**THINKS, max_tokens=1024), tools("f"), user()), None, (profile(**THINKS, max_tokens=1024), user()), A),
    Case("thinking-parameters", (profile(**THINKS, temperature=0.5), user()), None, (profile(**THINKS, temperature=1, top_p=0.95), user()), A),
    Case("thinking-parameters", (profile(**ADAPTIVE, top_p=0.9), user()), None, (profile(top_p=0.9), user()), A),
    Case("thinking-parameters", (profile(**THINKS, top_k=5), user()), None, (profile(thinking={"type": "disabled"}, top_k=5), user()), A),
    Case("thinking-parameters", (profile(**THINKS, tool_choice="required"), tools("f"), user()), None,
         (profile(**THINKS, tool_choice="auto"), tools("f"), user()), A),
    Case("answer-for-batches", (profile(max_tokens=128_001), user()), None, (profile(max_tokens=128_000), user()), A, "claude-opus-4-6"),
    Case("parameter-removed", (profile(temperature=0), user()), None, (profile(temperature=1), user()), A, "claude-opus-4-7"),
    Case("parameter-removed", (profile(**THINKS), user()), None, (profile(**ADAPTIVE), user()), A, "claude-sonnet-5-5"),
    Case("parameter-removed", (profile(top_k=5), user()), None, (profile(), user()), A, "claude-fable-5"),
    # economy
    Case("over-limit", (user("word " * 300_000),), None, (user("word " * 240_000),), BOTH, "claude-2.1"),
    Case("near-limit", (user("word " * 170_000),), None, (user("word " * 160_000),), BOTH, "claude-sonnet-4-20250514"),
    Case("near-limit", (user("word " * 240_000),), None, (user("word " * 300_000),), BOTH, "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    Case("over-limit", (user(words(FULL + 1)),), None, (user(words(FULL)),), BOTH, "openai/gpt-4-0613"),
    Case("near-limit", (user(words(FULL - 26)), *PAIR), None, (user(words(FULL - 26)),), C, "gpt-4"),
    Case("near-limit", (user(words(FULL - 26)), *PAIR), None, (user(words(FULL - 40)), *PAIR), C, "gpt-4"),
    Case("volatile-text", (profile("It is 2026-11-22 08:30."), user()), 0, (profile("Since 2026-11-22."), user("It is 2026-11-22 08:30."))),
    Case("volatile-text", (system("Run 0190b5a4-7c6e-7c3a-9d0f-1f2e3d4c5b6a"), user()), 0, (system("0190b5a4", "meta.parent_pointer"), user())),
    Case("volatile-text", (system("This is turn #12."), user()), 0, (system("Take up to 12 turns."), user())),
    Case("tool-order", (tools("g"), tools("f"), user()), 1, (tools("f"), tools("g"), user())),
    Case("tool-order", (tools("g"), tools("f"), user()), 1, (tools("g", "f"), user())),
    Case("tool-order", (tools("g"), tools("f"), user()), 1, (tools(), tools("g", "f"), user())),
    # OpenAI's Responses
    Case("tool-name-invalid", (tools("x" * 129), user()), None, (tools("x" * 128), user()), R),
    Case("tool-name-invalid", (user(), thought(call(name="a.b")), result()), 1, (user(), thought(call(name="a-b")), result()), R),
    Case("arguments-invalid", (user(), thought(call(arguments="[1]")), result()), 1, (user(), *PAIR), R),
    Case("result-without-call", (user(), result()), 1, (profile(previous_response_id="r"), user(), result()), R),
    # Gemini
    Case("tool-name-invalid", (tools("1x"), user()), None, (tools("a.b:c-d"), user()), G),
    Case("tool-name-invalid", (user(), thought(call(name="a b")), result()), 1, (user(), thought(call(name="a.b")), result()), G),
    Case("content-malformed", (kept("gemini", {"hologram": {}}, role="user"),), 0, (kept("gemini", {"text": "a"}, role="user"),), G),
    Case("content-malformed", (kept("gemini", "a", role="user"),), 0, (user(), kept("gemini", {"thoughtSignature": "s"})), G),
    Case("thought-signature-missing", (user(), called({"thoughtSignature": "s"}), result(), called({}), result()), 3,
         (user(), called({}), result()), G),
    Case("arguments-invalid", (user(), thought(call(arguments="{")), result()), 1, (user(), *PAIR), (*G, *B)),
    # Bedrock
    Case("first-not-user", (system("s"), thought(text="Hello.")), 1, (system("s"), user(), thought(text="Hello.")), B),
    Case("tool-name-invalid", (tools("a.b"), user()), None, (tools("a-b"), user()), B),
    Case("tool-name-invalid", (user(), thought(call(name="a b")), result()), 1, (user(), thought(call(name="ab")), result()), B),
    Case("tool-id-invalid", (user(), thought(call("a.b")), result("a.b")), 1, (user(), *PAIR), B),
    Case("content-malformed", (kept("bedrock-converse", {"hologram": {}}, role="user"),), 0, (kept("bedrock-converse", {"text": "a"}, role="user"),), B),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-sonnet-4", 200_000),
        ("claude-sonnet-4@20250514", 200_000),
        ("anthropic/claude-sonnet-4.5", 200_000),
        ("claude-opus-4-8", 1_000_000),
        ("claude-opus-4-6-v1", 1_000_000),
        ("claude-opus-4-9", None),
        ("claude-haiku-5", None),
        ("claude-2", 100_000),
        ("gpt-4o-2024-08-06", 128_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.2", 400_000),
        ("gpt-5.9", None),
        ("gpt-4.1-mini", 1_047_576),
        ("gpt-4o-audio-preview", None),
        ("o1-mini", 128_000),
        (None, None),
    ],
)
def test_only_documented_models_have_a_known_context_window(model: str | None, tokens: int | None) -> None:
    assert window(model) == tokens


def test_every_block_type_of_anthropic_is_known() -> None:
    kinds = {"type": "x", **dict.fromkeys(("id", "name"), "x")}
    for union in (ContentBlockParam, Content):
        for block in get_args(union):
            name = get_args(get_args(get_type_hints(block, include_extras=True)["type"])[0])[0]
            one = {**kinds, "type": name}
            card = shown(one) if union is ContentBlockParam else answered(one)
            assert of_rule("block-unknown", found("anthropic", user(), thought(call()), card)) == []


def of_rule(rule: str, findings: list[LintFinding]) -> list[LintFinding]:
    return [each for each in findings if each.rule == rule]


EACH = [pytest.param(case, provider, id=f"{case.rule}-{provider}") for case in CASES for provider in case.providers]  # fmt: skip


@pytest.mark.parametrize(("case", "provider"), EACH)
def test_a_rule_finds_the_error_at_the_right_card(case: Case, provider: str) -> None:
    [finding] = of_rule(case.rule, found(provider, *case.broken, model=case.model))
    assert finding.position == case.position
    assert finding.card_id == (None if case.position is None else f"k{case.position}")
    assert (finding.box_id is None) == (case.position is None)
    [rule] = [each for each in RULES[provider] if each.id == case.rule]
    assert finding.provider == provider
    told = (finding.severity, finding.source, finding.remedy)
    assert told == (rule.severity, rule.source, rule.remedy)


@pytest.mark.parametrize(("case", "provider"), EACH)
def test_a_rule_ignores_a_near_miss(case: Case, provider: str) -> None:
    assert of_rule(case.rule, found(provider, *case.sound, model=case.model)) == []


def with_layer(name: str, *, last: bool) -> list[LintFinding]:
    """What is found where a layer stands before the history, or behind it."""
    entries = places(user())
    request = request_of(entries, encode=provider_named("openai").encode)
    messages = compose(
        system_prompt=None, checkpoint_messages=request.messages, contexts={name: "x"}, query=None
    )
    ordered: list[Message] = messages[::-1] if last else messages
    return lint(entries, msgspec.structs.replace(request, messages=ordered), provider_named("openai"))


def test_a_query_dependent_layer_before_the_history_is_found() -> None:
    [finding] = of_rule("layer-before-history", with_layer("knowledge__context", last=False))
    assert finding.message == "the layer knowledge__context comes before the history"
    assert with_layer("knowledge__context", last=True) == []
    assert with_layer("framework__context", last=False) == []


@pytest.mark.parametrize("provider", RULES)
def test_every_rule_has_a_test_case(provider: str) -> None:
    tabled = {case.rule for case in CASES if provider in case.providers} | {"layer-before-history"}
    if provider not in BOTH:  # what all share is proved by the two
        tabled |= {rule.id for shared in SHARED for rule in shared}
    else:  # the tables that have bounds are those of others
        tabled |= rules_found("bedrock-converse") & {rule.id for rule in request_rules.SHAPE}
    # Those about what rendering never makes are proved on requests that were logged.
    assert tabled | rules_found(provider) >= {rule.id for rule in RULES[provider]}


def test_the_documentation_lists_the_same_rules() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "lint.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| ([a-z, -]+) \| (.+) \|$", page, re.MULTILINE)
    documented = {
        (provider, rule, severity, finds)
        for rule, severity, providers, finds in rows
        for provider in (RULES if providers == "all" else providers.split(", "))
    }
    assert documented == {
        (provider, rule.id, rule.severity, rule.finds) for provider, rules in RULES.items() for rule in rules
    }


@pytest.mark.parametrize("provider", RULES)
def test_rule_ids_are_unique_per_provider(provider: str) -> None:
    ids = [rule.id for rule in RULES[provider]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("provider", RULES)
def test_a_valid_context_has_no_findings(provider: str) -> None:
    sound = (profile(model="gpt-4o"), tools("f"), user(), *PAIR, thought(text="Done."), user("Thanks."))
    assert found(provider, *sound) == []


@pytest.mark.parametrize("provider", RULES)
@pytest.mark.parametrize("card_type", ["agent.reasoning", "agent.aside", "agent.thought", "tool.result"])
def test_malformed_blocks_cause_findings_only_at_their_own_card(provider: str, card_type: str) -> None:
    strange = blocks("x", None, 3, [], {}, {"type": "thinking"}, {"type": "tool_use"}, card_type=card_type)
    assert [each for each in found(provider, user(), strange, user("And?")) if each.position != 1] == []


@pytest.mark.parametrize("provider", RULES)
def test_a_call_and_a_result_without_ids_are_not_paired(provider: str) -> None:
    findings = found(provider, user(), thought(call("")), user("wait"), result(""))
    assert [(each.position, each.rule) for each in findings] == [
        (1, "tool-id-missing"),
        (3, "tool-id-missing"),
        *([] if provider == "openai" else [(3, "not-expressible")]),
    ]


def test_unknown_types_and_blocks_are_reported_in_order() -> None:
    names = [f"x{number}" for number in range(8)]
    cards = [shown(*({"type": name} for name in names)), *(system("a", name) for name in names)]
    findings = found("anthropic", user(), *cards)
    blocks_told = [each.message for each in of_rule("block-unknown", findings)]
    assert blocks_told == [f"no message has a block of type {name!r}" for name in names]
    assert [each.position for each in of_rule("type-unknown", findings)] == list(range(2, 10))


def test_findings_about_the_whole_request_come_last() -> None:
    findings = found("openai", tools("x y"), user("a"), user("a"), thought(call()))
    assert [(each.position, each.rule) for each in findings] == [
        (2, "query-repeated"),
        (3, "call-without-result"),
        (3, "tool-not-offered"),
        (None, "tool-name-invalid"),
    ]


def test_messages_quote_the_invalid_value() -> None:
    cards = (thought(call("a.b"), call(name="x y")), user("wait"), result("a.b"), result(), *PAIR, result())
    assert [(each.rule, each.message) for each in found("anthropic", *cards)] == [
        ("first-message-not-user", "the first message is the assistant's, not the user's"),
        ("tool-id-characters", "the id 'a.b' is sent as 'a_b'"),
        (
            "tool-name-invalid",
            "the name 'x y' of the called tool is not 1 to 128 letters, digits, _ and -",
        ),
        ("tool-id-repeated", "the id 'c' repeats, and is sent as 'c_2'"),
        ("result-repeated", "the tool call 'c' has a result already"),
    ]
    assert [(each.rule, each.message) for each in found("openai", *cards) if each.position == 2] == [
        (
            "result-not-after-call",
            "the result of 'a.b' is not right after its call: 1 message between",
        )
    ]


@pytest.mark.parametrize(
    ("provider", "cards", "model", "message"),
    [
        ("openai", (said(5),), None, "the content is a number, and neither a text nor a list of parts"),
        ("openai", (said([{"type": "text"}]),), None, "a part of type 'text' does not hold what it should"),
        ("openai", (said("a", name="a b"),), None, "the name 'a b' is not a text, or has a space or one of <|\\/> in it"),
        ("openai", (said("a", tool_calls=[]),), None, "tool_calls is empty, not a list of calls"),
        ("openai", (user(), thought(call(), call()), result(), result()), None, "two calls of one message have the id 'c'"),
        ("openai", (profile(max_tokens=9), user()), "o1", "o1 accepts max_completion_tokens, not max_tokens"),
        ("anthropic", (defined({"name": "f", "input_schema": {"type": "string"}}), user()), None,
         "tool 0 has input_schema of the type 'string', not 'object'"),
        ("anthropic", (shown(image("image/tiff")),), None,
         "an image is of type 'image/tiff', none of image/jpeg, image/png, image/gif, image/webp"),
        ("anthropic", (user(), blocks({**USE, "id": ""}), user()), None, "a block of type 'tool_use' has no id"),
        ("anthropic", (user(), blocks({**USE, "name": 5}), user()), None, "a block of type 'tool_use' has a number as its name, not a text"),
        ("anthropic", (user(), blocks({**USE, "input": []}), user()), None, "a block of type 'tool_use' has a list as its input, not an object"),
        ("anthropic", (user(), shown({"type": "tool_result"})), None, "a block of type 'tool_result' has no tool_use_id"),
        ("anthropic", (user(), thought({"id": "c", "type": "function", "function": {}}), result()), None,
         "the name '' of the called tool is not 1 to 128 letters, digits, _ and -"),
        ("anthropic", (profile(**THINKS, max_tokens=9), user()), None, "the thinking may take 1024 tokens, and the whole answer 9 (max_tokens)"),
        ("anthropic", (profile(top_k=5), user()), "claude-opus-5", "claude-opus-5 does not accept top_k, which is 5"),
    ],
)  # fmt: skip
def test_messages_name_the_malformed_or_refused_part(
    provider: str, cards: Cards, model: str | None, message: str
) -> None:
    assert [each.message for each in found(provider, *cards, model=model) if each.severity == "error"] == [
        message
    ]


def test_reported_new_ids_match_the_sent_ids() -> None:
    first, second = thought(call("c.1"), call("c_1")), thought(call("c.1"))
    findings = found("anthropic", user(), first, result("c_1"), result("c.1"), second, result("c.1"))
    assert [(each.position, each.rule, each.message) for each in findings] == [
        (1, "tool-id-characters", "the id 'c.1' is sent as 'c_1_2'"),
        (4, "tool-id-repeated", "the id 'c.1' repeats, and is sent as 'c_1_2_2'"),
    ]


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ((user(words(FULL + 1)),), "8193 tokens, and gpt-4 holds 8192"),
        ((user(words(FULL - 26)), *PAIR), "~8196 tokens, and gpt-4 holds 8192"),
    ],
)
def test_a_token_count_is_marked_as_estimated_unless_it_is_exact(
    cards: tuple[Card, ...], message: str
) -> None:
    assert [each.message for each in found("openai", *cards, model="gpt-4")] == [message]


def test_a_message_omits_the_middle_of_a_long_value() -> None:
    [found_id] = of_rule(
        "tool-id-too-long", found("openai", user(), thought(call("c" * 5000)), result("c" * 5000))
    )
    assert re.fullmatch(r"the id 'c+…c+' has 5000 characters, not up to 40", found_id.message)
    assert len(found_id.message) == 400
