import threading
import uuid

import pytest

from cardbox_cli.errors import AmbiguousId, BoxConflict, InvalidInput, NotFound
from cardbox_cli.model.boxes import Provenance, ProvenanceRule, verify
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.ids import hash_ids
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileStore


@pytest.fixture
def ids(cards: CardStore) -> list[str]:
    drafts = [draft_card("task.instruction", f"card {number}") for number in range(5)]
    cards.add_many(drafts)
    return [draft.card_id for draft in drafts]


def test_a_box_keeps_order_and_repetitions(boxes: BoxStore, ids: list[str]) -> None:
    box = boxes.create([ids[1], ids[0], ids[1]], title="t", parent_ids=None)
    assert boxes.get(box.box_id) == box
    assert (box.card_ids, box.title, box.parent_ids) == ([ids[1], ids[0], ids[1]], "t", [])
    assert [card.card_id for card in boxes.view(box.box_id).cards] == box.card_ids


def test_ids_without_a_card_are_refused_unless_allowed(
    boxes: BoxStore, ids: list[str], database: Database
) -> None:
    theirs = CardStore(database, "q").add(draft_card("x", "theirs")).card.card_id
    for unknown in ("nope", theirs):
        with pytest.raises(NotFound) as raised:
            boxes.create([ids[0], unknown])
        assert raised.value.details == {"missing_card_ids": [unknown]}
    assert list(boxes.newest()) == []
    assert boxes.create(["nope"], allow_dangling=True).card_ids == ["nope"]


def test_fifty_concurrent_appends_lose_nothing(boxes: BoxStore, ids: list[str], target: Target) -> None:
    box_id = boxes.create([]).box_id
    start = threading.Barrier(50)

    def append(worker: int) -> None:
        with Database.open_target(target) as database:
            store = BoxStore(database, "p")
            start.wait()
            store.append(box_id, [f"{worker}-a", f"{worker}-b"], allow_dangling=True)

    workers = [threading.Thread(target=append, args=[number]) for number in range(50)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    appended = boxes.get(box_id).card_ids
    assert sorted(appended) == sorted(f"{number}-{part}" for number in range(50) for part in "ab")
    # Serial: what one append brings stands together.
    assert all(first[:-2] == second[:-2] for first, second in zip(appended[::2], appended[1::2], strict=True))


def test_append_returns_the_new_length(boxes: BoxStore, ids: list[str]) -> None:
    box_id = boxes.create(ids[:2]).box_id
    assert boxes.append(box_id, ids[2:]) == 5
    with pytest.raises(NotFound):
        boxes.append(str(uuid.uuid4()), ids)


class TestReplace:
    def test_a_box_that_has_changed_is_not_replaced(self, boxes: BoxStore, ids: list[str]) -> None:
        box = boxes.create(ids[:2], title="t")
        read = hash_ids(box.card_ids)
        replaced = boxes.replace(box.box_id, ids[3:], if_ids=read)
        assert (replaced.card_ids, replaced.title) == (ids[3:], "t")
        with pytest.raises(BoxConflict, match="has changed"):
            boxes.replace(box.box_id, [], if_ids=read)
        assert boxes.get(box.box_id).card_ids == ids[3:]

    def test_concurrent_replacements_do_not_overwrite_each_other(
        self, boxes: BoxStore, ids: list[str], target: Target
    ) -> None:
        box = boxes.create(ids[:1])
        read = hash_ids(box.card_ids)
        failures: list[str] = []

        def replace() -> None:
            with Database.open_target(target) as database:
                try:
                    BoxStore(database, "p").replace(box.box_id, ids[2:3], if_ids=read)
                except BoxConflict as exc:
                    failures.append(exc.code)

        with boxes.database.transaction():
            boxes.replace(box.box_id, ids[1:2], if_ids=read)
            other = threading.Thread(target=replace)
            other.start()
            other.join(0.2)
            assert other.is_alive()
        other.join()
        assert failures == ["box-conflict"]
        assert boxes.get(box.box_id).card_ids == ids[1:2]


def test_ensure_creates_a_box_only_once(boxes: BoxStore, ids: list[str]) -> None:
    box_id = str(uuid.uuid4())
    assert boxes.ensure(box_id.upper()).box_id == box_id
    boxes.append(box_id, ids[:1])
    assert boxes.ensure(box_id).card_ids == ids[:1]
    with pytest.raises(InvalidInput, match="is not a UUID"):
        boxes.ensure("nope")


def test_a_fork_has_the_same_cards_and_one_parent(boxes: BoxStore, ids: list[str]) -> None:
    box = boxes.create([*ids, "gone"], title="t", allow_dangling=True)
    fork = boxes.fork(box.box_id)
    assert (fork.card_ids, fork.parent_ids, fork.title) == (box.card_ids, [box.box_id], "t")
    assert boxes.view(fork.box_id).digest == boxes.view(box.box_id).digest


def test_a_batch_is_returned_in_request_order(boxes: BoxStore) -> None:
    a, b = boxes.create([]), boxes.create([])
    found = boxes.get_many([b.box_id.upper(), "zz", a.box_id, b.box_id])
    assert (found.boxes, found.missing_box_ids) == ([b, a], ["zz"])


def test_every_dangling_reference_keeps_its_position(
    boxes: BoxStore, cards: CardStore, ids: list[str], database: Database
) -> None:
    mortal = cards.add(draft_card("x", "soon gone", ttl_seconds=0)).card.card_id
    box = boxes.create([ids[0], ids[1], mortal, "nope", ids[0]], allow_dangling=True)
    cards.delete([ids[1]])
    view = boxes.view(box.box_id)
    assert [(slot.position, slot.state) for slot in view.slots] == [
        (0, "present"),
        (1, "deleted"),
        (2, "expired"),
        (3, "dangling"),
        (4, "present"),
    ]
    assert view.missing_card_ids == [ids[1], mortal, "nope"]
    assert [(finding.position, finding.kind) for finding in verify(view, None)] == [
        (1, "deleted"),
        (2, "expired"),
        (3, "dangling"),
    ]


class TestDigest:
    def test_a_digest_depends_only_on_contents_and_order(self, boxes: BoxStore, cards: CardStore) -> None:
        def box_of(*texts: str, **attributes: str) -> str:
            drafts = [draft_card("task.instruction", each, metadata=attributes) for each in texts]
            cards.add_many(drafts)
            return boxes.view(boxes.create([draft.card_id for draft in drafts]).box_id).digest

        assert box_of("a", "b") == box_of("a", "b", agent_turn_id="t", step_id="s", trace_id="x")
        assert len({box_of("a", "b"), box_of("b", "a"), box_of("a"), box_of("a", "b", note="n")}) == 4

    def test_a_digest_is_the_same_in_every_project(self, database: Database) -> None:
        digests = set()
        for project in ("p", "q"):
            card = CardStore(database, project).add(draft_card("x", "same")).card
            store = BoxStore(database, project)
            digests.add(store.view(store.create([card.card_id]).box_id).digest)
        assert len(digests) == 1

    def test_a_digest_includes_deleted_cards_and_null_for_missing_ones(
        self, boxes: BoxStore, cards: CardStore, ids: list[str]
    ) -> None:
        box_id = boxes.create(ids).box_id
        before = boxes.view(box_id).digest
        cards.delete([ids[0]])
        assert boxes.view(box_id).digest == before
        assert (
            boxes.view(boxes.create(["x"], allow_dangling=True).box_id).digest
            == boxes.view(boxes.create(["y"], allow_dangling=True).box_id).digest
        )

    def test_a_digest_can_be_recomputed_with_standard_tools(self, boxes: BoxStore, cards: CardStore) -> None:
        import hashlib
        import json

        draft = draft_card(
            "x",
            "héllo\n",
            author_id="me",
            role="user",
            metadata={"b": 1, "a": [True, None]},
            tool_calls=[{"id": "c"}],
        )
        cards.add(draft)
        line = json.dumps(
            [
                "x",
                "user",
                "me",
                {"__type__": "TextContent", "text": "héllo\n"},
                [{"id": "c"}],
                None,
                {"a": [True, None], "b": 1},
            ],
            ensure_ascii=False,
            separators=(",", ":"),
            sort_keys=True,
        )
        expected = hashlib.sha256((line + "\n" + "null\n").encode()).hexdigest()
        box = boxes.create([draft.card_id, "gone"], allow_dangling=True)
        assert boxes.view(box.box_id).digest == expected


def test_verify_finds_incomplete_exchanges_and_changed_contents(boxes: BoxStore, cards: CardStore) -> None:
    call = draft_card("agent.thought", "", tool_calls=[{"id": "a"}, {"id": "b"}])
    answer = draft_card("tool.result", "ok", tool_call_id="a")
    orphan = draft_card("tool.result", "?", tool_call_id="z")
    cards.add_many([call, answer, orphan])
    provenance = Provenance(recipe="r", recipe_digest="", digest="0" * 64, rules=[ProvenanceRule("one", 2)])
    box = boxes.create([call.card_id, answer.card_id, orphan.card_id], provenance=provenance)
    kept = boxes.provenance(box.box_id)
    assert kept == provenance
    assert [kept.rule_of(position) for position in range(3)] == ["one", "one", None]
    findings = [(finding.position, finding.kind) for finding in verify(boxes.view(box.box_id), kept)]
    assert findings == [(0, "call-without-result"), (2, "result-without-call"), (None, "digest-differs")]


def test_deleting_a_box_leaves_its_cards(boxes: BoxStore, cards: CardStore, ids: list[str]) -> None:
    box_id = boxes.create(ids, title="t").box_id
    boxes.delete(box_id)
    with pytest.raises(NotFound):
        boxes.get(box_id)
    assert cards.get_many(ids).missing_card_ids == []


def test_a_profile_box_cannot_be_deleted(boxes: BoxStore, profiles: ProfileStore) -> None:
    entry = profiles.save({"name": "Ann", "worker_target": "w", "tags": []}, author_id="a")
    with pytest.raises(BoxConflict, match="holds the profile 'Ann'"):
        boxes.delete(entry.profile_box_id)


def test_a_box_of_another_project_is_not_found(boxes: BoxStore, database: Database) -> None:
    theirs = BoxStore(database, "q").create([]).box_id
    for use in (boxes.get, boxes.view, boxes.fork, boxes.delete):
        with pytest.raises(NotFound):
            use(theirs)
    for change in (boxes.append, boxes.replace):
        with pytest.raises(NotFound):
            change(theirs, [])
    assert boxes.slots(theirs) == []
    assert boxes.id_lists([theirs]) == {}
    assert list(boxes.newest()) == []
    with pytest.raises(NotFound):
        boxes.resolve(theirs[-8:])


class TestProfiles:
    def test_profile_names_are_case_insensitive(self, profiles: ProfileStore) -> None:
        first = profiles.save({"name": "Ann", "worker_target": "w", "tags": ["t"]}, author_id="a")
        second = profiles.save({"name": "ANN", "worker_target": "w", "tags": []}, author_id="a")
        assert profiles.get("ann") == second
        assert [entry.name for entry in profiles.all()] == ["ANN"]
        assert first.profile_box_id != second.profile_box_id

    def test_two_projects_can_use_the_same_profile_name(
        self, profiles: ProfileStore, database: Database
    ) -> None:
        mine = profiles.save({"name": "Ann", "worker_target": "w", "tags": []}, author_id="a")
        theirs = ProfileStore(database, "q")
        assert theirs.find("Ann") is None
        theirs.save({"name": "Ann", "worker_target": "x", "tags": []}, author_id="a")
        assert profiles.get("Ann") == mine


def test_a_list_with_values_that_are_not_strings_is_shown(boxes: BoxStore, database: Database) -> None:
    box_id = boxes.create([]).box_id
    database.connection.execute(
        "UPDATE card_boxes SET card_ids = '[1, null, \"a\"]' WHERE box_id = %s", [box_id]
    )
    (listed,) = boxes.newest()
    assert listed.card_ids == ["1", "null", "a"]
    assert [slot.card_id for slot in boxes.view(box_id).slots] == ["1", "null", "a"]


class TestShortIds:
    ONE, OTHER = "abcd0000-0000-7000-8000-0000000012ef", "abcd0000-1111-7000-8000-00000000abcd"

    @pytest.fixture(autouse=True)
    def two(self, boxes: BoxStore) -> None:
        for box_id in (self.ONE, self.OTHER):
            boxes.ensure(box_id)

    @pytest.mark.parametrize("typed", ["abcd00000", "ABCD0000-0", "12ef", "0012EF", "8000-0000000012ef"])
    def test_a_box_is_found_by_the_beginning_or_end_of_its_id(self, boxes: BoxStore, typed: str) -> None:
        assert boxes.resolve(typed) == self.ONE

    @pytest.mark.parametrize("typed", ["12e%", "____", "%%%%", "wxyz", "", "2ef", "0" * 33])
    def test_a_string_that_is_not_part_of_an_id_finds_nothing(self, boxes: BoxStore, typed: str) -> None:
        with pytest.raises(NotFound):
            boxes.resolve(typed)

    def test_an_ambiguous_id_lists_each_candidate_once(self, boxes: BoxStore) -> None:
        with pytest.raises(AmbiguousId) as raised:
            boxes.resolve("abcd")
        assert raised.value.details == {"candidates": [self.ONE, self.OTHER]}

    def test_ids_of_another_project_are_not_candidates(self, boxes: BoxStore) -> None:
        theirs = BoxStore(boxes.database, "q")
        with pytest.raises(NotFound):
            theirs.resolve("12ef")
