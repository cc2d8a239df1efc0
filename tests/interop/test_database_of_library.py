"""In a database that the library made, before and after `cbx db init`."""

from tests.interop.conftest import PROFILE, Shared
from tests.interop.test_database_of_cbx import assert_the_library_agrees, packed, text_card


def test_cbx_before_init_shows_and_renders_but_refuses_to_pack(made_by_library: Shared) -> None:
    ids = made_by_library.ask("add_cards", cards=[text_card("Refund"), text_card("order 118")])
    box = made_by_library.ask("save_box", card_ids=ids)
    assert "Refund" in made_by_library.cbx("card", "show", ids[0]).text()
    assert made_by_library.card_ids(box) == ids
    assert "title    unknown" in made_by_library.cbx("box", "show", box).text()
    messages = made_by_library.cbx("render", "--box", box, "--model", "m").json()["messages"]
    assert [message["content"] for message in messages] == ["Refund", "order 118"]
    asked = ("-a", "profile_name=clerk", "-a", "instruction=Go on", "-a", f"input_box_ids={box}")
    refused = made_by_library.cbx("pack", "--handover", "delegate", *asked)
    assert (refused.code, refused.out) == (7, "")
    print(refused.err.strip())


def test_each_program_reads_the_other_before_init(made_by_library: Shared) -> None:
    cbx = made_by_library.cbx
    card = cbx("card", "add", "--type", "task.instruction", "--text", "Go", "-o", "id").text()
    box = cbx("box", "create", card, "-o", "id").text()
    made_by_library.ask(
        "append", box_id=box, card_ids=made_by_library.ask("add_cards", cards=[text_card("on")])
    )
    cbx("box", "append", box, card).text()
    imported = cbx("card", "import", "examples/checkout-incident.json", "--remap-tool-ids", "-o", "id").text()
    for each in (box, imported):
        shown = cbx("box", "show", each, "-o", "json").json()["cards"]
        read = [shown[0], shown[1], shown[0]] if each == box else shown
        assert_the_library_agrees(made_by_library, each, read)
        print(f"box of {len(read)} cards agrees")


def test_packing_and_the_library_both_work_after_init(made_by_library: Shared) -> None:
    cbx = made_by_library.cbx
    ids = made_by_library.ask("add_cards", cards=[text_card("Refund"), text_card("order 118")])
    box = made_by_library.ask("save_box", card_ids=ids)
    print(cbx("db", "init", "--yes").text())
    context = packed(cbx, box)
    assert made_by_library.card_ids(context)[:2] == ids
    assert_the_library_agrees(
        made_by_library, context, cbx("box", "show", context, "-o", "json").json()["cards"]
    )
    more = made_by_library.ask("add_cards", cards=[text_card("and 119"), text_card("again", card_id=ids[0])])
    made_by_library.ask("append", box_id=box, card_ids=more[:1])
    assert made_by_library.card_ids(box) == [*ids, more[0]]
    assert "again" in cbx("card", "show", ids[0]).text()
    cbx("profile", "import", "-", stdin=PROFILE).text()
    again = packed(cbx, box)
    messages = cbx("render", "--box", again, "--model", "m").json()["messages"]
    assert [message["content"] for message in messages[:4]] == ["again", "order 118", "and 119", "Go on"]


def test_cards_purged_by_cbx_are_missing_for_the_library(made_by_library: Shared) -> None:
    cards = [text_card("stays"), text_card("expires", ttl_seconds=0), text_card("is deleted")]
    [stays, expires, deleted] = ids = made_by_library.ask("add_cards", cards=cards)
    box = made_by_library.ask("save_box", card_ids=ids)
    made_by_library.cbx("card", "delete", deleted, "--yes").text()
    answer = made_by_library.cbx("db", "gc", "--purge", "--yes", "-o", "json").json()
    assert answer["purged"] == {"expired": 1, "deleted": 1, "box_info": 0}
    found = made_by_library.ask("get_cards", card_ids=[stays, expires, deleted])
    assert [card is not None for card in found] == [True, False, False]
    assert made_by_library.card_ids(box) == ids
    print(f"purged {answer['purged']}; the box still lists {len(ids)} ids")
