"""How things are named: new ids, ids derived from what they name, and the short forms that people type."""

import hashlib
import uuid
from collections.abc import Iterable, Sequence

from cardbox_cli.model import exact_json

SHORT = 8
MIN_TYPED = 4

# The namespace of all derived ids, itself uuid5(NAMESPACE_URL, "cbx"). Changing it would make every
# import a new one.
_DERIVED = uuid.UUID("794528fa-3e1f-5c5f-9a8f-fc3a07af78f1")


def new_card_id() -> str:
    """A UUIDv7 as 32 hex digits. For single cards: in a loop the generator's clock runs ahead of time."""
    import uuid6

    return uuid6.uuid7().hex


def new_box_id() -> str:
    """A UUIDv7 with dashes."""
    import uuid6

    return str(uuid6.uuid7())


def derived_id(*parts: str) -> uuid.UUID:
    """The UUIDv5 of `parts`: the same parts give the same id, on any machine."""
    return derived_from(parts)


def derived_from(parts: Iterable[str]) -> uuid.UUID:
    """`derived_id` of any number of parts, one in memory at a time."""
    name = hashlib.sha1(_DERIVED.bytes, usedforsecurity=False)
    for index, part in enumerate(parts):
        name.update(b"\x1f" * (index > 0) + part.encode())
    return uuid.UUID(bytes=name.digest()[:16], version=5)


def as_box_id(text: str) -> str | None:
    """The canonical spelling of a box id (dashes, lower case), or None if `text` is no UUID."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def short_id(full_id: str) -> str:
    """The last 8 characters: fresh UUIDv7s share their first ones."""
    return full_id[-SHORT:]


def unique(ids: Iterable[str]) -> list[str]:
    """`ids` without repetitions; the first place wins."""
    return list(dict.fromkeys(ids))


def hash_ids(card_ids: Sequence[str]) -> str:
    """SHA-256 of an id list, written as one compact JSON array. Guards `BoxStore.replace`."""
    return hashlib.sha256(exact_json.encode(list(card_ids))).hexdigest()
