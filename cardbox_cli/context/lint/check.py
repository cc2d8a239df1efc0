"""The one way to ask all rules of a provider.

Pure: the same cards give the same findings in the same order, and nothing handed in is changed.
"""

from collections.abc import Container, Sequence

from cardbox_cli.context.lint.rule import LintFinding, LintRule, Severity
from cardbox_cli.context.lint.subject import Logged, Subject
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import Request, RequestEntry

# Characters of a finding's message; a longer one loses its middle, since ids and names may have any number of
# them.
_MAX_MESSAGE = 400


def lint(
    entries: Sequence[RequestEntry],
    request: Request,
    provider: Provider,
    *,
    awaited: Container[str] = (),
    logged: Logged | None = None,
    warned: Container[str] = (),
) -> list[LintFinding]:
    """Return what the rules of `provider` find, in the order of the boxes; what is about the whole request,
    last.

    `request` was made of these very `entries`, and is in the provider's format. Calls that are `awaited` need
    no result yet. `logged` is the request as a file has it, if the cards are of one in this format. Rules
    that are `warned` of find no errors.
    """
    subject = Subject(provider, entries, request, awaited, logged)
    hits = [(rule, entry, words) for rule in provider.rules() for entry, words in rule.find(subject)]
    if not hits:
        return []
    blamed = {id(entry) for rule, entry, _ in hits if rule.severity == "error" and not rule.yields} - {
        id(None)
    }
    hits = [hit for hit in hits if not (hit[0].yields and id(hit[1]) in blamed)]
    places = {id(entry): number for number, entry in enumerate(entries)}
    hits.sort(key=lambda hit: places.get(id(hit[1]), len(entries)))
    return [
        _finding(
            rule,
            "warning" if rule.id in warned else rule.severity_for(subject),
            provider.name,
            entry,
            words,
        )
        for rule, entry, words in hits
    ]


def _finding(
    rule: LintRule, severity: Severity, provider: str, entry: RequestEntry | None, message: str
) -> LintFinding:
    is_long = len(message) > _MAX_MESSAGE
    return LintFinding(
        rule=rule.id,
        severity=severity,
        provider=provider,
        card_id=None if entry is None else entry.slot.card_id,
        box_id=None if entry is None else entry.box_id or None,
        position=None if entry is None else entry.slot.position,
        message=f"{message[: _MAX_MESSAGE - 100]}…{message[-99:]}" if is_long else message,
        source=rule.source,
        remedy=rule.remedy,
    )
