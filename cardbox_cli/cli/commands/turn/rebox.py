"""`cbx turn rebox`."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.commands.turn.fixing import fix
from cardbox_cli.cli.last_ids import resolving_boxes
from cardbox_cli.cli.options.shared_options import ExpectEpoch, Reason, TurnId
from cardbox_cli.cli.options.value_types import BOX
from cardbox_cli.cli.verb import verb

if TYPE_CHECKING:
    from cardbox_cli.execution.recovery.fixes import Fixed
    from cardbox_cli.execution.runtime import Runtime


@verb("rebox", "cbx turn rebox 1d5c8f72 --expect-epoch 3 --context-box $BOX --reason 'a card was wrong'")
def rebox_turn(
    turn: TurnId,
    expect_epoch: ExpectEpoch,
    reason: Reason,
    context_box: Annotated[str | None, Option(click_type=BOX, help="What it shall read.")] = None,
    output_box: Annotated[str | None, Option(click_type=BOX, help="What it shall write to.")] = None,
) -> None:
    """Give a turn that waits another context or output box."""
    from cardbox_cli.execution.recovery import fixes

    def do(run: "Runtime", turn_id: str, *, actor: str) -> "Fixed":
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

    fix(turn, do)
