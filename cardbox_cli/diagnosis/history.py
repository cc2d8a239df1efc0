"""What the provider would refuse of what a turn asks its model next: the turn's cards, read and linted.

Looks only where that request is about to be composed, or was the last one before the turn failed: a turn that
waits for results has an open call by nature.
"""

from datetime import timedelta

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.execution.requests.lint import lint_turn
from cardbox_cli.execution.requests.request import TurnBoxes
from cardbox_cli.execution.requests.source import read_source
from cardbox_cli.execution.tool_calls import pending_calls
from cardbox_cli.model.card_types import DELIVERABLE
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database

# How long after a failure its cards are taken to be still those that the model was sent.
_LATELY = timedelta(days=1)


def with_refused(database: Database, project_id: str, s: Snapshot, handlers: Handlers) -> Snapshot:
    """The snapshot with what would be refused, and so those of the turns that it waits for.

    Joins the transaction.
    """
    blocker = None if s.blocker is None else with_refused(database, project_id, s.blocker, handlers)
    awaited = tuple(with_refused(database, project_id, each, handlers) for each in s.awaited)
    refused = _refused(database, project_id, s, handlers)
    return msgspec.structs.replace(s, blocker=blocker, awaited=awaited, refused=refused)


def _refused(database: Database, project_id: str, s: Snapshot, handlers: Handlers) -> tuple[LintFinding, ...]:
    if not (s.dispatched or s.running or _failed_lately(s)):
        return ()
    boxes = _boxes(BoxStore(database, project_id), s)
    if boxes is None or not _asks_next(boxes):
        return ()
    config = {} if s.turn_row is None else s.turn_row.runtime_config
    findings = lint_turn(database, project_id, boxes, config, handlers)
    return tuple(found for found in findings if found.severity == "error")


def _failed_lately(s: Snapshot) -> bool:
    if not s.ended or s.record is None or s.record.end_status != "failed":
        return False
    return s.age(s.record.ended_at) < _LATELY


def _asks_next(boxes: TurnBoxes) -> bool:
    """Whether what comes next is a request: not the results of calls, nor the end."""
    return not pending_calls(boxes.own) and all(card.type != DELIVERABLE for card in boxes.own)


def _boxes(store: BoxStore, s: Snapshot) -> TurnBoxes | None:
    """What the turn sees, or saw last; None where nobody knows, or cards are gone, which other rules find."""
    if any(box.lost for box in s.boxes):
        return None
    there = {box.pointer: read_source(store, box.box_id) for box in s.boxes if box.exists}
    if there.keys() != {"profile", "context", "output"}:
        return None
    output = there["output"]
    start = s.record.output_start if s.record is not None else None
    if start is None and output.slots:
        return None
    if s.ended:
        ids = [slot.card_id for slot in output.slots]
        deliverable = s.record.deliverable_card_id if s.record is not None else None
        if deliverable not in ids:
            return None
        # Later turns may have gone on with the box.
        output = msgspec.structs.replace(output, slots=output.slots[: ids.index(deliverable)])
    return TurnBoxes(
        profile=there["profile"], context=there["context"], output=output, output_start=start or 0
    )
