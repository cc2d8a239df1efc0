"""`cbx turn trace`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.options.shared_options import TurnId
from cardbox_cli.cli.options.value_types import HTML, OneOf
from cardbox_cli.cli.project_database import open_turns
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.escaping import flat

if TYPE_CHECKING:
    from cardbox_cli.execution.views.turn_page import Branch
    from cardbox_cli.store.views.batches import BatchRow


SVG = "svg"


@verb(
    "trace",
    "cbx turn trace 1d5c8f72",
    "cbx turn trace @last --format html > trace.html",
    "cbx turn trace @last -o json | jq '.turns[].children'",
    pages=True,
    reads=True,
)
def show_trace(
    turn: TurnId,
    format_: Annotated[
        str | None,
        Option("--format", "-f", click_type=OneOf(lambda: (HTML, SVG), what="format"), help="As a picture."),
    ] = None,
) -> None:
    """Show the turns of a trace as a tree: who gave work to whom, and what became of it.

    The children of a batch stand under it. Turns of other traces that gave one of these its work, or got it,
    are in the tree too.
    """
    from cardbox_cli.execution.views.turn_page import summary, tree
    from cardbox_cli.model.ids import unique
    from cardbox_cli.store.views.batches import BatchViews
    from cardbox_cli.store.views.turns import FAMILY

    with open_turns() as turns, turns.database.snapshot():
        found = turns.get(turns.resolve(turn))
        known = turns.family(found)
        batches = BatchViews(turns.database, turns.project_id)
        members = batches.members([each.agent_turn_id for each in known])
        rows = batches.get_many(unique(each.batch_id for each in members.values() if each.batch_id))
    if len(known) >= FAMILY:
        announce(f"note: {len(known)} turns are shown; there may be more")
    tops = tree([summary(each) for each in known], members)
    if format_ is not None:
        from cardbox_cli.pictures.trace import trace_drawing, trace_page

        output.write(trace_page(found.trace_id, tops) if format_ == HTML else trace_drawing(tops), end="")
        return
    answer = {"trace_id": found.trace_id, "turns": tops}
    output.emit(
        answer,
        table=lambda: _Drawing(rows).draw(found.trace_id, tops),
        ids=[each.agent_turn_id for each in known],
    )


def _by_batch(branches: "Sequence[Branch]") -> "list[tuple[str | None, list[Branch]]]":
    """The children of each batch in the order of its tasks, and those of none."""
    groups: dict[str | None, list[Branch]] = {}
    for branch in branches:
        groups.setdefault(branch.batch_id, []).append(branch)
    return [
        (batch_id, sorted(each, key=lambda one: one.task_index or 0)) for batch_id, each in groups.items()
    ]


class _Drawing:
    """Draws a tree, line by line. The children of a batch are drawn under a line of its own."""

    def __init__(self, batches: "Mapping[str, BatchRow]") -> None:
        self._batches = batches

    def draw(self, trace_id: str | None, tops: "Sequence[Branch]") -> None:
        self._line("", f"trace {trace_id or '-'}")
        for batch_id, branches in _by_batch(tops):
            if batch_id is not None:
                self._line("", self._batch(batch_id))
                self._below(branches, trace_id, "")
                continue
            for top in branches:
                self._branch(top, trace_id, "", "")

    def _branch(self, branch: "Branch", trace_id: str | None, lead: str, below: str) -> None:
        outcome = " ".join(part for part in (branch.status, branch.end_status) if part)
        place = "" if branch.task_index is None else f"{branch.task_index}: "
        other = "" if branch.trace_id in (None, trace_id) else f"  trace {branch.trace_id}"
        self._line(lead, f"{place}{branch.agent_turn_id}  {branch.agent_id}  {outcome}{other}")
        groups = _by_batch(branch.children)
        for batch_id, branches in groups:
            is_last = branches is groups[-1][1]
            if batch_id is None:
                self._below(branches, branch.trace_id, below, ends=is_last)
                continue
            self._line(below + ("└─ " if is_last else "├─ "), self._batch(batch_id))
            self._below(branches, branch.trace_id, below + ("   " if is_last else "│  "))

    def _below(
        self, branches: "Sequence[Branch]", trace_id: str | None, below: str, *, ends: bool = True
    ) -> None:
        """Branches under a line; `ends`: nothing else comes under it."""
        for branch in branches:
            is_last = ends and branch is branches[-1]
            lead = below + ("└─ " if is_last else "├─ ")
            self._branch(branch, trace_id, lead, below + ("   " if is_last else "│  "))

    def _batch(self, batch_id: str) -> str:
        row = self._batches.get(batch_id)
        known = "" if row is None else f"  {row.status}, {row.ended_count} of {row.task_count} ended"
        return f"{batch_id}{known}"

    def _line(self, lead: str, text: str) -> None:
        output.print_text(flat(f"{lead}{text}"))
