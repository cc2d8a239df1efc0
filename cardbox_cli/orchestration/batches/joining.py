"""The box that joins what the children of a batch delivered, in task order: what a reducer reads."""

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import Batch
from cardbox_cli.model.ids import unique


def join_box(runtime: Runtime, batch: Batch) -> str:
    """The box of the deliverables of a batch that has ended, made if there is none yet.

    A child that delivered nothing has no card in it. Raises Conflict for a batch that goes on.
    """
    if batch.is_running:
        raise Conflict(
            f"batch {batch.batch_id} has not ended: what its children deliver is not all there",
            hint="wait for it with --wait, or with `cbx batch watch`",
        )
    if batch.join_box_id is not None:
        return batch.join_box_id
    with runtime.transaction():
        held = runtime.batches.lock(batch.batch_id)
        if held is not None and held.join_box_id is not None:
            return held.join_box_id
        card_ids = [task.deliverable_card_id for task in runtime.batches.tasks(batch.batch_id)]
        title = f"what the children of {batch.batch_id} delivered"
        box = runtime.boxes.create(unique(filter(None, card_ids)), title=title, allow_dangling=True)
        return runtime.batches.point(batch.batch_id, box.box_id)
