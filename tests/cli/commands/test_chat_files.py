"""`cbx chat import`, `export`, `tools` and `call`."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from cardbox_cli.chat.files.folders import find_changes, write_files
from cardbox_cli.errors import InvalidInput
from cardbox_cli.store.connection.database import Database
from tests.chat.layout import trees
from tests.chat.layout.trees import FOLDER, KEY, TREE, line
from tests.cli.conftest import Shell, succeed
from tests.conftest import Cbx

CHAT = f".ship/chat/{FOLDER}"


def profiles(root: Path, **texts: str) -> None:
    (root / ".ship/profile").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (root / f".ship/profile/{name}.md").write_text(text)


class TestImport:
    def test_an_imported_folder_is_exported_unchanged(self, cbx: Cbx, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        trees.write(here)
        profiles(here, Primary="You are 小明.\n", other="Be brief.\n")
        done = cbx("chat", "import", str(here), "-o", "json").json()
        assert [each["chat_key"] for each in done["chats"]] == [KEY]
        assert (done["chats"][0]["new_entries"], done["skipped"], done["ignored"]) == (7, [], [])
        assert done["personas"] == {"Primary": "imported", "other": "imported"}
        exported = cbx("chat", "export", KEY, str(there), "-o", "json").json()
        assert exported["folder"] == str(there / CHAT)
        assert exported["changed"] == exported["files"]
        assert trees.read(there / CHAT) == TREE
        assert trees.read(there / ".ship/profile") == trees.read(here / ".ship/profile")
        assert trees.read(there / ".ship").keys() == trees.read(here / ".ship").keys()

    def test_a_second_import_and_export_change_nothing(self, cbx: Cbx, tmp_path: Path) -> None:
        trees.write(tmp_path)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        succeed(cbx("chat", "import", str(tmp_path / ".ship")))
        again = cbx("chat", "import", str(tmp_path), "-o", "json").json()
        assert (again["chats"][0]["new_entries"], again["chats"][0]["context"]) == (0, "unchanged")
        assert cbx("chat", "export", KEY, str(tmp_path), "-o", "json").json()["changed"] == []
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before

    def test_skipped_lines_are_reported_by_file_and_line(self, cbx: Cbx, tmp_path: Path) -> None:
        history = [line(1, "a"), {**line(2, "b"), "ts": "2"}, {**line(3, "c"), "chatKey": "\x1b[2Jother"}]
        chat = trees.write(tmp_path, {"conversations/history.jsonl": history})
        (chat / "contexts").mkdir()
        (chat / "contexts/notes.txt").write_text("mine")
        result = cbx("chat", "import", str(tmp_path))
        assert result.code == 0
        assert f"skipped {CHAT}/conversations/history.jsonl:2: Expected `int`, got `str`" in result.err
        assert "\x1b" not in result.err
        assert result.err.endswith(
            "1 file ignored; -o json lists them\n1 chat, 1 line of transcripts, 1 new; 2 skipped\n"
        )
        listed = cbx("chat", "import", str(tmp_path), "-o", "json").json()
        assert [(each["file"], each["line"]) for each in listed["skipped"]] == [
            (f"{CHAT}/conversations/history.jsonl", 2),
            (f"{CHAT}/conversations/history.jsonl", 3),
        ]
        assert listed["ignored"] == [f"{CHAT}/contexts/notes.txt"]

    def test_the_chat_option_imports_only_that_chat(self, cbx: Cbx, tmp_path: Path) -> None:
        for key in ("a", "b"):
            trees.write(tmp_path, {"conversations/history.jsonl": [{**line(1, key), "chatKey": key}]}, key)
        assert succeed(cbx("chat", "import", str(tmp_path), "--chat", "b", "-o", "id")) == "b\n"
        assert succeed(cbx("chat", "list", "-o", "id")) == "b\n"
        missing = cbx("chat", "import", str(tmp_path), "--chat", "c", "-o", "json")
        assert missing.code == 3
        assert missing.error["hint"] == "the folder contains the chats a, b"

    def test_an_unreadable_file_stops_the_import_before_any_write(self, cbx: Cbx, tmp_path: Path) -> None:
        for key in ("a", "b"):
            trees.write(tmp_path, {"conversations/history.jsonl": [{**line(1, key), "chatKey": key}]}, key)
        link = tmp_path / ".ship/chat/b/conversations/history.jsonl"
        link.rename(tmp_path / "aside")
        link.symlink_to(tmp_path / "aside")
        result = cbx("chat", "import", str(tmp_path))
        assert result.code == 4
        assert "cbx does not follow the symbolic link" in result.err
        assert succeed(cbx("chat", "list", "-o", "id")) == ""

    def test_a_folder_with_an_invalid_chat_key_is_skipped(self, cbx: Cbx, tmp_path: Path) -> None:
        key = "a\x1b]0;title\x07"
        trees.write(tmp_path, {"conversations/history.jsonl": []}, "a%1B%5D0%3Btitle%07")
        trees.write(tmp_path, {"conversations/history.jsonl": [{**line(1, "x"), "chatKey": "b"}]}, "b")
        result = cbx("chat", "import", str(tmp_path), "-o", "json")
        assert [each["chat_key"] for each in result.json()["chats"]] == ["b"]
        assert [each["line"] for each in result.json()["skipped"]] == [None]
        assert key not in result.err

    def test_file_names_that_are_not_utf_8_are_shown_with_replacements(self, shell: Shell) -> None:
        trees.write(shell.folder, {"memory/Primary.md": "x"}, "a")
        odd = os.fsencode(shell.folder) + b"/.ship/chat/"
        os.mkdir(odd + b"b\xff")
        os.close(os.open(odd + b"a/memory/c\xff", os.O_CREAT))
        os.mkdir(os.fsencode(shell.folder) + b"/.ship/profile")
        os.close(os.open(os.fsencode(shell.folder) + b"/.ship/profile/d\xff.md", os.O_CREAT))
        done = shell.run("chat", "import", ".", "-o", "json").json()
        assert done["ignored"] == [".ship/chat/b\ufffd", ".ship/chat/a/memory/c\ufffd"]
        assert done["personas"] == {"d\ufffd": "absent"}

    @pytest.mark.parametrize("place", ["nowhere", "."])
    def test_a_folder_without_chats_is_refused(self, cbx: Cbx, tmp_path: Path, place: str) -> None:
        result = cbx("chat", "import", str(tmp_path / place))
        assert result.code == 3
        assert "no folder '" in result.err

    def test_different_personas_are_replaced_only_with_replace(self, cbx: Cbx, tmp_path: Path) -> None:
        profiles(tmp_path, Primary="theirs")
        (tmp_path / ".ship/chat").mkdir()
        succeed(cbx("chat", "persona", "Primary", "mine"))
        kept = cbx("chat", "import", str(tmp_path))
        assert (
            "the persona Primary differs and was not changed; --replace imports the file's version"
            in kept.err
        )
        profiles(tmp_path, primary="in lower case")
        (tmp_path / ".ship/profile/Primary.md").unlink()
        assert cbx("chat", "import", str(tmp_path), "-o", "json").json()["personas"] == {"primary": "kept"}
        profiles(tmp_path, Primary="theirs")
        (tmp_path / ".ship/profile/primary.md").unlink()
        taken = cbx("chat", "import", str(tmp_path), "--replace", "-o", "json").json()
        assert taken["personas"] == {"Primary": "imported"}


class TestExport:
    def test_files_with_unimported_lines_are_not_overwritten(self, cbx: Cbx, tmp_path: Path) -> None:
        chat = trees.write(tmp_path)
        succeed(cbx("chat", "import", str(tmp_path)))
        with (chat / "conversations/history.jsonl").open("a") as file:
            file.write(json.dumps(line(9, "not imported")) + "\n")
        before = trees.read(chat)
        succeed(cbx("chat", "send", KEY, "from cbx"))
        refused = cbx("chat", "export", KEY, str(tmp_path))
        assert refused.code == 5
        assert "has 1 entry that this chat does not have; nothing was written" in refused.err
        assert trees.read(chat) == before
        succeed(cbx("chat", "import", str(tmp_path)))
        exported = cbx("chat", "export", KEY, str(tmp_path), "-o", "json").json()
        assert exported["changed"] == [f"{CHAT}/conversations/history.jsonl"]
        texts = [each["text"] for each in trees.read(chat)["conversations/history.jsonl"]]
        assert sorted(texts[-2:]) == ["from cbx", "not imported"]

    def test_a_path_that_is_too_long_is_refused(self, cbx: Cbx, tmp_path: Path) -> None:
        long = tmp_path / ("x" * 5000)
        cbx("chat", "send", "c", "hi")
        for words in (["chat", "import", str(long)], ["chat", "export", "c", str(long)]):
            refused = cbx(*words)
            assert refused.code == 4
            assert refused.err.startswith(f"error: cannot read '{long}/.ship")
            assert "File name too long" in refused.err

    @pytest.mark.parametrize(
        "context_id", ["ctx_a/../../../../../out", "../out", "/out", "ctx_a\nb", "ctx_" + "x" * 300]
    )
    def test_an_invalid_context_id_never_becomes_a_file_name(
        self, cbx: Cbx, database: Database, tmp_path: Path, context_id: str
    ) -> None:
        succeed(cbx("chat", "run", "me", "--text", "a", "--exec", "echo b", "--answers", "text"))
        succeed(cbx("chat", "new", "me"))
        database.connection.execute("UPDATE cbx.chat_contexts SET context_id = %s", (context_id,))
        before = set(tmp_path.parent.rglob("*.json"))
        exported = cbx("chat", "export", "me", str(tmp_path / "a" / "b"), "--replace", "-o", "json")
        names = ["conversations/history.jsonl", "contexts/active.jsonl"]
        assert [each.removeprefix(".ship/chat/me/") for each in exported.json()["files"]] == names
        shown = context_id.replace("\n", "\\n")
        assert exported.err == f"warning: {shown} is not a valid file name, so it was left out\n"
        assert set(tmp_path.parent.rglob("*.json")) == before

    def test_file_names_cannot_escape_the_folder(self, tmp_path: Path) -> None:
        for name in ("../x", "a/../../x", "/x", "a//x", "."):
            for write in (partial(find_changes, replace=True), write_files):
                with pytest.raises(InvalidInput, match="invalid file name"):
                    write(tmp_path / "a", tmp_path, {name: "x"})
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "kept", ['"x"', "[]", '{"beside": 5}', '{"file": 5, "item": [1]}', '{"file": {"createdAt": "x"}}']
    )
    def test_an_export_survives_damaged_layout_data(
        self, cbx: Cbx, database: Database, tmp_path: Path, kept: str
    ) -> None:
        trees.write(tmp_path / "from")
        succeed(cbx("chat", "import", str(tmp_path / "from")))
        database.connection.execute("UPDATE cbx.chat_contexts SET layout = %s::jsonb", (kept,))
        odd = '{"file": true, "extra": {"userId": 5}, "rest": {"ts": "x"}}'
        database.connection.execute(
            "UPDATE cards SET metadata = metadata || jsonb_build_object('layout', %s::jsonb)", (odd,)
        )
        succeed(cbx("chat", "export", KEY, str(tmp_path / "to")))
        files = sorted(path.name for path in (tmp_path / "to").rglob("*") if path.is_file())
        assert "history.jsonl" in files
        assert "ctx_1a.json" in files

    def test_an_unknown_chat_is_refused(self, cbx: Cbx, tmp_path: Path) -> None:
        result = cbx("chat", "export", "none", str(tmp_path))
        assert result.code == 3
        assert list(tmp_path.iterdir()) == []

    def test_a_chat_key_that_is_an_invalid_folder_name_is_refused(self, cbx: Cbx, tmp_path: Path) -> None:
        succeed(cbx("chat", "send", "..", "up"))
        result = cbx("chat", "export", "..", str(tmp_path))
        assert result.code == 4
        assert list(tmp_path.iterdir()) == []

    def test_the_text_output_lists_the_written_files(self, cbx: Cbx, tmp_path: Path) -> None:
        succeed(cbx("chat", "send", "me", "hello"))
        result = cbx("chat", "export", "me", str(tmp_path))
        assert succeed(result) == "written    .ship/chat/me/conversations/history.jsonl\n"
        assert result.err == f"{tmp_path}/.ship/chat/me: 1 of 1 files written\n"


class TestTools:
    def test_tools_are_printed_in_the_format_of_the_request(self, cbx: Cbx) -> None:
        offered = cbx("chat", "tools", "-o", "json").json()
        assert [each["function"]["name"] for each in offered] == [
            "chat_context_new",
            "chat_context_list",
            "chat_context_load",
            "chat_context_clear_active",
        ]
        anthropic = cbx("chat", "tools", "--format", "anthropic", "-o", "json").json()
        assert [each["name"] for each in anthropic] == [each["function"]["name"] for each in offered]
        assert anthropic[2]["input_schema"] == offered[2]["function"]["parameters"]

    def test_tool_calls_do_the_same_as_commands(
        self, cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trees.write(tmp_path)
        succeed(cbx("chat", "import", str(tmp_path)))
        monkeypatch.setenv("CBX_CHAT_KEY", KEY)
        loaded = cbx("chat", "call", "chat_context_load", '{"query": "退款"}').json()
        assert (loaded["loaded"], loaded["messages"]) == ("ctx_1a", 2)
        assert "'退款' in its title" in loaded["why"]
        archived = cbx("chat", "call", "chat_context_new", '{"title": "x"}', "--chat", KEY).json()
        assert archived == {
            "archived": "ctx_1a",
            "messages": 0,
            "title_and_reason": "those it was archived with before",
        }
        listed = cbx("chat", "call", "chat_context_list").json()
        assert {each["context_id"] for each in listed["contexts"]} == {
            "ctx_1a",
            "ctx_2b.x-y_Z",
            loaded["archived"],
        }
        assert listed["has_more"] is False
        again = cbx("chat", "call", "chat_context_load", '{"contextId": "ctx_1a"}').json()
        assert again["loaded"] == "ctx_1a"
        assert cbx("chat", "call", "chat_context_clear_active").json() == {"cleared": True, "messages": 0}
        assert cbx("chat", "show", KEY, "-o", "json").json()["messages"] == []

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (["chat_context_list"], 2, "--chat is required"),
            (["chat_context_lis", "--chat", "a"], 3, "did you mean 'chat_context_list'"),
            (["chat_context_load", "{}", "--chat", "a"], 4, "context_id or query is required"),
            (["chat_context_load", "{", "--chat", "a"], 4, "not JSON"),
            (["chat_context_list", "--chat", "none"], 3, "no chat 'none'"),
            (["chat_context_list", "--chat", "a\x1bb"], 3, r"no chat 'a\x1bb'"),
        ],
    )
    def test_invalid_tool_calls_are_refused(
        self, cbx: Cbx, words: list[str], code: int, message: str
    ) -> None:
        result = cbx("chat", "call", *words)
        assert result.code == code
        assert message in result.err


def test_chat_keys_of_the_project_are_completed(shell: Shell, cbx: Cbx, offered: object) -> None:
    succeed(cbx("chat", "send", "telegram-chat-42", "hello"))
    succeed(cbx("-p", "other", "chat", "send", "telegram-chat-43", "hello"))
    assert callable(offered)
    assert list(offered("cbx chat show tele")) == ["telegram-chat-42"]
