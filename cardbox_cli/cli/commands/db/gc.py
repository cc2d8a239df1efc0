"""`cbx db gc`: purging what no reader sees any more, and the report of what that leaves behind."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.actor import audit_in
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.shared_options import Latest
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_output import looked_into
from cardbox_cli.cli.terminal.progress_bar import bar
from cardbox_cli.cli.terminal.table_layout import Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.limits import BOXES_LOOKED_INTO
from cardbox_cli.model.text.quantities import count

if TYPE_CHECKING:
    from cardbox_cli.store.gc import Dangling, Rubbish


@verb(
    "gc",
    "cbx db gc --dry-run",
    "cbx db gc --yes",
    "cbx db gc --purge --all-projects --yes -o json | jq .purged",
)
def collect_garbage(
    purge: Annotated[bool, Option("--purge", help="Purge soft-deleted cards, too.")] = False,
    all_projects: Annotated[
        bool, Option("--all-projects", help="The whole database, not only --project.")
    ] = False,
    batch_size: Annotated[
        int, Option(metavar="N", min=1, help="Rows per transaction.", show_default=True)
    ] = 1000,
    latest: Latest = BOXES_LOOKED_INTO.value,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be purged.")] = False,
    yes: Yes = False,
) -> None:
    """Purge expired cards, and the logs of turns that are older than 30 days, for ever.

    Works in small transactions that wait for no writer: stopped in the middle it loses nothing, and a second
    run finishes. Boxes stay as they are; references that then lead nowhere are reported, of the boxes of each
    project that changed last.
    """
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.gc import Collector, Rubbish, projects

    with open_database() as database:
        names = projects(database) if all_projects else [session().project_id]
        collectors = [Collector(database, name) for name in names]
        finds = [each.find(deleted=purge, latest=latest or None) for each in collectors]
        found = sum(finds, Rubbish())
        if dry_run or not found.total:
            purged = found
        else:
            where = "the whole database" if all_projects else f"project {session().project_id!r}"
            confirm(f"Purge {_counted(found, deleted=purge)} of {where} for ever?", yes=yes)
            for each, rubbish in zip(collectors, finds, strict=True):
                if rubbish.total:
                    # Before the first batch: one that is stopped in the middle has its row.
                    audit_in(database, each.project_id, "db gc", found=rubbish)
            with bar("purging", found.total) as show:
                advance = _summed(show)
                purges = (
                    each.purge(deleted=purge, batch_size=batch_size, advance=advance) for each in collectors
                )
                purged = sum(purges, Rubbish())
        dangling = [
            box
            for each in collectors
            for box in each.dangling(
                latest=latest or None, without_expired=dry_run, without_deleted=dry_run and purge
            )
        ]
        is_cut = bool(latest) and any(BoxStore(database, name).are_more_than(latest) for name in names)
    answer = {"dry_run": dry_run, "purged": purged, "dangling": dangling}
    summary = f"{'would purge' if dry_run else 'purged'} {_counted(purged, deleted=purge)}"
    summary = summary if found.total else "nothing to purge"
    output.emit(answer, table=lambda: _print_text(summary, dangling), ids=[box.box_id for box in dangling])
    if dangling:
        places = sum(box.count for box in dangling)
        lead = "would lead" if dry_run else "leads" if places == 1 else "lead"
        announce(
            f"{count(places, 'reference')} in {count(len(dangling), 'box')} {lead} to no card;"
            " `cbx box verify BOX` shows where"
        )
    if is_cut:
        announce(looked_into(latest))


def _print_text(summary: str, dangling: "Sequence[Dangling]") -> None:
    output.print_text(summary)
    if dangling:
        print_table(_DANGLING, dangling)


_DANGLING = (
    Column("BOX", lambda box: box.box_id),
    Column("DANGLING", lambda box: str(box.count), right=True),
    Column("PROJECT", lambda box: box.project_id),
)


def _counted(rubbish: "Rubbish", *, deleted: bool) -> str:
    parts = [count(rubbish.expired, "expired card")]
    if deleted:
        parts.append(count(rubbish.deleted, "deleted card"))
    if rubbish.logs:
        parts.append(f"what {count(rubbish.logs, 'command')} of old turns wrote on stderr")
    if rubbish.box_info:
        parts.append(f"what is known of {count(rubbish.box_info, 'box')} that is gone")
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def _summed(show: Callable[[int], None]) -> Callable[[int], None]:
    """What to call with the size of each batch, so that `show` gets how many rows went so far."""
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        show(done)

    return advance
