"""What `cbx turn wait` does: it comes back when a turn has ended, with what the turn delivered."""

from cardbox_cli.cli.options.shared_options import EndTimeout, TurnId
from cardbox_cli.cli.project_database import open_turns
from cardbox_cli.cli.terminal.turn_report import print_end
from cardbox_cli.cli.verb import verb


@verb(
    "wait",
    "cbx turn wait 1d5c8f72 --timeout 60",
    "cbx dispatch --agent clerk --context-box @last && cbx turn wait @last > answer.txt",
)
def wait_for_turn(turn: TurnId, timeout: EndTimeout = None) -> None:
    """Wait until a turn has ended, and print the text of what it delivered.

    Exit 8 when it ended otherwise than in success, 124 when that took too long.
    """
    with open_turns() as turns:
        print_end(turns, turns.resolve(turn), timeout)
