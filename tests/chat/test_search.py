"""Which archived context a few words mean."""

from datetime import UTC, datetime, timedelta

import pytest

from cardbox_cli.chat.context_search import rank, search_strings, split_terms
from cardbox_cli.model.chats import SearchCandidate

START = datetime(2026, 11, 1, tzinfo=UTC)


def candidate(
    context_id: str, messages: str = "", *, title: str = "", reason: str = "", day: int = 0
) -> SearchCandidate:
    return SearchCandidate(
        context_id=context_id,
        title=title,
        reason=reason,
        search_text=messages,
        archived_at=START + timedelta(days=day),
    )


def found(query: str, *candidates: SearchCandidate) -> list[str]:
    return [each.context_id for each in rank(candidates, query)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("refund plan", ["refund", "plan"]),
        ("Refund, REFUND: plan-B!", ["refund", "plan", "b"]),
        ("用Python写脚本", ["用", "python", "写脚本"]),
        ("ＡＢＣ ﬁle", ["abc", "file"]),
        ("🎉 done", ["🎉", "done"]),
        ("c++", ["c"]),
        ("+++ ---", ["+++", "---"]),
        ("snake_case", ["snake", "case"]),
        ("  ", []),
    ],
)
def test_a_query_is_split_into_distinct_terms(query: str, expected: list[str]) -> None:
    assert split_terms(query) == expected


def test_one_whole_word_match_ranks_above_several_partial_matches() -> None:
    word = candidate("word", "we must deploy it")
    parts = candidate("parts", "redeployment, planning, refunds", day=9)
    assert found("deploy plan refund", parts, word) == ["word", "parts"]


def test_more_distinct_terms_rank_above_repeated_ones() -> None:
    often = candidate("often", "refund refund refund", title="refund", day=9)
    both = candidate("both", "a refund by a plan")
    assert found("refund plan", often, both) == ["both", "often"]


def test_matches_rank_by_title_reason_messages_and_age() -> None:
    found_here = [
        candidate("newest message", "refund", day=9),
        candidate("message", "refund", day=1),
        candidate("reason", reason="refund", day=2),
        candidate("title", title="refund", day=1),
        candidate("newer title", title="Refund!", day=3),
        candidate("none", "anything"),
    ]
    expected = ["newer title", "title", "reason", "newest message", "message"]
    assert found("refund", *found_here) == expected
    assert found("refund", *reversed(found_here)) == expected


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("退款", "我要退款谢谢"),
        ("退款方案", "这个退款的方案怎么样"),
        ("返金", "商品の返金をお願いします"),
        ("ログイン画面", "ログインの画面が出ない"),
        ("환불", "환불은 언제 되나요"),
        ("𠮷野家", "昨日は𠮷野家に行った"),
        ("คืนเงิน", "ขอคืนเงินค่ะ"),
        ("Straße", "in der STRASSE"),
    ],
)
def test_scripts_without_spaces_are_found_within_texts(query: str, text: str) -> None:
    others = candidate("other", "something else: 天气 天気 날씨 อากาศ")
    assert found(query, others, candidate("this", text)) == ["this"]
    assert any(needle in text.casefold().replace("ß", "ss") for needle in search_strings(query))


def test_a_whole_phrase_ranks_above_parts_of_it() -> None:
    pieces = candidate("pieces", "退款的方案", day=9)
    assert found("退款方案", pieces, candidate("whole", "看退款方案吧")) == ["whole", "pieces"]


def test_less_than_half_of_a_phrase_does_not_match() -> None:
    assert found("退款方案", candidate("one", "方案")) == []


def test_a_single_letter_matches_only_a_whole_word() -> None:
    assert found("b", candidate("within", "about"), candidate("alone", "plan B")) == ["alone"]


def test_a_result_explains_its_rank() -> None:
    [best] = rank([candidate("c", "the planning", title="Refund")], "refund plan fox")
    assert best.why == "2 of 3 words: 'refund' in its title; a part like 'plan' in its messages"
    assert best.words == {"refund": "title"}
    assert best.parts == {"plan": "messages"}


def test_a_query_without_words_matches_nothing() -> None:
    assert found("  ", candidate("c", "text")) == []
