"""The hot queries go by their indexes, so that a project may hold a million cards.

The plans are those of the very statements and parameters that the stores send, on tables of some thousand
rows with statistics, the planner's settings as they are.
"""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from cardbox_cli.errors import AmbiguousId
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardFilter, CardStore, index_text
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import DateFilter
from cardbox_cli.store.gc import GarbageCollector
from cardbox_cli.store.views import completion
from tests.conftest import PROJECT
from tests.databases import Databases

CARD = "00000000000000000000000000004321"
BOX = "00000000-0000-7000-8000-000000001234"
FILL = """
INSERT INTO cards (tenant_id, card_id, content, tool_call_id, metadata, created_at)
SELECT 'p', lpad(n::text, 32, '0'),
    jsonb_build_object('__type__', 'TextContent', 'text', 'Order ' || n || repeat(' and so on', 30)
                       || CASE WHEN n % 1000 = 0 THEN ' heliotrope 结算超时' ELSE ' 超出时间' END),
    'call_' || n,
    jsonb_build_object('type', CASE WHEN n % 1000 = 0 THEN 'context.compression' ELSE 'tool.result' END,
                       'agent_turn_id', 'turn-' || n / 40, 'step_id', 'step-' || n / 4, 'trace_id', 'trace-' || n / 500,
                       'author_id', CASE WHEN n % 1000 = 0 THEN 'auditor' ELSE 'agent-' || n % 3 END),
    now() - (20000 - n) * interval '15 seconds'
FROM generate_series(1, 20000) AS n;
INSERT INTO card_boxes (tenant_id, box_id, card_ids, updated_at)
SELECT 'p', ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid,
    (SELECT jsonb_agg(lpad((n * 10 + place)::text, 32, '0')) FROM generate_series(1, 10) AS place),
    now() - (2000 - n) * interval '150 seconds'
FROM generate_series(1, 1999) AS n;
ANALYZE
"""


_EXPLAINABLE = re.compile(r"(--.*\n)*\(?(SELECT|WITH|UPDATE)\b")


class Explaining(Database):
    """A database that keeps the plan of each query that it runs, by the name of the query."""

    plans: dict[str, str]

    def _execute(self, name: str, parameters: dict[str, Any]) -> Any:
        text, values = self._compile(name, parameters)
        if _EXPLAINABLE.match(text):
            plan = self._cursor().execute(f"EXPLAIN (COSTS OFF) {text}".encode(), values).fetchall()
            self.plans[name] = "\n".join(line for (line,) in plan)
        return super()._execute(name, parameters)


@pytest.fixture(scope="module")
def templates() -> dict[int, str]:
    """The filled database of each server."""
    return {}


@pytest.fixture
def database(databases: Databases, templates: dict[int, str]) -> Iterator[Explaining]:
    if id(databases) not in templates:
        templates[id(databases)] = databases.make()
        with Database.connect(databases.target(templates[id(databases)])) as filling:
            filling.script(FILL)
            index_text(filling)
    name = databases.make(templates[id(databases)])
    with Explaining.connect(databases.target(name)) as opened:
        assert isinstance(opened, Explaining)
        opened.plans = {}
        yield opened
    databases.drop(name)


def indexes(plan: str) -> set[str]:
    """The indexes that a plan uses, those of shards without their numbers."""
    return set(re.findall(r"(?:using|Bitmap Index Scan on) (\w+?)(?:_\d+)?\b", plan))


def scanned_whole(plan: str) -> set[str]:
    """The tables that a plan reads from one end to the other."""
    return set(re.findall(r"Seq Scan on (\w+)", plan))


def of_cards(use: Callable[[CardStore], Any]) -> Callable[[Database], Any]:
    return lambda database: use(CardStore(database, PROJECT))


def of_boxes(use: Callable[[BoxStore], Any]) -> Callable[[Database], Any]:
    return lambda database: use(BoxStore(database, PROJECT))


def listed(**where: Any) -> Callable[[Database], Any]:
    return of_cards(lambda cards: list(cards.newest(CardFilter(**where), limit=20)))


def ambiguous(resolve: Callable[[str], str], piece: str) -> None:
    """Ten ids have this piece in common."""
    with pytest.raises(AmbiguousId):
        resolve(piece)


HOT = {
    "the newest cards": (listed(), "list_cards", {"idx_cards_created"}),
    "the cards of two hours": (listed(since=timedelta(hours=2)), "list_cards", {"idx_cards_created"}),
    "a frequent type": (listed(types=["tool.result"]), "list_cards", {"idx_cards_created"}),
    "a rare type": (listed(types=["context.compression"]), "list_cards", {"idx_cards_type"}),
    "no such type": (listed(types=["sys.profile"]), "list_cards", {"idx_cards_type"}),
    "a turn": (listed(agent_turn_id="turn-100"), "list_few_cards", {"idx_cards_turn"}),
    "a step": (listed(step_id="step-100"), "list_few_cards", {"idx_cards_step"}),
    "a trace": (listed(trace_id="trace-10"), "list_few_cards", {"idx_cards_trace"}),
    "a frequent author": (listed(author_id="agent-1"), "list_cards", {"idx_cards_created"}),
    "a rare author": (listed(author_id="auditor"), "list_cards", {"idx_cards_author"}),
    "nobody's": (listed(author_id="nobody"), "list_cards", {"idx_cards_author"}),
    "a rare piece of Chinese": (listed(text="算超"), "list_few_cards_by_bigrams", {"idx_cards_bigrams"}),
    "no such piece": (listed(text="超算"), "list_few_cards_by_bigrams", {"idx_cards_bigrams"}),
    "a tool call": (listed(tool_call_id="call_5"), "list_few_cards", {"idx_cards_tool_call"}),
    "a rare word": (listed(text="heliotrope"), "list_few_cards", {"idx_cards_text"}),
    "no such word": (listed(text="nowhere"), "list_few_cards", {"idx_cards_text"}),
    "the newest boxes": (
        of_boxes(lambda boxes: list(boxes.newest(DateFilter(), limit=20))),
        "list_boxes",
        {"idx_boxes_updated"},
    ),
    "a card's short id": (
        of_cards(lambda cards: cards.resolve(CARD[-8:])),
        "find_card_ids",
        {"idx_cards_suffix"},
    ),
    "the beginning of a card's shown id": (
        of_cards(lambda cards: ambiguous(cards.resolve, CARD[-8:-1])),
        "find_card_ids",
        {"idx_cards_shown"},
    ),
    "the beginning of a box's shown id": (
        of_boxes(lambda boxes: ambiguous(boxes.resolve, BOX[-8:-1])),
        "find_box_ids",
        {"idx_boxes_shown"},
    ),
    "a box's short id": (
        of_boxes(lambda boxes: boxes.resolve(BOX[-8:])),
        "find_box_ids",
        {"idx_boxes_suffix", "card_boxes_pkey"},
    ),
    "the cards of a box": (of_boxes(lambda boxes: boxes.view(BOX)), "slots_of_box", {"card_boxes_pkey"}),
    "the ids of a box": (of_boxes(lambda boxes: boxes.id_lists([BOX])), "box_id_lists", {"card_boxes_pkey"}),
    "an append": (
        of_boxes(lambda boxes: boxes.append(BOX, [CARD])),
        "append_to_box",
        {"card_boxes_pkey"},
    ),
    "expired cards": (
        lambda database: GarbageCollector(database, PROJECT).find(deleted=False),
        "count_expired",
        {"idx_cards_expiry"},
    ),
    "cards for the Tab key": (
        lambda database: completion.recent_cards(database, PROJECT),
        "recent_cards",
        {"idx_cards_created"},
    ),
    "boxes for the Tab key": (
        lambda database: completion.recent_boxes(database, PROJECT),
        "recent_boxes",
        {"idx_boxes_updated"},
    ),
}


@pytest.mark.parametrize("case", HOT)
def test_a_frequent_query_uses_its_index(database: Explaining, case: str) -> None:
    use, name, wanted = HOT[case]
    use(database)
    plan = database.plans[name]
    assert wanted <= indexes(plan), plan
    assert not scanned_whole(plan) & {"cards", "card_boxes"}, plan


BY_ID = {
    "the cards of a box": (of_boxes(lambda boxes: boxes.view(BOX)), "slots_of_box"),
    "a card": (of_cards(lambda cards: cards.get(CARD)), "cards_by_ids"),
    "cards that may be absent": (of_cards(lambda cards: cards.missing_ids([CARD, "x"])), "absent_card_ids"),
}


@pytest.mark.parametrize("case", BY_ID)
def test_a_lookup_by_id_uses_an_index(database: Explaining, case: str) -> None:
    use, name = BY_ID[case]
    use(database)
    plan = database.plans[name]
    assert indexes(plan) & {"cards_pkey", "uniq_cards_card_id"}, plan
    assert not scanned_whole(plan) & {"cards"}, plan


def test_lists_are_read_in_index_order_without_a_sort(database: Explaining) -> None:
    listed()(database)
    of_boxes(lambda boxes: list(boxes.newest(limit=20)))(database)
    assert "Sort" not in database.plans["list_cards"]
    assert "Sort" not in database.plans["list_boxes"]


def test_a_box_query_sorts_ids_before_it_joins_cards(database: Explaining) -> None:
    of_a_box = {"project_id": PROJECT, "box_id": BOX, "first": None, "last": None}
    database.rows("slots_of_box", **of_a_box)
    database.rows("json_of_box", **of_a_box, types=None)
    for name in ("slots_of_box", "json_of_box"):
        plan = database.plans[name]
        assert plan.index("Nested Loop Left Join") < plan.index("Sort Key"), plan


def test_a_count_of_further_cards_uses_the_index_of_the_list(database: Explaining) -> None:
    cards = CardStore(database, PROJECT)
    [last] = cards.newest(limit=1)
    assert cards.count_further(CardFilter(), last).count == 10_000
    plan = database.plans["count_further_cards"]
    assert indexes(plan) == {"idx_cards_created"}
    assert not scanned_whole(plan)


def test_without_statistics_a_turn_is_found_by_its_index(database: Explaining) -> None:
    database.script(
        "DELETE FROM pg_statistic WHERE starelid IN ('cards'::regclass, 'idx_cards_turn'::regclass)"
    )
    listed(agent_turn_id="turn-100")(database)
    assert "idx_cards_turn" in indexes(database.plans["list_few_cards"])


def test_without_statistics_missing_cards_are_found_by_one_hash(database: Explaining) -> None:
    database.connection.execute("DELETE FROM pg_statistic WHERE starelid = 'cards'::regclass")
    assert CardStore(database, PROJECT).missing_ids([CARD, "x"]) == ["x"]
    assert "hashed SubPlan" in database.plans["absent_card_ids"]
    assert "Nested Loop" not in database.plans["absent_card_ids"]
