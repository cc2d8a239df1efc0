"""What programs are told of a diagnosis: the contract of `cbx why -o json`, wherever it is asked for."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.diagnosis.diagnose import Survey
from cardbox_cli.diagnosis.registry import Command, Evidence
from cardbox_cli.diagnosis.verdict import Diagnosis, Seen
from cardbox_cli.text import command_line


class SeenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule saw, who must act on it, and the command that helps, as it is to be typed."""

    rule: str | None
    severity: str
    evidence: list[Evidence]
    next_actor: str | None
    due_at: datetime | None
    fix: str | None


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn stands, or an agent without one. `also` is what else was seen."""

    turn: str | None
    agent: str
    verdict: str
    rule: str | None
    severity: str
    evidence: list[Evidence]
    next_actor: str | None
    due_at: datetime | None
    fix: str | None
    also: list[SeenAnswer]


class ProblemAnswer(WhyAnswer, frozen=True, kw_only=True):
    """One of all that are not well, and how many turns wait for it."""

    waiting: int


def why_answer(diagnosis: Diagnosis, project_option: Sequence[str] = ()) -> WhyAnswer:
    """The answer about one turn. `project_option` is what commands name besides, where that is needed."""
    return WhyAnswer(**_told(diagnosis, project_option))


def survey_answer(survey: Survey, project_option: Sequence[str] = ()) -> list[ProblemAnswer]:
    """The answer about a project: all that is not well."""
    return [ProblemAnswer(**_told(each, project_option), waiting=each.waiting) for each in survey.problems]


def fix_line(words: Command | None, project_option: Sequence[str]) -> str | None:
    """A command as it is to be typed."""
    return None if words is None else command_line(words, *project_option)


def _told(diagnosis: Diagnosis, project_option: Sequence[str]) -> dict[str, Any]:
    return {
        "turn": diagnosis.turn,
        "agent": diagnosis.agent,
        "verdict": diagnosis.verdict,
        **_seen(diagnosis, project_option),
        "also": [SeenAnswer(**_seen(each, project_option)) for each in diagnosis.also],
    }


def _seen(seen: Seen | Diagnosis, project_option: Sequence[str]) -> dict[str, Any]:
    return {
        "rule": seen.rule,
        "severity": seen.severity,
        "evidence": list(seen.evidence),
        "next_actor": seen.next_actor,
        "due_at": seen.due_at,
        "fix": fix_line(seen.fix, project_option),
    }
