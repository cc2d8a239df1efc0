"""Rules about the shape of a request: what the types of the provider's own package refuse (`schema`).

A request that was logged is looked at whole. Of one that is rendered, what stands beside the messages, and
those that keep something of an original: what cards hold in their fields gets its shape from the format.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from cardbox_cli.context.lint.rule import Find, Hit, Rules
from cardbox_cli.context.lint.schema import Misfit, Schema, Sort, place_text
from cardbox_cli.context.lint.subject import Logged, Subject
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import RequestEntry

_Found = tuple[RequestEntry | None, Misfit]

RULES = Rules("the types of the provider's own package")


def _found(subject: Subject, *, sort: Sort) -> Iterator[Hit]:
    """The misfits of a sort, in words; those of a message without the place of the message."""
    for entry, misfit in subject.view(_misfits):
        if misfit.sort != sort:
            continue
        place = place_text(misfit.place if entry is None else misfit.place[2:]) or "the message"
        yield entry, f"{place} is {misfit.what}{_version(subject, sort)}"


def _version(subject: Subject, sort: Sort) -> str:
    schema = subject.provider.schema
    return f" to {schema.sdk}" if schema and sort in ("parameter-unknown", "key-unknown") else ""


def _rule(sort: Sort, finds: str, remedy: str) -> None:
    find: Find = partial(_found, sort=sort)
    RULES.error(sort, finds=finds, remedy=remedy, yields=True)(find)


_rule(
    "parameter-unknown",
    "A key of the request that the provider's package does not know, in the version that the message names.",
    "leave it out; --allow-unknown is for what is newer than that version",
)
_rule(
    "key-unknown",
    "A key within a message, a tool or a parameter that the provider's package does not know.",
    "leave the key out, or write it as the provider does; --allow-unknown is for what is newer",
)
_rule(
    "key-missing",
    "A request, or a message, a tool or a parameter in it, without a key that it must have.",
    "add what is missing",
)
_rule(
    "value-invalid",
    "A value of another kind than the provider takes there.",
    "write what is wanted there",
)
_rule(
    "value-out-of-range",
    "A number, a text or a list that is smaller or larger than the provider takes there.",
    "write what is within the bounds that the message names",
)
_rule(
    "value-unknown",
    "A value, or the type of a part, that is none of those that there are.",
    "write one of those that the message names",
)


def _misfits(subject: Subject) -> list[_Found]:
    schema = subject.provider.schema
    if schema is None:
        return []
    if subject.logged is None:
        return list(_misfits_of_rendered(subject, schema))
    return list(_misfits_of_logged(subject.logged, subject.provider, schema))


def _misfits_of_logged(logged: Logged, provider: Provider, schema: Schema) -> Iterator[_Found]:
    key = provider.message_keys[-1]
    for number, (entry, message) in enumerate(logged.messages):
        yield from ((entry, misfit) for misfit in schema.misfits_of_item(key, number, message))
    if logged.is_request:
        yield from ((None, misfit) for misfit in schema.misfits({key: [], **logged.beside}))
    else:
        yield from _misfits_of_parameters(schema, logged.beside)


def _misfits_of_rendered(subject: Subject, schema: Schema) -> Iterator[_Found]:
    keys, request = subject.provider.message_keys, subject.request
    if request.config or request.tools:
        beside = {key: value for key, value in subject.beside.items() if key not in keys}
        yield from _misfits_of_parameters(schema, beside)
    for entry, _, message in subject.history.with_originals:
        body = subject.provider.body(msgspec.structs.replace(request, messages=[message]))
        for number, item in enumerate(body[keys[-1]]):
            yield from ((entry, misfit) for misfit in schema.misfits_of_item(keys[-1], number, item))


def _misfits_of_parameters(schema: Schema, parameters: Mapping[str, Any]) -> Iterator[_Found]:
    """Yield the misfits of some parameters, which are not all that a request has."""
    for misfit in schema.misfits({key: value for key, value in parameters.items() if key in schema.keys}):
        if misfit.sort != "key-missing" or len(misfit.place) > 1:
            yield None, misfit


def is_request(provider: Provider, beside: Mapping[str, Any]) -> bool:
    """Return whether messages with this beside them are a request to a provider, and no mere list of them.

    A request has something besides the messages that it must have; if only the messages are required,
    something that it may have.
    """
    schema, messages = provider.schema, {provider.message_keys[-1]}
    if schema is None:
        return False
    return not (schema.required - messages or schema.keys - messages).isdisjoint(beside)
