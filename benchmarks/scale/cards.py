"""The cards of the databases that are compared: projects that differ in their number of boxes alone.

Every box holds 500 cards as an agent's work makes them, turn after turn. In twenty boxes, spread over all of
them, one card says a rare word, one a rare phrase, one a rare piece of Chinese, and one has a rare type.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.store.connection.database import Database

PROJECT = "scale"
CARDS_PER_BOX = 500
MARKED = 20
RARE_WORD = "heliotrope"
RARE_PHRASE = ("copper", "lantern")
RARE_PIECE = "结算超时"
RARE_TYPE = "context.compression"

_COPY_CARDS = """
COPY public.cards (tenant_id, card_id, content, tool_calls, tool_call_id, metadata, created_at) FROM STDIN
"""
_CARDS_PER_TURN = 40
_PAUSE = timedelta(seconds=15)
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_CHINESE = "订单支付库存退款用户请求服务日志数据库重试失败成功检查部署版本"


class MarkedBox(NamedTuple):
    """One of the twenty boxes, and what commands ask about it. `card_id` is that of a card in the middle."""

    box_id: str
    card_id: str
    turn_id: str
    step_id: str
    trace_id: str
    tool_call_id: str


class _NewCard(NamedTuple):
    card_id: str
    created_at: datetime
    content: dict[str, Any]
    tool_calls: list[Any] | None
    tool_call_id: str | None
    metadata: dict[str, Any]


def fill(database: Database, boxes: int) -> list[MarkedBox]:
    """Write `boxes` boxes, the last one just now, and bring the planner's statistics up to date."""
    writer = _Writer(boxes)
    connection = database.connection
    with connection.cursor().copy(_COPY_CARDS) as copy:
        for card in writer.cards():
            copy.write_row(_row(card))
    with connection.cursor().copy(
        "COPY public.card_boxes (tenant_id, box_id, card_ids, updated_at) FROM STDIN"
    ) as copy:
        for box_id, (card_ids, updated_at) in writer.boxes.items():
            copy.write_row((PROJECT, box_id, _json(card_ids), updated_at))
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")
    return writer.marked


def _row(card: _NewCard) -> tuple[Any, ...]:
    return (
        PROJECT,
        card.card_id,
        _json(card.content),
        None if card.tool_calls is None else _json(card.tool_calls),
        card.tool_call_id,
        _json(card.metadata),
        card.created_at,
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class _Writer:
    """Cards in the order of their times, and, once they have been taken, the boxes that hold them."""

    def __init__(self, boxes: int) -> None:
        self.boxes: dict[str, tuple[list[str], datetime]] = {}
        self.marked: list[MarkedBox] = []
        self._number = boxes
        self._random = random.Random(boxes)
        self._first = datetime.now(UTC) - boxes * CARDS_PER_BOX * _PAUSE
        # Sentences repeat and words do more, some far more often than others, as an index meets them.
        words = ["".join(self._random.choices(_SYLLABLES, k=3)) for _ in range(4000)]
        self._sentences = [
            " ".join(words[int(4000 * self._random.random() ** 2)] for _ in range(12)) + "."
            for _ in range(4000)
        ]

    def cards(self) -> Iterator[_NewCard]:
        every = max(1, self._number // MARKED)
        for box in range(self._number):
            cards = [self._card(box, place, marked=box % every == 0) for place in range(CARDS_PER_BOX)]
            box_id = self._id(cards[0].created_at)
            self.boxes[box_id] = ([card.card_id for card in cards], cards[-1].created_at)
            if box % every == 0:
                middle = cards[CARDS_PER_BOX // 2 + 1]
                turn, step, trace = (middle.metadata[key] for key in ("agent_turn_id", "step_id", "trace_id"))
                call = middle.tool_call_id or ""
                self.marked.append(MarkedBox(box_id, middle.card_id, turn, step, trace, call))
            yield from cards

    def _card(self, box: int, place: int, *, marked: bool) -> _NewCard:
        created_at = self._first + (box * CARDS_PER_BOX + place) * _PAUSE
        card_type, role = self._kind(place, marked=marked)
        call = f"call_{box}_{place - place % 2}"
        calls = [{"id": call, "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]
        metadata = {
            "type": card_type,
            "role": role,
            "author_id": f"agent-{place % 3}",
            "agent_turn_id": f"turn-{box}-{place // _CARDS_PER_TURN}",
            "step_id": f"step-{box}-{place // 4}",
            "trace_id": f"trace-{box}",
            "project_id": PROJECT,
            "created_at": created_at.isoformat(),
        }
        return _NewCard(
            card_id=self._id(created_at),
            created_at=created_at,
            content={"__type__": "TextContent", "text": self._text(place, marked=marked)},
            tool_calls=calls if card_type == "agent.thought" else None,
            tool_call_id=call if card_type == "tool.result" else None,
            metadata=metadata,
        )

    def _kind(self, place: int, *, marked: bool) -> tuple[str, str]:
        if marked and place == 100:
            return RARE_TYPE, "system"
        if place % _CARDS_PER_TURN == 0:
            return "task.instruction", "user"
        return ("tool.result", "tool") if place % 2 else ("agent.thought", "assistant")

    def _text(self, place: int, *, marked: bool) -> str:
        pick = self._random.choices
        if place % 25 == 24:
            return "".join(pick(_CHINESE, k=60)) + (RARE_PIECE if marked and place == 124 else "")
        sentences = pick(self._sentences, k=1 + int(6 * self._random.random()))
        # Each word of the phrase is in a card of fifty; one behind the other is rare.
        sentences += RARE_PHRASE[::-1] if place % 50 == 1 else ()
        if marked and place == 151:
            sentences.append(RARE_WORD)
        if marked and place == 171:
            sentences.append(" ".join(RARE_PHRASE))
        return " ".join(sentences)

    def _id(self, moment: datetime) -> str:
        """A UUIDv7 of that moment, as 32 hex digits."""
        head = f"{int(moment.timestamp() * 1000):012x}7{self._random.getrandbits(12):03x}"
        return f"{head}8{self._random.getrandbits(60):015x}"
