"""The subjects, headers and bodies of wakeups and events in the protocol v1r4. This module sends nothing.

NATS subjects have no escaping, so a name that is invalid in a subject is refused. Workers with such a target
get no wakeups, and find their work by polling.
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
_WILDCARD = "*"
# Headers may not contain control characters, line breaks of any kind, or surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAX_HEADER_LENGTH = 1000


class NatsMessage(NamedTuple):
    subject: str
    headers: dict[str, str]
    body: bytes


class Stream(NamedTuple):
    """A stream that stores messages of one category for `max_age` seconds."""

    name: str
    subject: str
    max_age: int


STREAMS = (
    Stream(f"cg_cmd_{VERSION}", f"cg.{VERSION}.*.*.cmd.>", _DAY),
    Stream(f"cg_evt_{VERSION}", f"cg.{VERSION}.*.*.evt.>", 7 * _DAY),
)


def wakeup_message(wakeup: Wakeup) -> NatsMessage:
    """Return the message of a wakeup. Raises InvalidInput for a name that a subject or header cannot hold."""
    subject = _subject(
        _part("project", wakeup.project_id),
        _part("channel", wakeup.channel_id),
        "cmd",
        _part("worker target", wakeup.worker_target),
        "wakeup",
    )
    return _message(subject, wakeup, {"inbox_id": wakeup.inbox_id, "reason": wakeup.reason})


def event_message(event: TurnEvent) -> NatsMessage:
    """Return the message of an event. Raises what `wakeup_message` raises."""
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
    """Return the subject of wakeups. None is a wildcard. Raises what `wakeup_message` raises."""
    project = _WILDCARD if project_id is None else _part("project", project_id)
    target = _WILDCARD if worker_target is None else _part("worker target", worker_target)
    return _subject(project, _WILDCARD, "cmd", target, "wakeup")


def _subject(project: str, channel: str, category: str, name: str, suffix: str) -> str:
    return f"cg.{VERSION}.{project}.{channel}.{category}.agent.{name}.{suffix}"


def _part(what: str, text: str) -> str:
    if not text or not text.isprintable() or set(text) & set(" .*>"):
        raise InvalidInput(
            f"{what} {text!r} cannot be part of a NATS subject",
            hint="use names without dots, spaces, * or > for NATS",
        )
    return text


def _message(
    subject: str, about: Wakeup | TurnAddress, body: Mapping[str, Any], more: Mapping[str, str] = {}
) -> NatsMessage:
    # The protocol's own client adds the last four headers.
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
    present = _drop_none(headers)
    for name, value in present.items():
        _check_header(name, value)
    return NatsMessage(subject, present, msgspec.json.encode(_drop_none(body)))


def _check_header(name: str, value: str) -> None:
    """Raise InvalidInput for a value with control characters, which could inject another header."""
    if _CONTROL.search(value) or len(value) > _MAX_HEADER_LENGTH:
        raise InvalidInput(
            f"{name} {value[:80]!r} cannot be a NATS header",
            hint=f"use names of at most {_MAX_HEADER_LENGTH} characters on one line for NATS",
        )


def _drop_none(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}
