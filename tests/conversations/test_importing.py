"""Which boxes the conversations of one file become."""

import json
from typing import Any

from cardbox_cli.conversations.formats.registry import format_named
from cardbox_cli.conversations.importing import import_conversations
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from tests.conversations.conftest import ImportText
from tests.conversations.reading import documents_in
from tests.round_trips import counted


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def test_the_same_conversation_again_is_the_same_box_and_nothing_new(import_text: ImportText) -> None:
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


def test_equal_messages_of_other_requests_are_boxes_of_their_own(
    import_text: ImportText, boxes: BoxStore
) -> None:
    requests = [{"model": model, "messages": said("a")} for model in ("gpt-4o", "gpt-5", "gpt-4o")]
    one, other, again = import_text("openai", "\n".join(map(json.dumps, requests)))
    assert one.box_id == again.box_id != other.box_id
    assert boxes.get(one.box_id).card_ids[1:] == boxes.get(other.box_id).card_ids[1:]


def test_versions_of_one_conversation_are_boxes_in_their_order(
    import_text: ImportText, boxes: BoxStore
) -> None:
    versions = [said("a"), said("b"), said("c"), said("b"), said("a", "x"), said("c", "y")]
    found = import_text("openai", json.dumps([{"id": "1", "messages": each} for each in versions]))
    a, b, c, b_again, a_grown, c_grown = (each.box_id for each in found)
    assert (a, b, c) == (a_grown, b_again, c_grown)
    assert [boxes.get(each).parent_ids for each in (a, b, c)] == [[], [a], [b]]
    assert [len(boxes.get(each).card_ids) for each in (a, b, c)] == [2, 1, 2]


def test_bad_characters_are_counted_wherever_they_stand(database: Database) -> None:
    text = json.dumps([said("a\x00"), said("a\x00"), said("b")])
    found = import_conversations(
        database, "p", format_named("openai").read(documents_in(text)), replace_bad_text=True
    )
    assert found.replaced_characters == 2


def test_the_same_conversation_many_times_asks_the_database_no_more(
    import_text: ImportText, database: Database
) -> None:
    database.connection.prepare_threshold = None

    def trips(number: int, text: str) -> int:
        with counted(database) as found:
            import_text("openai", json.dumps([said(text)] * number))
        return found.count

    assert trips(2, "a") == trips(200, "b")
