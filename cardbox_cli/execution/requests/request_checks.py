"""Check that the context and profile of a turn are complete, and lint its next request.

Workers run only complete turns. `cbx why` uses the same check.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.context.request import ComposeOptions, profile_of
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.execution.requests.turn_requests import (
    BoxSource,
    TurnBoxes,
    apply_share_default,
    collector_for,
    compose_turn_request,
    known_tools,
    present_cards,
)
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.card_types import PROFILE
from cardbox_cli.model.execution.situations import BoxFacts, LossKind, LostCard
from cardbox_cli.model.execution.turns import Head
from cardbox_cli.providers.registry import provider_for, provider_named
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import ProjectsStore

CONTEXT, PROFILE_BOX = "context", "profile"
READ_POINTERS = (PROFILE_BOX, CONTEXT)

# The error code of a turn whose context or profile is incomplete.
INCOMPLETE = "context_incomplete"

# The phrase that describes each reason for a lost card in a message.
LOSSES: dict[LossKind, str] = {
    "dangling": "does not exist",
    "deleted": "was deleted",
    "expired": "has expired",
}
# The number of missing cards and boxes that a message lists.
_MAX_LISTED = 5


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """A card, box or profile that a turn should read and cannot read."""

    kind: LossKind | Literal["missing", "no-profile"]
    pointer: str
    box_id: str
    card_id: str | None = None

    @property
    def clause(self) -> str:
        box = f"the {self.pointer} box {self.box_id}"
        if self.kind == "missing":
            return f"{box} does not exist"
        if self.kind == "no-profile":
            return f"{box} has no profile"
        return f"card {self.card_id} of {box} {LOSSES[self.kind]}"


def find_lacks(boxes: Iterable[BoxFacts]) -> list[Lack]:
    """Return everything that a turn should read and cannot read, in the order of its boxes."""
    return [lack for box in boxes if box.pointer in READ_POINTERS for lack in _box_lacks(box)]


def _box_lacks(box: BoxFacts) -> list[Lack]:
    lack = partial(Lack, pointer=box.pointer, box_id=box.box_id)
    if not box.exists:
        return [lack(kind="missing")]
    lost = [lack(kind=card.kind, card_id=card.card_id) for card in box.lost]
    return [lack(kind="no-profile")] if box.without_profile and not lost else lost


def turn_lacks(boxes: TurnBoxes) -> list[Lack]:
    return find_lacks((_facts(PROFILE_BOX, boxes.profile), _facts(CONTEXT, boxes.context)))


def _facts(pointer: str, box: BoxSource) -> BoxFacts:
    lost = {
        slot.card_id: LostCard(box.box_id, slot.card_id, slot.state)
        for slot in box.slots
        if slot.state != "present"
    }
    has_profile = any(card.type == PROFILE for card in present_cards(box.slots))
    return BoxFacts(
        pointer=pointer,
        box_id=box.box_id,
        exists=True,
        lost=tuple(lost.values()),
        without_profile=pointer == PROFILE_BOX and not has_profile,
    )


def incomplete_message(lacking: Sequence[Lack]) -> str:
    """Return the message for a turn that cannot run because cards or boxes are missing."""
    listed = "; ".join(lack.clause for lack in lacking[:_MAX_LISTED])
    more = f"; and {len(lacking) - _MAX_LISTED} more" if len(lacking) > _MAX_LISTED else ""
    return f"its context is incomplete, so the model was not called: {listed}{more}"


def lint_turn(
    database: Database,
    project_id: str,
    boxes: TurnBoxes,
    runtime_config: Mapping[str, Any],
    handlers: Handlers,
) -> list[LintFinding]:
    """Return the lint findings of the turn's next request.

    The model in `runtime_config` overrides the profile's model. Reads the project's tools and settings, and
    the sources of the layers that the profile requests.
    """
    model_name = runtime_config.get("model")
    model = model_name if isinstance(model_name, str) else None
    provider = provider_for(boxes.entries, model)
    profile = profile_of(present_cards(boxes.profile.slots))
    tools = known_tools(database, project_id, profile, present_cards(boxes.context.slots), handlers)
    settings = ProjectsStore(database).settings(project_id)
    options = apply_share_default(ComposeOptions(model=model), settings)
    collector = collector_for(database, project_id, boxes.context.box_id, settings=settings)
    asked = compose_turn_request(boxes, tools, options, format=provider, collector=collector)
    return lint(asked.entries, asked.request, provider_named(provider))


def lint_new_turn(
    runtime: Runtime,
    agent_id: str,
    runtime_config: Mapping[str, Any],
    boxes: Mapping[str, str | None],
    *,
    planned: BoxSource | None = None,
) -> list[LintFinding]:
    """Return the lint findings of the first request of a turn that is not written yet.

    `boxes` maps `profile`, `context` and `output` to box ids or None. `planned` is an unwritten context.
    """
    stored = runtime.contexts.read("", boxes=boxes)
    profile, context, output = (
        BoxSource(boxes[name] or "", stored.slots.get(name, ())) for name in ("profile", "context", "output")
    )
    start = _output_start(runtime, runtime.heads.get(agent_id), output.box_id)
    written = output.slots[:start]
    turn_boxes = TurnBoxes(
        profile=profile,
        context=planned or msgspec.structs.replace(context, provenance=stored.provenance),
        output=msgspec.structs.replace(output, slots=written),
        output_start=len(written),
    )
    return lint_turn(runtime.database, runtime.project_id, turn_boxes, runtime_config, runtime.handlers)


def _output_start(runtime: Runtime, head: Head | None, output_box_id: str) -> int | None:
    """Return the length that the output box had when its present turn began, or None without such a turn."""
    if head is None or head.active_agent_turn_id is None or head.output_box_id != output_box_id:
        return None
    record = runtime.turns.record(head.active_agent_turn_id)
    return None if record is None else record.output_start
