"""`cbx box verify`."""

from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings
from cardbox_cli.model.text.quantities import count
from cardbox_cli.model.verify import verify as findings_in


@verb("verify", "cbx box verify 8b1f22c0 || echo 'not as it was packed'", reads=True)
def verify_box(box: BoxId) -> None:
    """Check a box. Exit 8 on findings.

    Looks at its references, its pairs of calls and results, and the digest of its packing.
    """
    with open_stores() as (_, boxes), boxes.database.snapshot():
        view = boxes.view(boxes.resolve(box))
        findings = findings_in(view, boxes.provenance(view.box.box_id))
    answer = {"box_id": view.box.box_id, "digest": view.digest, "findings": findings}

    def table() -> None:
        if findings:
            print_table(_FINDING, findings)
        else:
            output.print_text(f"box {view.box.box_id}: {len(view.slots)} cards, nothing found")

    output.emit(answer, table=table, ids=[view.box.box_id])
    if findings:
        raise Findings(f"{count(len(findings), 'finding')} in box {view.box.box_id}")


_FINDING = (
    Column("#", lambda found: NOTHING if found.position is None else str(found.position), right=True),
    Column("FINDING", lambda found: found.kind),
    Column("DETAIL", lambda found: found.message),
)
