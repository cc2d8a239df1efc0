"""Every command that writes, killed after each of its writes: nothing or the whole, and it can be run again."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import succeed
from tests.conftest import TABLES
from tests.crash.harness import Connection, Scene, Stage, contents, explore, explore_steps, value
from tests.foreign.tables import ITS_CARDS, LIBRARY, definitions, without_file_numbers

MakeStage = Callable[..., Stage]

BOX = "018f2b64-0000-7000-8000-00000000cafe"


def conversation(key: str, turns: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": f"{key}: question {number}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "done"},
        ]
    return {"id": key, "title": f"about {key}", "messages": messages}


def box_of_two(scene: Scene) -> None:
    """A box of two cards, and a third card."""
    for card in ("card-1", "card-2", "card-3"):
        succeed(scene.run("card", "add", "--id", card, "--type", "chat.message", "--text", f"I am {card}"))
    with psycopg.connect(scene.conninfo) as connection:
        connection.execute(
            "INSERT INTO card_boxes (tenant_id, box_id, card_ids) VALUES ('p', %s, '[\"card-1\", \"card-2\"]')",
            [BOX],
        )


class TestImport:
    def test_a_killed_import_of_several_conversations_is_complete_or_absent(self, stage: MakeStage) -> None:
        several = json.dumps([conversation("a", 2), conversation("b", 1), conversation("c", 3)])
        points = explore(stage(files={"several.json": several}), "card", "import", "several.json")
        assert {"copy_incoming sent:1", "insert_incoming:1", "commit:1", "committed:1"} <= set(points)

    def test_a_killed_import_of_changed_conversations_is_complete_or_absent(self, stage: MakeStage) -> None:
        changed = conversation("b", 2)
        changed["messages"][0]["content"] = "another beginning"
        prepared = stage(
            files={
                "old.json": json.dumps([conversation("a", 1), conversation("b", 1)]),
                "new.json": json.dumps([conversation("a", 3), changed]),
            },
            prepare=lambda scene: succeed(scene.run("card", "import", "old.json")),
        )
        explore(prepared, "card", "import", "new.json")


class TestPack:
    def test_a_killed_pack_is_complete_or_absent(self, stage: MakeStage) -> None:
        def prepare(scene: Scene) -> None:
            box_of_two(scene)
            succeed(scene.run("profile", "import", "clerk.yaml"))

        asked = ("-a", "profile_name=clerk", "-a", "instruction=Go on", "-a", f"input_box_ids={BOX}")
        prepared = stage(files={"clerk.yaml": "name: clerk\n"}, prepare=prepare)
        points = explore(prepared, "pack", "-H", "delegate", *asked)
        assert {"insert_card:2", "insert_box:1", "insert_box_info:1"} <= set(points)


class TestBox:
    def test_a_killed_append_is_complete_or_absent(self, stage: MakeStage) -> None:
        explore(stage(prepare=box_of_two), "box", "append", BOX, "-", stdin=b"card-3\ncard-1\n")

    @pytest.mark.parametrize("guard", [False, True], ids=["unguarded", "guarded"])
    def test_a_killed_replace_is_complete_or_absent(self, guard: bool, stage: MakeStage) -> None:
        prepared = stage(prepare=box_of_two)
        with prepared.scene() as scene:
            shown = json.loads(succeed(scene.run("box", "show", BOX, "-o", "json")))
        options = ["--if-ids", shown["ids_sha256"]] if guard else []
        explore(prepared, "box", "replace", BOX, "card-3", "card-1", *options)


class TestTodo:
    def test_a_killed_todo_add_is_complete_or_absent(self, stage: MakeStage) -> None:
        explore(stage(prepare=box_of_two), "todo", "add", BOX, "Call", "Write")


class TestProfileImport:
    def test_a_killed_profile_import_is_complete_or_absent(self, stage: MakeStage) -> None:
        prepared = stage(
            files={
                "old.yaml": "name: clerk\n",
                "new.yaml": "name: Clerk\ntags: [x]\n",
                "b.yaml": "name: b\n",
            },
            prepare=lambda scene: succeed(scene.run("profile", "import", "old.yaml")),
        )
        explore(prepared, "profile", "import", "new.yaml", "b.yaml")


class TestAgentProvision:
    def test_a_killed_agent_provision_is_complete_or_absent(self, stage: MakeStage) -> None:
        prepared = stage(
            files={"clerk.yaml": "name: clerk\n"},
            prepare=lambda scene: succeed(scene.run("profile", "import", "clerk.yaml")),
        )
        points = explore(prepared, "agent", "provision", "clerk-1", "--profile", "clerk")
        assert {"insert_agent:1", "insert_first_head:1", "insert_identity_edge:1"} <= set(points)


def tables(connection: Connection) -> list[str]:
    """What there is, and everything that defines it."""
    defined = without_file_numbers(definitions(connection))
    return contents(connection) + [f"{kind}: {row}" for kind, rows in defined.items() for row in rows]


def execute(script: str) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with psycopg.connect(scene.conninfo) as connection:
            connection.execute(script.encode())

    return run


class TestTables:
    def test_a_killed_init_of_an_empty_database_can_be_repeated(self, stage: MakeStage) -> None:
        points = explore(stage(template="template1"), "db", "init", "--yes", state=tables)
        assert {"script:1", f"script:{len(TABLES)}"} <= set(points)

    def test_a_killed_init_of_a_library_database_can_be_repeated(self, stage: MakeStage) -> None:
        prepared = stage(template="template1", prepare=execute(LIBRARY + ITS_CARDS))
        explore(prepared, "db", "init", "--yes", state=tables)

    def test_a_killed_rebuild_of_a_broken_text_index_can_be_repeated(self, stage: MakeStage) -> None:
        def prepare(scene: Scene) -> None:
            succeed(scene.run("db", "index-text"))
            execute(BREAK_INDEX)(scene)

        def the_broken_one_seems_not_whole(connection: Connection) -> None:
            assert value(connection, MENDED_INDEXES) == 0

        points = explore_steps(
            stage(prepare=prepare), "db", "index-text", state=tables, invariant=the_broken_one_seems_not_whole
        )
        assert {"built_indexes:1", "script:3", "release_schema:1"} <= set(points)


BREAK_INDEX = """
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'public.idx_cards_text'::regclass;
COMMENT ON INDEX public.idx_cards_text IS 'broken'
"""
MENDED_INDEXES = """
SELECT count(*) FROM pg_index WHERE indisvalid AND obj_description(indexrelid) = 'broken'
"""
