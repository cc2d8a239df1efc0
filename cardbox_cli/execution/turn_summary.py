"""Summarize a turn, and wait for its end.

cbx reads the end of a turn from its own record. If another program ran the turn, cbx derives the end from the
rows which that program left. Only `wait_for_end` reads the database.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from math import inf
from time import monotonic, sleep
from typing import Any, TypeVar, cast

import msgspec

from cardbox_cli.errors import WaitTimeout
from cardbox_cli.model.content import FALLBACK
from cardbox_cli.model.execution.turns import (
    END_STATUSES,
    ENDED,
    ERROR,
    FAILED,
    SKIPPED,
    EndStatus,
    replacement,
)
from cardbox_cli.store.views.turn_views import TurnLeftovers, TurnRow, TurnViews
from cardbox_cli.text.command_lines import quote_argument


class TurnEndRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with its state. The end status is None until the turn has ended."""

    agent_turn_id: str
    agent_id: str
    status: str
    end_status: EndStatus | None
    turn_epoch: int


class TurnResult(TurnEndRow, frozen=True, kw_only=True):
    context_box_id: str | None
    output_box_id: str | None
    deliverable_card_id: str | None


class TurnSummary(TurnResult, frozen=True, kw_only=True):
    """A turn in a list. `end_status`, the deliverable and `ended_at` are None before the end.

    `replaced_by` is the turn that replaces one that did not end in success.
    """

    trace_id: str | None
    recursion_depth: int | None
    parent_agent_id: str | None
    parent_agent_turn_id: str | None
    inbox_id: str | None
    created_at: datetime | None
    ended_at: datetime | None
    replaced_by: str | None = None


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def convert(kind: type[_Struct], source: msgspec.Struct, **given: Any) -> _Struct:
    """Return a `kind` with the fields `given`, and its other fields copied from `source`."""
    names = [name for name in kind.__struct_fields__ if name not in given]
    return kind(**{name: getattr(source, name) for name in names}, **given)


def summary(turn: TurnRow) -> TurnSummary:
    end_status, card_id, ended_at = _end(turn)
    end_epoch = turn.record.end_epoch if turn.record else None
    by = None if end_status == "success" else replacement(turn.successors)
    return convert(
        TurnSummary,
        turn,
        end_status=end_status,
        turn_epoch=turn.turn_epoch if end_epoch is None else end_epoch,
        deliverable_card_id=card_id,
        ended_at=ended_at,
        replaced_by=by and by.agent_turn_id,
    )


# --- the end status of a turn


def _end(turn: TurnRow) -> tuple[EndStatus | None, str | None, datetime | None]:
    """Return the end status, the deliverable's card id and the time of the end, or None before the end."""
    if turn.status != ENDED:
        return None, None, None
    if turn.record is not None:
        end = turn.record
        return cast(EndStatus, end.end_status), end.deliverable_card_id, end.ended_at
    left, status = turn.remains, _derive_end_status(turn, turn.remains)
    if left is None:
        return status, None, turn.left_at
    return status, left.card_id, left.step_ended_at or left.card_created_at or turn.left_at


def _derive_end_status(turn: TurnRow, left: TurnLeftovers | None) -> EndStatus:
    """Derive the end status of a turn without a record from the rows that its program left."""
    if turn.row_status == SKIPPED and not (left is not None and left.finished):
        return "canceled"
    if turn.row_status == ERROR or left is None:
        return "failed"
    metadata = left.card_metadata if isinstance(left.card_metadata, dict) else {}
    if _UNCLAIMED in (metadata.get("stop_reason"), metadata.get("terminal_reason")):
        return "timeout"
    data = _fallback_data(left.card_content)
    diagnostics = data.get("diagnostics")
    was_stopped = (left.step_id or "").startswith("step_stop_") or (
        metadata.get("stop_reason", _SILENT) != _SILENT
    )
    end_status = _end_status_in(diagnostics if isinstance(diagnostics, dict) else {}, "terminal_status") or (
        "canceled" if was_stopped else _end_status_in(data, "status")
    )
    if end_status is not None:
        return end_status
    if left.step_status == FAILED or left.card_id is None:
        return "failed"
    return "partial" if metadata.get("partial") else "success"


# Watchdogs of other systems give these reasons if no worker claimed a turn, or if its worker went silent.
_UNCLAIMED, _SILENT = "dispatch_timeout", "timeout_reaped_by_watchdog"


def _fallback_data(content: Any) -> dict[str, Any]:
    """Return the data of a fallback deliverable, or {} for any other content."""
    data = content.get("data") if isinstance(content, dict) else None
    return data if isinstance(data, dict) and data.get("kind") == FALLBACK else {}


def _end_status_in(data: dict[str, Any], key: str) -> EndStatus | None:
    status = data.get(key)
    return cast(EndStatus, status) if status in END_STATUSES else None


# Seconds between the first two polls, and the longest interval between two polls.
_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.05, 1.0


def wait_for_end(
    turns: TurnViews, turn_id: str, *, timeout: float | None, pause: Callable[[float], object] = sleep
) -> TurnRow:
    """Poll until the turn ends, and return it. No transaction is open between two polls.

    `pause` sleeps for the given seconds or less. Raises NotFound, and WaitTimeout after `timeout` seconds.
    """
    for _ in polls(timeout, pause):
        with turns.database.snapshot():
            turn = turns.get(turn_id)
        if turn.status == ENDED:
            return turn
    raise WaitTimeout(
        f"turn {turn_id} did not end within {timeout:g} s: it is {turn.status}",
        hint=f"the turn continues; run `cbx why {quote_argument(turn_id)}` to see what it waits for",
        details={"agent_turn_id": turn_id, "status": turn.status},
    )


def polls(timeout: float | None, pause: Callable[[float], object]) -> Iterator[None]:
    """Yield before each poll, at growing intervals. Ends after `timeout` seconds, or never if it is None."""
    deadline = inf if timeout is None else monotonic() + timeout
    interval = _MIN_POLL_INTERVAL
    yield
    while (left := deadline - monotonic()) > 0:
        pause(min(interval, left))
        interval = min(interval * 1.5, _MAX_POLL_INTERVAL)
        yield
