"""How rows are shown as evidence: in words, with instants and how long ago they were."""

from datetime import datetime

from cardbox_cli.context.providers.registry import DEFAULT
from cardbox_cli.diagnosis.registry import Evidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.durations import duration
from cardbox_cli.model.execution.turns import InboxRow, Lease, WaitingTool

# Characters of the arguments of a call.
ARGUMENTS_SHOWN = 200


def instant(s: Snapshot, moment: datetime | None) -> str:
    """An instant in UTC and its distance from now."""
    if moment is None:
        return "an unknown time"
    ahead = moment > s.now
    distance = duration(moment - s.now if ahead else s.now - moment)
    return f"{moment:%Y-%m-%d %H:%M:%SZ} ({'in ' + distance if ahead else distance + ' ago'})"


def head(s: Snapshot) -> Evidence:
    """The head of the turn's agent."""
    if s.head is None:
        return Evidence("state.agent_state_head", s.agent_id, "no such row")
    at = s.head.active_agent_turn_id
    of = "" if at == s.agent_turn_id or at is None else f", at turn {at}"
    shows = f"{s.head.status}, epoch {s.head.turn_epoch}{of}, since {instant(s, s.head.updated_at)}"
    return Evidence("state.agent_state_head", s.agent_id, shows)


def row(s: Snapshot, row: InboxRow, more: str = "") -> Evidence:
    """An inbox row."""
    tries = f", failed tries: {row.retry_count}" if row.retry_count else ""
    error = f", last error: {row.last_error}" if row.last_error else ""
    shows = f"{row.message_type}, {row.status}, epoch {row.turn_epoch}{tries}{more}{error}"
    return Evidence("state.agent_inbox", row.inbox_id, shows)


def due_row(s: Snapshot, row_: InboxRow) -> Evidence:
    """An inbox row that could be claimed, and since when."""
    return row(s, row_, f", due since {instant(s, s.due_since(row_))}")


def absent_row(s: Snapshot) -> Evidence:
    """There is no inbox row that asked for the turn."""
    return Evidence("state.agent_inbox", s.agent_turn_id, "no such row")


def lease(s: Snapshot, row: InboxRow | None) -> Evidence:
    """Who has claimed a row, or that nobody is known to have."""
    name = row.inbox_id if row else s.agent_turn_id
    found = s.lease_of(row)
    if not s.keeps_turns:
        return Evidence("cbx.leases", name, "this database keeps no leases")
    return Evidence("cbx.leases", name, "no such row" if found is None else _shown(s, found))


def _shown(s: Snapshot, lease: Lease) -> str:
    over = "expired" if lease.expires_at <= s.now else "expires"
    return (
        f"owner {lease.owner}, epoch {lease.turn_epoch}, last heartbeat {instant(s, lease.heartbeat_at)},"
        f" {over} {instant(s, lease.expires_at)}"
    )


def orphan_lease(s: Snapshot, lease: Lease) -> Evidence:
    """A lease."""
    return Evidence("cbx.leases", lease.inbox_id, _shown(s, lease))


def call(s: Snapshot, call: WaitingTool) -> Evidence:
    """A call that the turn waits for, with what the tool was asked."""
    since = instant(s, call.created_at)
    shows = f"{_asked(s, call)}, {call.wait_status}, epoch {call.turn_epoch}, since {since}"
    return Evidence("state.turn_waiting_tools", call.tool_call_id, shows)


def _asked(s: Snapshot, call: WaitingTool) -> str:
    arguments = s.arguments.get(call.tool_call_id)
    if arguments is None:
        return call.tool_name
    is_cut = len(arguments) > ARGUMENTS_SHOWN
    return f"{call.tool_name} {arguments[:ARGUMENTS_SHOWN]}{'…' if is_cut else ''}"


def record(s: Snapshot) -> Evidence:
    """What cbx keeps of the turn."""
    found = s.record
    if found is None:
        return Evidence("cbx.turns", s.agent_turn_id, "no such row")
    ended = f"{found.end_status}, ended {instant(s, found.ended_at)}" if found.end_status else "no end"
    why = f": {found.error}" if found.error else ""
    return Evidence("cbx.turns", s.agent_turn_id, ended + why)


def workers(s: Snapshot) -> tuple[Evidence, ...]:
    """The workers of the agent's target, or that there is none."""
    if s.worker_target is None:
        return (Evidence("resource.project_agents", s.agent_id, "no such row, or no worker target"),)
    if not s.keeps_turns:
        return (Evidence("cbx.workers", s.worker_target, "this database keeps no list of workers"),)
    if not s.workers:
        return (Evidence("cbx.workers", s.worker_target, "no worker of this target"),)
    return tuple(
        Evidence(
            "cbx.workers",
            worker.worker_id,
            f"target {worker.worker_target}, {'alive' if worker.live else 'dead'},"
            f" last heartbeat {instant(s, worker.heartbeat_at)}",
        )
        for worker in s.workers[-3:]
    )


def refused(s: Snapshot) -> tuple[Evidence, ...]:
    """The first of what the provider would refuse."""
    contexts = [box.box_id for box in s.boxes if box.pointer == "context"]
    return tuple(
        Evidence("public.card_boxes", contexts[0], f"{found.rule}: {found.message}")
        if found.card_id is None
        else Evidence(
            "public.cards",
            found.card_id,
            f"{found.rule}: {found.message}; at position {found.position} of box {found.box_id}",
        )
        for found in s.refused[:3]
    )


def lint_command(s: Snapshot) -> str:
    """The command that shows all of what the provider would refuse."""
    provider = s.refused[0].provider if s.refused else DEFAULT
    return f"`cbx render --turn {s.agent_turn_id} --format {provider} --check`"


def last_audit(s: Snapshot) -> tuple[Evidence, ...]:
    """What was last done to the turn from outside, if anything was."""
    if s.audit is None:
        return ()
    reason = f": {s.audit.reason}" if s.audit.reason else ""
    shows = f"{s.audit.action} by {s.audit.actor} {instant(s, s.audit.created_at)}{reason}"
    return (Evidence("cbx.audit", s.audit.audit_id, shows),)
