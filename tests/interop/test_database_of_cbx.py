"""In a database that cbx made, each program reads what the other one wrote."""

import json
from typing import Any

import psycopg
import pytest

from tests.interop.conftest import PROFILE, PROJECT, Cbx, LibraryError, Shared, library_on
from tests.interop.contents import CONTENTS, full, given, sparse

INCIDENT = "examples/checkout-incident.json"


def text_card(text: str, **fields: Any) -> dict[str, Any]:
    """A card as the library takes it."""
    metadata = {"type": "task.instruction", "role": "user", "author_id": "sys.pmo"}
    return {"content": {"__type__": "TextContent", "text": text}, "metadata": metadata, **fields}


class TestLibraryWrites:
    def test_cards_of_each_class_are_shown_by_cbx(self, made_by_cbx: Shared) -> None:
        cards = [{"content": make(name)} for name in CONTENTS for make in (full, sparse)]
        ids = made_by_cbx.ask("add_cards", cards=cards)
        read_back = made_by_cbx.ask("get_cards", card_ids=ids)
        box = made_by_cbx.ask("save_box", card_ids=ids)
        shown = made_by_cbx.cbx("box", "show", box, "-o", "json").json()
        assert [card["content"] for card in shown["cards"]] == [card["content"] for card in read_back]
        one_by_one = [made_by_cbx.cbx("card", "show", card_id, "-o", "json").json() for card_id in ids]
        assert one_by_one == shown["cards"]
        assert len(made_by_cbx.cbx("box", "show", box, "--full").text().splitlines()) > len(ids)
        assert len(made_by_cbx.cbx("card", "list", "-o", "id").text().split()) == len(ids)
        messages = made_by_cbx.cbx("render", "--box", box, "--model", "m").json()["messages"]
        assert CONTENTS["TextContent"]["text"] in [message["content"] for message in messages]
        print(f"{len(ids)} cards of {len(CONTENTS)} classes, with all fields and without")

    def test_a_turn_is_packed_and_rendered_by_cbx(self, made_by_cbx: Shared) -> None:
        call = {"id": "call_0", "type": "function", "function": {"name": "refund", "arguments": '{"n":1}'}}
        result = {"__type__": "ToolResultContent", "status": "success", "after_execution": "suspend",
                  "result": {"refunded": 118}}  # fmt: skip
        ids = made_by_cbx.ask(
            "add_cards",
            cards=[
                text_card("Refund order 118"),
                text_card("", tool_calls=[call], metadata={"type": "agent.thought", "role": "assistant"}),
                {"content": result, "tool_call_id": "call_0",
                 "metadata": {"type": "tool.result", "role": "tool", "function_name": "refund"}},
            ],
        )  # fmt: skip
        box = made_by_cbx.ask("save_box", card_ids=ids[:1])
        made_by_cbx.ask("append", box_id=box, card_ids=ids[1:])
        context = packed(made_by_cbx.cbx, box)
        messages = made_by_cbx.cbx("render", "--box", context, "--model", "m").json()["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user", "system"]
        assert messages[0]["content"] == "Refund order 118"
        assert messages[1]["tool_calls"] == [call]
        assert (messages[2]["tool_call_id"], messages[2]["content"]) == ("call_0", '{"refunded":118}')
        assert made_by_cbx.card_ids(context)[:3] == ids
        made_by_cbx.cbx("box", "verify", box).text()
        print("\n".join(f"{message['role']}: {message['content']!r}" for message in messages))

    def test_changes_to_cards_and_boxes_are_seen_by_cbx(self, made_by_cbx: Shared) -> None:
        [card] = made_by_cbx.ask("add_cards", cards=[text_card("before")])
        made_by_cbx.ask("add_cards", cards=[text_card("after", card_id=card)])
        box = made_by_cbx.ask("save_box", card_ids=[card, card, "lost"], parent_ids=None)
        derived = made_by_cbx.ask("save_box", card_ids=[card], parent_ids=[box])
        made_by_cbx.ask("save_box", card_ids=["lost", card], box_id=box)
        assert made_by_cbx.card_ids(box) == ["lost", card]
        shown = made_by_cbx.cbx("box", "show", derived, "-o", "json").json()
        assert (shown["parent_ids"], shown["cards"][0]["content"]["text"]) == ([box], "after")
        [finding] = json.loads(made_by_cbx.cbx("box", "verify", box, "-o", "json").out)["findings"]
        assert (finding["position"], finding["kind"]) == (0, "dangling")
        print(f"upsert, box rewritten, parent kept; {finding['message']}")


def packed(cbx: Cbx, box: str) -> str:
    """The context box that a shipped recipe makes of `box`."""
    cbx("profile", "import", "-", stdin=PROFILE).text()
    asked = ("-a", "profile_name=clerk", "-a", "instruction=Go on", "-a", f"input_box_ids={box}")
    return cbx("pack", "--handover", "delegate", *asked, "-o", "id").text()


class TestCbxWrites:
    def test_cards_of_each_class_are_read_by_the_library(self, made_by_cbx: Shared) -> None:
        contents = [make(name) for name in CONTENTS for make in (full, sparse)]
        metadata = {"type": "note", "role": "user", "author_id": "me", "extra": {"deep": [1]}}
        drafts = [{"content": content, "metadata": metadata} for content in contents]
        lines = "\n".join(map(json.dumps, drafts))
        ids = made_by_cbx.cbx("card", "add", "--card", "-", "-o", "id", stdin=lines).text().split()
        found = made_by_cbx.ask("get_cards", card_ids=ids)
        assert [given(card["content"]) for card in found] == [given(content) for content in contents]
        assert all(card["metadata"].items() >= metadata.items() for card in found)
        assert set(made_by_cbx.ask("list_cards", metadata={"type": "note"})) == set(ids)
        print(f"{len(ids)} cards of {len(CONTENTS)} classes, with all fields and without")

    def test_an_imported_conversation_is_read_by_the_library(self, made_by_cbx: Shared) -> None:
        box = made_by_cbx.cbx("card", "import", INCIDENT, "--from", "openai", "-o", "id").text()
        shown = made_by_cbx.cbx("box", "show", box, "-o", "json").json()["cards"]
        assert_the_library_agrees(made_by_cbx, box, shown)
        results = [card for card in shown if card["type"] == "tool.result"]
        for card in results:
            found = made_by_cbx.ask("results_of_call", tool_call_id=card["tool_call_id"])
            assert card["card_id"] in found
        print(f"{len(shown)} cards in order, {len(results)} found by the call that they answer")

    def test_a_packed_box_is_read_by_the_library(self, made_by_cbx: Shared) -> None:
        box = made_by_cbx.cbx("card", "import", INCIDENT, "-o", "id").text()
        context = packed(made_by_cbx.cbx, box)
        shown = made_by_cbx.cbx("box", "show", context, "-o", "json").json()
        assert_the_library_agrees(made_by_cbx, context, shown["cards"])
        assert made_by_cbx.ask("load_box", box_id=context)["parent_ids"] == shown["parent_ids"] == [box]
        made_by_cbx.ask(
            "append", box_id=context, card_ids=made_by_cbx.ask("add_cards", cards=[text_card("x")])
        )
        why = made_by_cbx.cbx("box", "show", context, "--why", "-o", "json").json()
        assert (why["recipe"]["name"], len(why["card_ids"])) == ("delegate", len(shown["cards"]) + 1)
        print(f"{len(shown['cards'])} cards and the parent box; the library appended one more")


def assert_the_library_agrees(shared: Shared, box: str, shown: list[dict[str, Any]]) -> None:
    """Text, fields and order of a box's cards are the same for both."""
    found = shared.ask("get_cards", card_ids=shared.card_ids(box))
    for theirs, ours in zip(found, shown, strict=True):
        assert given(theirs["content"]) == given(ours["content"])
        for field in ("card_id", "tool_calls", "tool_call_id", "ttl_seconds", "metadata"):
            assert theirs[field] == ours[field], field


class TestDifferences:
    def test_only_cbx_hides_an_expired_card(self, made_by_cbx: Shared) -> None:
        [card] = made_by_cbx.ask("add_cards", cards=[text_card("mortal", ttl_seconds=0)])
        assert made_by_cbx.cbx("card", "show", card).code == 3
        assert made_by_cbx.ask("get_cards", card_ids=[card])[0]["content"]["text"] == "mortal"

    def test_both_hide_a_deleted_card_until_the_library_rewrites_it(self, made_by_cbx: Shared) -> None:
        [card] = made_by_cbx.ask("add_cards", cards=[text_card("once")])
        made_by_cbx.cbx("card", "delete", card, "--yes").text()
        assert made_by_cbx.ask("get_cards", card_ids=[card]) == [None]
        refused = made_by_cbx.cbx("card", "add", "--type", "task.instruction", "--text", "x", "--id", card)
        assert refused.code == 5
        made_by_cbx.ask("add_cards", cards=[text_card("twice", card_id=card)])
        assert "twice" in made_by_cbx.cbx("card", "show", card).text()

    def test_only_the_library_overwrites_a_card_of_another_project(self, made_by_cbx: Shared) -> None:
        [card] = made_by_cbx.ask("add_cards", cards=[text_card("mine")])
        add = ("card", "add", "--type", "x", "--text", "theirs", "--id", card, "--repair")
        assert made_by_cbx.cbx("-p", "other", *add).code == 5
        made_by_cbx.peer.ask("add_cards", project="other", cards=[text_card("theirs", card_id=card)])
        assert "theirs" in made_by_cbx.cbx("card", "show", card).text()

    def test_only_cbx_shows_a_card_of_an_unknown_class(self, made_by_cbx: Shared) -> None:
        with psycopg.connect(made_by_cbx.url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO cards (tenant_id, card_id, content, metadata)"
                """ VALUES ('shop', 'odd', '{"__type__": "Sound", "hz": 440}', '{"type": "x"}')"""
            )
        assert made_by_cbx.cbx("card", "show", "odd", "-o", "json").json()["content"]["hz"] == 440
        with pytest.raises(LibraryError, match="TypeError: Unknown content type 'Sound'"):
            made_by_cbx.ask("list_cards", metadata={"type": "x"})

    def test_saving_a_whole_box_overwrites_concurrent_appends(self, made_by_cbx: Shared) -> None:
        [one, two, three] = made_by_cbx.ask("add_cards", cards=[text_card(text) for text in "abc"])
        box = made_by_cbx.ask("save_box", card_ids=[one])
        read = made_by_cbx.ask("load_box", box_id=box)["card_ids"]
        made_by_cbx.cbx("box", "append", box, two).text()
        made_by_cbx.ask("save_box", card_ids=[*read, three], box_id=box)
        assert made_by_cbx.card_ids(box) == [one, three]

    def test_the_unique_index_of_the_library_applies_to_cbx(self, made_by_cbx: Shared) -> None:
        assert made_by_cbx.cbx("db", "status", "-o", "json").json()["one_result_per_tool_call"] is True
        answer = ("card", "add", "--type", "tool.result", "--text", "x", "--tool-call-id", "call_0")
        made_by_cbx.cbx(*answer).text()
        assert made_by_cbx.cbx(*answer).code == 5


def test_the_library_opens_duplicate_results_only_without_bootstrap(url: str, cbx: Cbx) -> None:
    cbx("db", "init", "--yes").text()
    for _ in range(2):
        cbx("card", "add", "--type", "tool.result", "--text", "x", "--tool-call-id", "call_0").text()
    with library_on(url) as library:
        with pytest.raises(LibraryError, match="UniqueViolation") as caught:
            library.ask("open")
        library.ask("open", auto_bootstrap=False)
        [card] = library.ask("add_cards", project=PROJECT, cards=[text_card("on")])
    assert "on" in cbx("card", "show", card).text()
    print(str(caught.value).splitlines()[0])
