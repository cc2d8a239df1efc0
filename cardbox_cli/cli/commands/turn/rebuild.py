"""`cbx turn rebuild`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.options.shared_options import OptionalReason
from cardbox_cli.cli.options.value_types import AGENT
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("rebuild", "cbx turn rebuild clerk")
def rebuild_head(
    agent: Annotated[str, Argument(click_type=AGENT, help="The agent whose head is lost.")],
    reason: OptionalReason = None,
) -> None:
    """Make the lost head of an agent anew, from its inbox rows and waiting tools as well as they allow.

    So, too, one that is not idle and names no turn.
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
