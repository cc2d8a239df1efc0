"""The verbs of `cbx turn` that free a turn: each names the epoch that was seen, and a reason."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.parameters.options import ExpectEpoch, OptionalReason, Reason, TurnId
from cardbox_cli.cli.runtime import actor, runtime
from cardbox_cli.cli.session import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.tree import examples

if TYPE_CHECKING:
    from cardbox_cli.execution.recovery.fixes import Fixed
    from cardbox_cli.execution.recovery.rebuilding import Rebuilt
    from cardbox_cli.execution.runtime import Runtime


def add_to(app: typer.Typer) -> None:
    """Make these verbs commands of `cbx turn`."""
    for verb, example in _EXAMPLES.items():
        app.command(verb.__name__.rstrip("_"), epilog=examples(example))(verb)


def nudge(turn: TurnId) -> None:
    """Ring for a turn again, and promote what is queued on an idle agent. The epoch stays."""
    from cardbox_cli.execution.recovery import fixes

    _fix(turn, fixes.nudge)


def stop(turn: TurnId, reason: OptionalReason = None) -> None:
    """End a turn at once as canceled, whatever its state. Its runner learns it at the next heartbeat."""
    from cardbox_cli.execution.recovery import fixes

    _fix(turn, lambda run, turn_id: fixes.stop(run, turn_id, actor=actor(), reason=reason))


def reclaim(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """Take a turn away from whoever runs it, to be claimed anew."""
    from cardbox_cli.execution.recovery import fixes

    _fix(
        turn,
        lambda run, turn_id: fixes.reclaim(
            run, turn_id, expect_epoch=expect_epoch, actor=actor(), reason=reason
        ),
    )


def requeue(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """Put a turn back into its agent's queue, to begin anew. What it wrote stays."""
    from cardbox_cli.execution.recovery import fixes

    _fix(
        turn,
        lambda run, turn_id: fixes.requeue(
            run, turn_id, expect_epoch=expect_epoch, actor=actor(), reason=reason
        ),
    )


def fail(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """End a turn as failed, with the reason in its deliverable. A queued one: `cbx turn stop`."""
    from cardbox_cli.execution.recovery import fixes

    _fix(
        turn,
        lambda run, turn_id: fixes.fail(
            run, turn_id, expect_epoch=expect_epoch, actor=actor(), reason=reason
        ),
    )


def rebox(
    turn: TurnId,
    expect_epoch: ExpectEpoch,
    reason: Reason,
    context_box: Annotated[str | None, typer.Option(metavar="BOX", help="What it shall read.")] = None,
    output_box: Annotated[str | None, typer.Option(metavar="BOX", help="What it shall write to.")] = None,
) -> None:
    """Give a turn that waits another context or output box."""
    from cardbox_cli.cli.parameters.id_resolution import TypedBoxes
    from cardbox_cli.execution.recovery import fixes

    def do(run: "Runtime", turn_id: str) -> "Fixed":
        boxes = TypedBoxes(run.database, run.project_id)
        return fixes.rebox(
            run,
            turn_id,
            expect_epoch=expect_epoch,
            actor=actor(),
            reason=reason,
            context_box_id=boxes.resolve(context_box) if context_box else None,
            output_box_id=boxes.resolve(output_box) if output_box else None,
        )

    _fix(turn, do)


def rebuild(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent whose head is lost.")],
    reason: OptionalReason = None,
) -> None:
    """Make the lost head of an agent anew, from its inbox rows and waiting tools as well as they allow."""
    from cardbox_cli.execution.recovery.rebuilding import rebuild as rebuild_head

    with runtime() as run:
        rebuilt = rebuild_head(run, agent, actor=actor(), reason=reason)
    output.emit(
        rebuilt,
        table=lambda: _say_rebuilt(rebuilt),
        ids=[rebuilt.active_agent_turn_id] if rebuilt.active_agent_turn_id else [],
    )


def _fix(turn: str, do: "Callable[[Runtime, str], Fixed]") -> None:
    from cardbox_cli.cli.parameters.id_resolution import TypedTurns

    with runtime() as run:
        fixed = do(run, TypedTurns(run.database, run.project_id).resolve(turn))
    for each in fixed.may_start_twice:
        announce(f"note: {each} may still be running; nothing that it writes for the turn is kept")
    output.emit(fixed, table=lambda: _say(fixed), ids=[fixed.agent_turn_id])


def _say(fixed: "Fixed") -> None:
    epoch = None if fixed.turn_epoch is None else str(fixed.turn_epoch)
    ended = fixed.end
    output.facts(
        [
            ("turn", fixed.agent_turn_id),
            ("agent", fixed.agent_id),
            ("state", fixed.status if ended is None else f"ended: {ended.end_status}"),
            ("epoch", epoch),
            ("deliverable", None if ended is None else ended.deliverable_card_id),
            ("promoted", fixed.promoted_turn_id),
        ]
    )


def _say_rebuilt(rebuilt: "Rebuilt") -> None:
    output.facts(
        [
            ("agent", rebuilt.agent_id),
            ("state", rebuilt.status),
            ("turn", rebuilt.active_agent_turn_id),
            ("epoch", str(rebuilt.turn_epoch)),
            ("certain", "\n".join(rebuilt.certain)),
            ("guessed", "\n".join(rebuilt.guessed)),
            ("promoted", rebuilt.promoted_turn_id),
        ]
    )


_EXAMPLES: dict[Callable[..., None], str] = {
    nudge: "  cbx turn nudge 1d5c8f72",
    stop: "  cbx turn stop 1d5c8f72 --reason 'asked for by mistake'",
    reclaim: "  cbx turn reclaim 1d5c8f72 --expect-epoch 3 --reason 'its worker is gone'",
    requeue: "  cbx turn requeue 1d5c8f72 --expect-epoch 3 --reason 'the model was down'",
    fail: "  cbx turn fail 1d5c8f72 --expect-epoch 3 --reason 'its context box is lost'",
    rebox: "  cbx turn rebox 1d5c8f72 --expect-epoch 3 --context-box $BOX --reason 'a card was wrong'",
    rebuild: "  cbx turn rebuild clerk",
}
