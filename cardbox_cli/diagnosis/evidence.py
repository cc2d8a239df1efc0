"""Descriptions of rows as evidence, with instants and their distance from now."""

from collections.abc import Sequence
from datetime import datetime

from cardbox_cli.diagnosis.locks import first_words
from cardbox_cli.diagnosis.registry import RowEvidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.situations import BlockingLock, DatabaseSession, LiveWorker
from cardbox_cli.model.execution.turns import InboxRow, Lease, WaitingTool, WorkerEntry, last_lines
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.text.command_lines import command_line, quote_word
from cardbox_cli.text.times import format_duration, format_infinity

# A warning for operators who reclaim a turn from a worker without a lease.
_UNFENCED = "a worker of another system, which cbx does not fence: its later writes may be stored"

# The maximum number of characters of a call's arguments.
ARGUMENTS_SHOWN = 200


def instant(s: Snapshot, moment: datetime | None) -> str:
    """Format an instant in UTC with its distance from now."""
    if moment is None:
        return "an unknown time"
    endless = format_infinity(moment)
    if endless is not None:
        return endless
    distance = format_duration(abs(moment - s.now))
    return f"{moment:%Y-%m-%d %H:%M:%SZ} ({'in ' + distance if moment > s.now else distance + ' ago'})"


def head(s: Snapshot) -> RowEvidence:
    if s.head is None:
        return RowEvidence("state.agent_state_head", s.agent_id, "no such row")
    active = s.head.active_agent_turn_id
    turn = "" if active == s.agent_turn_id or active is None else f", active turn {active}"
    shows = f"{s.head.status}, epoch {s.head.turn_epoch}{turn}, last written {instant(s, s.head.updated_at)}"
    return RowEvidence("state.agent_state_head", s.agent_id, shows)


def row(s: Snapshot, row: InboxRow, more: str = "") -> RowEvidence:
    tries = f", failed tries: {row.retry_count}" if row.retry_count else ""
    error = f", last error: {row.last_error}" if row.last_error else ""
    shows = f"{row.message_type}, {row.status}, epoch {row.turn_epoch}{tries}{more}{error}"
    return RowEvidence("state.agent_inbox", row.inbox_id, shows)


def due_row(s: Snapshot, row_: InboxRow) -> RowEvidence:
    """Describe an inbox row that a worker could claim, and since when."""
    return row(s, row_, f", due since {instant(s, s.due_since(row_))}")


def unclaimed_rows(s: Snapshot) -> tuple[RowEvidence, ...]:
    """Describe the rows that have been due for longer than `unclaimed_time`."""
    return tuple(due_row(s, row) for row in s.unclaimed)


def absent_row(s: Snapshot) -> RowEvidence:
    return RowEvidence("state.agent_inbox", s.agent_turn_id, "no such row")


def lease(s: Snapshot, row: InboxRow | None) -> RowEvidence:
    """Describe the lease on a row, or state that it has none."""
    name = row.inbox_id if row else s.agent_turn_id
    row_lease = s.lease_of(row)
    if row_lease is not None:
        return orphan_lease(s, row_lease)
    absent = "no such row" if s.keeps_turns else "this database has no leases"
    return RowEvidence("cbx.leases", name, absent + (f": {_UNFENCED}" if s.running else ""))


def orphan_lease(s: Snapshot, lease: Lease) -> RowEvidence:
    """Describe a lease, whose row may be unclaimed or missing."""
    expiry = f"{'expired' if lease.expires_at <= s.now else 'expires'} {instant(s, lease.expires_at)}"
    owner = f"owner {lease.owner}, epoch {lease.turn_epoch}"
    shows = f"{owner}, last heartbeat {instant(s, lease.heartbeat_at)}, {expiry}"
    return RowEvidence("cbx.leases", lease.inbox_id, shows)


def call(s: Snapshot, call: WaitingTool) -> RowEvidence:
    """Describe a call that the turn waits for, with its arguments."""
    arguments = s.arguments.get(call.tool_call_id, "")
    cut = arguments if len(arguments) <= ARGUMENTS_SHOWN else f"{arguments[:ARGUMENTS_SHOWN]}…"
    state = f"{call.wait_status}, epoch {call.turn_epoch}, since {instant(s, call.created_at)}"
    shows = f"{call.tool_name} {cut}, {state}" if cut else f"{call.tool_name}, {state}"
    return RowEvidence("state.turn_waiting_tools", call.tool_call_id, shows)


def stored_command(tool_name: str) -> RowEvidence:
    """Explain why calls of a tool wait although the tool is stored with a command."""
    how = "start one with --trust-stored-commands or --tools, or report the result"
    return RowEvidence("resource.tools", tool_name, f"has a stored command that no worker ran: {how}")


def record(s: Snapshot) -> RowEvidence:
    stored = s.record
    if stored is None:
        return RowEvidence("cbx.turns", s.agent_turn_id, "no such row")
    end = f"{stored.end_status}, ended {instant(s, stored.ended_at)}" if stored.end_status else "no end"
    return RowEvidence("cbx.turns", s.agent_turn_id, f"{end}: {stored.error}" if stored.error else end)


def end(s: Snapshot) -> tuple[RowEvidence, ...]:
    """Describe the end of a turn without a record, as derived from its other rows."""
    if s.turn is None or s.turn.end_status is None:
        return ()
    shows, card_id = f"ended: {s.turn.end_status}, according to its rows", s.turn.deliverable_card_id
    table = "state.agent_steps" if card_id is None else "public.cards"
    return (RowEvidence(table, card_id or s.agent_turn_id, shows),)


def lock(lock: BlockingLock) -> RowEvidence:
    """Describe the blocking session, for how long it blocks, and how many sessions wait for it."""
    root, duration = _format_session(lock.session), f"for {int(lock.seconds)} s"
    if lock.waiting is not None:
        shows = f"{root} has blocked {_format_session(lock.waiting)} {duration}"
    else:
        shows = f"{root} has held it {duration}" + ("" if lock.row else f", in mode {lock.mode}")
    wait = "1 session waits" if lock.blocked == 1 else f"{lock.blocked} sessions wait"
    return RowEvidence(lock.table, lock.row or "the whole table", f"{shows}; {wait}")


def _format_session(session: DatabaseSession) -> str:
    if not session.pid:
        return "a prepared transaction"
    words = first_words(session.query)
    age = "" if session.query_seconds is None else f", {int(session.query_seconds)} s ago"
    query = f", {words}{age}" if words else ""
    return f"process {session.pid} ({session.application or 'no name'}, {session.state or 'unknown'}{query})"


def last_failure(s: Snapshot) -> tuple[RowEvidence, ...]:
    """Describe the last step of a failed turn, and the end of its command's stderr."""
    if not s.failed:
        return ()
    proof = []
    for step in s.steps[-1:]:
        error = f": {step.error}" if step.error else ""
        shows = f"last step ({len(s.steps)}): {step.status}{error}"
        proof.append(RowEvidence("state.agent_steps", step.step_id, shows))
    if (log := s.failure_log) is not None:
        lines = " / ".join(last_lines(log.stderr_tail, 3))
        shows = f"{log.whose} {log.outcome}" + (f"; its stderr ends: {lines}" if lines else "")
        proof.append(RowEvidence("cbx.logs", log.log_id, shows))
    return tuple(proof)


def workers(s: Snapshot) -> tuple[RowEvidence, ...]:
    """Describe the last workers of the agent's target, or state that it has none."""
    if s.worker_target is None:
        return (RowEvidence("resource.project_agents", s.agent_id, "no such row, or no worker target"),)
    if not s.keeps_turns or not s.workers:
        absent = "no worker of this target" if s.keeps_turns else "this database has no list of workers"
        return (RowEvidence("cbx.workers", s.worker_target, absent),)
    return tuple(
        RowEvidence(
            "cbx.workers",
            worker.worker_id,
            f"target {worker.worker_target}, {'alive' if worker.live else 'dead'},"
            f" last heartbeat {instant(s, worker.heartbeat_at)}{_trouble(s, worker)}",
        )
        for worker in s.workers[-3:]
    )


def _trouble(s: Snapshot, worker: WorkerEntry) -> str:
    error = worker.last_error
    return "" if error is None else f"; since {instant(s, worker.last_error_at)} it cannot work: {error}"


def live_workers(workers: Sequence[LiveWorker], more: str = "") -> tuple[RowEvidence, ...]:
    return tuple(
        RowEvidence("cbx.workers", each.worker_id, f"target {each.worker_target}, alive{more}")
        for each in workers[-3:]
    )


def refused(s: Snapshot) -> tuple[RowEvidence, ...]:
    """Describe the first errors for which the provider would reject the request."""
    contexts = [box.box_id for box in s.boxes if box.pointer == "context"]
    return tuple(
        RowEvidence("public.card_boxes", contexts[0], f"{finding.rule}: {finding.message}")
        if finding.card_id is None
        else RowEvidence(
            "public.cards",
            finding.card_id,
            f"{finding.rule}: {finding.message}; at position {finding.position} of box {finding.box_id}",
        )
        for finding in s.refused[:3]
    )


def lint_command(s: Snapshot) -> str:
    """Return the command that shows all errors for which the provider would reject the request."""
    provider = s.refused[0].provider if s.refused else DEFAULT
    return f"`cbx render --turn {quote_word(s.agent_turn_id)} --format {provider} --check`"


def repair_command(s: Snapshot) -> str:
    """Return the command that makes a repaired copy of the box with the first error."""
    pointers = {box.pointer: box.box_id for box in s.boxes}
    provider, refused_at = (s.refused[0].provider, s.refused[0].box_id) if s.refused else (DEFAULT, None)
    context, output = pointers.get("context", "BOX"), pointers.get("output")
    words = ["box", "repair", context]
    if refused_at is not None and refused_at == output:
        holds_earlier = s.record is not None and s.record.output_start
        words = ["box", "repair", output, *(() if holds_earlier else ("--after", context))]
    words += ["--for", provider, "--synthesize"]
    return f"`{command_line(words)}`"


def rebox_command(s: Snapshot) -> str:
    """Return the command that gives the turn another context box; BOX is a placeholder for its id."""
    words = ["turn", "rebox", s.agent_turn_id, "--expect-epoch", str(s.epoch), "--context-box", "BOX"]
    return f"`{command_line([*words, '--reason', 'TEXT'])}`"


def last_audit(s: Snapshot) -> tuple[RowEvidence, ...]:
    """Describe the last manual change of the turn, if there is one."""
    if s.audit is None:
        return ()
    reason = f": {s.audit.reason}" if s.audit.reason else ""
    shows = f"{s.audit.action} by {s.audit.actor} {instant(s, s.audit.created_at)}{reason}"
    return (RowEvidence("cbx.audit", s.audit.audit_id, shows),)
