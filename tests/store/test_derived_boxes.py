"""Boxes made from boxes, how they differ, and which boxes hold a card."""

import uuid

import pytest

from cardbox_cli.errors import BoxConflict, NotFound
from cardbox_cli.model.boxes import REPLACED, Provenance, ProvenanceRule
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.ids import hash_ids
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileStore


@pytest.fixture
def ids(cards: CardStore) -> list[str]:
    drafts = [draft_card("task.instruction", f"card {number}") for number in range(5)]
    cards.add_many(drafts)
    return [draft.card_id for draft in drafts]


class TestDerive:
    def test_a_derived_box_has_the_title_parent_and_rules(self, boxes: BoxStore, ids: list[str]) -> None:
        packed = Provenance(
            recipe="r",
            recipe_digest="",
            digest="0" * 64,
            rules=[ProvenanceRule("one", 1), ProvenanceRule("two", 2)],
        )
        box = boxes.create([*ids[:2], "dangles"], title="t", provenance=packed, allow_dangling=True)
        made = boxes.derive(box, ["dangles", ids[4], ids[0]])
        assert (made.card_ids, made.title, made.parent_ids) == (
            ["dangles", ids[4], ids[0]],
            "t",
            [box.box_id],
        )
        moved = boxes.provenance(made.box_id)
        assert moved is not None
        assert moved.rules == [
            ProvenanceRule("two", 1),
            ProvenanceRule(REPLACED, 1),
            ProvenanceRule("one", 1),
        ]
        assert boxes.get(box.box_id) == box
        assert boxes.provenance(box.box_id) == packed

    def test_an_id_without_a_card_is_refused_unless_the_parent_has_it(
        self, boxes: BoxStore, cards: CardStore, ids: list[str]
    ) -> None:
        box = boxes.create(ids[:1])
        cards.delete(ids[3:])
        for unknown in ("nope", ids[3]):
            with pytest.raises(NotFound) as raised:
                boxes.derive(box, [ids[0], unknown])
            assert raised.value.details == {"missing_card_ids": [unknown]}
        assert list(boxes.newest()) == [box]


class TestRewrite:
    def test_a_box_that_has_changed_is_not_rewritten(self, boxes: BoxStore, ids: list[str]) -> None:
        box = boxes.create([*ids[:2], "dangles"], title="t", allow_dangling=True)
        read = hash_ids(box.card_ids)
        with pytest.raises(NotFound):
            boxes.rewrite(box, ["nope"], if_ids=read)
        assert boxes.rewrite(box, ["dangles", ids[2]], if_ids=read).card_ids == ["dangles", ids[2]]
        with pytest.raises(BoxConflict, match="has changed"):
            boxes.rewrite(box, [], if_ids=read)
        assert boxes.get(box.box_id).card_ids == ["dangles", ids[2]]

    def test_a_profile_box_cannot_be_rewritten(self, boxes: BoxStore, profiles: ProfileStore) -> None:
        entry = profiles.save({"name": "Ann", "worker_target": "w", "tags": []}, author_id="a")
        box = boxes.get(entry.profile_box_id)
        with pytest.raises(BoxConflict, match="holds the profile 'Ann'"):
            boxes.check_replaceable(box.box_id)
        with pytest.raises(BoxConflict, match="holds the profile 'Ann'"):
            boxes.rewrite(box, [], if_ids=hash_ids(box.card_ids))


class TestDiff:
    def test_a_diff_shows_the_states_of_changed_cards(
        self, boxes: BoxStore, cards: CardStore, ids: list[str]
    ) -> None:
        mortal = cards.add(draft_card("x", "soon gone", ttl_seconds=0)).card.card_id
        a = boxes.create([ids[0], ids[1], ids[2], mortal])
        b = boxes.create([ids[2], ids[0], "nope", ids[2]], allow_dangling=True)
        cards.delete([ids[1]])
        found = boxes.diff(a.box_id, b.box_id)
        assert (found.a, found.b) == (a, b)
        told = [(each.kind, each.a and each.a.state, each.b and each.b.state) for each in found.changes]
        assert told == [
            ("added", None, "present"),
            ("removed", "deleted", None),
            ("added", None, "dangling"),
            ("removed", "expired", None),
        ]

    def test_equal_lists_have_no_difference(self, boxes: BoxStore, ids: list[str]) -> None:
        box = boxes.create(ids)
        found = boxes.diff(box.box_id, boxes.fork(box.box_id).box_id)
        assert (found.changes, found.patch) == ([], [])

    def test_a_box_of_another_project_is_not_found(
        self, boxes: BoxStore, ids: list[str], database: Database
    ) -> None:
        mine, theirs = boxes.create(ids).box_id, BoxStore(database, "q").create([]).box_id
        for pair in ((mine, theirs), (theirs, mine), (mine, str(uuid.uuid4()))):
            with pytest.raises(NotFound):
                boxes.diff(*pair)

    def test_a_card_of_another_project_is_dangling(self, boxes: BoxStore, database: Database) -> None:
        theirs = CardStore(database, "q").add(draft_card("x", "theirs")).card.card_id
        a, b = boxes.create([]), boxes.create([theirs], allow_dangling=True)
        [change] = boxes.diff(a.box_id, b.box_id).changes
        assert change.b is not None
        assert (change.b.state, change.b.card) == ("dangling", None)


class TestRefs:
    def test_boxes_that_hold_a_card_are_listed_last_changed_first(
        self, boxes: BoxStore, ids: list[str]
    ) -> None:
        one = boxes.create([ids[0], ids[1], ids[0]], title="one")
        two = boxes.create([ids[1], ids[0]])
        boxes.create(ids[1:])
        found = list(boxes.refs(ids[0]))
        assert [(ref.box_id, ref.title, ref.positions, ref.cards) for ref in found] == [
            (two.box_id, None, [1], 2),
            (one.box_id, "one", [0, 2], 3),
        ]
        assert [ref.updated_at for ref in found] == [two.updated_at, one.updated_at]
        assert boxes.count_refs(ids[0]) == 2
        assert boxes.append(one.box_id, [ids[3]]) == 4
        assert [ref.box_id for ref in boxes.refs(ids[0])] == [one.box_id, two.box_id]
        assert [ref.box_id for ref in boxes.refs(ids[0], limit=1)] == [one.box_id]

    def test_pages_neither_lose_nor_repeat_boxes(self, boxes: BoxStore, database: Database) -> None:
        database.connection.execute(
            "INSERT INTO card_boxes (tenant_id, box_id, card_ids, updated_at)"
            " SELECT 'p', gen_random_uuid(), jsonb_build_array('x', n % 2), '2026-11-22'"
            " FROM generate_series(1, 450) AS n"
        )
        found = [ref.box_id for ref in boxes.refs("x")]
        assert (len(found), len(set(found)), boxes.count_refs("x")) == (450, 450, 450)
        assert [ref.box_id for ref in boxes.refs("x", limit=201)] == found[:201]

    def test_dangling_ids_are_found_only_in_their_own_project(
        self, boxes: BoxStore, database: Database
    ) -> None:
        box = boxes.create(["nope"], allow_dangling=True)
        BoxStore(database, "q").create(["nope", "other"], allow_dangling=True)
        assert [ref.box_id for ref in boxes.refs("nope")] == [box.box_id]
        assert (list(boxes.refs("other")), boxes.count_refs("other")) == ([], 0)

    @pytest.mark.parametrize("stored", ["null", '"x"', '{"x": 1}', '[["x"]]', "5"])
    def test_a_stored_value_that_is_not_a_list_has_no_cards(
        self, stored: str, boxes: BoxStore, database: Database
    ) -> None:
        box = boxes.create([])
        database.connection.execute(
            "UPDATE card_boxes SET card_ids = %s::jsonb WHERE box_id = %s", [stored, box.box_id]
        )
        assert (list(boxes.refs("x")), boxes.count_refs("x")) == ([], 0)
