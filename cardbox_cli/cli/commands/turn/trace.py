"""`cbx turn trace`."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.escaping import flat
from cardbox_cli.cli.parameters.options import TurnId
from cardbox_cli.cli.parameters.types import HTML, OneOf
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb

if TYPE_CHECKING:
    from cardbox_cli.execution.views.turn_page import Branch


SVG = "svg"


@verb(
    "cbx turn trace 1d5c8f72",
    "cbx turn trace @last --format html > trace.html",
    "cbx turn trace @last -o json | jq '.turns[].children'",
    pages=True,
)
def command(
    turn: TurnId,
    format_: Annotated[
        str | None,
        Option("--format", "-f", click_type=OneOf(lambda: (HTML, SVG), what="format"), help="As a picture."),
    ] = None,
) -> None:
    """Show the turns of a trace as a tree: who gave work to whom, and what became of it.

    Turns of other traces that gave one of these its work, or got it, are in the tree too.
    """
    from cardbox_cli.execution.views.turn_page import summary, tree
    from cardbox_cli.store.views.turns import FAMILY

    with session().turns() as turns, turns.database.snapshot():
        found = turns.get(turns.resolve(turn))
        known = turns.family(found)
    if len(known) >= FAMILY:
        announce(f"note: {len(known)} turns are shown; there may be more")
    tops = tree([summary(each) for each in known])
    if format_ is not None:
        from cardbox_cli.cli.pictures.trace import trace_drawing, trace_page

        output.write(trace_page(found.trace_id, tops) if format_ == HTML else trace_drawing(tops), end="")
        return
    answer = {"trace_id": found.trace_id, "turns": tops}
    output.emit(
        answer, table=lambda: _print_tree(found.trace_id, tops), ids=[each.agent_turn_id for each in known]
    )


def _print_tree(trace_id: str | None, tops: "list[Branch]") -> None:
    output.print_text(flat(f"trace {trace_id or '-'}"))
    for top in tops:
        _print_branch(top, trace_id, "", "")


def _print_branch(branch: "Branch", trace_id: str | None, lead: str, below: str) -> None:
    outcome = " ".join(part for part in (branch.status, branch.end_status) if part)
    other = "" if branch.trace_id in (None, trace_id) else f"  trace {branch.trace_id}"
    output.print_text(flat(f"{lead}{branch.agent_turn_id}  {branch.agent_id}  {outcome}{other}"))
    for child in branch.children:
        is_last = child is branch.children[-1]
        lead = below + ("└─ " if is_last else "├─ ")
        _print_branch(child, branch.trace_id, lead, below + ("   " if is_last else "│  "))
