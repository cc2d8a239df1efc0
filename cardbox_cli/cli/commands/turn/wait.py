"""What `cbx turn wait` does: it comes back when a turn has ended, with what the turn delivered."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.parameters.options import EndTimeout, TurnId
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import spoken_by
from cardbox_cli.cli.tree import verb
from cardbox_cli.errors import Findings

if TYPE_CHECKING:
    from cardbox_cli.execution.views.turn_page import TurnView
    from cardbox_cli.model.cards import Card
    from cardbox_cli.store.views.turns import TurnViews


@verb(
    examples="cbx turn wait 1d5c8f72 --timeout 60\n"
    "cbx dispatch --agent clerk --context-box @last && cbx turn wait @last > answer.txt"
)
def command(turn: TurnId, timeout: EndTimeout = None) -> None:
    """Wait until a turn has ended, and print the text of what it delivered.

    Exit 8 when it ended otherwise than in success, 124 when that took too long.
    """
    with session().turns() as turns:
        await_end(turns, turns.resolve(turn), timeout)


def await_end(turns: "TurnViews", turn_id: str, timeout: float | None) -> None:
    """Wait for the end of a turn and print it. Raises Findings unless it is a success."""
    from cardbox_cli.execution.views.turn_page import view
    from cardbox_cli.execution.views.waiting import wait_for_end
    from cardbox_cli.store.cards import CardStore

    wait_for_end(turns, turn_id, timeout=timeout)
    with turns.database.snapshot():
        stored = turns.story(turn_id)
        seen = view(stored)
        wanted = [seen.deliverable_card_id] if seen.deliverable_card_id else []
        cards = CardStore(turns.database, turns.project_id).get_many(wanted).cards
    output.emit(seen, table=lambda: _say_deliverable(seen, cards), ids=wanted)
    require_success(seen, stored.record.error if stored.record else None)


def _say_deliverable(seen: "TurnView", cards: "list[Card]") -> None:
    if seen.end_status == "success":
        for card in cards:
            output.say(spoken_by(card))
        if not cards:
            announce(f"turn {seen.agent_turn_id} left no deliverable that can be read")


def require_success(seen: "TurnView", error: str | None) -> None:
    """Raise Findings for a turn that ended otherwise."""
    if seen.end_status != "success":
        raise Findings(
            f"turn {seen.agent_turn_id} ended: {seen.end_status}" + (f": {error}" if error else ""),
            hint=f"`cbx turn show {seen.agent_turn_id}` tells the story",
            details={"agent_turn_id": seen.agent_turn_id, "end_status": seen.end_status},
        )
