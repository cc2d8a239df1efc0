"""Which turns a turn waits for, and so on: those that answer its calls, the one that its agent is at.

Follows them as far as `_TURNS` and `_STEPS` allow; what is further away counts as going on.
"""

from collections.abc import Callable, Sequence

import msgspec

from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.diagnosis import Link, Place
from cardbox_cli.model.execution.turns import MAX_DEPTH, QUEUED
from cardbox_cli.store.views.diagnosis import DiagnosisStore

# How many turns are followed from one, and over how many others: each descent may wait in a queue, too.
_TURNS = 100
_STEPS = 2 * MAX_DEPTH


def followed(store: DiagnosisStore, places: Sequence[Place]) -> list[Place]:
    """These turns, and all that they wait for."""
    known = {place.agent_turn_id: place for place in places}
    asked = list(known)
    for _ in range(_STEPS):
        found = [place for place in store.waits_for(asked) if place.agent_turn_id not in known]
        if not found:
            break
        known |= {place.agent_turn_id: place for place in found}
        asked = [place.agent_turn_id for place in found]
    return list(known.values())


def linked(place: Place, read: Callable[[Place], Snapshot]) -> Snapshot:
    """What `read` knows of a turn, with what it knows of those that it waits for."""
    left = _TURNS

    def link(place: Place, path: tuple[Link, ...]) -> Snapshot:
        nonlocal left
        left -= 1
        s = read(place)
        path = (*path, Link(s.agent_turn_id, s.agent_id, s.at_head or QUEUED))
        before = [link.agent_turn_id for link in path]
        closes: tuple[Link, ...] = ()
        below = []
        for each in s.waits_for:
            if each.agent_turn_id in before:
                closes = path[before.index(each.agent_turn_id) :]
            elif left > 0 and len(path) <= _STEPS:
                below.append(link(each, path))
        if s.queued:
            return msgspec.structs.replace(s, blocker=next(iter(below), None), closes=closes)
        return msgspec.structs.replace(s, awaited=tuple(below), closes=closes)

    return link(place, ())
