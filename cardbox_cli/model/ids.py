"""How things are named: new ids, ids derived from what they name, and their short forms."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.text import unseen

# uuid is imported where it is needed: that costs a command more than most of ours, and few make an id.
if TYPE_CHECKING:
    from uuid import UUID

SHORT = 8
MIN_SHORT = 4

# The namespace of all derived ids, itself uuid5(NAMESPACE_URL, "cbx"). Changing it would make every
# import a new one.
_DERIVED = bytes.fromhex("794528fa3e1f5c5f9a8ffc3a07af78f1")
# What stands between the parts that an id is derived from.
_BETWEEN = b"\x1f"
# A digit with the two bits of a UUID's variant in the place of its first two.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_CANONICAL = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def new_card_id() -> str:
    """A UUIDv7 as 32 hex digits. For single cards: in a loop the generator's clock runs ahead of time."""
    import uuid6

    return uuid6.uuid7().hex


def new_box_id() -> str:
    """A UUIDv7 with dashes."""
    import uuid6

    return str(uuid6.uuid7())


def derived_id(*parts: str) -> "UUID":
    """The UUIDv5 of `parts`: the same parts give the same id, on any machine."""
    return derived_from(parts)


def derived_from(parts: Iterable[str | bytes]) -> "UUID":
    """`derived_id` of any number of parts, one in memory at a time; bytes are UTF-8."""
    from uuid import UUID

    name = hashlib.sha1(_DERIVED, usedforsecurity=False)
    add, between = name.update, b""
    for part in parts:
        add(between)
        add(part if type(part) is bytes else str(part).encode())
        between = _BETWEEN
    return UUID(bytes=name.digest()[:16], version=5)


class DerivedIds:
    """Ids that are derived from parts which begin alike: `derived_id(*begin, *parts).hex`, and faster."""

    def __init__(self, *begin: str) -> None:
        self._begin = hashlib.sha1(_DERIVED, usedforsecurity=False)
        self._begin.update("\x1f".join(begin).encode())

    def hex(self, *parts: str | bytes) -> str:
        """The id of these parts after the first ones, which are at least one; bytes are UTF-8."""
        name = self._begin.copy()
        for part in parts:
            name.update(_BETWEEN)
            name.update(part if type(part) is bytes else str(part).encode())
        digits = name.hexdigest()
        # RFC 9562, 5.5: the version and the variant.
        return f"{digits[:12]}5{digits[13:16]}{_VARIANT[digits[16]]}{digits[17:32]}"


def as_box_id(text: str) -> str | None:
    """The canonical form of a box id (dashes, lower case), or None if `text` is no UUID."""
    if re.fullmatch(_CANONICAL, text):
        return text
    from uuid import UUID

    try:
        return str(UUID(text))
    except ValueError:
        return None


def are_box_ids(texts: Iterable[str]) -> bool:
    """Whether all are ids of boxes in their canonical form."""
    return re.fullmatch(f"(?:{_CANONICAL},)+", ",".join([*texts, ""])) is not None


def fault_of_new_id(text: str) -> str | None:
    """Why cbx makes nothing of this name, to be read after it; None for a good one.

    Nobody could see such a name or type it. Rows of other programs, and their copies, may have any.
    """
    if not text.strip():
        return "is blank"
    if text.startswith("@"):
        return "begins with @, as only names like @last do"
    if text.startswith("-"):
        return "begins with -, as options do"
    odd = unseen(text)
    return None if odd is None else f"holds {odd!r}, which cannot be seen"


def check_new_id(text: str, what: str, hint: str) -> None:
    """Raise InvalidInput unless cbx may make something of this name; `what` says of which place."""
    fault = fault_of_new_id(text)
    if fault is not None:
        raise InvalidInput(f"{what}: {text[:40]!r} {fault}", hint=hint)


def short_id(full_id: str) -> str:
    """The last 8 characters: fresh UUIDv7s share their first ones."""
    return full_id[-SHORT:]


def fits(wanted: str, full_id: str) -> bool:
    """Whether `wanted` is the beginning or end of an id, or of its short form, and long enough to mean it."""
    alike = full_id.startswith(wanted) or full_id.endswith(wanted) or short_id(full_id).startswith(wanted)
    return len(wanted) >= MIN_SHORT and alike


def unique(ids: Iterable[str]) -> list[str]:
    """`ids` without repetitions; the first place wins."""
    return list(dict.fromkeys(ids))


def hash_ids(card_ids: Sequence[str]) -> str:
    """SHA-256 of an id list, written as one compact JSON array. Guards `BoxStore.replace`."""
    return hashlib.sha256(exact_json.encode(list(card_ids))).hexdigest()
