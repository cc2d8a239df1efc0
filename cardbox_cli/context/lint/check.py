"""The one way to ask all rules of a provider.

Rules that providers share stand in each one's list, with that provider's own source. Pure: the same cards
give the same findings in the same order, and nothing handed in is changed.
"""

from collections.abc import Container, Sequence
from importlib import import_module

from cardbox_cli.context.lint.rule import LintFinding, LintRule, Severity
from cardbox_cli.context.lint.subject import Logged, Subject
from cardbox_cli.context.providers.registry import provider_for_model, provider_named
from cardbox_cli.context.request import (
    ComposeOptions,
    Request,
    RequestEntry,
    model_of,
    profile_of,
    request_of,
)

# Characters of a finding's message, which else loses its middle: ids and names may have any number of them.
_WIDEST = 400


def provider_for(entries: Sequence[RequestEntry], model: str | None = None) -> str:
    """The provider by whose rules to check: that of `model`, else of the one that the profile names."""
    if model is None:
        present = (entry.slot.card for entry in entries if entry.slot.state == "present")
        model = model_of(profile_of(card for card in present if card is not None))
    return provider_for_model(model).name


def check(
    entries: Sequence[RequestEntry], provider: str | None = None, *, model: str | None = None
) -> list[LintFinding]:
    """What the rules of `provider`, or of the model's, find in the request that the cards of boxes make."""
    provider = provider or provider_for(entries, model)
    encode = provider_named(provider).encode
    return lint(entries, request_of(entries, ComposeOptions(model=model), encode=encode), provider)


def lint(
    entries: Sequence[RequestEntry],
    request: Request,
    provider: str,
    *,
    awaited: Container[str] = (),
    logged: Logged | None = None,
    warned: Container[str] = (),
) -> list[LintFinding]:
    """What the rules of `provider` find, in the order of the boxes; what is about the whole request, last.

    `request` was made of these very `entries`, and is in the provider's format. Calls that are
    `awaited` need no result yet. `logged` is the request as it stands in a file, if the cards are of one in
    this format. Rules that are `warned` of find no errors.
    """
    record = provider_named(provider)
    subject = Subject(record, entries, request, awaited, logged)
    hits = [
        (rule, entry, words)
        for rule in import_module(record.rules).RULES
        for entry, words in rule.find(subject)
    ]
    if not hits:
        return []
    blamed = {id(entry) for rule, entry, _ in hits if rule.severity == "error" and not rule.yields} - {
        id(None)
    }
    hits = [hit for hit in hits if not (hit[0].yields and id(hit[1]) in blamed)]
    places = {id(entry): number for number, entry in enumerate(entries)}
    hits.sort(key=lambda hit: places.get(id(hit[1]), len(entries)))
    return [
        _finding(rule, "warning" if rule.id in warned else rule.severity_for(subject), provider, entry, words)
        for rule, entry, words in hits
    ]


def _finding(
    rule: LintRule, severity: Severity, provider: str, entry: RequestEntry | None, message: str
) -> LintFinding:
    return LintFinding(
        rule=rule.id,
        severity=severity,
        provider=provider,
        card_id=None if entry is None else entry.slot.card_id,
        box_id=None if entry is None else entry.box_id or None,
        position=None if entry is None else entry.slot.position,
        message=message if len(message) <= _WIDEST else f"{message[: _WIDEST - 100]}…{message[-99:]}",
        source=rule.source,
        remedy=rule.remedy,
    )
