"""Rules about a request to Anthropic as it was logged: what rendering mends before anybody sees it.

Rules that look at what is rendered, too, and then only warn, stand beside the others, with `logged="error"`.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import is_text, kind
from cardbox_cli.context.providers.anthropic.blocks import is_result
from cardbox_cli.context.request import RequestEntry

_MESSAGES = "Anthropic API reference, Create a Message: messages"

RULES = Rules(_MESSAGES)


def _messages(subject: Subject) -> Iterator[tuple[RequestEntry, dict[str, Any], list[Any]]]:
    """The messages as they were logged, each with its blocks."""
    for entry, message in subject.logged.messages if subject.logged is not None else ():
        if isinstance(message, dict):
            content = message.get("content")
            yield entry, message, content if isinstance(content, list) else []


@RULES.error("content-blank", remedy="leave the message or the block out, or write something in it")
def _blank(subject: Subject) -> Iterator[Hit]:
    """As logged, a message without content, unless it is the assistant's and the last, or an empty or white
    text block, in `system`, too; the assistant may say a white one beside other blocks. Rendering leaves them
    out."""
    system = subject.beside.get("system") if subject.logged is not None else None
    if isinstance(system, list) and any(is_text(block) and not block["text"].strip() for block in system):
        yield None, "a text block of system is empty, or white"
    messages = list(_messages(subject))
    for number, (entry, message, blocks) in enumerate(messages, 1):
        is_last = number == len(messages) and message.get("role") == "assistant"
        content = message.get("content")
        if not is_last and (content == [] or (isinstance(content, str) and not content.strip())):
            yield entry, "the message has no content"
        texts = [block["text"] for block in blocks if is_text(block)]
        may_be_white = message.get("role") == "assistant" and len(texts) < len(blocks)
        if any(not (text if may_be_white else text.strip()) for text in texts):
            yield entry, "a text block is empty, or white"


@RULES.error(
    "result-not-first",
    source="Anthropic docs, Handle tool calls: formatting requirements",
    remedy="put what the user says behind the results",
)
def _late_results(subject: Subject) -> Iterator[Hit]:
    """As logged, something else before a tool result in what the user says. Rendering puts results first."""
    for role, run in groupby(_messages(subject), key=lambda each: each[1].get("role")):
        before: str | None = None
        for entry, message, blocks in run if role == "user" else ():
            if isinstance(message.get("content"), str):
                before = before or "text"
            for block in blocks:
                if not is_result(block):
                    before = before or kind(block)
                elif before is not None:
                    yield entry, f"a block of type {before!r} stands before a tool result"
                    break
