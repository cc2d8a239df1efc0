"""Whether what a turn reads is whole: the one judgement of workers, which run nothing less, and of `why`.

Pure. What a turn reads are its context and its profile; what it writes is its own.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from cardbox_cli.execution.requests.request import Source, TurnBoxes, present_cards
from cardbox_cli.model.card_types import PROFILE
from cardbox_cli.model.execution.diagnosis import BoxFacts, LossKind, LostCard

CONTEXT, PROFILE_BOX = "context", "profile"
READ = (PROFILE_BOX, CONTEXT)

# How a turn ends that lacks something.
INCOMPLETE = "context_incomplete"

# What has become of a card, as it is said of it.
LOSSES: dict[LossKind, str] = {
    "dangling": "does not exist",
    "deleted": "was deleted",
    "expired": "has expired",
}
# How many of them a message names.
_NAMED = 5


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a turn should read and cannot: a card, the box (`missing`), or the profile in it."""

    kind: LossKind | Literal["missing", "no-profile"]
    pointer: str
    box_id: str
    card_id: str | None = None

    @property
    def words(self) -> str:
        """What is lacking, in words."""
        box = f"the {self.pointer} box {self.box_id}"
        if self.kind == "missing":
            return f"{box} does not exist"
        if self.kind == "no-profile":
            return f"{box} holds no profile"
        return f"card {self.card_id} of {box} {LOSSES[self.kind]}"


def lacks(boxes: Iterable[BoxFacts]) -> list[Lack]:
    """What is lacking of the boxes that a turn reads, in their order."""
    return [lack for box in boxes if box.pointer in READ for lack in _of_box(box)]


def _of_box(box: BoxFacts) -> list[Lack]:
    if not box.exists:
        return [Lack(kind="missing", pointer=box.pointer, box_id=box.box_id)]
    lost = [
        Lack(kind=card.kind, pointer=box.pointer, box_id=box.box_id, card_id=card.card_id)
        for card in box.lost
    ]
    if box.without_profile and not lost:
        return [Lack(kind="no-profile", pointer=box.pointer, box_id=box.box_id)]
    return lost


def lacks_of(boxes: TurnBoxes) -> list[Lack]:
    """What is lacking of the boxes of a turn as they were read."""
    return lacks((_facts(PROFILE_BOX, boxes.profile), _facts(CONTEXT, boxes.context)))


def _facts(pointer: str, box: Source) -> BoxFacts:
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


def in_words(lacking: Sequence[Lack]) -> str:
    """Why a turn is not run that lacks something."""
    named = "; ".join(lack.words for lack in lacking[:_NAMED])
    more = f"; and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"its context is incomplete, and no model was asked: {named}{more}"
