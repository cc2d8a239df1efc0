"""Where the files of the layout lie, as paths with "/" in them, and how a chat's folder is called."""

import re
from urllib.parse import quote, unquote

SHIP = ".ship"
CHATS = f"{SHIP}/chat"
PROFILES = f"{SHIP}/profile"

HISTORY = "conversations/history.jsonl"
ACTIVE = "contexts/active.jsonl"
INDEX = "contexts/index.json"
MEMORY = "memory/Primary.md"

_ROLLED = re.compile(r"conversations/archive-([1-9][0-9]{0,8})\.jsonl")
_ARCHIVE = re.compile(r"contexts/archive/(ctx_[A-Za-z0-9_.-]+)\.json")
_PROFILE = re.compile(r"([^/]+)\.md")

# The numbers that files of moved lines may have.
MOST_FILES = 999_999_999
# Bytes that the name of a file has at most.
_LONGEST = 255

# What encodeURIComponent of ECMAScript leaves as it is, besides letters and digits.
_AS_IS = "-_.!~*'()"


def folder_of(chat_key: str) -> str | None:
    """The name of a chat's folder: its key as encodeURIComponent spells it. None where no folder can be."""
    try:
        name = quote(chat_key, safe=_AS_IS)
    except UnicodeEncodeError:
        return None
    return None if name in ("", ".", "..") or len(name) > _LONGEST else name


def key_of(folder: str) -> str | None:
    """The chat whose folder is called so; None where no chat's is."""
    try:
        chat_key = unquote(folder, errors="strict")
    except UnicodeDecodeError:
        return None
    return chat_key if folder_of(chat_key) == folder else None


def rolled(number: int) -> str:
    """The file of the transcript's lines that were moved out of the way as the `number`th."""
    return f"conversations/archive-{number}.jsonl"


def number_of(name: str) -> int | None:
    """The number of a file of moved lines; None for any other."""
    found = _ROLLED.fullmatch(name)
    return int(found[1]) if found else None


def archive_file(context_id: str) -> str:
    """The file of an archived context."""
    return f"contexts/archive/{context_id}.json"


def is_context(context_id: str) -> bool:
    """Whether a file of its folder can be called after an archived context, and is read again."""
    name = archive_file(context_id)
    return context_of(name) == context_id and len(name.rpartition("/")[2]) <= _LONGEST


def context_of(name: str) -> str | None:
    """The archived context that a file holds by its name; None for any other file."""
    found = _ARCHIVE.fullmatch(name)
    return found[1] if found else None


def profile_file(persona: str) -> str:
    """The name of a persona's file."""
    return f"{persona}.md"


def is_file_name(name: str) -> bool:
    """Whether a file of a folder can be called so, and is read again."""
    return "/" not in name and not name.startswith(".") and len(name.encode()) <= _LONGEST


def persona_of(name: str) -> str | None:
    """The persona whose text a file of the profiles' folder holds; None for any other."""
    found = _PROFILE.fullmatch(name)
    return found[1] if found else None
