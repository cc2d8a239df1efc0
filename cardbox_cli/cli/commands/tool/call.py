"""`cbx tool call`: an internal handler, as a call of a turn's model would make it."""

from typing import Annotated, Any

from typer import Argument, Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import resolved_or_given, resolving_turns
from cardbox_cli.cli.options.input_files import parse_json
from cardbox_cli.cli.options.value_types import HANDLER, TURN
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json


@verb(
    "call",
    """cbx tool call launch_principal --turn @last --args '{"profile_name": "clerk", "instruction": "Go"}'""",
    'cbx tool call delegate_async --turn "$CBX_TURN_ID" --args @task.json -o json | jq -r .agent_turn_id',
    "cbx tool call ask_expert --turn 1d5c8f72 --tool-call-id call_7 --args @question.json",
)
def call_tool(
    name: Annotated[str, Argument(click_type=HANDLER, help="The handler's name.")],
    turn: Annotated[
        str, Option(click_type=TURN, help="The active turn in which it is called, with its agent's rights.")
    ],
    args: Annotated[
        str, Option("--args", metavar="JSON|@FILE", help="Its arguments, a JSON object; @- for stdin.")
    ] = "{}",
    tool_call_id: Annotated[
        str | None,
        Option(metavar="ID", help="The call that the turn waits for: the result is reported to it."),
    ] = None,
) -> None:
    """Call an internal handler on behalf of a turn, as its model may: what its profile allows, and no more.

    Workers of cbx answer such calls themselves. This is for the commands that they run, and for workers of
    other makes.
    """
    from cardbox_cli.orchestration.calls import call_handler

    arguments = parse_json(args, "--args")
    if not isinstance(arguments, dict):
        raise InvalidInput("--args: not a JSON object", hint='for example \'{"profile_name": "clerk"}\'')
    with runtime() as run:
        turn_id = resolved_or_given(resolving_turns(run.database, run.project_id).resolve, turn)
        answer = call_handler(run, name, arguments, agent_turn_id=turn_id, tool_call_id=tool_call_id)
    output.emit(answer, table=lambda: _print(answer), ids=_ids(answer))


def _print(answer: Any) -> None:
    if isinstance(answer, dict):
        output.facts(*((str(key), _text(value)) for key, value in answer.items()))
    else:
        output.print_text(_text(answer) or "null")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return exact_json.encode(value).decode()


def _ids(answer: Any) -> list[str]:
    """The id that the next command wants, where a handler answers one."""
    known = answer if isinstance(answer, dict) else {}
    return [
        known[name] for name in ("agent_turn_id", "batch_id", "agent_id") if isinstance(known.get(name), str)
    ][:1]
