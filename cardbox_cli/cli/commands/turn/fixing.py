"""How the verbs that free a turn are run, and what they print."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import resolving_turns
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output

if TYPE_CHECKING:
    from cardbox_cli.execution.recovery.fixes import Fixed
    from cardbox_cli.execution.runtime import Runtime

_REFUSED = "nothing that it writes for the turn is kept"
_UNFENCED = "it is another system's, which cbx does not fence: what it writes may be kept"


def fix(turn: str, do: "Callable[..., Fixed]", **given: Any) -> None:
    """`free` by one of `recovery.fixes` that wants to know who acts, and what the command was given."""
    free(turn, lambda run, turn_id: do(run, turn_id, actor=actor(run.database), **given))


def free(turn: str, do: "Callable[[Runtime, str], Fixed]") -> None:
    """Free a turn by one of `recovery.fixes`, and print what it did."""

    with runtime() as run:
        fixed = do(run, resolving_turns(run.database, run.project_id).resolve(turn))
    for each in fixed.may_start_twice:
        kept = _REFUSED if fixed.fenced else _UNFENCED
        announce(f"note: {each} may still be running; {kept}")
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
