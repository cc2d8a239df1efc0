"""On a database that a card-box library made: reading and writing as it is, and adding what is ours beside it."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.migrations.files import newest
from tests.cli.conftest import lines, succeed
from tests.conftest import TABLES, Cbx, Result
from tests.databases import Databases
from tests.foreign.tables import (
    CARD_TABLES,
    ITS_CARDS,
    LIBRARY,
    Connection,
    definitions,
    of_the_library,
    without_file_numbers,
)

Feed = Callable[[str | bytes], None]

BOX = "018f2b64-0000-7000-8000-00000000cafe"
OURS = [name for name in TABLES if name not in CARD_TABLES]


@pytest.fixture
def target(databases: Databases) -> Iterator[Target]:
    """A fresh database as a card-box library leaves it."""
    name = databases.make(databases.prepared(LIBRARY + ITS_CARDS))
    yield databases.target(name)
    databases.drop(name)


@pytest.fixture
def connection(target: Target) -> Iterator[Connection]:
    with psycopg.connect(target.conninfo or "", autocommit=True) as opened:
        yield opened


class TestReadingItAsItIs:
    def test_foreign_cards_are_listed_shown_and_found(self, cbx: Cbx) -> None:
        listed = {card["card_id"]: card for card in cbx("card", "list", "-o", "json").json()}
        assert sorted(listed) == ["018f-bare", "018f-call", "018f-done", "018f-task"]
        done = listed["018f-done"]
        assert done["content"]["__type__"] == "ToolResultContent"
        assert (done["type"], done["role"], done["tool_call_id"]) == ("tool.result", "tool", "call_0")
        bare = listed["018f-bare"]
        assert (bare["type"], bare["role"], bare["content"], bare["metadata"]) == ("unknown", None, None, {})
        assert cbx("card", "show", "8f-task", "-o", "json").json()["author_id"] == "sys.pmo"
        shown = cbx("card", "show", "18f-t", "-o", "id")
        assert (shown.out, shown.err) == (
            "018f-task\n",
            "searching all ids; type all 8 shown characters for a faster search\n",
        )
        assert lines(cbx("card", "search", "refund", "-o", "id")) == ["018f-task", "018f-call"]
        assert len(lines(cbx("card", "list"))) == 1 + 4

    def test_foreign_boxes_are_listed_shown_and_verified(self, cbx: Cbx) -> None:
        [listed] = cbx("box", "list", "-o", "json").json()
        assert (listed["box_id"], listed["title"], listed["parent_ids"]) == (BOX, None, [])
        shown = cbx("box", "show", "cafe", "--why", "-o", "json").json()
        assert len(shown["cards"]) == 4
        assert (shown["missing_card_ids"], shown["recipe"]) == (["018f-lost"], None)
        [finding] = cbx("box", "verify", BOX, "-o", "json").json()["findings"]
        assert (finding["position"], finding["kind"]) == (4, "dangling")

    def test_missing_facts_are_shown_as_unknown(self, cbx: Cbx) -> None:
        assert "title    unknown" in lines(cbx("box", "show", BOX))
        assert lines(cbx("box", "list"))[1].endswith("  unknown")
        rows = lines(cbx("box", "show", BOX, "--why"))[-5:]
        assert [" unknown " in row for row in rows] == [True] * 5

    def test_foreign_boxes_are_rendered(self, cbx: Cbx) -> None:
        request = cbx("render", "--box", BOX, "--model", "m")
        assert [message["role"] for message in request.json()["messages"]] == [
            "user",
            "assistant",
            "tool",
            "user",
        ]
        assert request.json()["messages"][2]["content"] == '{"refunded":1.10}'
        assert request.err == f"warning: dangling card 018f-lost at position 4 of box {BOX}\n"

    def test_the_status_lists_the_tables(self, cbx: Cbx) -> None:
        status = cbx("db", "status", "-o", "json").json()
        assert status["schema_version"] is None
        assert status["tables"] == ["public.card_boxes", "public.cards"]
        assert status["one_result_per_tool_call"] is True


class TestWritingIntoItAsItIs:
    def test_cards_and_boxes_are_written_without_changing_the_schema(
        self, cbx: Cbx, connection: Connection
    ) -> None:
        before = definitions(connection)
        [card] = lines(cbx("card", "add", "--type", "task.instruction", "--text", "Go", "-o", "id"))
        assert cbx("card", "add", "--type", "task.instruction", "--text", "Go", "--id", card).err == (
            f"unchanged: {card}\n"
        )
        [box] = lines(cbx("box", "create", card, "--title", "lost here", "-o", "id"))
        assert cbx("box", "show", box, "-o", "json").json()["title"] is None
        assert cbx("box", "append", box, "018f-task", "-o", "json").json()["card_ids"] == [card, "018f-task"]
        [forked] = lines(cbx("box", "fork", box, "-o", "id"))
        assert cbx("box", "show", forked, "-o", "json").json()["parent_ids"] == [box]
        succeed(cbx("box", "delete", forked, "--yes"))
        succeed(cbx("card", "delete", card, "--yes"))
        assert definitions(connection) == before

    def test_conversations_are_imported_and_exported(self, cbx: Cbx, feed: Feed) -> None:
        [box] = imported(cbx, feed, conversation("a", "call_1"))
        assert cbx("card", "export", "--box", box).json() == {
            "messages": conversation("a", "call_1")["messages"]
        }

    def test_card_ids_are_unique_across_projects(self, cbx: Cbx) -> None:
        result = cbx("card", "add", "--type", "x", "--text", "x", "--id", "018f-theirs", "--repair")
        assert (result.code, result.err.splitlines()[0]) == (5, "error: the card id '018f-theirs' is taken")
        assert "119" in succeed(cbx("-p", "other", "card", "show", "018f-theirs"))

    @pytest.mark.parametrize(
        "command",
        [
            ("pack", "-H", "delegate", "-a", "profile_name=x", "-a", "instruction=y"),
            ("pack", "-H", "delegate", "-a", "profile_name=x", "-a", "instruction=y", "--dry-run"),
            ("profile", "list"),
            ("profile", "show", "x"),
        ],
        ids=" ".join,
    )
    def test_commands_that_need_profiles_exit_7_with_a_hint(self, command: tuple[str, ...], cbx: Cbx) -> None:
        result = cbx(*command)
        assert (result.code, result.out) == (7, "")
        assert result.err == (
            "error: the database has no table resource.profiles\nhint: add it with `cbx db init --yes`\n"
        )


def conversation(key: str, *call_ids: str) -> dict[str, Any]:
    """A conversation that makes a tool call of each of these ids, one after the other."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Go, {key}"}]
    for call_id in call_ids:
        call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": '{ "x":1 }'}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": f"done {call_id}"},
        ]
    return {"id": key, "messages": messages}


def importing(cbx: Cbx, feed: Feed, given: dict[str, Any], *options: str) -> Result:
    feed(json.dumps(given))
    return cbx("card", "import", "-", *options, "-o", "id")


def imported(cbx: Cbx, feed: Feed, given: dict[str, Any], *options: str) -> list[str]:
    """The boxes that an import made."""
    return lines(importing(cbx, feed, given, *options))


class TestEditingInItAsItIs:
    def test_boxes_are_compared_and_edited_without_titles(self, cbx: Cbx) -> None:
        edited = cbx("card", "edit", "8f-task", "--text", "Refund order 120", "--box", BOX, "-o", "id")
        made = lines(edited)[0]
        shown = cbx("box", "diff", BOX, made)
        assert shown.code == 8
        assert shown.out.splitlines()[:2] == ["--- 0000cafe  unknown", f"+++ {made[-8:]}  unknown"]
        assert shown.out.splitlines()[-1] == "    Refund order [-118-]{+120+}"
        refs = lines(cbx("card", "refs", "018f-call"))[1:]
        assert [row.split()[-1] for row in refs] == ["unknown", "unknown"]
        assert lines(cbx("card", "refs", "018f-lost", "-o", "id")) == [made, BOX]

    def test_a_card_without_content_cannot_be_edited(self, cbx: Cbx) -> None:
        result = cbx("card", "edit", "018f-bare", "--text", "something")
        assert (result.code, result.out) == (4, "")
        assert result.err.startswith("error: card '018f-bare' holds no content, which cbx cannot write\n")

    def test_a_second_tool_result_is_refused(self, cbx: Cbx) -> None:
        result = cbx("card", "edit", "018f-done", "--text", "{}")
        assert (result.code, result.out) == (5, "")
        assert result.err == (
            "error: card '018f-done' is the only result allowed for tool call 'call_0'\n"
            "hint: this database allows one result per call: overwrite the card with `cbx card add --card - --repair`\n"
        )


class TestOneResultPerToolCall:
    """Its unique index allows one tool result per tool-call id; real conversations repeat them."""

    def test_a_repeated_tool_call_id_is_refused_with_both_card_ids(
        self, cbx: Cbx, feed: Feed, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        [first] = imported(cbx, feed, conversation("a", "call_1"))
        theirs = cbx("box", "show", first, "-o", "json").json()["card_ids"][2]
        before = row_counts()
        result = importing(cbx, feed, conversation("b", "call_1"))
        assert (result.code, result.out) == (5, "")
        message, hint = result.err.splitlines()
        assert re.fullmatch(
            f"error: tool call 'call_1' already has a result: card {theirs!r}, not '[0-9a-f]{{32}}'", message
        )
        assert hint == "hint: this database allows one result per tool-call id; import with --remap-tool-ids"
        assert row_counts() == before

    def test_a_result_card_of_the_library_is_also_a_conflict(self, cbx: Cbx, feed: Feed) -> None:
        result = importing(cbx, feed, conversation("a", "call_0"))
        assert "tool call 'call_0' already has a result: card '018f-done', not '" in result.err

    def test_a_tool_call_id_repeated_in_one_conversation_is_refused(self, cbx: Cbx, feed: Feed) -> None:
        repeated = conversation("a", "call_1", "call_1")
        refused = importing(cbx, feed, repeated)
        assert refused.code == 5
        [box] = imported(cbx, feed, repeated, "--remap-tool-ids")
        card_ids = cbx("box", "show", box, "-o", "json").json()["card_ids"]
        assert len(card_ids) == 5

    def test_remapped_ids_import_once_and_export_exactly(self, cbx: Cbx, feed: Feed) -> None:
        imported(cbx, feed, conversation("a", "call_1"))
        for given in (conversation("b", "call_1"), conversation("c", "call_1", "call_1", "call_0")):
            [box] = imported(cbx, feed, given, "--remap-tool-ids")
            assert cbx("card", "export", "--box", box).json() == {"messages": given["messages"]}
            assert succeed(cbx("box", "verify", box)).endswith("nothing found\n")
            again = importing(cbx, feed, given, "--remap-tool-ids")
            assert lines(again) == [box]
            assert again.err.endswith(" 0 new\n")

    def test_tool_call_ids_can_repeat_across_projects(self, cbx: Cbx, feed: Feed) -> None:
        imported(cbx, feed, conversation("a", "call_1"))
        imported(cbx, feed, conversation("a", "call_1"), "-p", "other")


class TestInit:
    def test_init_without_yes_prints_the_statements_and_changes_nothing(
        self, cbx: Cbx, connection: Connection
    ) -> None:
        before = definitions(connection)
        table = cbx("db", "init")
        for name in OURS:
            assert f"CREATE TABLE IF NOT EXISTS {name} (" in succeed(table)
        assert "public.cards" not in table.out
        assert "public.card_boxes" not in table.out
        assert table.err == f"{len(OURS)} tables missing; create them with `cbx db init --yes`\n"
        answer = cbx("db", "init", "-o", "json").json()
        assert (answer["missing"], answer["added"], answer["sql"] + "\n") == (OURS, [], table.out)
        assert definitions(connection) == before

    def test_init_with_yes_adds_only_the_missing_tables(self, cbx: Cbx, connection: Connection) -> None:
        before = definitions(connection)
        assert succeed(cbx("db", "init", "--yes")) == f"added {', '.join(OURS)}\n"
        after = definitions(connection)
        assert of_the_library(after) == before
        assert {name for name, *_ in after["tables"]} == {name for name, *_ in before["tables"]} | {*OURS}
        assert succeed(cbx("db", "init", "--yes")) == "nothing is missing\n"
        assert definitions(connection) == after

    def test_init_executes_the_statements_that_it_prints(
        self, cbx: Cbx, connection: Connection, databases: Databases
    ) -> None:
        by_hand = databases.make("template1")
        with psycopg.connect(databases.target(by_hand).conninfo or "", autocommit=True) as other:
            other.execute(LIBRARY.encode())
            other.execute(succeed(cbx("db", "init")).encode())
            done_by_hand = without_file_numbers(definitions(other))
        databases.drop(by_hand)
        succeed(cbx("db", "init", "--yes"))
        assert without_file_numbers(definitions(connection)) == done_by_hand

    def test_profiles_and_packs_work_after_init(self, cbx: Cbx, feed: Feed) -> None:
        succeed(cbx("db", "init", "--yes"))
        feed("name: clerk\nsystem_prompt: You are a clerk.\n")
        succeed(cbx("profile", "import", "-"))
        asked = ("-a", "profile_name=clerk", "-a", "instruction=Go on", "-a", f"input_box_ids={BOX}")
        [packed] = lines(cbx("pack", "-H", "delegate", *asked, "--allow-dangling", "-o", "id"))
        shown = cbx("box", "show", packed, "--why", "-o", "json").json()
        assert (shown["title"], shown["recipe"]["name"]) == ("delegate for clerk", "delegate")
        assert shown["card_ids"][:5] == cbx("box", "show", BOX, "-o", "json").json()["card_ids"]
        assert cbx("box", "show", BOX, "-o", "json").json()["title"] is None
        assert "title" not in succeed(cbx("box", "show", BOX))
        status = cbx("db", "status", "-o", "json").json()
        assert (status["schema_version"], status["one_result_per_tool_call"]) == (newest(), True)

    def test_existing_profiles_are_used_unchanged(self, cbx: Cbx, connection: Connection, feed: Feed) -> None:
        connection.execute(
            "CREATE SCHEMA resource; CREATE TABLE resource.profiles (project_id text NOT NULL,"
            " profile_box_id text NOT NULL, name text NOT NULL, worker_target text NOT NULL,"
            " tags jsonb NOT NULL DEFAULT '[]', system_prompt_compiled text,"
            " updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (project_id, profile_box_id));"
            " CREATE UNIQUE INDEX idx_resource_profiles_project_name ON resource.profiles (project_id, name)"
        )
        feed("name: clerk\n")
        succeed(cbx("profile", "import", "-"))
        packed = cbx(
            "pack", "-H", "delegate", "-a", "profile_name=CLERK", "-a", "instruction=Go", "-o", "json"
        )
        assert packed.code == 0
        before = definitions(connection)
        assert cbx("db", "init", "--yes", "-o", "json").json()["added"] == [
            name for name in OURS if name != "resource.profiles"
        ]
        after = definitions(connection)
        for name, rows in before.items():
            assert [row for row in after[name] if row in rows] == rows, name
        assert [entry["name"] for entry in cbx("profile", "list", "-o", "json").json()] == ["clerk"]
