"""Sessions of pi: lines that name their parent line, so that a session is a tree. Read only.

The branch of the last line is the session's box, and each other branch is a child box. In older sessions the
lines name no parent and form one branch. Files of bare messages are read, too.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from cardbox_cli.context.parts import list_of, text_at
from cardbox_cli.conversations.containers.container_entries import (
    call_block,
    container_format,
    image_block,
    iterate_objects,
    message_cards,
    result_block,
    text_block,
    thinking_block,
    timed_entry,
)
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import JsonDocuments
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.anthropic.blocks import NAME as ANTHROPIC

NAME = "pi"
_HEADER = "session"
# The entries of a session: `packages/coding-agent/docs/session.md`.
_TYPES = (
    *("message", "custom_message", "custom", "compaction", "branch_summary", "label", "session_info"),
    *("model_change", "thinking_level_change"),
)
# The evidence that a line is a bare message, with the keys that show it.
_MESSAGES = {
    "a message has an 'api' and a 'stopReason'": {"role", "content", "api", "stopReason"},
    "a message has a 'toolCallId' and a 'toolName'": {"role", "content", "toolCallId", "toolName"},
}
# The text that pi adds to the summary of a branch.
_BRANCH = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
)


def _mark(line: dict[str, Any]) -> str | None:
    if line.get("type") == _HEADER and "cwd" in line and "sessionId" not in line:
        return "a line of the type 'session' has a 'cwd'"
    if text_at(line, "type") in _TYPES and "parentId" in line and text_at(line, "id") is not None:
        return f"a line of the type {line['type']!r} has a 'parentId'"
    if line.get("type") == "compaction" and "summary" in line and "tokensBefore" in line:
        return "a line of the type 'compaction' has 'tokensBefore'"
    return next((why for why, keys in _MESSAGES.items() if keys <= line.keys()), None)


def _read(documents: JsonDocuments) -> Iterator[Conversation]:
    parents: dict[str, str | None] = {}
    session, name, last = None, None, None
    for _, line in iterate_objects(documents):
        if line.get("type") == _HEADER:
            session = text_at(line, "id")
        elif (own := text_at(line, "id")) is not None:
            last, parents[own] = own, text_at(line, "parentId")
            name = text_at(line, "name") if line.get("type") == "session_info" else name
    forked = {parent for parent in parents.values() if parent is not None}
    leaves = [last, *(each for each in parents if each not in forked and each != last)]
    for leaf in leaves:
        is_main = leaf == last
        yield Conversation(
            entries=Rereadable(partial(_entries, documents, _path(leaf, parents))),
            place=documents.name,
            own_id=session if is_main or session is None else f"{session}/{leaf}",
            title=name,
            format=NAME,
            parent_id=None if is_main else session,
            is_part=len(leaves) > 1,
        )


def _path(leaf: str | None, parents: Mapping[str, str | None]) -> set[str]:
    """Return the ids of the lines from the root of a session to a leaf."""
    path: set[str] = set()
    while leaf is not None and leaf not in path:
        path.add(leaf)
        leaf = parents.get(leaf)
    return path


def _entries(documents: JsonDocuments, path: set[str]) -> Iterator[FileEntry]:
    """Yield the header, the lines whose ids are in `path`, and the lines outside the tree."""
    for number, (place, line) in enumerate(iterate_objects(documents)):
        own = text_at(line, "id")
        if line.get("type") == _HEADER or own is None:
            yield timed_entry(str(number), line, place)
        elif own in path:
            yield timed_entry(own, line, place)


def _cards(line: dict[str, Any]) -> list[CardDraft]:
    message = _message(line)
    if message is None or not isinstance(content := message.get("content"), str | list):
        return []
    role = text_at(message, "role")
    blocks = [_block(part, message) for part in list_of(content)]
    if role == "toolResult" and text_at(message, "toolCallId"):
        is_error = message.get("isError") is True
        result = result_block(message["toolCallId"], blocks or content, is_error=is_error)
        return message_cards("user", [result])
    return message_cards(role, blocks or content) if role in ("user", "assistant") else []


def _message(line: dict[str, Any]) -> dict[str, Any] | None:
    """Return the message that pi sends for a line, None for a line that it does not send.

    A compaction is an event, because the messages that it summarizes are present. Source: `convertToLlm` in
    `packages/coding-agent/src/core/messages.ts`.
    """
    match line:
        case {"type": "custom_message", "content": content}:
            return {"role": "user", "content": content}
        case {"type": "branch_summary", "summary": str(summary)} if summary:
            return {"role": "user", "content": _BRANCH.format(summary)}
        case {"type": "message", "message": {"role": "custom" | "hookMessage", "content": content}}:
            return {"role": "user", "content": content}
        case {"type": "message", "message": {"role": "bashExecution", "command": str(command)} as run}:
            return None if run.get("excludeFromContext") else {"role": "user", "content": _bash(command, run)}
        case {"type": "message", "message": {"role": "branchSummary", "summary": str(summary)}}:
            return {"role": "user", "content": _BRANCH.format(summary)}
        case {"type": "message", "message": {"role": str()}}:
            return dict(line["message"])
        case {"role": "user" | "assistant" | "toolResult", "content": _} if "type" not in line:
            return line
    return None


def _bash(command: str, run: dict[str, Any]) -> str:
    """Format a user's command and its output as pi sends it."""
    printed, code = text_at(run, "output"), run.get("exitCode")
    lines = [f"Ran `{command}`", f"```\n{printed}\n```" if printed else "(no output)"]
    if run.get("cancelled") is True:
        lines.append("\n(command cancelled)")
    elif isinstance(code, int) and code:
        lines.append(f"\nCommand exited with code {code}")
    if run.get("truncated") is True and text_at(run, "fullOutputPath"):
        lines.append(f"\n[Output truncated. Full output: {run['fullOutputPath']}]")
    return "\n".join(lines)


def _block(part: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of pi's to a block of Anthropic's. Only Anthropic's own signatures are preserved."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text_block(text)
        case {"type": "thinking", "thinking": str(text)}:
            is_signed = message.get("provider") == ANTHROPIC
            if is_signed and part.get("redacted") is True:
                return {"type": "redacted_thinking", "data": text_at(part, "thinkingSignature") or ""}
            return thinking_block(text, text_at(part, "thinkingSignature") if is_signed else None)
        case {"type": "toolCall", "id": str(call_id), "name": str(name)}:
            return call_block(call_id, name, part.get("arguments", {}))
        case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
            return image_block(data, media_type)
    return part if isinstance(part, dict) else text_block(str(part))


FORMAT = container_format(NAME, ANTHROPIC, mark=_mark, read=_read, cards=_cards)
