"""New tool-call ids at import, for databases that allow one result per id.

Calls and results are renamed together by the rule of `model/pairing.py`. The cards preserve the original
ids for export.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.ids import derived_id


def remap_call_ids(
    drafts: Iterable[CardDraft],
    scope: Sequence[str],
    keep_original: Callable[[CardDraft, CardDraft], CardDraft],
) -> Iterator[CardDraft]:
    """Yield `drafts` with new tool-call ids, derived from `scope` and the call's position."""
    unanswered: dict[str, list[str]] = {}
    for position, draft in enumerate(drafts):
        changes: dict[str, Any] = {}
        if draft.tool_calls is not None:
            changes["tool_calls"] = [
                _rename_call(call, unanswered, (*scope, str(position), str(index)))
                for index, call in enumerate(draft.tool_calls)
            ]
        if draft.tool_call_id is not None:
            waiting = unanswered.get(draft.tool_call_id)
            orphan = _new_id((*scope, str(position), "orphan"))
            changes["tool_call_id"] = waiting.pop() if waiting else orphan
        yield keep_original(msgspec.structs.replace(draft, **changes), draft) if changes else draft


def _rename_call(call: Any, unanswered: dict[str, list[str]], place: Sequence[str]) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return call
    new_id = _new_id(place)
    unanswered.setdefault(call["id"], []).append(new_id)
    return {**call, "id": new_id}


def _new_id(place: Sequence[str]) -> str:
    return f"tc_{derived_id(*place).hex}"
