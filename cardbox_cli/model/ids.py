"""Ids: new ids, ids that are derived from the named thing, and the short forms of ids."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.text.escaping import first_invisible

# uuid is imported inside functions: it loads slowly, and few commands need a new id.
if TYPE_CHECKING:
    from uuid import UUID

SHORT = 8
MIN_SHORT = 4

# The namespace of all derived ids, uuid5(NAMESPACE_URL, "cbx"). A change would make imports store cards
# again.
_NAMESPACE = bytes.fromhex("794528fa3e1f5c5f9a8ffc3a07af78f1")
# Separator of the parts of a derived id.
_SEPARATOR = b"\x1f"
# Maps a hex digit to the digit with its two high bits replaced by the variant of a UUID.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_CANONICAL = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def new_card_id() -> str:
    """Return a UUIDv7 as 32 hex digits. Do not use it in a loop, because its clock would run ahead."""
    import uuid6

    return uuid6.uuid7().hex


def new_box_id() -> str:
    """Return a UUIDv7 with dashes."""
    import uuid6

    return str(uuid6.uuid7())


def derived_id(*parts: str) -> "UUID":
    """Return the UUIDv5 of `parts`. The same parts give the same id on any machine."""
    return derive_id(parts)


def derive_id(parts: Iterable[str | bytes]) -> "UUID":
    """Return the same id as `derived_id`, and hold one part in memory at a time. Bytes are UTF-8."""
    from uuid import UUID

    name = hashlib.sha1(_NAMESPACE, usedforsecurity=False)
    add, between = name.update, b""
    for part in parts:
        add(between)
        add(part if type(part) is bytes else str(part).encode())
        between = _SEPARATOR
    return UUID(bytes=name.digest()[:16], version=5)


class DerivedIds:
    """A fast way to compute `derived_id(*begin, *parts).hex` for many `parts` with the same `begin`."""

    def __init__(self, *begin: str) -> None:
        self._begin = hashlib.sha1(_NAMESPACE, usedforsecurity=False)
        self._begin.update("\x1f".join(begin).encode())

    def hex(self, *parts: str | bytes) -> str:
        """Return the id of the common parts followed by `parts`, at least one. Bytes are UTF-8."""
        name = self._begin.copy()
        for part in parts:
            name.update(_SEPARATOR)
            name.update(part if type(part) is bytes else str(part).encode())
        digits = name.hexdigest()
        # RFC 9562, 5.5: the version and the variant.
        return f"{digits[:12]}5{digits[13:16]}{_VARIANT[digits[16]]}{digits[17:32]}"


def canonical_box_id(text: str) -> str | None:
    """Return the canonical form of a box id (dashes, lower case), or None if `text` is not a UUID."""
    if re.fullmatch(_CANONICAL, text):
        return text
    from uuid import UUID

    try:
        return str(UUID(text))
    except ValueError:
        return None


def are_box_ids(texts: Iterable[str]) -> bool:
    return re.fullmatch(f"(?:{_CANONICAL},)+", ",".join([*texts, ""])) is not None


def new_id_fault(text: str) -> str | None:
    """Return the end of a sentence if cbx refuses a new name, or None. People cannot see or type such names.

    Rows of other programs, and copies of them, may have any name.
    """
    if not text.strip():
        return "is blank"
    if text.startswith("@"):
        return "begins with @, which is reserved for names like @last"
    if text.startswith("-"):
        return "begins with -, like an option"
    odd = first_invisible(text)
    return None if odd is None else f"contains the invisible character {odd!r}"


def check_new_id(text: str, what: str, hint: str) -> None:
    """Raise InvalidInput for an invalid new name. `what` is the named thing, for the message."""
    fault = new_id_fault(text)
    if fault is not None:
        raise InvalidInput(f"{what}: {text[:40]!r} {fault}", hint=hint)


def short_id(full_id: str) -> str:
    """Return the last 8 characters, because UUIDv7s of about the same time begin with the same digits."""
    return full_id[-SHORT:]


def matches_short_id(wanted: str, full_id: str) -> bool:
    """Return whether `wanted` is long enough and begins or ends the id, or begins its short form."""
    alike = full_id.startswith(wanted) or full_id.endswith(wanted) or short_id(full_id).startswith(wanted)
    return len(wanted) >= MIN_SHORT and alike


def unique(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(ids))


def hash_ids(card_ids: Sequence[str]) -> str:
    """Return the SHA-256 of an id list as compact JSON. `BoxStore.replace` uses it to detect changes."""
    return hashlib.sha256(exact_json.encode(list(card_ids))).hexdigest()
