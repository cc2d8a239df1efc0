"""`cbx turn watch, wait` and `report`: follow a turn to its end, and answer its tool calls."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Option

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import resolving_turns
from cardbox_cli.cli.options.input_files import text_or_file
from cardbox_cli.cli.options.shared_options import EndTimeout, TurnId
from cardbox_cli.cli.options.value_types import AFTER, OneOf, Seconds
from cardbox_cli.cli.project_database import open_turns
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import EVENT_COLUMNS
from cardbox_cli.cli.terminal.table_layout import Shown
from cardbox_cli.cli.terminal.turn_report import print_end, require_success
from cardbox_cli.cli.terminal.watch import pauses
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.execution.turns import END_STATUSES
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.escaping import flatten

if TYPE_CHECKING:
    from cardbox_cli.inspect.turns import Event
    from cardbox_cli.model.content import ToolResultContent
    from cardbox_cli.store.views.turn_views import StoredTurn, TurnViews


@verb("watch", "cbx turn watch @last", "cbx turn watch 1d5c8f72 -o jsonl | jq -r .text")
def watch_turn(
    turn: TurnId,
    interval: Annotated[float, Option(click_type=Seconds(min=0.1), help="Time between refreshes.")] = 1.0,
) -> None:
    """Print the events of a turn, one per line, until it ends. Exit 8 if it does not succeed."""
    from cardbox_cli.inspect.turns import view_turn

    last: list[StoredTurn] = []
    with open_turns() as turns:
        events = _read_events(turns, turns.resolve(turn), interval, last.append)
        if session().format.kind == "text":
            for event in events:
                _print_event(event)
        else:
            output.emit_list(
                events, columns=Shown(EVENT_COLUMNS), item_id=lambda event: event.ref or "-", empty=""
            )
    [stored] = last
    require_success(view_turn(stored), stored.record.error if stored.record else None)


def _read_events(
    turns: "TurnViews", turn_id: str, interval: float, end: "Callable[[StoredTurn], None]"
) -> "Iterator[Event]":
    """Yield the events of a turn, each once, until it has ended; then call `end` with it."""
    from cardbox_cli.inspect.turns import view_turn

    printed: Counter[Event] = Counter()
    with ExitStack() as stack:
        pause: Callable[[float], None] | None = None
        while True:
            stored = turns.read_all(turn_id)
            view = view_turn(stored)
            now = Counter(view.timeline)
            new = now - printed
            yield from (event for event in view.timeline if event in new)
            printed |= now
            if view.end_status is not None:
                end(stored)
                return
            pause = pause or stack.enter_context(pauses())
            pause(interval)


def _print_event(event: "Event") -> None:
    moment, name, text = (column.text(event) for column in EVENT_COLUMNS)
    output.print_text(flatten(f"{moment}  {name:11}  {text}"))
    sys.stdout.flush()


@verb(
    "wait",
    "cbx turn wait 1d5c8f72 --timeout 60",
    "cbx dispatch --agent clerk --context-box @last && cbx turn wait @last > answer.txt",
)
def wait_for_turn(turn: TurnId, timeout: EndTimeout = None) -> None:
    """Wait until a turn ends, and print the text of its deliverable.

    Exit 8 if it does not succeed, 124 when --timeout elapses.
    """
    with open_turns() as turns:
        print_end(turns, turns.resolve(turn), timeout)


@verb(
    "report",
    "cbx turn report 1d5c8f72 --tool-call-id call_7 --result-text 'approved by Ann'",
    "cbx turn report @last --tool-call-id call_7 --result @answer.json",
    "cbx turn report 1d5c8f72 --tool-call-id call_7 --error 'the shop is closed'",
)
def report_result(
    turn: TurnId,
    tool_call_id: Annotated[
        str, Option(metavar="ID", help="The tool call; `cbx turn show` lists pending calls.")
    ],
    result: Annotated[
        str | None, Option(metavar="TEXT|@FILE", help="The result, as JSON or text; @- for stdin.")
    ] = None,
    result_text: Annotated[
        str | None, Option(metavar="TEXT", help="The result as text, even if it looks like JSON.")
    ] = None,
    error: Annotated[
        str | None, Option(metavar="TEXT", help="The reason why the tool failed, instead of a result.")
    ] = None,
    status: Annotated[
        str | None,
        Option(
            click_type=OneOf(lambda: END_STATUSES, what="status"),
            help="Default: success, or failed with --error.",
        ),
    ] = None,
    after_execution: Annotated[
        str, Option(click_type=AFTER, help="terminate ends the turn with this result.")
    ] = "suspend",
    source_agent: Annotated[str, Option(metavar="AGENT", help="The sender of the report.")] = OPERATOR,
) -> None:
    """Answer a pending tool call. Repeating the same result is harmless; a different result is refused."""
    from cardbox_cli.execution.queue import reports

    if result is not None and result_text is not None:
        raise UsageError(conflict_message("--result", "--result-text"), hint="remove one of them")
    for option, text in (("--result", result), ("--result-text", result_text)):
        if text == reports.PLACEHOLDER:
            raise UsageError(f"{option} {text} is a placeholder", hint="replace it with the answer")
    value: Any = msgspec.UNSET
    if result is not None:
        value = _parse_result(result)
    elif result_text is not None:
        value = _check_result(result_text)
    content = _make_content(value, error, status, after_execution)
    with runtime() as run:
        reported = reports.report_result(
            run,
            resolving_turns(run.database, run.project_id).resolve(turn),
            tool_call_id,
            content,
            source_agent_id=source_agent,
            actor=actor(run.database),
        )
    output.emit(
        reported,
        table=lambda: output.facts(
            ("turn", reported.agent_turn_id),
            ("call", reported.tool_call_id),
            ("card", reported.tool_result_card_id),
            ("inbox row", reported.inbox_id),
            ("new", None if reported.created else "no: that result was reported before"),
        ),
        ids=[reported.tool_result_card_id],
    )


def _make_content(
    result: Any, error: str | None, status: str | None, after_execution: str
) -> "ToolResultContent":
    from cardbox_cli.model.content import ToolResultContent

    status = status or ("success" if error is None else "failed")
    if status == "success" and (error is not None or result is msgspec.UNSET):
        hint = "pass --result-text TEXT, or --result with JSON or @FILE"
        raise UsageError("--status success requires --result and forbids --error", hint=hint)
    if status != "success" and error is None:
        raise UsageError(f"--status {status} requires --error", hint="add --error with the reason")
    if error is not None and not error.strip():
        raise UsageError("--error is empty", hint="pass the reason why the tool failed")
    parts: dict[str, Any] = {"result": result}
    if error is not None:
        parts["error"] = {"code": f"tool_{status}", "message": error}
    return ToolResultContent(
        status=status, after_execution="terminate" if after_execution == "terminate" else "suspend", **parts
    )


def _parse_result(text: str) -> Any:
    """Return the JSON value of a result, or its text if it is not JSON."""
    content = _check_result(text_or_file(text))
    try:
        return exact_json.read(content)
    except ValueError:
        return content


def _check_result(content: str) -> str:
    """Return the text. Raises InvalidInput if it cannot be stored as a result."""
    if "\0" in content:
        raise InvalidInput("--result contains a NUL character", hint="remove the NUL character")
    if len(content.encode(errors="replace")) > RESULT_SIZE.value << 20:
        hint = "report its path or address instead"
        raise InvalidInput(f"--result is larger than {RESULT_SIZE}", hint=hint)
    return content
