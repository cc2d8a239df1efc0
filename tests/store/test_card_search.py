"""Searches in scripts without spaces: the index behind them changes how fast they are, and no answer."""

import random
import re
from itertools import pairwise

import pytest

from cardbox_cli.store.cards import FIELD_INDEXES, CardFilter, CardStore, find_index, index_text
from cardbox_cli.store.connection.database import Database
from tests.conftest import PROJECT
from tests.store.test_cards import text

ALPHABET = '订单超时タイ초과ａＡ，。 a"\\\n\U00020000'


def grams(database: Database, written: str) -> set[int]:
    [(found,)] = database.connection.execute("SELECT cbx.bigrams(%s)", [written])
    return set(found or ())


def expected(written: str) -> set[int]:
    """Every character of a run and every two neighbours."""
    runs = re.findall(
        "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]+",
        written,
    )
    pairs = [ord(one) << 21 | ord(other) for run in runs for one, other in pairwise(run)]
    return {*pairs, *(ord(one) for run in runs for one in run)}


@pytest.mark.parametrize(
    "written",
    [
        "",
        "plain words",
        "超",
        "超时",
        "a超时b",
        "超 时",
        "超，时",
        "ＡＢ",
        "タイム\U00020000𠀀",
        "초과 시간",
        "ｱｲ" * 50,
    ],
)
def test_bigrams_are_single_characters_and_adjacent_pairs(database: Database, written: str) -> None:
    assert grams(database, written) == expected(written)


def test_a_query_with_bigrams_uses_the_bigram_index(database: Database) -> None:
    for written in ("超", "a 超时", "ＡＢ", "，", "。", "plain", "초", "ｱ"):
        by_bigrams = find_index(written) is not None and "bigrams" in str(find_index(written))
        assert by_bigrams == bool(grams(database, written)), written


def test_the_index_does_not_change_search_results(cards: CardStore) -> None:
    chance = random.Random(7)
    texts = ["".join(chance.choices(ALPHABET, k=12)) for _ in range(60)]
    pieces = [
        piece
        for k in (1, 1, 2, 2, 3, 3, 5)
        for _ in range(8)
        if (piece := "".join(chance.choices(ALPHABET, k=k))).strip()
    ]
    pieces += [written[3:8] for written in texts[:20] if written[3:8].strip()]
    for number, written in enumerate(texts):
        cards.add(text(written, f"{number:02}"))

    def found() -> dict[str, list[str]]:
        return {piece: [card.card_id for card in cards.newest(CardFilter(text=piece))] for piece in pieces}

    before = found()
    assert index_text(cards.database) == ["idx_cards_text", "idx_cards_bigrams"]
    assert found() == before
    assert sum(map(bool, before.values())) > 20


def test_without_the_bigram_function_only_the_word_index_is_built(foreign: CardStore) -> None:
    told: list[str] = []
    foreign.database.script("DROP FUNCTION IF EXISTS cbx.bigrams(text)")
    assert index_text(foreign.database, told.append) == ["idx_cards_text"]
    assert "run `cbx db upgrade`" in told[0]
    foreign.add(text("支付超时了", "one"))
    for where in (CardFilter(text="超时"), CardFilter(step_id="s"), CardFilter(text="plain")):
        assert [card.card_id for card in foreign.newest(where)] == (["one"] if where.text == "超时" else [])


@pytest.fixture
def foreign(database: Database) -> CardStore:
    """The cards of a database that has none of the indexes that lists may go by."""
    for each in FIELD_INDEXES.values():
        database.script(f"DROP INDEX {each.name}")
    return CardStore(database, PROJECT)
