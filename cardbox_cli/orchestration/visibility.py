"""Which boxes a caller may hand on: a box id is an address, and no permission."""

from collections.abc import Sequence

from cardbox_cli.errors import NotAllowed, NotFound
from cardbox_cli.execution.dispatch.caller import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.ids import as_box_id, unique


def validate_box_ids_exist(runtime: Runtime, caller: Caller, box_ids: Sequence[str]) -> list[str]:
    """The canonical ids of these boxes in order, each once.

    A model may name only boxes that it sees: NotAllowed for another, whether or not there is one. Raises
    NotFound for a box that is not there. Reads in the caller's transaction.
    """
    wanted = unique(as_box_id(box_id) or box_id for box_id in box_ids)
    if caller.is_model:
        for box_id in wanted:
            if box_id not in caller.visible_box_ids:
                raise NotAllowed(
                    f"unauthorized box_id: {box_id!r} is no box that agent {caller.agent_id!r} sees",
                    hint="its own boxes are its context, output, memory and profile box",
                )
    found = runtime.boxes.existing(wanted) if wanted else set()
    for box_id in wanted:
        if box_id not in found:
            hint = "`cbx box list` shows the newest"
            raise NotFound(f"no box {box_id!r} in project {runtime.project_id!r}", hint=hint)
    return wanted
