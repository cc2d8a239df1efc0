"""A search finds the same cards on every surface."""

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from tests.inspect.conftest import Surface


def test_a_search_finds_the_same_cards_on_every_surface(
    command: Surface, http: Surface, tool: Surface, page: Surface, cards: CardStore, boxes: BoxStore
) -> None:
    drafts = [draft_card("agent.thought", f"The payment {number} timed out.") for number in range(60)]
    cards.add_many([*drafts, draft_card("agent.thought", "Nothing.")])
    box = boxes.create([draft.card_id for draft in drafts]).box_id
    found = command("card", "search", "payment")
    assert len(found) == 50
    assert {each["box_id"] for each in found} == {box}
    assert all("payment" in each["match"] for each in found)
    assert http("/search", text="payment") == found
    short = ("card_id", "type", "created_at", "box_id", "match")
    assert [{name: each[name] for name in short} for each in found[:7]] == tool(
        "search_cards", text="payment", limit=7
    )
    seen = page("/search", q="payment")
    assert [each["card_id"] for each in found if each["card_id"][-8:] not in seen] == []
    assert seen.count(" timed out.") >= 50
