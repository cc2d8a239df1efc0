"""`cbx turn nudge, retry, stop, reclaim, requeue, fail, rebox` and `rebuild`: manual fixes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import remember_made, resolving_boxes, resolving_turns
from cardbox_cli.cli.options.shared_options import Again, ExpectEpoch, OptionalReason, Reason, TurnId
from cardbox_cli.cli.options.value_types import AGENT, BOX
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb

if TYPE_CHECKING:
    from cardbox_cli.execution.recovery.fixes import FixOutcome
    from cardbox_cli.execution.runtime import Runtime


_REFUSED = "cbx rejects what it writes for the turn"
_UNFENCED = "it belongs to another system, so cbx cannot reject what it writes"


def _run_audited_fix(turn: str, do: "Callable[..., FixOutcome]", **options: Any) -> None:
    """Fix a turn with a function of `recovery.fixes` that takes the actor and the command's options."""
    _run_fix(turn, lambda run, turn_id: do(run, turn_id, actor=actor(run.database), **options))


def _run_fix(turn: str, do: "Callable[[Runtime, str], FixOutcome]") -> None:
    """Fix a turn with a function of `recovery.fixes`, and print the outcome."""
    with runtime() as run:
        fixed = do(run, resolving_turns(run.database, run.project_id).resolve(turn))
    for each in fixed.may_start_twice:
        effect = _REFUSED if fixed.fenced else _UNFENCED
        announce(f"note: {each} may still be running; {effect}")
    ended = fixed.end
    output.emit(
        fixed,
        table=lambda: output.facts(
            ("turn", fixed.agent_turn_id),
            ("agent", fixed.agent_id),
            ("state", fixed.status if ended is None else f"ended: {ended.end_status}"),
            ("epoch", None if fixed.turn_epoch is None else str(fixed.turn_epoch)),
            ("deliverable", None if ended is None else ended.deliverable_card_id),
            ("promoted", fixed.promoted_turn_id),
        ),
        ids=[fixed.agent_turn_id],
    )


@verb("nudge", "cbx turn nudge 1d5c8f72")
def nudge_turn(turn: TurnId) -> None:
    """Notify the workers of a turn again, and promote the next turn of an idle agent. The epoch stays."""
    from cardbox_cli.execution.recovery import fixes

    _run_fix(turn, fixes.nudge)


@verb(
    "retry",
    "cbx turn retry 1d5c8f72",
    "cbx turn list --end failed --since 1h -o id | xargs -n1 cbx turn retry",
    "cbx turn retry @last -o id | xargs cbx turn wait",
)
def retry_turn(turn: TurnId, again: Again = False) -> None:
    """Retry a failed turn as a new turn with the same context.

    A tool call that waits for the old turn will wait for the new turn. Exit 5 if another retry of the turn
    runs or has succeeded, 6 if the turn was not accepted.
    """
    from cardbox_cli.cli.terminal.turn_report import print_dispatched, refuse
    from cardbox_cli.execution.recovery import retrying
    from cardbox_cli.model.cards import OPERATOR

    with runtime() as run:
        turn_id = resolving_turns(run.database, run.project_id).resolve(turn)
        dispatched = retrying.retry_turn(run, turn_id, source_agent_id=OPERATOR, again=again)
        if dispatched.result.status != "accepted":
            refuse(dispatched)
        remember_made(turn_id=dispatched.result.agent_turn_id, box_id=dispatched.result.context_box_id)
    print_dispatched(dispatched.result)


@verb("stop", "cbx turn stop 1d5c8f72 --reason 'asked for by mistake'")
def stop_turn(turn: TurnId, reason: OptionalReason = None) -> None:
    """End a turn in any state as canceled. Its worker notices at the next heartbeat."""
    from cardbox_cli.execution.recovery import fixes

    _run_audited_fix(turn, fixes.stop, reason=reason)


@verb("reclaim", "cbx turn reclaim 1d5c8f72 --expect-epoch 3 --reason 'its worker is gone'")
def reclaim_turn(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """Take a turn back from its worker, so that another worker can claim it."""
    from cardbox_cli.execution.recovery import fixes

    _run_audited_fix(turn, fixes.reclaim, expect_epoch=expect_epoch, reason=reason)


@verb("requeue", "cbx turn requeue 1d5c8f72 --expect-epoch 3 --reason 'the model was down'")
def requeue_turn(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """Put a turn back into its agent's queue, to start over. Its output box keeps its cards."""
    from cardbox_cli.execution.recovery import fixes

    _run_audited_fix(turn, fixes.requeue, expect_epoch=expect_epoch, reason=reason)


@verb("fail", "cbx turn fail 1d5c8f72 --expect-epoch 3 --reason 'its context box is lost'")
def fail_turn(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """End a turn as failed, with the reason in its deliverable. For a queued turn, use `cbx turn stop`."""
    from cardbox_cli.execution.recovery import fixes

    _run_audited_fix(turn, fixes.fail, expect_epoch=expect_epoch, reason=reason)


@verb("rebox", "cbx turn rebox 1d5c8f72 --expect-epoch 3 --context-box $BOX --reason 'a card was wrong'")
def rebox_turn(
    turn: TurnId,
    expect_epoch: ExpectEpoch,
    reason: Reason,
    context_box: Annotated[str | None, Option(click_type=BOX, help="The new context box.")] = None,
    output_box: Annotated[str | None, Option(click_type=BOX, help="The new output box.")] = None,
) -> None:
    """Change the context or output box of a waiting turn."""
    from cardbox_cli.execution.recovery import fixes

    def do(run: "Runtime", turn_id: str, *, actor: str) -> "FixOutcome":
        boxes = resolving_boxes(run.database, run.project_id)
        return fixes.rebox(
            run,
            turn_id,
            expect_epoch=expect_epoch,
            actor=actor,
            reason=reason,
            context_box_id=boxes.resolve(context_box) if context_box else None,
            output_box_id=boxes.resolve(output_box) if output_box else None,
        )

    _run_audited_fix(turn, do)


@verb("rebuild", "cbx turn rebuild clerk")
def rebuild_head(
    agent: Annotated[str, Argument(click_type=AGENT, help="The agent without a valid state row.")],
    reason: OptionalReason = None,
) -> None:
    """Recreate an agent's missing state row from its inbox rows and waiting tools.

    Also repairs a state row that is not idle but has no turn.
    """
    from cardbox_cli.execution.recovery.rebuilding import rebuild

    with runtime() as run:
        rebuilt = rebuild(run, agent, actor=actor(run.database), reason=reason)
    output.emit(
        rebuilt,
        table=lambda: output.facts(
            ("agent", rebuilt.agent_id),
            ("state", rebuilt.status),
            ("turn", rebuilt.active_agent_turn_id),
            ("epoch", str(rebuilt.turn_epoch)),
            ("certain", "\n".join(rebuilt.certain)),
            ("guessed", "\n".join(rebuilt.guessed)),
            ("promoted", rebuilt.promoted_turn_id),
        ),
        ids=[rebuilt.active_agent_turn_id] if rebuilt.active_agent_turn_id else [],
    )
