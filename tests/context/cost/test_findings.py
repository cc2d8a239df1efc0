"""What the rules about costs find, and what they leave alone."""

from cardbox_cli.context.cost.account import Sent, account_of, answered_requests
from cardbox_cli.context.cost.findings import ChatSubject, CostFinding, CostSubject, FixCommand
from cardbox_cli.context.cost.rules import RULES, check
from cardbox_cli.context.repair.fit import fit
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import TextContent
from tests.context.cost.test_account import openai, request, series
from tests.context.lint.cards import call, card, profile, result, thought, tools, user

LONG = "alpha beta gamma delta " * 40


def findings(*cards: Card, read_only: tuple[str, ...] = ("read", "list")) -> dict[str, CostFinding]:
    account = account_of(answered_requests(request(*cards), openai))
    return {each.code: each for each in check(CostSubject(account, read_only=frozenset(read_only)))}


def use(key: str, text: str, name: str = "read", arguments: str = '{"path": "a"}') -> list[Card]:
    return [
        thought(call(key, name, arguments), card_id=f"call-{key}"),
        result(key, text, card_id=f"result-{key}"),
    ]


def rounds(count: int, text: str = "Well.") -> list[Card]:
    return [
        card
        for number in range(count)
        for card in (user("Go on.", card_id=f"u{number}"), thought(text=text, card_id=f"t{number}"))
    ]


def test_each_rule_has_a_unique_code_and_a_description() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert all(rule.finds and rule.remedy for rule in RULES)


def test_an_unused_tool_result_is_found() -> None:
    found = findings(user("Look.", card_id="0"), *use("1", LONG), *rounds(4))
    unused = found["unused-result"]
    [evidence] = unused.evidence
    assert (evidence.card_id, evidence.sends) == ("result-1", 4)
    assert unused.tokens == 3 * evidence.tokens
    assert unused.mend is not None
    assert unused.mend.line() == (
        "cbx box show box -o csv --columns full-id --no-header | grep -vxF -e call-1 -e result-1 | "
        "cbx box edit box --file -"
    )


def test_a_result_of_a_tool_that_may_change_something_is_shortened_and_stays() -> None:
    cards = [user("Look.", card_id="0"), *use("1", LONG, "cancel_reservation"), *rounds(4)]
    unused = findings(*cards)["unused-result"]
    assert unused.mend is not None
    assert (unused.mend.how, unused.mend.first) == ("fit", "largest-results")
    assert unused.remedy.startswith("shorten the result, but keep it and its call")
    declared = findings(*cards, read_only=("cancel_reservation",))["unused-result"]
    assert declared.remedy.startswith("omit the call and its result")


def test_a_partly_used_result_is_not_found() -> None:
    used = findings(user("Look.", card_id="0"), *use("1", LONG), *rounds(4, "It says gamma."))
    once = findings(user("Look.", card_id="0"), *use("1", LONG), *rounds(1))
    assert "unused-result" not in used | once


def test_a_result_is_used_if_the_model_repeats_a_name_from_it() -> None:
    listed = "flight HAT252 leaves at one " * 40
    cards = [user("Which?", card_id="0"), *use("1", listed), *use("2", f"{listed}!", "search")]
    assert "unused-result" not in findings(*cards, *rounds(4, "Take HAT252."))
    asked = [user("Is it HAT252?", card_id="0"), *cards[1:], *rounds(4, "Take HAT252.")]
    assert "unused-result" in findings(*asked)


def test_a_repeated_result_is_used_if_the_first_one_was() -> None:
    cards = [*use("1", LONG), *rounds(1, "It says gamma."), *use("2", LONG), *rounds(4)]
    assert "unused-result" not in findings(user("Look.", card_id="x"), *cards)


def test_an_unchanged_second_read_is_found() -> None:
    same = [*use("1", LONG), *use("2", LONG, arguments='{ "path":"a" }'), *rounds(2, "gamma")]
    again = findings(user("Look.", card_id="0"), *same)["read-again"]
    assert [each.card_id for each in again.evidence] == ["result-1", "result-2"]
    assert again.mend is not None
    assert again.mend.card_ids == ["call-1", "result-1"]
    assert "same-content" not in findings(user("Look.", card_id="0"), *same)
    changed = [*use("1", LONG), *use("2", f"{LONG}!"), *rounds(2, "gamma")]
    assert "read-again" not in findings(user("Look.", card_id="0"), *changed)


def test_an_identical_retry_of_a_failed_call_is_found() -> None:
    tries = [*use("1", "Error: no such file"), *use("2", "Error: no such file"), *rounds(1)]
    retried = findings(user("Look.", card_id="0"), *tries)["error-retried"]
    assert retried.mend is not None
    assert retried.mend.card_ids == ["call-1", "result-1"]
    other = [*use("1", "Error: no such file"), *use("2", "Error: denied"), *rounds(1)]
    assert "error-retried" not in findings(user("Look.", card_id="0"), *other)


def test_repeated_content_is_found() -> None:
    cards = [user(LONG, card_id="a"), thought(text="Yes.", card_id="b"), user(LONG, card_id="c"), *rounds(2)]
    same = findings(*cards)["same-content"]
    assert [each.card_id for each in same.evidence] == ["a", "c"]
    assert same.tokens == 2 * same.evidence[0].tokens
    assert same.mend is not None
    assert same.mend.card_ids == ["a"]


def test_a_short_deliverable_that_repeats_the_answer() -> None:
    first = [user("Where?", card_id="a"), thought(text="Rome.", card_id="b")]
    repeated = [*first, card("task.deliverable", TextContent("Rome."), "assistant", card_id="c")]
    same = findings(*repeated, *rounds(2))["same-content"]
    assert [each.card_id for each in same.evidence] == ["b", "c"]
    other = [*first, card("task.deliverable", TextContent("Milan."), "assistant", card_id="c")]
    assert "same-content" not in findings(*other, *rounds(2))
    said_twice = [*first, user("Sure?", card_id="c"), thought(text="Rome.", card_id="d")]
    assert "same-content" not in findings(*said_twice, *rounds(2))


def test_the_fix_never_separates_a_call_from_its_result() -> None:
    both = thought(call("1", "read"), call("2", "list"), card_id="calls")
    cards = [both, result("1", LONG, card_id="r1"), result("2", "x", card_id="r2"), *rounds(4)]
    unused = findings(user("Look.", card_id="0"), *cards)["unused-result"]
    assert unused.mend is not None
    assert unused.mend.line() == (
        "cbx box show box -o csv --columns full-id --no-header | grep -vxF -e r1 | cbx box edit box --file - "
        "-o id | xargs cbx box repair --drop-orphans -o id"
    )


def test_the_fix_keeps_the_text_next_to_a_call() -> None:
    said = thought(call("1", "read"), text="I shall look.", card_id="said")
    found = findings(user("Look.", card_id="0"), said, result("1", LONG, card_id="r1"), *rounds(4))
    assert found["unused-result"].mend == FixCommand(how="without-results", name="box", card_ids=["r1"])


def test_the_suggested_budget_leaves_space_for_notes_and_the_last_answer() -> None:
    cards = [user("Look.", card_id="0"), *use("1", LONG), *use("2", LONG), *use("3", LONG), *rounds(2)]
    entries = [
        RequestEntry(slot=Slot(place, card.card_id, card, "present"), box_id="a" if place < 3 else "b")
        for place, card in enumerate(cards)
    ]
    made = request_of(entries, encode=openai.encode)
    [found] = [
        each
        for each in check(CostSubject(account_of(answered_requests(made, openai))))
        if each.code == "read-again"
    ]
    assert found.mend is not None
    assert found.mend.line().endswith(f" --max-tokens {found.mend.tokens} --fit duplicates")
    fitted = fit(made, found.mend.tokens, "duplicates", provider=openai, author_id="sys.operator")
    assert [change.kind for change in fitted.changes] == ["rewritten"] * 2


def test_a_tool_without_calls_is_found() -> None:
    cards = [tools("read", "write"), user("Look.", card_id="0"), *use("1", "ok"), *rounds(1)]
    never = findings(*cards)["tool-never-called"]
    assert "the tool write was sent 2 times" in never.message
    account = account_of(answered_requests(request(*cards), openai))
    [of_profile] = [each for each in check(CostSubject(account, profile="clerk")) if each.code == never.code]
    assert of_profile.mend is not None
    assert of_profile.mend.line("--project", "p") == "cbx profile show clerk -o yaml --project p"


def test_a_large_card_is_found() -> None:
    large = findings(user(LONG * 10, card_id="a"), *rounds(2))["large-card"]
    assert [each.card_id for each in large.evidence] == ["a"]
    assert large.mend is not None
    assert large.mend.line() == "cbx box compress box --keep 4 --summary @summary.md"
    assert "large-card" not in findings(user(LONG, card_id="a"), *rounds(2))


def test_the_fix_for_a_large_result_rewrites_it_to_a_note() -> None:
    cards = [
        user("Look.", card_id="0"),
        *use("1", LONG * 10),
        *use("2", "ok"),
        thought(text="Done.", card_id="d"),
    ]
    made = request(*cards)
    [large] = check(CostSubject(account_of(answered_requests(made, openai))))
    assert large.mend is not None
    fitted = fit(
        made,
        large.mend.tokens,
        large.mend.first,
        provider=openai,
        author_id="sys.operator",
    )
    assert [(change.kind, change.card_id) for change in fitted.changes] == [("rewritten", "result-1")]


def test_a_broken_cache_is_found() -> None:
    sent = series(request(profile("It is 10:00."), user("x")), request(profile("It is 10:05."), user("x")))
    [found] = [each for each in check(CostSubject(account_of(sent))) if each.code == "cache-broken"]
    assert found.steps == [2]
    assert found.tokens == sent_tokens(sent)


def sent_tokens(sent: list[Sent]) -> int:
    return account_of(sent[:1]).tokens


def test_fix_commands_quote_a_chat_key_that_starts_with_a_hyphen() -> None:
    compared = FixCommand(how="compare-chat", name="-x y", steps=("step_1", "step_2"))
    assert compared.line("--project", "p") == "cbx render --chat='-x y' --diff step_1 step_2 --project p"
    assert FixCommand(how="afresh", name="-x").line("--project", "p") == "cbx chat new --project p -- -x"


def test_a_chat_gets_a_fix_only_if_its_active_box_has_the_card() -> None:
    cards = [user(LONG * 10, card_id="a"), *rounds(2)]
    account = account_of(answered_requests(request(*cards), openai))
    for box_id, how in (("box", "afresh"), ("other", None), (None, None)):
        chat = ChatSubject(key="k", box_id=box_id, tools=frozenset())
        [large] = [each for each in check(CostSubject(account, chat=chat)) if each.code == "large-card"]
        assert (None if large.mend is None else large.mend.how) == how


def test_builtin_chat_tools_are_not_reported_as_uncalled() -> None:
    account = account_of(
        answered_requests(request(tools("new", "write"), user("Look.", card_id="0"), *rounds(2)), openai)
    )
    chat = ChatSubject(key="k", box_id=None, tools=frozenset({"new"}))
    found = [each for each in check(CostSubject(account, chat=chat)) if each.code == "tool-never-called"]
    assert [each.message.split(" was")[0] for each in found] == ["the tool write"]
