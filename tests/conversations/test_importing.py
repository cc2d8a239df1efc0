"""Which boxes the conversations of one file become."""

import json
from typing import Any

from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.conversations.importing import import_conversations
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from tests.conversations.conftest import ImportText
from tests.conversations.reading import documents_in
from tests.round_trips import counted


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def test_a_repeated_conversation_returns_the_same_box(import_text: ImportText) -> None:
    one, other, again, last = import_text(
        "openai", json.dumps([said("a"), said("b"), said("a"), said("a", "b")])
    )
    assert [each.new_cards for each in (one, other, again, last)] == [1, 1, 0, 2]
    assert (again.index, again.place, again.box_id, again.title, again.cards) == (
        2,
        "f[2]",
        one.box_id,
        "a",
        1,
    )
    assert len({one.box_id, other.box_id, last.box_id}) == 3


def test_equal_messages_with_other_parameters_get_their_own_box(
    import_text: ImportText, boxes: BoxStore
) -> None:
    requests = [{"model": model, "messages": said("a")} for model in ("gpt-4o", "gpt-5", "gpt-4o")]
    one, other, again = import_text("openai", "\n".join(map(json.dumps, requests)))
    assert one.box_id == again.box_id != other.box_id
    assert boxes.get(one.box_id).card_ids[1:] == boxes.get(other.box_id).card_ids[1:]


def test_each_version_of_a_conversation_is_a_child_of_the_previous_one(
    import_text: ImportText, boxes: BoxStore
) -> None:
    versions = [said("a"), said("b"), said("c"), said("b"), said("a", "x"), said("c", "y")]
    found = import_text("openai", json.dumps([{"id": "1", "messages": each} for each in versions]))
    a, b, c, b_again, a_grown, c_grown = (each.box_id for each in found)
    assert (a, b, c) == (a_grown, b_again, c_grown)
    assert [boxes.get(each).parent_ids for each in (a, b, c)] == [[], [a], [b]]
    assert [len(boxes.get(each).card_ids) for each in (a, b, c)] == [2, 1, 2]


def test_replaced_characters_are_counted_in_repeated_conversations(database: Database) -> None:
    text = json.dumps([said("a\x00"), said("a\x00"), said("b")])
    found = import_conversations(
        database, "p", find_format("openai").read(documents_in(text)), replace_bad_text=True
    )
    assert found.replaced_characters == 2


def test_repeated_conversations_add_no_round_trips(import_text: ImportText, database: Database) -> None:
    database.connection.prepare_threshold = None

    def trips(number: int, text: str) -> int:
        with counted(database) as found:
            import_text("openai", json.dumps([said(text)] * number))
        return found.count

    assert trips(2, "a") == trips(200, "b")


def test_a_large_import_updates_the_planner_statistics(import_text: ImportText, database: Database) -> None:
    """Or it would take the project for one card, and read all of its cards for each place of the box."""
    import_text("openai", json.dumps(said("the first")))
    database.connection.execute("ANALYZE public.cards, public.card_boxes")
    assert database.value("known_size") == 1
    [few] = import_text("openai", json.dumps(said(*map(str, range(500)))))
    assert (few.cards, database.value("known_size")) == (500, 1)
    import_text("openai", json.dumps(said(*map(str, range(1500)))))
    assert database.value("known_size") == 2001
    plan = database.connection.execute(
        "EXPLAIN SELECT c.content FROM public.cards AS c WHERE c.tenant_id = 'p' AND c.card_id = 'x'"
    ).fetchall()
    assert "Index Scan using cards_pkey" in plan[0][0] or "uniq_cards_card_id" in plan[0][0]


def test_a_role_that_does_not_own_the_tables_can_import(database: Database) -> None:
    role = f"clerk_{database.connection.info.dbname[-12:]}"
    database.script(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA public, resource, state, cbx TO {role};"
        f"GRANT ALL ON ALL TABLES IN SCHEMA public, resource, state, cbx TO {role}; SET ROLE {role}"
    )
    try:
        documents = documents_in(json.dumps(said(*map(str, range(1500)))))
        found = import_conversations(database, "p", find_format("openai").read(documents))
        assert [each.new_cards for each in found.boxes] == [1500]
    finally:
        database.script(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
