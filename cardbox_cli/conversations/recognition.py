"""Which format a file is in, and by what that is known.

Every value of the file is asked, and so is every item of a list that is no conversation: one that bears the
marks of another format than an earlier one makes the file a mixture, which is refused naming both. What marks
a format has stands with the format.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cardbox_cli.conversations.conversation import Format
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.message_lists import values_in
from cardbox_cli.errors import InvalidConversation


class Recognised(NamedTuple):
    """The format of a file, and by what it is known, None where it was named."""

    format: Format
    evidence: str | None = None


class _Marked(NamedTuple):
    """A value that bears a mark: where it stands, whose format it is in, and by what."""

    place: str
    format: Format
    evidence: str


# How many values without a mark are remembered until one has a mark: a file may have any number of them.
_REMEMBERED = 1000
_UNMARKED = "nothing marks another format"
_SHAPE = "by its shape"


def recognise(documents: Documents, formats: Sequence[Format], default: Format) -> Recognised:
    """The format of a file by its marks; of several formats in one value the first that is asked.

    Raises InvalidConversation for a mixture.
    """
    found: _Marked | None = None
    plain: list[tuple[str, Any]] = []
    ask = sorted(formats, key=lambda each: not each.tells_all)
    for place, value in values_in(documents):
        marked = _mark(place, value, ask)
        if marked is None and found is not None:
            _check_may_be(found, place, value, formats, default)
        elif marked is None:
            plain += [(place, value)] if len(plain) < _REMEMBERED else []
        elif found is None:
            found = marked
            ask.sort(key=lambda each: not (each.tells_all and each is marked.format))
        elif marked.format.name not in (found.format.name, *found.format.holds):
            raise _mixture(found, marked)
    if found is None:
        return Recognised(default, _UNMARKED)
    for place, value in plain:
        _check_may_be(found, place, value, formats, default)
    within = found.place.removeprefix(documents.name)
    where = f"line {within[1:]}: " if within.startswith(":") else f"{within}: " if within else ""
    return Recognised(found.format, f"{where}{found.evidence}")


def _mark(place: str, value: Any, formats: Sequence[Format]) -> _Marked | None:
    for each in formats:
        evidence = each.marks(value)
        if evidence is not None:
            return _Marked(place, each, evidence)
    return None


def _check_may_be(found: _Marked, place: str, value: Any, formats: Sequence[Format], default: Format) -> None:
    """Raise InvalidConversation for a value without a mark that is in another format than what was found: it
    does not fit there, and does elsewhere."""
    if found.format.fits(value):
        return
    other = next((each for each in (default, *formats) if each.fits(value)), None)
    if other is not None:
        raise _mixture(found, _Marked(place, other, _SHAPE))


def _mixture(one: _Marked, other: _Marked) -> InvalidConversation:
    return InvalidConversation(
        f"{one.place} is in the format {one.format.name} ({one.evidence}), {other.place} in "
        f"{other.format.name} ({other.evidence})",
        hint="give a file for each format",
    )


def check_named(documents: Documents, named: Format, formats: Sequence[Format], default: Format) -> None:
    """Raise InvalidConversation for a file that bears the marks of another format, which leave no doubt, and
    none of the format that it is said to be in; for one that this would mostly leave unread, and for one of
    which nothing may be in it."""
    others = [each for each in formats if each.tells_all and each.name != named.name]
    is_marked, may_be, unread, total = False, False, 0, 0
    for place, value in values_in(documents):
        is_marked = is_marked or named.marks(value) is not None
        if is_marked and named.reads is None:
            return
        marked = None if is_marked else _mark(place, value, others)
        if marked is not None:
            raise InvalidConversation(
                f"{place} is in the format {marked.format.name}, not {named.name}: {marked.evidence}",
                hint=f"--from {marked.format.name} reads it",
            )
        may_be = may_be or named.fits(value)
        total, unread = total + 1, unread + (named.reads is not None and not named.reads(value))
    if unread * 2 > total:
        raise InvalidConversation(
            f"{documents.name}: {unread} of {total} lines say nothing in the format {named.name}",
            hint="name the format that they are in with --from",
        )
    if not (is_marked or may_be):
        _check_is_nothing_else(documents, named, (default, *formats))


def _check_is_nothing_else(documents: Documents, named: Format, formats: Sequence[Format]) -> None:
    """Raise InvalidConversation for a file that looks like any of these formats but the named one."""
    others = [each for each in formats if each.name != named.name]
    for place, value in values_in(documents):
        other = _mark(place, value, others)
        shaped = next((each for each in others if each.fits(value)), None) if other is None else None
        found = _Marked(place, shaped, _SHAPE) if shaped is not None else other
        if found is not None:
            raise InvalidConversation(
                f"{documents.name}: nothing in it is in the format {named.name}; {place} looks like "
                f"{found.format.name} ({found.evidence})",
                hint=f"--from {found.format.name} reads it",
            )
