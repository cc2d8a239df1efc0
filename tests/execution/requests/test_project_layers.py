"""What knowledge is collected from, on Postgres."""

from typing import Any

from cardbox_cli.context.composer import LayerSources
from cardbox_cli.execution.requests.turn_requests import StoredKnowledge, collector_for
from cardbox_cli.model.card_types import CARD_TYPES
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.layers import LayerRequest, find_process
from cardbox_cli.packing.pack import Packing
from cardbox_cli.packing.recipe_files import parse_recipe
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.projects import ProjectsStore
from tests.conftest import PROJECT

# Not among them: a type that nobody described, such as `shop.note`.
KNOWLEDGE = {
    "task.instruction",
    "agent.thought",
    "tool.result",
    "task.deliverable",
    "chat.message",
}


def test_the_knowledge_scope_limits_the_search(
    database: Database, cards: CardStore, boxes: BoxStore, profiles: ProfileStore
) -> None:
    """All cards, those of the boxes that recipe or profile name, or none; a text that is given always counts."""
    made = [cards.add(draft_card("chat.message", f"refund {name}", card_id=name)) for name in ("a", "b", "c")]
    of_recipe, of_profile = (boxes.create([each.card.card_id]).box_id for each in made[:2])
    profiles.save({"name": "clerk", "worker_target": "w", "tags": []}, author_id="t")
    packed = Packing(
        database,
        PROJECT,
        recipe=parse_recipe(
            "context_packing_config: {inherit_context: {include_boxes_from_args: [docs], max_cards: 1}}", "r"
        ),
        recipe_name="r",
        arguments={"profile_name": "clerk", "docs": of_recipe},
    ).pack()

    def found(scope: str, **options: Any) -> tuple[set[str], str | None]:
        ProjectsStore(database).configure(PROJECT, knowledge_scope=scope)
        asked = LayerRequest(knowledge="refund", knowledge_boxes=(of_profile, "no id"), **options)
        collected = collector_for(database, PROJECT, packed.context_box_id or "").collect(
            LayerSources(
                todo=[],
                makers=[],
                held=set(),
                types=set(),
                profile_box_id=None,
                here=LayerRequest(),
                by_profile=asked,
                process=find_process("react"),
                share=None,
            )
        )
        held = {card_id for layer in collected.layers for card_id in layer.card_ids}
        return held, next((left.reason for left in collected.left_out), None)

    assert found("project") == ({"a", "b", "c"}, None)
    assert found("boxes") == ({"a", "b"}, None)
    assert found("none") == (set(), "the project's knowledge_scope is none")
    assert found("none", texts={"knowledge__context": "Given."}) == (set(), None)


def test_knowledge_is_found_only_in_cards_of_knowledge_types(database: Database, cards: CardStore) -> None:
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
