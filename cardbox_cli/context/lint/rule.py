"""What a rule of the lint is, and what it answers: the values that all of them share."""

from collections.abc import Callable, Iterable, Iterator
from functools import partialmethod
from typing import Literal

import msgspec
from msgspec.structs import replace

from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.request import RequestEntry

Severity = Literal["error", "warning"]

# Where something was found, None for what is about the whole request, and what it is.
Hit = tuple[RequestEntry | None, str]
Find = Callable[[Subject], Iterable[Hit]]


class LintRule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a provider refuses (`error`), or that costs or confuses a model (`warning`).

    `finds` says in a sentence what is looked for, `source` names the section of the documentation that says
    so, `remedy` what to do about it where that can be said in general. `logged` is the severity for a request
    that is checked as it was logged, where that is another: what cbx mends when it renders, it had not. One
    that `yields` says nothing of a card of which another finds an error.
    """

    id: str
    severity: Severity
    finds: str
    source: str
    remedy: str | None = None
    logged: Severity | None = None
    yields: bool = False
    find: Find

    def severity_for(self, subject: Subject) -> Severity:
        """How severe it is in this subject."""
        return self.severity if self.logged is None or subject.logged is None else self.logged


class Rules:
    """The rules of a module, each entered by its function: `@RULES.error("an-id", remedy=…)`.

    What a rule finds is its function's docstring. `source` is that of the rules that name none themselves.
    """

    def __init__(self, source: str = "") -> None:
        self._source = source
        self._rules: list[LintRule] = []

    def __iter__(self) -> Iterator[LintRule]:
        return iter(self._rules)

    def by(self, source: str) -> Iterator[LintRule]:
        """The rules as a provider has them: `source` is where it says so, for those that name no source."""
        return (each if each.source else replace(each, source=source) for each in self._rules)

    def _entering(
        self,
        severity: Severity,
        rule_id: str,
        *,
        logged: Severity | None = None,
        yields: bool = False,
        **named: str,
    ) -> Callable[[Find], Find]:
        def enter(find: Find) -> Find:
            known = {"finds": " ".join((find.__doc__ or "").split()), "source": self._source, **named}
            rule = LintRule(id=rule_id, severity=severity, find=find, logged=logged, yields=yields, **known)
            self._rules.append(rule)
            return find

        return enter

    error = partialmethod(_entering, "error")
    warning = partialmethod(_entering, "warning")


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


class FileFinding(LintFinding, frozen=True, kw_only=True):
    """A finding in a conversation file: `file` is its path."""

    file: str
