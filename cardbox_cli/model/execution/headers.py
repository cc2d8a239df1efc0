"""The context headers of an inbox row: agent, parent, depth and trace.

The card-box protocol v1r4 defines the names. Its workers refuse a row without `traceparent` (W3C Trace
Context) or without `CG-Recursion-Depth`.
"""

import re
from typing import Any

import msgspec

DEPTH = "CG-Recursion-Depth"
TRACEPARENT = "traceparent"

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_DEPTH = re.compile(r"[0-9]{1,9}")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    depth: int
    trace_id: str | None
    parent_agent_id: str | None = None
    parent_turn_id: str | None = None
    parent_step_id: str | None = None


def new_trace_id() -> str:
    """Return 32 hex digits."""
    import uuid6

    return uuid6.uuid7().hex


def canonical_trace_id(text: str) -> str | None:
    """Return a trace id as 32 lowercase hex digits, or None if it is invalid. Dashes are ignored."""
    trace_id = text.replace("-", "").lower()
    return trace_id if _TRACE_ID.fullmatch(trace_id) and trace_id.strip("0") else None


def new_traceparent(trace_id: str) -> str:
    return f"00-{trace_id}-{new_trace_id()[-16:]}-01"


def parse_trace_id(headers: Any) -> str | None:
    """Return the trace id in stored headers, or None if `traceparent` is missing or invalid."""
    match = _TRACEPARENT.fullmatch(_text(headers, TRACEPARENT) or "")
    return match[1] if match else None


def parse_depth(headers: Any) -> int:
    """Return the recursion depth in stored headers, or 0 if it is missing or invalid."""
    return int(_text(headers, DEPTH) or 0) if has_depth(headers) else 0


def has_depth(headers: Any) -> bool:
    """Return whether stored headers have a valid recursion depth. Workers refuse a row without one."""
    return _DEPTH.fullmatch(_text(headers, DEPTH) or "") is not None


def parse_lineage(headers: Any) -> Lineage:
    return Lineage(
        depth=parse_depth(headers),
        trace_id=parse_trace_id(headers),
        parent_agent_id=_text(headers, "CG-Parent-Agent-Id"),
        parent_turn_id=_text(headers, "CG-Parent-Turn-Id"),
        parent_step_id=_text(headers, "CG-Parent-Step-Id"),
    )


def _text(headers: Any, name: str) -> str | None:
    value = headers.get(name) if isinstance(headers, dict) else None
    return value if isinstance(value, str) else None


def turn_headers(
    lineage: Lineage,
    *,
    project_id: str,
    channel_id: str,
    agent_id: str,
    agent_turn_id: str,
    turn_epoch: int,
    tool_call_id: str | None = None,
) -> dict[str, str]:
    """Return the headers of an inbox row for this turn. A lineage without a trace id gets a new trace."""
    headers = {
        "CG-Project-Id": project_id,
        "CG-Agent-Id": agent_id,
        "CG-Channel-Id": channel_id,
        "CG-Turn-Id": agent_turn_id,
        "CG-Turn-Epoch": str(turn_epoch),
        DEPTH: str(lineage.depth),
        TRACEPARENT: new_traceparent(lineage.trace_id or new_trace_id()),
        "CG-Parent-Agent-Id": lineage.parent_agent_id,
        "CG-Parent-Turn-Id": lineage.parent_turn_id,
        "CG-Parent-Step-Id": lineage.parent_step_id,
        "CG-Tool-Call-Id": tool_call_id,
    }
    return {name: value for name, value in headers.items() if value is not None}
