"""Waiting for the end of a turn, by short looks at its rows."""

from collections.abc import Callable
from time import monotonic, sleep

from cardbox_cli.errors import WaitedTooLong
from cardbox_cli.model.execution.standing import ENDED
from cardbox_cli.store.views.turns import TurnRow, TurnViews
from cardbox_cli.text import argument

# Seconds between two looks: at first, and at most.
_SOON, _LATE = 0.05, 1.0


def wait_for_end(
    turns: TurnViews, turn_id: str, *, timeout: float | None, pause: Callable[[float], object] = sleep
) -> TurnRow:
    """The turn when it has ended. Raises NotFound, and WaitedTooLong after `timeout` seconds (None: never).

    No transaction is open between two looks. `pause` waits for so many seconds, or less.
    """
    give_up = None if timeout is None else monotonic() + timeout
    interval = _SOON
    while True:
        with turns.database.snapshot():
            turn = turns.get(turn_id)
        if turn.status == ENDED:
            return turn
        left = _LATE if give_up is None else give_up - monotonic()
        if left <= 0:
            raise WaitedTooLong(
                f"turn {turn_id} has not ended within {timeout:g} s: it is {turn.status}",
                hint=f"it goes on; `cbx why {argument(turn_id)}` says what it waits for",
                details={"agent_turn_id": turn_id, "status": turn.status},
            )
        pause(min(interval, left))
        interval = min(interval * 1.5, _LATE)
