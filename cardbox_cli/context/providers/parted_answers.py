"""What models answer in the formats of role and parts, as cards: such a message is read as imported ones are.

Pure. Owns which ids its calls are stored under, and that a part that means a call is one; what the parts are
stands in the format's own folder.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from cardbox_cli.context.providers.parted import Part, Parting, draft_parts
from cardbox_cli.context.providers.provider import Body, OwnIds
from cardbox_cli.context.tool_calls import MalformedAnswer
from cardbox_cli.model.cards import CardDraft


class AnsweredParts(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message has its parts, and its calls. `is_call` tells a part by which the model calls a tool of
    the client's, be it well-formed or not; `call_id` is its id, whatever stands there; `with_id` gives the
    call under another id."""

    parting: Parting
    key: str
    is_call: Callable[[Part], bool]
    call_id: Callable[[Part], Any]
    with_id: Callable[[Part, str], Part]

    def parts(self, message: Body) -> Any:
        """What stands in the place of the parts."""
        return message.get(self.key)

    def draft(self, message: Body, own_ids: OwnIds) -> list[CardDraft]:
        """The cards of a message, which keep what the next request needs of its parts: signatures too."""
        parts = message.get(self.key) or []
        if not isinstance(parts, list):
            raise MalformedAnswer(f"the {self.key!r} of the answer are no list")
        return draft_parts(self.parting, "assistant", self._stored(parts, own_ids))

    def _stored(self, parts: list[Part], own_ids: OwnIds) -> list[Part]:
        """The parts, calls under the ids that they are stored with."""
        places = [place for place, part in enumerate(parts) if self.is_call(part)]
        given = [self.call_id(parts[place]) for place in places]
        ids = own_ids([each if isinstance(each, str) else "" for each in given])
        stored = list(parts)
        for place, call_id in zip(places, ids, strict=True):
            stored[place] = self.with_id(parts[place], call_id)
            self._check(stored[place], place)
        return stored

    def _check(self, part: Part, place: int) -> None:
        call = self.parting.call(part)
        if call is None or "function" not in call:
            what = "is no call of a function: it needs a name, and arguments"
            raise MalformedAnswer(f"{self.key}[{place}] {what}")
