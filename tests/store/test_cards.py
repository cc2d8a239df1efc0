import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from cardbox_cli.errors import AmbiguousId, CardConflict, InvalidCard, NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import digest_line
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.content import JsonContent, TextContent
from cardbox_cli.store.cards import CardFilter, CardStore, WriteCounts, index_text
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests import jsonb_values

reuse = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def text(words: str, card_id: str | None = None, **attributes: Any) -> CardDraft:
    return draft_card("task.instruction", words, card_id=card_id, **attributes)


def other(draft: CardDraft) -> CardDraft:
    return msgspec.structs.replace(draft, content=TextContent("something else"))


@reuse
@given(data=jsonb_values.objects, extra=jsonb_values.objects)
def test_any_jsonb_value_survives_storage(
    cards: CardStore, data: dict[str, Any], extra: dict[str, Any]
) -> None:
    metadata = {f"x-{key}": value for key, value in extra.items()}
    draft = draft_card("x", JsonContent(data), metadata=metadata, tool_calls=[data])
    stored = cards.get(cards.add(draft).card.card_id)
    assert isinstance(stored.content, JsonContent)
    assert normal(stored.content.data) == normal(data)
    assert normal(stored.tool_calls) == normal([data])
    assert normal({key: stored.metadata[key] for key in metadata}) == normal(metadata)
    assert digest_line(stored) == digest_line(draft)
    assert cards.add(draft).outcome == "unchanged"


def normal(value: Any) -> bytes:
    """JSON in the form in which a number is what JSONB makes of it: a negative zero is a zero."""
    return exact_json.canonical(exact_json.encode(value))


@pytest.mark.parametrize(
    ("given", "stored"), [("-0", "0"), ("-0.0", "0.0"), ("0.0", "0.0"), ("-0.00", "0.00"), ("0", "0")]
)
def test_a_negative_zero_is_stored_as_zero(cards: CardStore, given: str, stored: str) -> None:
    for number in (exact_json.read(given), Decimal(given)):
        draft = draft_card("x", JsonContent({"n": [number]}), metadata={"m": number}, tool_calls=[number])
        written = cards.add(draft)
        card = cards.get(written.card.card_id)
        assert exact_json.encode([card.content, card.tool_calls, card.metadata["m"]]).decode() == (
            f'[{{"__type__":"JsonContent","data":{{"n":[{stored}]}}}},[{stored}],{stored}]'
        )
        assert digest_line(card) == digest_line(draft)
        assert cards.add(draft).outcome == "unchanged"


def test_negative_zeros_metadata_of_an_older_build_is_plain_metadata(cards: CardStore) -> None:
    metadata = {"negative_zeros": [["content", "data", "n"], ["metadata", "m"]], "m": 0}
    written = cards.add(draft_card("x", JsonContent({"n": 0}), metadata=metadata))
    card = cards.get(written.card.card_id)
    assert {key: card.metadata[key] for key in metadata} == metadata
    assert exact_json.encode(card.content) == b'{"__type__":"JsonContent","data":{"n":0}}'


def test_card_metadata_includes_the_project_and_time(cards: CardStore) -> None:
    card = cards.add(text("hi", author_id="me", metadata={"step_id": "s"})).card
    created = card.created_at.isoformat().replace("+00:00", "Z")
    assert card.metadata == {
        "type": "task.instruction",
        "role": "user",
        "author_id": "me",
        "project_id": "p",
        "step_id": "s",
        "created_at": created,
    }


class TestReplayAndConflict:
    def test_the_same_card_again_changes_nothing(self, cards: CardStore) -> None:
        draft = text("hi")
        first = cards.add(draft)
        again = cards.add(draft)
        assert (first.outcome, again.outcome) == ("inserted", "unchanged")
        assert again.card == first.card

    def test_other_content_under_an_id_is_refused(self, cards: CardStore) -> None:
        draft = text("hi")
        first = cards.add(draft).card
        with pytest.raises(CardConflict):
            cards.add(other(draft))
        assert cards.get(draft.card_id) == first

    @pytest.mark.parametrize(
        "change",
        [
            {"tool_calls": [{"id": "c"}]},
            {"tool_call_id": "c"},
            {"ttl_seconds": 5},
            {"metadata": {"type": "task.instruction", "role": "user", "more": 1}},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_any_change_of_the_payload_is_a_conflict(self, cards: CardStore, change: dict[str, Any]) -> None:
        draft = text("hi")
        cards.add(draft)
        with pytest.raises(CardConflict):
            cards.add(msgspec.structs.replace(draft, **change))

    def test_repair_overwrites_and_restores_a_deleted_card(self, cards: CardStore) -> None:
        draft = text("hi")
        cards.add(draft)
        cards.delete([draft.card_id])
        with pytest.raises(CardConflict):
            cards.add(draft)
        repaired = cards.add(other(draft), repair=True)
        assert repaired.outcome == "repaired"
        assert cards.get(draft.card_id).content == TextContent("something else")

    @pytest.mark.parametrize("repair", [False, True])
    def test_a_conflict_with_another_project_reveals_only_the_id(
        self, cards: CardStore, database: Database, repair: bool
    ) -> None:
        theirs = CardStore(database, "q").add(text("secret", card_id="shared")).card
        with pytest.raises(CardConflict) as raised:
            cards.add(text("mine", card_id="shared"), repair=repair)
        assert raised.value.message == "the card id 'shared' is taken"
        assert raised.value.details == {}
        assert CardStore(database, "q").get("shared") == theirs
        assert cards.get_many(["shared"]).missing_card_ids == ["shared"]

    def test_a_second_writer_of_a_card_waits_and_changes_nothing(
        self, cards: CardStore, target: Target
    ) -> None:
        draft = text("hi")
        with Database.open_target(target) as second:
            with cards.database.transaction():
                cards.add(draft)
                outcomes: list[str] = []
                writer = threading.Thread(
                    target=lambda: outcomes.append(CardStore(second, "p").add(draft).outcome)
                )
                writer.start()
                writer.join(0.2)
                assert outcomes == []  # it waits for the first writer
            writer.join()
        assert outcomes == ["unchanged"]


class TestAddMany:
    def test_add_many_counts_cards_and_keeps_their_order(self, cards: CardStore) -> None:
        drafts = [text(f"card {number}") for number in range(2500)]
        assert cards.add_many(iter(drafts)) == WriteCounts(2500, 0)
        assert cards.add_many([*drafts, text("new")]) == WriteCounts(1, 2500)
        listed = [card.content for card in cards.newest()]
        assert listed == [TextContent("new")] + [draft.content for draft in reversed(drafts)]

    def test_a_conflict_rolls_back_all_cards(self, cards: CardStore) -> None:
        known = text("known")
        cards.add(known)
        with pytest.raises(CardConflict, match=known.card_id):
            cards.add_many([text("new"), other(known)])
        assert [card.card_id for card in cards.newest()] == [known.card_id]

    def test_a_repeated_id_must_have_the_same_content(self, cards: CardStore) -> None:
        draft = text("hi")
        assert cards.add_many([draft, draft]) == WriteCounts(1, 1)
        with pytest.raises(CardConflict):
            cards.add_many([again := text("a", card_id="twice"), other(again)])
        assert cards.get_many(["twice"]).cards == []

    def test_an_invalid_card_in_the_stream_rolls_back_all_cards(self, cards: CardStore) -> None:
        def stream() -> Iterator[CardDraft]:
            yield text("fine")
            yield msgspec.structs.replace(text("bad"), content=TextContent("\x00"))

        with pytest.raises(InvalidCard, match="holds a NUL character"):
            cards.add_many(stream())
        assert list(cards.newest()) == []

    def test_control_characters_of_the_copy_format_are_stored(self, cards: CardStore) -> None:
        nasty = 'tab\t newline\n backslash\\ \\N \\. \r quote" \u2028'
        draft = text(nasty, card_id="id with \\ and 'quotes'", tool_call_id="\\N")
        cards.add_many([draft])
        stored = cards.get(draft.card_id)
        assert (stored.content, stored.tool_call_id) == (TextContent(nasty), "\\N")

    def test_add_many_works_twice_in_one_transaction(self, cards: CardStore) -> None:
        with cards.database.transaction():
            assert cards.add_many([text("a")]) == WriteCounts(1, 0)
            assert cards.add_many([text("b")]) == WriteCounts(1, 0)


class TestLifetime:
    def test_an_expired_card_is_skipped(self, cards: CardStore) -> None:
        card = cards.add(text("soon gone", ttl_seconds=60)).card
        assert card.expires_at is not None
        assert (card.expires_at - card.created_at).total_seconds() == 60
        with later(cards.database, "61 seconds"):
            assert cards.get_many([card.card_id]).missing_card_ids == [card.card_id]
            assert list(cards.newest()) == []
            assert cards.get(card.card_id, include_deleted=True) == card
        assert cards.get(card.card_id) == card

    def test_a_deleted_card_is_hidden_and_kept(self, cards: CardStore) -> None:
        card = cards.add(text("gone")).card
        assert cards.delete([card.card_id]) == [card.card_id]
        assert cards.delete([card.card_id]) == []
        with pytest.raises(NotFound):
            cards.get(card.card_id)
        assert cards.get(card.card_id, include_deleted=True).deleted_at is not None

    def test_deleting_an_unknown_card_deletes_none(self, cards: CardStore) -> None:
        card = cards.add(text("stays")).card
        with pytest.raises(NotFound, match="nope"):
            cards.delete([card.card_id, "nope"])
        assert cards.get(card.card_id) == card


class later:
    """A transaction in which the database's clock is ahead, by cbx's own setting."""

    def __init__(self, database: Database, offset: str) -> None:
        self.transaction = database.transaction()
        self.database, self.offset = database, offset

    def __enter__(self) -> None:
        self.transaction.__enter__()
        self.database.connection.execute("SELECT set_config('cbx.clock_offset', %s, true)", [self.offset])

    def __exit__(self, *exc: Any) -> None:
        self.transaction.__exit__(*exc)


class TestReading:
    def test_a_batch_is_returned_in_request_order(self, cards: CardStore) -> None:
        a, b = cards.add(text("a")).card, cards.add(text("b")).card
        found = cards.get_many([b.card_id, "x", a.card_id, b.card_id, "x"])
        assert (found.cards, found.missing_card_ids) == ([b, a], ["x"])

    @pytest.mark.parametrize(
        "where",
        [
            CardFilter(types=["agent.thought"]),
            CardFilter(role="assistant"),
            CardFilter(author_id="ann"),
            CardFilter(agent_turn_id="turn_1"),
            CardFilter(step_id="step_1"),
            CardFilter(trace_id="t"),
            CardFilter(tool_call_id="call_1"),
        ],
        ids=lambda where: next(name for name in where.__struct_fields__ if getattr(where, name)),
    )
    def test_each_filter_finds_its_card(self, cards: CardStore, where: CardFilter) -> None:
        metadata = {"agent_turn_id": "turn_1", "step_id": "step_1", "trace_id": "t"}
        wanted = cards.add(
            draft_card("agent.thought", "x", author_id="ann", metadata=metadata, tool_call_id="call_1")
        ).card
        cards.add(text("y"))
        assert list(cards.newest(where)) == [wanted]

    def test_a_time_range_is_half_open(self, cards: CardStore) -> None:
        first, second = cards.add(text("1")).card, cards.add(text("2")).card
        assert list(cards.newest(CardFilter(since=second.created_at))) == [second]
        assert list(cards.newest(CardFilter(until=second.created_at))) == [first]

    def test_the_limit_holds_across_pages(self, cards: CardStore) -> None:
        cards.add_many([text(str(number)) for number in range(1500)])
        assert len(list(cards.newest(limit=1200))) == 1200
        assert len({card.card_id for card in cards.newest()}) == 1500


class TestSearch:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("timeout", True),
            ("TIMEOUT payment", True),
            ('"payment timeout"', True),
            ('"timeout payment"', False),
            ("timeout -payment", False),
            ("nothing or timeout", True),
            ("超时", True),
            ("支付超时", True),
            ("超时 支付", True),
            ("超时 订单", False),
            ("タイムアウト", True),
            ("시간 초과", True),
            ("100%_\\", True),
            ("TextContent", False),
            ("text", False),
            ("customer_name", True),
        ],
    )
    def test_a_search_finds_words_and_substrings(self, cards: CardStore, query: str, found: bool) -> None:
        call = {"id": "c", "function": {"name": "f", "arguments": '{"customer_name": "Ann"}'}}
        words = "The payment timeout at 100%_\\. 支付超时了 タイムアウト 시간 초과"
        cards.add(draft_card("agent.thought", words, tool_calls=[call]))
        cards.add(text("another card"))
        assert len(list(cards.newest(CardFilter(text=query)))) == int(found)

    @pytest.mark.parametrize(
        "piece", ['引"用', "反\\斜", "反\\\\", "\x01控", "大\x7f小", "/超时/", "ä大Ö", "é时", "🎉大"]
    )
    def test_a_substring_that_json_escapes_is_found(self, cards: CardStore, piece: str) -> None:
        wanted = cards.add(text(f"前{piece}后")).card
        cards.add(draft_card("x", JsonContent({piece: 1, "list": [f"{piece}"]}), card_id="in a list"))
        cards.add(draft_card("x", JsonContent({f"前{piece}后": "大"}), card_id="in a key"))
        assert list(cards.newest(CardFilter(text=f"前{piece}后"))) == [wanted]
        assert [card.card_id for card in cards.newest(CardFilter(text=f"大 {piece.upper()}"))] == (
            ["in a list", wanted.card_id] if "大" in piece else []
        )

    def test_a_percent_sign_is_not_a_wildcard(self, cards: CardStore) -> None:
        cards.add(text("百分之 50"))
        assert list(cards.newest(CardFilter(text="百%之"))) == []


class TestIndexedLists:
    """What an index finds is sorted afterwards, up to a number; the answers are those of every other list."""

    @pytest.mark.parametrize("few", [1, 4, 5, 100])
    @pytest.mark.parametrize(
        "where",
        [
            CardFilter(text="blue"),
            CardFilter(text="蓝色"),
            CardFilter(agent_turn_id="t"),
            CardFilter(step_id="s"),
            CardFilter(trace_id="r"),
            CardFilter(tool_call_id="c"),
        ],
    )
    def test_a_list_is_complete_for_any_number_of_matches(
        self, cards: CardStore, where: CardFilter, few: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index_text(cards.database)
        turn = {"metadata": {"agent_turn_id": "t", "step_id": "s", "trace_id": "r"}, "tool_call_id": "c"}
        for number in range(10):
            cards.add(
                text(
                    "blue 天是蓝色的" if number % 2 else "red 蓝的色",
                    f"{number}",
                    **(turn if number % 2 else {}),
                )
            )
        monkeypatch.setattr("cardbox_cli.store.cards._MAX_SORTED", few)
        monkeypatch.setattr("cardbox_cli.store.cards._PAGE", 2)
        assert [card.card_id for card in cards.newest(where)] == ["9", "7", "5", "3", "1"]
        assert [card.card_id for card in cards.newest(where, limit=3)] == ["9", "7", "5"]

    def test_settings_of_the_caller_stay_unchanged(self, cards: CardStore, database: Database) -> None:
        with database.transaction():
            database.script("SET LOCAL work_mem = '5MB'")
            assert list(cards.newest(CardFilter(agent_turn_id="t"))) == []
            [(kept,)] = database.connection.execute("SHOW work_mem")
        assert kept == "5MB"


class TestShortIds:
    def test_a_card_is_found_by_the_beginning_or_end_of_its_id(self, cards: CardStore) -> None:
        for card_id in ("abcd-1-wxyz", "abcd-2-stuv", "50%_-x"):
            cards.add(text("x", card_id=card_id))
        assert cards.resolve("abcd-1") == "abcd-1-wxyz"
        assert cards.resolve("stuv") == "abcd-2-stuv"
        assert cards.resolve("50%_") == "50%_-x"
        with pytest.raises(NotFound):
            cards.resolve("ab%%")

    def test_an_ambiguous_id_lists_the_candidates(self, cards: CardStore) -> None:
        for number in range(3):
            cards.add(text("x", card_id=f"same-{number}"))
        with pytest.raises(AmbiguousId) as raised:
            cards.resolve("same")
        assert raised.value.details == {"candidates": ["same-0", "same-1", "same-2"]}

    def test_an_exact_id_wins_over_longer_ids(self, cards: CardStore) -> None:
        for card_id in ("same", "same-1"):
            cards.add(text("x", card_id=card_id))
        assert cards.resolve("same") == "same"

    def test_three_characters_find_only_an_exact_id(self, cards: CardStore) -> None:
        cards.add(text("x", card_id="abcd"))
        cards.add(text("x", card_id="xyz"))
        assert cards.resolve("xyz") == "xyz"
        with pytest.raises(NotFound):
            cards.resolve("abc")

    def test_ids_of_another_project_are_not_candidates(self, cards: CardStore, database: Database) -> None:
        CardStore(database, "q").add(text("x", card_id="theirs-1"))
        mine = cards.add(text("x", card_id="theirs-2")).card
        assert cards.resolve("theirs") == mine.card_id


def test_content_of_an_unknown_class_is_returned_unchanged(cards: CardStore, database: Database) -> None:
    database.connection.execute(
        "INSERT INTO cards (tenant_id, card_id, content, metadata) VALUES"
        """ ('p', 'odd', '{"__type__": "New", "n": 1.10}', '{"type": "x"}'),"""
        """ ('p', 'bare', '{"a": 1}', NULL), ('p', 'null', NULL, '{}'), ('p', 'list', '[1]', '{}')"""
    )
    stored: dict[str, Card] = {card.card_id: card for card in cards.newest()}
    assert exact_json.encode(stored["odd"].content) == b'{"n":1.10,"__type__":"New"}'
    assert (stored["bare"].content, stored["bare"].type) == ({"a": 1}, "unknown")
    assert stored["null"].content is None
    assert stored["list"].content == {"__type__": None, "data": [1]}


def test_numbers_of_any_length_survive_storage(cards: CardStore) -> None:
    data = exact_json.read('{"n": [' + "7" * 1000 + ", 1e999, 0." + "3" * 500 + "]}")
    draft = draft_card("x", JsonContent(data), metadata=data, tool_calls=[data])
    stored = cards.add(draft).card
    assert stored.content == JsonContent(data)
    assert digest_line(stored) == digest_line(draft)
    assert cards.get(draft.card_id).created_at.tzinfo is not None
