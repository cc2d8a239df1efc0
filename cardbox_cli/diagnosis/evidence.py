"""How rows are shown as evidence: in words, with instants and how long ago they were."""

from collections.abc import Sequence
from datetime import datetime

from cardbox_cli.diagnosis.locks import command
from cardbox_cli.diagnosis.registry import Evidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.situations import LiveWorker, Lock, Session
from cardbox_cli.model.execution.turns import InboxRow, Lease, Step, WaitingTool, WorkerEntry, last_lines
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.text import command_line, format_duration, quoted, unbounded

# What an operator must know before a turn is taken from a worker without a lease.
UNFENCED = "a worker of another system, which cbx does not fence: what it writes may be kept"

# Characters of the arguments of a call.
ARGUMENTS_SHOWN = 200


def instant(s: Snapshot, moment: datetime | None) -> str:
    """An instant in UTC and its distance from now."""
    if moment is None:
        return "an unknown time"
    endless = unbounded(moment)
    if endless is not None:
        return endless
    ahead = moment > s.now
    distance = format_duration(moment - s.now if ahead else s.now - moment)
    return f"{moment:%Y-%m-%d %H:%M:%SZ} ({'in ' + distance if ahead else distance + ' ago'})"


def head(s: Snapshot) -> Evidence:
    """The head of the turn's agent."""
    if s.head is None:
        return Evidence("state.agent_state_head", s.agent_id, "no such row")
    at = s.head.active_agent_turn_id
    of = "" if at == s.agent_turn_id or at is None else f", at turn {at}"
    shows = f"{s.head.status}, epoch {s.head.turn_epoch}{of}, last written {instant(s, s.head.updated_at)}"
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
    if found is not None:
        return Evidence("cbx.leases", name, _shown(s, found))
    absent = "no such row" if s.keeps_turns else "this database keeps no leases"
    return Evidence("cbx.leases", name, absent + (f": {UNFENCED}" if s.running else ""))


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


def stored_command(tool_name: str) -> Evidence:
    """A tool whose calls wait although it is stored with a command."""
    how = "a worker runs it with --trust-stored-commands, or its own of --tools; else a report answers"
    return Evidence("resource.tools", tool_name, f"is stored with a command, which no worker obeyed: {how}")


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


def end(s: Snapshot) -> tuple[Evidence, ...]:
    """How a turn ended whose end cbx did not keep, by what it left."""
    if s.turn is None or s.turn.end_status is None:
        return ()
    shows = f"ended: {s.turn.end_status}, as its rows tell"
    if s.turn.deliverable_card_id is None:
        return (Evidence("state.agent_steps", s.agent_turn_id, shows),)
    return (Evidence("public.cards", s.turn.deliverable_card_id, shows),)


def lock(lock: Lock) -> Evidence:
    """Who is in the way, for how long, what it does, and who waits for it."""
    root, since = _session(lock.session), f"for {int(lock.seconds)} s"
    if lock.waiting is not None:
        shows = f"{root} is in the way {since} of {_session(lock.waiting)}, which waits"
    else:
        shows = f"{root} holds it {since}" + ("" if lock.row else f", by a {lock.mode}")
    wait = "1 session waits" if lock.blocked == 1 else f"{lock.blocked} sessions wait"
    return Evidence(lock.table, lock.row or "the whole table", f"{shows}; {wait}")


def _session(session: Session) -> str:
    """A database session; of its query only the first words."""
    if not session.pid:
        return "a prepared transaction"
    does = command(session.query)
    age = "" if session.query_seconds is None else f", {int(session.query_seconds)} s ago"
    query = f", {does}{age}" if does else ""
    return f"process {session.pid} ({session.application or 'no name'}, {session.state or 'unknown'}{query})"


def last_failure(s: Snapshot) -> tuple[Evidence, ...]:
    """Of a turn that failed, the last step, and the end of what its command wrote on stderr."""
    if not s.failed:
        return ()
    steps = [_step(s.steps[-1], len(s.steps))] if s.steps else []
    log = s.failure_log
    if log is None:
        return tuple(steps)
    lines = " / ".join(last_lines(log.stderr_tail, 3))
    shows = f"{log.whose} {log.outcome}" + (f"; its stderr ends: {lines}" if lines else "")
    return (*steps, Evidence("cbx.logs", log.log_id, shows))


def _step(step: Step, number: int) -> Evidence:
    error = f": {step.error}" if step.error else ""
    return Evidence("state.agent_steps", step.step_id, f"step {number}, the last: {step.status}{error}")


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
            f" last heartbeat {instant(s, worker.heartbeat_at)}{_trouble(s, worker)}",
        )
        for worker in s.workers[-3:]
    )


def _trouble(s: Snapshot, worker: WorkerEntry) -> str:
    if worker.last_error is None:
        return ""
    return f"; since {instant(s, worker.last_error_at)} it cannot work: {worker.last_error}"


def live_workers(workers: Sequence[LiveWorker], more: str = "") -> tuple[Evidence, ...]:
    """The last of these workers."""
    return tuple(
        Evidence("cbx.workers", each.worker_id, f"target {each.worker_target}, alive{more}")
        for each in workers[-3:]
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
    return f"`cbx render --turn {quoted(s.agent_turn_id)} --format {provider} --check`"


def repair_command(s: Snapshot) -> str:
    """The command that makes a mended copy of the box in which the first of that stands."""
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
    """The command that gives the turn another context box, whose id stands in the place of BOX."""
    words = ["turn", "rebox", s.agent_turn_id, "--expect-epoch", str(s.epoch), "--context-box", "BOX"]
    return f"`{command_line([*words, '--reason', 'TEXT'])}`"


def last_audit(s: Snapshot) -> tuple[Evidence, ...]:
    """What was last done to the turn from outside, if anything was."""
    if s.audit is None:
        return ()
    reason = f": {s.audit.reason}" if s.audit.reason else ""
    shows = f"{s.audit.action} by {s.audit.actor} {instant(s, s.audit.created_at)}{reason}"
    return (Evidence("cbx.audit", s.audit.audit_id, shows),)
