"""Files of the on-disk layout, as programs in the field write them."""

import json
from pathlib import Path
from typing import Any

KEY = "telegram-chat--1001/群 🎉-topic-7"
FOLDER = "telegram-chat--1001%2F%E7%BE%A4%20%F0%9F%8E%89-topic-7"
START = 1_763_800_000_000


def line(number: int, text: str, role: str = "user", **others: Any) -> dict[str, Any]:
    """A line of a transcript."""
    return {
        "v": 1,
        "ts": START + number * 1000,
        "channel": "telegram",
        "chatId": "-1001",
        "chatKey": KEY,
        "role": role,
        "text": text,
        **others,
    }


def message(number: int, content: str, role: str = "user", **others: Any) -> dict[str, Any]:
    """A message of a context."""
    return {"v": 1, "ts": START + number * 1000, "role": role, "content": content, **others}


def older(number: int, text: str, role: str = "user") -> dict[str, Any]:
    """A message as older programs wrote it."""
    return {"v": 1, "ts": START + number * 1000, "role": role, "text": text}


def archive(context_id: str, number: int, *messages: dict[str, Any], **others: Any) -> dict[str, Any]:
    """An archived context."""
    return {
        "v": 1,
        "chatKey": KEY,
        "contextId": context_id,
        "createdAt": START + number * 1000,
        "archivedAt": START + (number + 100) * 1000,
        "messages": list(messages),
        **others,
    }


def item(archived: dict[str, Any], **others: Any) -> dict[str, Any]:
    """What the index says of an archive."""
    kept = {key: archived[key] for key in ("v", "contextId", "createdAt", "archivedAt")}
    title = {"title": archived["title"]} if "title" in archived else {}
    return {**kept, **title, "messages": len(archived["messages"]), **others}


def turn(number: int, text: str, role: str = "user", **others: Any) -> dict[str, Any]:
    """A message as the first programs wrote it."""
    return {"v": 1, "ts": START + number * 1000, "role": role, "text": text, **others}


def first_snapshot(context_id: str, *turns: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A context as the first programs wrote it: one document, archived or active."""
    return {
        "v": 1,
        "chatKey": KEY,
        "contextId": context_id,
        "createdAt": START,
        "updatedAt": START + 9000,
        "turns": list(turns),
        "searchText": "user: 怎么退款？",
        **others,
    }


FIRST_ARCHIVE = first_snapshot(
    "ctx_first",
    turn(1, "怎么退款？", meta={"n": 1.10}),
    turn(2, "填表", "assistant"),
    state="archived",
    archivedAt=START + 9000,
    title="退款",
    checkpoint={"lastAssistantTurnIndex": 1, "lastAssistantTextPreview": "填表"},
)
FIRST_TREE: dict[str, Any] = {
    "contexts/archive/ctx_first.json": FIRST_ARCHIVE,
    "contexts/index.json": {
        "v": 1,
        "items": [
            {
                **{key: FIRST_ARCHIVE[key] for key in ("v", "contextId", "createdAt", "archivedAt", "title")},
                "turns": 2,
                "searchTextPreview": "user: 怎么退款？",
            }
        ],
    },
}
FIRST_ACTIVE = first_snapshot("ctx_now", turn(5, "Noch da?"), turn(6, "Ja", "assistant"), state="active")


ODD = 'a "quote", a \\ backslash,\n\ta tab, \x1b[31mred\x1b[0m, 中文，日本語 🎉👩‍👩‍👧 \u2028 </script>'

FIRST = archive(
    "ctx_1a",
    1,
    older(1, "怎么退款？"),
    message(2, "填表", "assistant"),
    title="退款",
    reason="new topic",
    checkpoint={"lastAssistantIndex": 1, "lastAssistantPreview": "填表"},
    searchText="退款 怎么退款 填表",
)
SECOND = archive("ctx_2b.x-y_Z", 5, message(5, ODD, meta={"n": 1.10}), kept={"by": "somebody"})

TREE: dict[str, Any] = {
    "conversations/archive-1.jsonl": [line(1, "怎么退款？", userId="42"), line(2, "填表", "assistant")],
    "conversations/archive-2.jsonl": [line(3, ODD, messageId="m3", meta={"deep": [{"ключ": None}]})],
    "conversations/history.jsonl": [
        line(4, "first"),
        line(4, "first"),
        line(5, "", "system"),
        line(6, "{}", "tool", editedAt=5, extra={"extra": 1}),
    ],
    "contexts/active.jsonl": [older(4, "first"), message(6, ODD, "assistant", meta={}, model="m")],
    "contexts/archive/ctx_1a.json": FIRST,
    "contexts/archive/ctx_2b.x-y_Z.json": SECOND,
    "contexts/index.json": {
        "v": 1,
        "updatedAt": 7,
        "items": [item(SECOND, pinned=True), item(FIRST, searchTextPreview="退款 怎么")],
    },
    "memory/Primary.md": "# 记忆\n\nLikes tea. 🍵\n",
}


def spelled(name: str, value: Any) -> bytes:
    """The bytes of a file."""
    if name.endswith(".jsonl"):
        return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in value).encode()
    return (json.dumps(value, indent=2) if name.endswith(".json") else value).encode()


def loaded(name: str, data: bytes) -> Any:
    """What the bytes of a file say."""
    if name.endswith(".jsonl"):
        return [json.loads(each) for each in data.decode().split("\n") if each]
    return json.loads(data) if name.endswith(".json") else data.decode()


def files(tree: dict[str, Any] = TREE) -> dict[str, bytes]:
    """The files of a tree."""
    return {name: spelled(name, value) for name, value in tree.items()}


def write(root: Path, tree: dict[str, Any] = TREE, folder: str = FOLDER) -> Path:
    """Write a chat's files below a project's folder; the chat's folder."""
    chat = root / ".ship" / "chat" / folder
    for name, data in files(tree).items():
        (chat / name).parent.mkdir(parents=True, exist_ok=True)
        (chat / name).write_bytes(data)
    return chat


def read(chat: Path) -> dict[str, Any]:
    """What the files below a chat's folder say."""
    paths = sorted(path for path in chat.rglob("*") if path.is_file())
    return {str(path.relative_to(chat)): loaded(path.name, path.read_bytes()) for path in paths}
