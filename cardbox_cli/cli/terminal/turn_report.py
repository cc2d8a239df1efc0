"""Reports on a turn that was not accepted or has ended, for commands that request or await turns."""

from typing import TYPE_CHECKING, NoReturn

from cardbox_cli.cli.last_ids import remember_made, resolving_turns
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.errors import Findings
from cardbox_cli.text.command_lines import quote_argument

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch_requests import DispatchOutcome, DispatchResult
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.inspect.turns import TurnView
    from cardbox_cli.model.cards import Card
    from cardbox_cli.orchestration.delegation import DelegationOutcome
    from cardbox_cli.store.views.turn_views import TurnViews


def refuse(dispatched: "DispatchOutcome") -> NoReturn:
    """Print the result of a dispatch that was not accepted, and raise its error."""
    from cardbox_cli.execution.dispatch_requests import refusal_error

    output.emit(dispatched.result, table=lambda: None)
    hint = _HINTS.get(dispatched.result.error_code or "", "nothing was written")
    raise refusal_error(dispatched, hint)


def print_dispatched(result: "DispatchResult", *, dry_run: bool = False) -> None:
    output.emit(
        result,
        table=lambda: output.facts(
            ("turn", "(dry run: nothing was written)" if dry_run else result.agent_turn_id),
            ("agent", result.agent_id),
            ("state", dispatched_state(result)),
            ("context box", result.context_box_id),
            ("output box", None if dry_run else result.output_box_id),
            ("depth", str(result.recursion_depth) if result.recursion_depth else None),
            ("trace", result.trace_id),
            ("new", None if result.created else "no: that request was made before"),
        ),
        ids=[result.agent_turn_id] if result.agent_turn_id else [],
    )


def print_delegated(run: "Runtime", done: "DelegationOutcome", *, wait: bool, timeout: float | None) -> None:
    """Print the delegated turn, or with `wait` its end. `@last` refers to the turn."""
    for note in done.notes:
        announce(f"note: {note}")
    result = done.result
    remember_made(turn_id=result.agent_turn_id, box_id=result.context_box_id)
    if wait:
        await_end(run, result, timeout)
    else:
        print_dispatched(result)


def await_end(run: "Runtime", result: "DispatchResult", timeout: float | None) -> None:
    assert result.agent_turn_id is not None
    announce(f"turn {result.agent_turn_id}: {dispatched_state(result)}")
    print_end(resolving_turns(run.database, run.project_id), result.agent_turn_id, timeout)


def dispatched_state(result: "DispatchResult") -> str:
    if result.turn_epoch is None:
        return f"queued, place {result.queue_position}"
    return f"dispatched, epoch {result.turn_epoch}"


_HINTS = {
    "agent_not_found": "`cbx agent list` shows the agents, `cbx agent provision` creates one",
    "agent_busy": "omit --no-queue to join the queue, or see the agent's turn with `cbx why --agent AGENT`",
    "context_box_not_found": "`cbx box list` shows the boxes; `cbx pack` creates one",
    "invalid_source_actor": "`cbx agent list` shows the agents; a person's name begins with sys.",
    "output_box_in_use": "omit --output-box to get a new box, or wait until that turn ends",
    "parent_turn_not_found": "`cbx turn list` shows the turns",
    "profile_mismatch": "name that profile in the arguments, or another agent",
    "profile_not_found": "`cbx profile import FILE`, then `cbx agent provision AGENT --profile P --update`",
    "project_archived": "`cbx project update --status active` reopens it",
    "recursion_depth_exceeded": "let an agent further up ask, or use --depth-policy root",
    "worker_target_missing": "`cbx agent provision AGENT --profile P --worker-target T --update` sets one",
}


def print_end(turns: "TurnViews", turn_id: str, timeout: float | None) -> None:
    """Wait for the end of a turn and print it. Raises Findings unless the turn is a success."""
    from cardbox_cli.execution.turn_summary import wait_for_end
    from cardbox_cli.inspect.turns import view_turn
    from cardbox_cli.store.cards import CardStore

    wait_for_end(turns, turn_id, timeout=timeout)
    with turns.database.snapshot():
        stored = turns.read_all(turn_id)
        view = view_turn(stored)
        ids = [view.deliverable_card_id] if view.deliverable_card_id else []
        cards = CardStore(turns.database, turns.project_id).get_many(ids).cards
    output.emit(view, table=lambda: _print_deliverable(view, cards), ids=ids)
    require_success(view, stored.record.error if stored.record else None)


def _print_deliverable(view: "TurnView", cards: "list[Card]") -> None:
    from cardbox_cli.model.pairing import full_text

    if view.end_status in ("success", "partial"):
        for card in cards:
            output.print_text(full_text(card))
        if not cards:
            announce(f"turn {view.agent_turn_id} has no readable deliverable")


def require_success(view: "TurnView", error: str | None) -> None:
    """Raise Findings unless a turn is a success. First print the last lines of its command's stderr."""
    if view.end_status != "success":
        for line in end_of_stderr(view):
            announce(line)
        turn = quote_argument(view.agent_turn_id)
        logs = f"`cbx turn logs {turn}` shows what its commands wrote, " if view.logs else ""
        raise Findings(
            f"turn {view.agent_turn_id} ended: {view.end_status}" + (f": {error}" if error else ""),
            hint=f"{logs}`cbx turn show {turn}` shows the details",
            details={"agent_turn_id": view.agent_turn_id, "end_status": view.end_status},
        )


def end_of_stderr(view: "TurnView") -> list[str]:
    """Return the last lines of stderr of the command that made a turn fail, or [] without such a command."""
    from cardbox_cli.model.execution.turns import find_failure_log, last_lines

    last_step = view.steps[-1].step_id if view.steps else None
    log = find_failure_log(view.logs, last_step) if view.end_status not in (None, "success") else None
    if log is None or not log.stderr_tail.strip():
        return []
    return [
        f"{log.whose} {log.outcome}; its stderr ends:",
        *(f"  {line}" for line in last_lines(log.stderr_tail)),
    ]
