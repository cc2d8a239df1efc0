"""From the turns that are not well to the causes: one for all that wait for it, with how many do."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import Diagnosis, judge


def causes(snapshots: Sequence[Snapshot]) -> list[Diagnosis]:
    """What is not well, by turn. Turns that only wait for one of these, or in its queue, are counted."""
    ill = {(s.agent_turn_id, s.agent_id): (s, found) for s in snapshots if not (found := judge(s)).well}
    agents = {turn: agent for turn, agent in ill if turn}
    waiting = Counter[tuple[str, str]]()
    roots = []
    for place, (s, found) in sorted(ill.items()):
        root = (found.root, agents[found.root]) if found.root in agents else place
        waiting[root] += (root != place) + (s.queue_length if s.at_head is not None else 0)
        if root == place:
            roots.append((place, found))
    return [msgspec.structs.replace(each, waiting=waiting[place]) for place, each in roots]
