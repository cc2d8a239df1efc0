"""Addresses of pages: of any id, and of what a text names."""

import pytest

from cardbox_cli.inspect.turns import Event
from cardbox_cli.limits import LATEST
from cardbox_cli.serve.page.links import COMMAND, Links

TURN = "turn_01a207dbe700785ea06692ff34b9ffad"
BATCH = "batch_01a207dbf1cf70cfa2446f66bf3f342c"
BOX = "781c2482-ab9e-5ea0-b233-72035e262bb8"
CARD = "6ea8ad02808f596b8dc1e334e13c5492"


@pytest.fixture
def links() -> Links:
    return Links("p")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("plain", "/inspect/p/cards/plain"),
        ("a/b", "/inspect/p/cards/a/b"),
        ("..", "/inspect/p/cards/%2E%2E"),
        ("a/../b", "/inspect/p/cards/a/%2E%2E/b"),
        ("a?b#c", "/inspect/p/cards/a%3Fb%23c"),
        ('"><script>', "/inspect/p/cards/%22%3E%3Cscript%3E"),
        ("é", "/inspect/p/cards/%C3%A9"),
        ("\ud800", "/inspect/p/cards/%3F"),
    ],
)
def test_any_id_is_encoded_in_an_address(links: Links, name: str, address: str) -> None:
    assert links.card(name) == address


def test_a_project_with_any_name_has_an_address() -> None:
    assert Links("a/b?").start() == "/inspect/a%2Fb%3F"


def test_an_address_omits_parameters_that_are_none(links: Links) -> None:
    assert links.box(BOX, from_=100, part=None) == f"/inspect/p/boxes/{BOX}?from=100"
    assert links.chat("a b&c") == "/inspect/p/chat?key=a+b%26c"


def test_ids_and_commands_are_found_in_a_sentence(links: Links) -> None:
    text = f"turn {TURN} waits for {BATCH}, card {CARD} of box {BOX}: `cbx why {TURN}`."
    assert list(links.within(text)) == [
        ("turn ", None),
        (TURN, links.turn(TURN)),
        (" waits for ", None),
        (BATCH, links.batch(BATCH)),
        (", card ", None),
        (CARD, links.find(CARD)),
        (" of box ", None),
        (BOX, links.find(BOX)),
        (": ", None),
        (f"cbx why {TURN}", COMMAND),
        (".", None),
    ]


@pytest.mark.parametrize(
    "text", ["", "nothing of the kind", "turn_123", "a `quote without an end", CARD + "0"]
)
def test_text_that_is_not_an_id_stays_unchanged(links: Links, text: str) -> None:
    assert "".join(piece for piece, _ in links.within(text)) == text
    assert all(address is None for _, address in links.within(text))


@pytest.mark.parametrize(
    ("table", "row", "address"),
    [
        ("public.cards", CARD, f"/inspect/p/cards/{CARD}"),
        ("public.card_boxes", BOX, f"/inspect/p/boxes/{BOX}"),
        ("state.agent_state_head", "clerk", "/inspect/p/agents/clerk"),
        ("cbx.turns", "any", "/inspect/p/turns/any"),
        ("cbx.batches", BATCH, f"/inspect/p/batches/{BATCH}"),
        ("state.agent_inbox", "inbox_1", None),
        ("state.agent_inbox", TURN, f"/inspect/p/turns/{TURN}"),
    ],
)
def test_evidence_rows_link_to_their_pages(links: Links, table: str, row: str, address: str | None) -> None:
    assert links.row_page(table, row) == address


def test_an_event_links_to_the_object_that_it_refers_to(links: Links) -> None:
    assert links.event_page(Event(LATEST, "card", "", CARD)) == links.card(CARD)
    assert links.event_page(Event(LATEST, "asked", "", TURN)) == links.turn(TURN)
    assert links.event_page(Event(LATEST, "step", "", "step_1")) is None
    assert links.event_page(Event(LATEST, "ended", "")) is None
