"""What commands print: the keys that are promised, each format, numbers without loss, and safe terminals."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from cardbox_cli.store.migrations.files import newest
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import TABLES, Cbx

CARD = [
    "card_id",
    "project_id",
    "type",
    "role",
    "author_id",
    "content",
    "tool_calls",
    "tool_call_id",
    "ttl_seconds",
    "metadata",
    "created_at",
    "expires_at",
    "deleted_at",
]
BOX = ["box_id", "project_id", "title", "card_ids", "parent_ids", "updated_at"]
BOX_VIEW = [
    "box_id",
    "project_id",
    "title",
    "card_ids",
    "cards",
    "parent_ids",
    "missing_card_ids",
    "digest",
    "ids_sha256",
    "updated_at",
]
PACKED = [
    *("context_box_id", "profile_box_id", "card_ids", "parent_ids", "digest", "left_out"),
    "missing_arguments",
]
PLANNED = ["card_id", "rule", "new", "type", "role", "tokens", "content"]
COUNTED = ["tokens", "tokens_exact", "tokenizer"]

UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "How much was order 118?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"order":118}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": '{"total": 1.10}'},
    {"role": "assistant", "content": "It was 1.10 EUR."},
]
PROFILE = "name: clerk\nworker_target: desk\ntags: [shop]\nsystem_prompt: You are a clerk.\nllm_config: {model: m-1}\n"
RECIPE = """\
description: Ask the clerk
target_profile_config: {profile_name: clerk}
context_packing_config:
  pack_arguments: [{arg_key: question}]
  inherit_context: {include_boxes_from_args: [history], exclude_card_types: [agent.thought]}
"""


@dataclass(frozen=True)
class Shop:
    """A project with an imported conversation, a profile and a packed context."""

    cbx: Cbx
    conversation: str
    profile: str
    context: str
    card: str

    def pack(self, *options: str) -> tuple[str, ...]:
        """The command that packs another context."""
        return (
            "pack",
            "-H",
            "ask.yaml",
            "-a",
            "question=Why?",
            "-a",
            f"history={self.conversation}",
            *options,
        )

    def json(self, *command: str) -> Any:
        return json.loads(succeed(self.cbx(*command, "-o", "json")))


@pytest.fixture
def shop(cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    Path("chat.json").write_text(json.dumps({"id": "chat-1", "title": "Order 118", "messages": MESSAGES}))
    Path("clerk.yaml").write_text(PROFILE)
    Path("ask.yaml").write_text(RECIPE)
    [conversation] = lines(cbx("card", "import", "chat.json", "-o", "id"))
    [profile] = lines(cbx("profile", "import", "clerk.yaml", "-o", "id"))
    command = ("pack", "-H", "ask.yaml", "-a", "question=Why?", "-a", f"history={conversation}")
    [context] = lines(cbx(*command, "-o", "id"))
    card = lines(cbx("box", "show", context, "-o", "json"))
    return Shop(cbx, conversation, profile, context, json.loads("\n".join(card))["card_ids"][0])


class TestPromisedKeys:
    """The keys of each answer, all of them and in this order. Scripts stand on them: add, never rename."""

    def test_card_commands_have_the_promised_keys(self, shop: Shop) -> None:
        assert list(shop.json("card", "show", shop.card)) == CARD
        assert [list(card) for card in shop.json("card", "list")] == [CARD] * 6
        assert [list(card) for card in shop.json("card", "search", "eur")] == [[*CARD, "match", "box_id"]]
        several = shop.json("card", "show", shop.card, "no-such-card")
        assert list(several) == ["cards", "missing_card_ids"]
        assert [list(card) for card in several["cards"]] == [CARD]
        added = ("card", "add", "--type", "x.y", "--text", "t")
        assert list(shop.json(*added)) == CARD
        assert list(shop.json(*added, "--dry-run")) == CARD
        assert list(shop.json("card", "delete", shop.card, "--yes")) == ["deleted_card_ids", "dry_run"]

    def test_box_commands_have_the_promised_keys(self, shop: Shop) -> None:
        assert list(shop.json("box", "show", shop.context)) == BOX_VIEW
        assert list(shop.json("box", "show", shop.context, "--why")) == [*BOX_VIEW, "recipe", "rules"]
        assert list(shop.json("box", "show", shop.context, "--model", "gpt-4o")) == [*BOX_VIEW, *COUNTED]
        several = shop.json("box", "show", shop.context, "no-such-box")
        assert list(several) == ["boxes", "missing_box_ids"]
        assert [list(view) for view in several["boxes"]] == [BOX_VIEW]
        assert [list(box) for box in shop.json("box", "list")] == [[*BOX, "kind"]] * 3

        made = shop.json("box", "create", shop.card)
        assert list(made) == BOX
        assert list(shop.json("box", "append", made["box_id"], shop.card)) == BOX
        assert list(shop.json("box", "replace", made["box_id"], shop.card)) == BOX
        assert list(shop.json("box", "fork", made["box_id"])) == BOX
        assert list(shop.json("box", "verify", made["box_id"])) == ["box_id", "digest", "findings"]
        assert list(shop.json("box", "delete", made["box_id"], "--yes")) == ["deleted_box_id", "dry_run"]

    def test_the_rules_of_a_packed_box_have_the_promised_keys(self, shop: Shop) -> None:
        shown = shop.json("box", "show", shop.context, "--why")
        assert list(shown["recipe"]) == ["name", "digest"]
        assert [list(rule) for rule in shown["rules"]] == [["position", "card_id", "rule"]] * 2

    def test_pack_has_the_promised_keys(self, shop: Shop) -> None:
        assert list(shop.json(*shop.pack())) == PACKED
        for option in ("--explain", "--dry-run"):
            packed = shop.json(*shop.pack(option))
            assert list(packed) == [*PACKED, "plan", *COUNTED]
            assert [list(card) for card in packed["plan"]] == [PLANNED] * 2
            assert [list(card) for card in packed["left_out"]] == [["card_id", "rule", "reason"]] * 3

    def test_render_has_the_promised_keys(self, shop: Shop) -> None:
        assert list(shop.json("render", "--box", shop.profile, "--box", shop.context)) == [
            "model",
            "messages",
        ]
        explained = shop.json("render", "--box", shop.profile, "--box", shop.context, "--explain")
        assert list(explained) == ["request", "explanation"]
        explanation = explained["explanation"]
        assert list(explanation) == [
            *("process", "layout", "messages", "tools", "left_out", "layers_left_out"),
            *(*COUNTED[:2], "tokens_estimated", "tokenizer"),
        ]
        line = [
            *("layer", "role", "card_id", "box_id", "position", "rule", "made_of"),
            *("characters", "tokens", "tokens_exact", "preview"),
        ]
        assert [list(message) for message in explanation["messages"]] == [line] * 3
        assert [list(card) for card in explanation["left_out"]] == [
            ["card_id", "box_id", "position", "reason"]
        ]

    def test_import_and_export_have_the_promised_keys(self, shop: Shop) -> None:
        imported = shop.json("card", "import", "chat.json")
        assert list(imported) == ["boxes", "failed"]
        box = ["index", "place", "box_id", "title", "cards", "new_cards"]
        assert [list(each) for each in imported["boxes"]] == [box]
        assert shop.json("card", "export", "--box", shop.conversation) == {"messages": MESSAGES}

    def test_profile_commands_have_the_promised_keys(self, shop: Shop) -> None:
        assert list(shop.json("profile", "import", "clerk.yaml")) == ["profile_box_id", "name", "action"]
        several = shop.json("profile", "import", "clerk.yaml", "clerk.yaml")
        assert [list(profile) for profile in several] == [["profile_box_id", "name", "action"]] * 2
        [entry] = shop.json("profile", "list")
        assert list(entry) == ["name", "profile_box_id", "worker_target", "tags", "updated_at"]
        assert shop.json("profile", "show", "clerk") == yaml.safe_load(PROFILE)

    def test_handover_commands_have_the_promised_keys(self, shop: Shop) -> None:
        for recipe in shop.json("handover", "list"):
            assert list(recipe) == ["name", "description", "source", "shipped", "problem"]
        shown = shop.json("handover", "show", "ask.yaml")
        assert list(shown) == ["name", "source", "digest", "arguments", "recipe"]
        assert shop.json("handover", "validate", "ask.yaml") == {
            "valid": ["ask.yaml"],
            "problems": [],
            "warnings": [],
        }

    def test_database_commands_have_the_promised_keys(self, shop: Shop) -> None:
        status = shop.json("db", "status")
        assert list(status) == [
            "database",
            "running",
            "postgres",
            "named_by",
            "address",
            "schema_version",
            "schema_version_of_this_cbx",
            "tables",
            "unreadable_tables",
            "one_result_per_tool_call",
            "engine",
            "distributed",
            "role",
            "pooler",
            "keeps_plans",
            "text_index",
            "bigram_index",
            "size_bytes",
            "table_sizes",
            "project",
        ]
        assert [list(table) for table in status["table_sizes"]] == [
            ["table", "rows", "exact", "bytes", "index_bytes"]
        ] * len(TABLES)
        assert list(status["project"]) == [
            "project_id",
            "cards",
            "cards_exact",
            "expired",
            "deleted",
            "boxes",
            "boxes_exact",
        ]
        assert shop.json("db", "init") == {"missing": [], "added": [], "sql": ""}
        assert shop.json("db", "upgrade") == {
            "before": newest(),
            "after": newest(),
            "dry_run": False,
            "sql": "",
        }
        assert shop.json("db", "index-text") == {
            "index": "idx_cards_text",
            "bigram_index": "idx_cards_bigrams",
        }
        collected = shop.json("db", "gc", "--yes")
        assert list(collected) == ["dry_run", "purged", "dangling"]
        assert list(collected["purged"]) == ["expired", "deleted", "box_info", "logs"]
        assert list(shop.json("db", "url")) == ["url"]


class TestValues:
    def test_every_time_is_rfc_3339_in_utc(self, shop: Shop) -> None:
        succeed(shop.cbx("card", "add", "--type", "x", "--text", "t", "--ttl", "60", "--id", "mortal"))
        succeed(shop.cbx("card", "delete", "mortal", "--yes"))
        commands = (("card", "show", "mortal", "--deleted"), ("box", "list"), ("box", "show", shop.context))
        found = [
            (key, value)
            for command in (*commands, ("profile", "list"))
            for key, value in pairs(shop.json(*command))
            if key.endswith("_at")
        ]
        assert {key for key, _ in found} == {"created_at", "updated_at", "expires_at", "deleted_at"}
        assert [pair for pair in found if pair[1] is not None and not UTC_TIME.fullmatch(pair[1])] == []
        mortal = shop.json("card", "show", "mortal", "--deleted")
        assert None not in (mortal["created_at"], mortal["expires_at"], mortal["deleted_at"])

    def test_content_has_the_name_of_its_class(self, shop: Shop) -> None:
        assert shop.json("card", "show", shop.card)["content"] == {"__type__": "TextContent", "text": "Why?"}
        fields = '[{"name": "total", "description": "in EUR"}]'
        typed = shop.json("card", "add", "--type", "task.result_fields", "--json", fields)
        assert typed["content"] == {"__type__": "FieldsSchemaContent", "fields": json.loads(fields)}
        plain = shop.json("card", "add", "--type", "x", "--json", "[1]")
        assert plain["content"] == {"__type__": "JsonContent", "data": [1]}

    def test_numbers_are_printed_exactly(self, cbx: Cbx) -> None:
        numbers = '{"price": 1.10, "huge": 1e400, "long": 123456789012345678901234567890, "tiny": 1.0e-7}'
        exact = {
            "price": "1.10",
            "huge": str(10**400),
            "long": "123456789012345678901234567890",
            "tiny": "1.0E-7",
        }
        digits = {name: Decimal(number).as_tuple() for name, number in exact.items()}
        succeed(
            cbx("card", "add", "--type", "x", "--json", numbers, "--metadata", numbers, "--id", "numbers")
        )
        [box] = lines(cbx("box", "create", "numbers", "-o", "id"))
        for command in (
            ("card", "show", "numbers", "-o", "json"),
            ("card", "list", "-o", "jsonl"),
            ("box", "show", box, "-o", "jsonl"),
            ("box", "show", box, "-o", "json"),
        ):
            card = json.loads(succeed(cbx(*command)), parse_float=Decimal, parse_int=Decimal)
            card = card["cards"][0] if "cards" in card else card
            for values in (card["metadata"], card["content"]["data"]):
                assert {name: values[name].as_tuple() for name in exact} == digits, command
        in_yaml = succeed(cbx("card", "show", "numbers", "-o", "yaml"))
        assert [line.strip() for name in exact for line in in_yaml.splitlines() if f" {name}:" in line] == [
            f"{name}: {number}" for name, number in exact.items() for _ in ("content", "metadata")
        ]
        assert "1.10" in succeed(cbx("card", "show", "numbers"))

    def test_numbers_of_a_conversation_are_exported_exactly(
        self, cbx: Cbx, feed: Callable[[str], None]
    ) -> None:
        feed('[{"role": "user", "content": "hi", "weight": 1.10, "seed": 123456789012345678901234567890}]')
        [box] = lines(cbx("card", "import", "-", "-o", "id"))
        [message] = json.loads(succeed(cbx("card", "export", "--box", box)), parse_float=Decimal)["messages"]
        assert (str(message["weight"]), message["seed"]) == ("1.10", 123456789012345678901234567890)


def pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value in a JSON value, however deep."""
    for key, item in value.items() if isinstance(value, dict) else ():
        yield key, item
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from pairs(item)


LISTS = {
    ("card", "list"): ["ID", "TYPE", "ROLE", "AGE", "SIZE", "PREVIEW"],
    ("card", "search", "eur"): ["ID", "TYPE", "ROLE", "AGE", "SIZE", "BOX", "MATCH"],
    ("box", "list"): ["ID", "CARDS", "AGE", "PARENTS", "TITLE"],
    ("profile", "list"): ["NAME", "BOX", "WORKER TARGET", "TAGS", "AGE"],
    ("handover", "list"): ["NAME", "FROM", "DESCRIPTION"],
}


class TestLists:
    def test_each_format_has_the_same_data(self, shop: Shop) -> None:
        names = {"card": "card_id", "box": "box_id", "profile": "profile_box_id", "handover": "name"}
        for command in LISTS:
            items = shop.json(*command)
            assert isinstance(items, list), command
            assert [json.loads(line) for line in lines(shop.cbx(*command, "-o", "jsonl"))] == items
            assert yaml.safe_load(succeed(shop.cbx(*command, "-o", "yaml"))) == items
            listed = [item for item in items if item.get("kind") != "profile"]
            assert lines(shop.cbx(*command, "-o", "id")) == [item[names[command[0]]] for item in listed]
            assert len(lines(shop.cbx(*command))) == 1 + len(listed)

    @pytest.mark.parametrize("command", [*list(LISTS)[:4]], ids=" ".join)
    def test_no_items_are_printed_as_an_empty_list(self, command: tuple[str, ...], cbx: Cbx) -> None:
        assert cbx(*command, "-o", "json").out == "[]\n"
        assert cbx(*command, "-o", "yaml").out == "[]\n"
        assert cbx(*command, "-o", "jsonl").out == ""
        assert cbx(*command, "-o", "id").out == ""
        table = cbx(*command)
        assert (table.code, table.out) == (0, "")
        assert re.fullmatch(r"no .* in project 'p'\n|no .*: unknown project 'p'; .*\n", table.err)


class TestOneThing:
    def test_each_format_has_the_same_data(self, shop: Shop) -> None:
        commands = {
            ("card", "show", shop.card): shop.card,
            ("box", "show", shop.context, "--why"): shop.context,
            ("box", "verify", shop.context): shop.context,
            ("profile", "show", "clerk"): shop.profile,
            ("handover", "show", "ask.yaml"): "ask",
            ("card", "import", "chat.json"): shop.conversation,
        }
        for command, the_id in commands.items():
            answer = shop.json(*command)
            assert yaml.safe_load(succeed(shop.cbx(*command, "-o", "yaml"))) == answer, command
            assert lines(shop.cbx(*command, "-o", "id")) == [the_id], command
            if command[:2] != ("box", "show"):
                assert json.loads(succeed(shop.cbx(*command, "-o", "jsonl"))) == answer, command

    def test_a_box_in_json_lines_has_one_line_for_each_card(self, shop: Shop) -> None:
        cards = shop.json("box", "show", shop.conversation)["cards"]
        assert len(cards) == 4
        shown = lines(shop.cbx("box", "show", shop.conversation, "-o", "jsonl"))
        assert [json.loads(line) for line in shown] == cards

    def test_id_output_is_the_id_that_the_next_command_needs(self, shop: Shop) -> None:
        [added] = lines(shop.cbx("card", "add", "--type", "x", "--text", "t", "-o", "id"))
        assert shop.json("card", "show", added)["card_id"] == added
        [made] = lines(shop.cbx("box", "create", added, "-o", "id"))
        assert lines(shop.cbx("box", "append", made, added, "-o", "id")) == [made]
        assert lines(shop.cbx("box", "replace", made, added, "-o", "id")) == [made]
        [forked] = lines(shop.cbx("box", "fork", made, "-o", "id"))
        assert shop.json("box", "show", forked)["parent_ids"] == [made]
        [packed] = lines(shop.cbx(*shop.pack("-o", "id")))
        assert shop.json("box", "show", packed)["parent_ids"] == [shop.conversation]
        assert lines(shop.cbx(*shop.pack("--dry-run", "-o", "id"))) == []

    def test_a_request_is_json_in_the_default_format(self, shop: Shop) -> None:
        command = ("render", "--box", shop.profile, "--box", shop.context)
        request = shop.json(*command)
        assert json.loads(succeed(shop.cbx(*command))) == request
        assert json.loads(succeed(shop.cbx(*command, "-o", "jsonl"))) == request
        assert yaml.safe_load(succeed(shop.cbx(*command, "-o", "yaml"))) == request


class TestTables:
    """Tables in a pipe: data for people, and safe to cut and to grep."""

    def test_each_table_has_the_documented_headers(self, shop: Shop) -> None:
        place = ["#", "ID", "TYPE", "ROLE"]
        tables = {
            **LISTS,
            ("box", "show", shop.context): [*place, "AGE", "SIZE", "TOKENS", "PREVIEW"],
            ("box", "show", shop.context, "--why"): [*place, "AGE", "SIZE", "TOKENS", "RULE", "PREVIEW"],
            ("card", "import", "chat.json"): ["#", "BOX", "CARDS", "NEW", "TITLE"],
            ("profile", "import", "clerk.yaml"): ["NAME", "BOX", "DONE"],
            shop.pack("--dry-run"): [*place, "TOKENS", "RULE", "PREVIEW"],
            ("render", "--box", shop.context, "--explain"): [
                *("#", "ROLE", "LAYER", "CARD", "BOX", "AT"),
                *("CHARS", "TOKENS", "RULE", "PREVIEW"),
            ],
        }
        for command, columns in tables.items():
            headers = [re.split(r"  +", line.strip()) for line in lines(shop.cbx(*command))]
            assert columns in headers, command

    def test_piped_tables_have_no_colours_trailing_spaces_or_cut_text(self, shop: Shop) -> None:
        long = "word " * 60
        succeed(shop.cbx("box", "create", "--title", long + "end"))
        commands = [
            *LISTS,
            ("box", "show", shop.context, "--why"),
            shop.pack("--dry-run"),
            ("card", "show", shop.card),
        ]
        for command in commands:
            text = succeed(shop.cbx(*command))
            assert "\x1b" not in text, command
            assert [line for line in text.split("\n") if line != line.rstrip()] == [], command
            assert text.endswith("\n")
        assert long + "end" in succeed(shop.cbx("box", "list"))

    def test_each_row_is_one_line(self, shop: Shop, tmp_path: Path) -> None:
        succeed(shop.cbx("card", "add", "--card", card_file(tmp_path, "three\nfour", "x\ny", "one\ntwo")))
        succeed(shop.cbx("box", "create", "three\nfour", "--title", "five\nsix\tseven"))
        assert len(lines(shop.cbx("card", "list"))) == 1 + len(shop.json("card", "list"))
        assert any(line.endswith("  five six seven") for line in lines(shop.cbx("box", "list")))
        assert any(line.startswith("ree\\nfour  x\\ny ") for line in lines(shop.cbx("card", "list")))

    @pytest.mark.parametrize("command", [("card", "list"), ("card", "show", "three\nfour")], ids=" ".join)
    def test_an_id_with_a_line_break_requires_nul_separators(
        self, command: tuple[str, ...], shop: Shop, tmp_path: Path
    ) -> None:
        succeed(shop.cbx("card", "add", "--card", card_file(tmp_path, "three\nfour", "x", "text")))
        refused = shop.cbx(*command, "-o", "id")
        assert (refused.code, refused.out) == (4, "")
        assert "the id 'three\\nfour' contains a line break" in refused.err
        assert succeed(shop.cbx(*command, "-o", "id", "-0")).startswith("three\nfour\0")
        assert shop.cbx(*command, "-0").code == 2

    def test_line_breaks_in_a_title_cannot_forge_a_field(self, shop: Shop) -> None:
        [box] = lines(shop.cbx("box", "create", "--title", "harmless\ndigest   0000", "-o", "id"))
        shown = lines(shop.cbx("box", "show", box))
        assert "title    harmless" in shown
        assert "         digest   0000" in shown
        assert len([line for line in shown if line.startswith("digest")]) == 1


def card_file(folder: Path, card_id: str, card_type: str, text: str) -> str:
    """A file with a card of any id, as another program may have made it; its path."""
    path = folder / "card.json"
    content = {"__type__": "TextContent", "text": text}
    path.write_text(json.dumps({"card_id": card_id, "type": card_type, "content": content}))
    return str(path)


class TestColour:
    def test_a_terminal_gets_colours(self, shop: Shop, shell: Shell) -> None:
        assert "\x1b[1m" in succeed(shell.on_terminal("card", "list"))
        assert "\x1b[1m" in succeed(shell.on_terminal("card", "list", NO_COLOR=""))

    @pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
    def test_a_terminal_gets_no_colours_on_request(
        self, variables: dict[str, str], shop: Shop, shell: Shell
    ) -> None:
        shown = succeed(shell.on_terminal("card", "list", **variables))
        assert "\x1b" not in shown
        assert shown.startswith("ID  ")

    def test_a_pipe_gets_no_colours_in_any_environment(self, shop: Shop, shell: Shell) -> None:
        forced = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "20"}
        shown = succeed(shell.run("card", "list", **forced))
        assert "\x1b" not in shown
        assert "It was 1.10 EUR." in shown


class TestTheWidthOfATerminal:
    @pytest.mark.parametrize("columns", [30, 80, 200])
    def test_ids_and_types_are_never_cut(self, columns: int, shop: Shop, shell: Shell) -> None:
        text = "many words " * 20
        succeed(shop.cbx("card", "add", "--type", "meta.parent_pointer", "--text", text, "--id", "abcd1234"))
        [box] = lines(shop.cbx("box", "create", "abcd1234", "-o", "id"))
        shown = succeed(shell.on_terminal("box", "show", box, columns=columns, NO_COLOR="1"))
        [row] = [line for line in shown.splitlines() if line.startswith("0 ")]
        known = ["0", "abcd1234", "meta.parent_pointer", *(["system"] if columns >= 80 else [])]
        assert row.split()[: len(known)] == known
        assert row.endswith("…")
        if columns >= 80:
            assert len(row) <= columns


HOSTILE = "A\xadI\u034fJ\u115fK\u180eL\u206fM\u3164N\ufe0fO\U000e0041P\x1b[2JB\x1b]0;owned\x07C\x9bD\u202eE\rF\u200bG\x7fH"
ACTS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\xad\u034f\u115f\u180e\u206f\u3164\ufe0f\U000e0041]"
)


class TestHostileText:
    """Text that would clear the screen, set the title, turn the line around: it is spelled out, never sent."""

    def test_hostile_text_is_escaped_on_a_terminal(self, shop: Shop, shell: Shell) -> None:
        card_id = "id-" + HOSTILE
        add = ("card", "add", "--card", card_file(shell.folder, card_id, "type " + HOSTILE, HOSTILE))
        succeed(shop.cbx(*add))
        title = ("--title", HOSTILE, "-o", "id")
        [box] = lines(shop.cbx("box", "create", card_id, "gone-" + HOSTILE, "--allow-dangling", *title))
        profile = json.dumps({"name": "evil", "system_prompt": HOSTILE, "tags": [HOSTILE], "x": HOSTILE})
        (shell.folder / "evil.yaml").write_text(profile)
        succeed(shop.cbx("profile", "import", str(shell.folder / "evil.yaml")))
        chat = {"title": HOSTILE, "messages": [{"role": "user", "content": HOSTILE}]}
        (shell.folder / "chat.json").write_text(json.dumps(chat))
        recipe = {
            "description": HOSTILE,
            "arguments": {"question": {"description": HOSTILE}, "history": {}},
            "context_packing_config": {
                "pack_arguments": [{"arg_key": "question"}],
                "inherit_context": {"include_boxes_from_args": ["history"], "max_cards": 1},
            },
        }
        (shell.folder / "handovers").mkdir()
        (shell.folder / "handovers" / "evil.yaml").write_text(json.dumps(recipe))
        packing = ("pack", "-H", "evil", "-a", "profile_name=evil", "-a", f"history={box}", "-a")

        speaking = [
            ("card", "list"),
            ("card", "show", "id-A"),
            ("card", "show", "id-A", "-o", "json"),
            ("card", "show", "id-A", "-o", "yaml"),
            ("card", "show", "id-A", "-o", "id"),
            ("card", "show", "id-A", "gone-" + HOSTILE),
            ("card", "list", "-o", "jsonl"),
            add,
            ("card", "import", "chat.json"),
            ("card", "export", "--box", box),
            ("card", "delete", "id-A"),
            ("box", "list"),
            ("box", "show", box),
            ("box", "show", box, "--full"),
            ("box", "show", box, "-o", "jsonl"),
            ("box", "verify", box),
            ("render", "--box", box),
            ("render", "--box", box, "--format", "text"),
            ("render", "--box", box, "--explain"),
            ("profile", "list"),
            ("profile", "show", "evil"),
            ("handover", "list"),
            ("handover", "show", "evil"),
            (*packing, f"question={HOSTILE}", "--explain"),
            (*packing, "question=x", "-a", f"{HOSTILE}=x"),
            ("card", "show", HOSTILE),
            ("box", "show", HOSTILE),
            ("-p", HOSTILE, "card", "list"),
            # The error shows only the beginning and the end of a long value.
            ("card", "list", "--since", "\u202eE" + HOSTILE),
            ("card", HOSTILE),
            ("card", "list", "--" + HOSTILE),
            ("handover", "show", HOSTILE),
            ("card", "import", "/" + HOSTILE),
        ]
        for command, shown in shell.all_on_terminal(speaking, typed="n\n", NO_COLOR="1"):
            assert ACTS.findall(shown) == [], command
            assert "\\u202eE" in shown, command

    def test_json_in_a_pipe_has_the_original_text(self, shop: Shop) -> None:
        succeed(shop.cbx("card", "add", "--type", "x", "--text", HOSTILE, "--id", "hostile"))
        for output in ("json", "jsonl"):
            shown = json.loads(succeed(shop.cbx("card", "show", "hostile", "-o", output)))
            assert shown["content"]["text"] == HOSTILE

    def test_json_on_a_terminal_decodes_to_the_original_text(self, shop: Shop, shell: Shell) -> None:
        succeed(shop.cbx("card", "add", "--type", "x", "--text", HOSTILE, "--id", "hostile"))
        shown = succeed(shell.on_terminal("card", "show", "hostile", "-o", "json"))
        assert json.loads(shown)["content"]["text"] == HOSTILE

    def test_a_project_name_with_hostile_text_is_refused(self, offline: Cbx) -> None:
        result = offline("-p", HOSTILE, "card", "list")
        assert (result.code, result.out) == (2, "")
        assert "must have 1 to 255 printable characters" in result.err
