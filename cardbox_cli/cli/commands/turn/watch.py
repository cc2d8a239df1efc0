"""What `cbx turn watch` does: the timeline of a turn, as it happens."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.options.shared_options import TurnId
from cardbox_cli.cli.options.value_types import Seconds
from cardbox_cli.cli.project_database import open_turns
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import EVENT_COLUMNS
from cardbox_cli.cli.terminal.table_layout import Shown
from cardbox_cli.cli.terminal.turn_report import require_success
from cardbox_cli.cli.terminal.watch import pauses
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.escaping import flat

if TYPE_CHECKING:
    from cardbox_cli.execution.views.timeline import Event
    from cardbox_cli.store.views.turns import StoredTurn, TurnViews


@verb("watch", "cbx turn watch @last", "cbx turn watch 1d5c8f72 -o jsonl | jq -r .text")
def watch_turn(
    turn: TurnId,
    interval: Annotated[
        float, Option(click_type=Seconds(min=0.1), help="So many seconds between looks.")
    ] = 1.0,
) -> None:
    """Print what happens to a turn, a line each, until it has ended. Exit 8 unless in success."""
    from cardbox_cli.execution.views.turn_page import view

    last: list[StoredTurn] = []
    with open_turns() as turns:
        events = _events(turns, turns.resolve(turn), interval, last.append)
        if session().format.kind == "text":
            for event in events:
                _print_text(event)
        else:
            output.emit_list(
                events, columns=Shown(EVENT_COLUMNS), item_id=lambda event: event.ref or "-", empty=""
            )
    [stored] = last
    require_success(view(stored), stored.record.error if stored.record else None)


def _events(
    turns: "TurnViews", turn_id: str, interval: float, end: "Callable[[StoredTurn], None]"
) -> "Iterator[Event]":
    """What happens to a turn, each thing once, until it has ended; `end` gets it then."""
    from cardbox_cli.execution.views.turn_page import view

    printed: Counter[Event] = Counter()
    with ExitStack() as stack:
        pause: Callable[[float], None] | None = None
        while True:
            stored = turns.story(turn_id)
            seen = view(stored)
            now = Counter(seen.timeline)
            new = now - printed
            yield from (event for event in seen.timeline if event in new)
            printed |= now
            if seen.end_status is not None:
                end(stored)
                return
            pause = pause or stack.enter_context(pauses())
            pause(interval)


def _print_text(event: "Event") -> None:
    moment, name, text = (column.text(event) for column in EVENT_COLUMNS)
    output.print_text(flat(f"{moment}  {name:11}  {text}"))
    sys.stdout.flush()
