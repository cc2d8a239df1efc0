"""What a rule of the lint is, and what it answers: the values that all of them share."""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.request import RequestEntry

Severity = Literal["error", "warning"]

# Where something was found, None for what is about the whole request, and what it is.
Hit = tuple[RequestEntry | None, str]


class LintRule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a provider refuses (`error`), or that costs or confuses a model (`warning`).

    `finds` says in a sentence what is looked for, `source` names the section of the documentation that says
    so, `remedy` what to do about it where that can be said in general.
    """

    id: str
    severity: Severity
    finds: str
    source: str
    remedy: str | None = None
    find: Callable[[Subject], Iterable[Hit]]


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a rule found. `position` is that of the card in its box, from 0.

    Card, box and position are None for what is about the whole request, the box also where it does not exist
    (yet), as for a conversation in a file.
    """

    rule: str
    severity: Severity
    provider: str
    card_id: str | None
    box_id: str | None
    position: int | None
    message: str
    source: str
    remedy: str | None
