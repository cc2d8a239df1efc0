"""Recognition of a file's format from evidence in its values.

It checks every value of the file, and every item of a list that is not a conversation. If two values show
different formats, cbx refuses the file and names both. Each format defines its own evidence (`Format.marks`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cardbox_cli.conversations.conversation import Format
from cardbox_cli.conversations.json_documents import JsonDocuments
from cardbox_cli.conversations.message_lists import iterate_values
from cardbox_cli.errors import InvalidConversation


class RecognizedFormat(NamedTuple):
    """The format of a file and the evidence for it, None if the user named the format."""

    format: Format
    evidence: str | None = None


class _Marked(NamedTuple):
    """A value with evidence for a format, and its place in the file."""

    place: str
    format: Format
    evidence: str


# The number of values without evidence that are remembered until one has some.
_MAX_REMEMBERED = 1000
_UNMARKED = "no evidence of another format"
_SHAPE = "by its shape"


def recognize_format(
    documents: JsonDocuments, formats: Sequence[Format], default: Format
) -> RecognizedFormat:
    """Recognize the format of a file. If one value shows several formats, the first of `formats` wins.

    Raises InvalidConversation for a mixture of formats.
    """
    first: _Marked | None = None
    plain: list[tuple[str, Any]] = []
    ask = sorted(formats, key=lambda each: not each.tells_all)
    for place, value in iterate_values(documents):
        marked = _find_mark(place, value, ask)
        if marked is None and first is not None:
            _check_fits(first, place, value, formats, default)
        elif marked is None:
            plain += [(place, value)] if len(plain) < _MAX_REMEMBERED else []
        elif first is None:
            first = marked
            ask.sort(key=lambda each: not (each.tells_all and each is marked.format))
        elif marked.format.name not in (first.format.name, *first.format.holds):
            raise _mixture(first, marked)
    if first is None:
        return RecognizedFormat(default, _UNMARKED)
    for place, value in plain:
        _check_fits(first, place, value, formats, default)
    within = first.place.removeprefix(documents.name)
    where = f"line {within[1:]}: " if within.startswith(":") else f"{within}: " if within else ""
    return RecognizedFormat(first.format, f"{where}{first.evidence}")


def _find_mark(place: str, value: Any, formats: Sequence[Format]) -> _Marked | None:
    marks = ((each, each.marks(value)) for each in formats)
    return next((_Marked(place, each, evidence) for each, evidence in marks if evidence is not None), None)


def _check_fits(first: _Marked, place: str, value: Any, formats: Sequence[Format], default: Format) -> None:
    """Raise InvalidConversation for a value without evidence that fits another format than the one found."""
    other = next((each for each in (first.format, default, *formats) if each.fits(value)), first.format)
    if other is not first.format:
        raise _mixture(first, _Marked(place, other, _SHAPE))


def _mixture(one: _Marked, other: _Marked) -> InvalidConversation:
    return InvalidConversation(
        f"{one.place} is in the format {one.format.name} ({one.evidence}), {other.place} in "
        f"{other.format.name} ({other.evidence})",
        hint="split the file by format",
    )


def check_format(documents: JsonDocuments, named: Format, formats: Sequence[Format], default: Format) -> None:
    """Raise InvalidConversation for a file that is not in the format that the user named.

    There are three such cases. The file has clear evidence of another format and none of this one. Most of
    its values would not be understood. None of its values fits.
    """
    others = [each for each in formats if each.tells_all and each.name != named.name]
    is_marked, may_be, unread, total = False, False, 0, 0
    for place, value in iterate_values(documents):
        is_marked = is_marked or named.marks(value) is not None
        if is_marked and named.reads is None:
            return
        marked = None if is_marked else _find_mark(place, value, others)
        if marked is not None:
            raise InvalidConversation(
                f"{place} is in the format {marked.format.name}, not {named.name}: {marked.evidence}",
                hint=f"pass --from {marked.format.name}",
            )
        may_be = may_be or named.fits(value)
        total, unread = total + 1, unread + (named.reads is not None and not named.reads(value))
    if unread * 2 > total:
        raise InvalidConversation(
            f"{documents.name}: {unread} of {total} lines are not in the {named.name} format",
            hint="check --from",
        )
    if not (is_marked or may_be):
        _check_no_other(documents, named, (default, *formats))


def _check_no_other(documents: JsonDocuments, named: Format, formats: Sequence[Format]) -> None:
    """Raise InvalidConversation for a file that looks like another of these formats than the named one."""
    others = [each for each in formats if each.name != named.name]
    for place, value in iterate_values(documents):
        shapes = (_Marked(place, each, _SHAPE) for each in others if each.fits(value))
        if (other := _find_mark(place, value, others) or next(shapes, None)) is not None:
            raise InvalidConversation(
                f"{documents.name} is not in the {named.name} format; {place} looks like "
                f"{other.format.name} ({other.evidence})",
                hint=f"pass --from {other.format.name}",
            )
