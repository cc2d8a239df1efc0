"""Which tool result answers which tool call.

Tool-call ids repeat in real conversations, so an id alone pairs nothing: a result belongs to the nearest
earlier unanswered call with its id. Owns that rule, and nothing else.
"""

from collections.abc import Sequence

import msgspec

from cardbox_cli.model.cards import Card


class Pairing(msgspec.Struct, frozen=True):
    """The exchanges of a card list, by position.

    `results` maps the position of a result to that of the card that called for it, `scheduled` that of a
    `tool.call` card to the thought that it schedules; `unanswered` holds (position, tool_call_id) of calls
    without a result, `orphans` the positions of results without a call.
    """

    results: dict[int, int]
    scheduled: dict[int, int]
    unanswered: list[tuple[int, str]]
    orphans: list[int]


def pair_calls(cards: Sequence[Card | None]) -> Pairing:
    """Pair the calls and results among `cards`; None stands for a card that cannot be read."""
    open_calls: dict[str, list[int]] = {}
    results: dict[int, int] = {}
    scheduled: dict[int, int] = {}
    orphans: list[int] = []
    for position, card in enumerate(cards):
        if card is None:
            continue
        for call_id in call_ids(card) if card.tool_calls else ():
            open_calls.setdefault(call_id, []).append(position)
        answered = card.tool_call_id
        if answered is None:
            continue
        if card.type == "tool.result":
            if waiting := open_calls.get(answered):
                results[position] = waiting.pop()
            else:
                orphans.append(position)
        elif card.type == "tool.call":
            if waiting := open_calls.get(answered):
                scheduled[position] = waiting[-1]
            else:
                open_calls.setdefault(answered, []).append(position)
    unanswered = [(position, call_id) for call_id, waiting in open_calls.items() for position in waiting]
    return Pairing(results, scheduled, sorted(unanswered), orphans)


def call_ids(card: Card) -> list[str]:
    """The ids of the tool calls that an assistant card makes, in order."""
    ids: list[str] = []
    for call in card.tool_calls if isinstance(card.tool_calls, list) else ():
        call_id = call.get("id") if isinstance(call, dict) else None
        if isinstance(call_id, str):
            ids.append(call_id)
    return ids


def exchanges(cards: Sequence[Card]) -> list[list[int]]:
    """The positions of `cards`, a call grouped with its results, in the order of their first cards."""
    pairing = pair_calls(cards)
    caller = {**pairing.results, **pairing.scheduled}
    groups: dict[int, list[int]] = {}
    first: list[int] = []
    for position in range(len(cards)):
        # A caller stands earlier, so its own group is known: a result may itself call for another.
        first.append(first[caller[position]] if position in caller else position)
        groups.setdefault(first[position], []).append(position)
    return list(groups.values())
