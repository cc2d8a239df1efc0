"""Wakeups and events as messages of the protocol v1r4: subjects, headers, bodies. Pure; sends nothing.

A subject has no escaping. A name that cannot be one of its parts is refused, and its workers poll.
"""

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.errors import InvalidInput
from cardbox_cli.execution.notifications.notifier import TurnAddress, TurnEvent, Wakeup

VERSION = "v1r4"
_DAY = 24 * 3600
_ANY = "*"
# What no header holds: control characters, line breaks of any kind, and what is no text.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST = 1000


class NatsMessage(NamedTuple):
    """What is published."""

    subject: str
    headers: dict[str, str]
    body: bytes


class Stream(NamedTuple):
    """A stream that keeps messages of one category for `max_age` seconds."""

    name: str
    subject: str
    max_age: int


STREAMS = (
    Stream(f"cg_cmd_{VERSION}", f"cg.{VERSION}.*.*.cmd.>", _DAY),
    Stream(f"cg_evt_{VERSION}", f"cg.{VERSION}.*.*.evt.>", 7 * _DAY),
)


def wakeup_message(wakeup: Wakeup) -> NatsMessage:
    """A wakeup for the workers of its target. Raises InvalidInput for a name that no subject or header can
    hold."""
    subject = _subject(
        _part("project", wakeup.project_id),
        _part("channel", wakeup.channel_id),
        "cmd",
        _part("worker target", wakeup.worker_target),
        "wakeup",
    )
    return _message(subject, wakeup, {"inbox_id": wakeup.inbox_id, "reason": wakeup.reason})


def event_message(event: TurnEvent) -> NatsMessage:
    """An event of a turn. Raises as `wakeup_message` does."""
    turn = event.turn
    subject = _subject(
        _part("project", turn.project_id),
        _part("channel", turn.channel_id),
        "evt",
        _part("agent", turn.agent_id),
        event.kind,
    )
    return _message(subject, turn, event.body, {"CG-Recursion-Depth": str(turn.recursion_depth)})


def wakeup_subject(project_id: str | None, worker_target: str | None) -> str:
    """Where wakeups arrive; None stands for all. Raises as `wakeup_message` does."""
    project = _ANY if project_id is None else _part("project", project_id)
    target = _ANY if worker_target is None else _part("worker target", worker_target)
    return _subject(project, _ANY, "cmd", target, "wakeup")


def _subject(project: str, channel: str, category: str, name: str, suffix: str) -> str:
    return f"cg.{VERSION}.{project}.{channel}.{category}.agent.{name}.{suffix}"


def _part(what: str, text: str) -> str:
    if not text or not text.isprintable() or set(text) & set(" .*>"):
        raise InvalidInput(
            f"{what} {text!r} cannot be part of a NATS subject",
            hint="NATS wakes by names without dots, spaces, * and >",
        )
    return text


def _message(
    subject: str, about: Wakeup | TurnAddress, body: Mapping[str, Any], more: Mapping[str, str] = {}
) -> NatsMessage:
    # The last four are what the protocol's own client adds.
    headers = {
        "CG-Project-Id": about.project_id,
        "CG-Agent-Id": about.agent_id,
        "CG-Channel-Id": about.channel_id,
        "CG-Turn-Id": about.agent_turn_id,
        "CG-Turn-Epoch": str(about.turn_epoch),
        "traceparent": about.traceparent,
        **more,
        "CG-Timestamp": str(time.time_ns() // 1_000_000),
        "CG-Version": VERSION,
        "CG-Msg-Type": subject.rpartition(".")[2],
        "CG-Sender": "cbx",
    }
    given = _without_none(headers)
    for name, value in given.items():
        _check_header(name, value)
    return NatsMessage(subject, given, msgspec.json.encode(_without_none(body)))


def _check_header(name: str, value: str) -> None:
    """Raise InvalidInput for what would end the line of a header, and begin another."""
    if _CONTROL.search(value) or len(value) > _LONGEST:
        raise InvalidInput(
            f"{name} {value[:80]!r} cannot be a header of NATS",
            hint=f"NATS wakes for names of up to {_LONGEST} characters on one line",
        )


def _without_none(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}
