"""The one way to ask all rules about costs. Pure: the same account gives the same findings, in one order."""

from cardbox_cli.context.cost import requests, results
from cardbox_cli.context.cost.account import SentPart
from cardbox_cli.context.cost.finding import CostFinding, CostRule, Evidence, Hit
from cardbox_cli.context.cost.subject import Subject

RULES: tuple[CostRule, ...] = (*results.RULES, *requests.RULES)


def check(subject: Subject) -> list[CostFinding]:
    """What all rules find, the most tokens first."""
    of_all = subject.account.tokens
    found = [_finding(rule, hit, of_all) for rule in RULES for hit in rule.find(subject)]
    return sorted(found, key=lambda finding: -finding.tokens)


def _finding(rule: CostRule, hit: Hit, of_all: int) -> CostFinding:
    return CostFinding(
        code=rule.code,
        message=hit.message,
        tokens=hit.tokens,
        share=round(hit.tokens / of_all, 4) if of_all else 0.0,
        evidence=[_evidence(part) for part in hit.parts],
        steps=list(hit.steps),
        remedy=hit.remedy or rule.remedy,
        mend=hit.mend,
    )


def _evidence(part: SentPart) -> Evidence:
    return Evidence(
        card_id=part.message.card_id,
        box_id=part.box_id or None,
        position=part.position,
        type=part.type,
        tool=part.tool,
        tokens=part.tokens,
        sends=part.sends,
    )
