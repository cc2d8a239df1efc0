"""What knowledge is collected from, on Postgres."""

from cardbox_cli.execution.requests.project_layers import StoredKnowledge
from cardbox_cli.model.card_types import CARD_TYPES
from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from tests.conftest import PROJECT

# Not among them: a type that nobody described, such as `shop.note`.
KNOWLEDGE = {
    "task.instruction",
    "agent.thought",
    "tool.result",
    "task.deliverable",
    "chat.message",
}


def test_knowledge_is_what_the_search_finds_among_types_that_are_knowledge(
    database: Database, cards: CardStore
) -> None:
    types = [*CARD_TYPES, "sys.other", "shop.note"]
    cards.add_many(draft_card(each, "a refund for Ann", card_id=f"{each}-1") for each in types)
    for late in ("newest", "deleted", "expired"):
        ttl = 0 if late == "expired" else None
        cards.add(draft_card("chat.message", "REFUND it", card_id=late, ttl_seconds=ttl))
    cards.add(draft_card("chat.message", "Nothing of that sort"))
    cards.delete(["deleted"])
    CardStore(database, "other").add(draft_card("chat.message", "refund", card_id="theirs"))

    knowledge = StoredKnowledge(database, PROJECT).knowledge
    assert {card.card_id for card in knowledge("refund", 50)} == {
        "newest",
        *(f"{each}-1" for each in KNOWLEDGE),
    }
    assert [card.card_id for card in knowledge("refund", 2)] == ["newest", "chat.message-1"]
    assert {card.card_id for card in knowledge("refund -ann", 50)} == {"newest"}
    assert knowledge("", 50) == knowledge("heliotrope", 50) == []
