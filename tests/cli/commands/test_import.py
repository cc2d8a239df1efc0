"""`cbx card import` as a file grows, with bad text in it, from pipes, before people who wait or give up."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cardbox_cli.cli.options import conversation_files
from cardbox_cli.limits import Limit
from cardbox_cli.model import exact_json
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import PATIENCE, Shell, lines, succeed
from tests.cli.test_processes import interrupted, wait_until, waiting_for_a_lock
from tests.cli.typist import Typist
from tests.conftest import Cbx

RowCounts = Callable[[], dict[str, int]]
Size = tuple[int, int, int]


def session_line(number: int, text: str = "hi", session: str = "s-1") -> str:
    line = {
        "type": "user",
        "uuid": f"u-{number}",
        "sessionId": session,
        "message": {"role": "user", "content": f"{text} {number}"},
    }
    return json.dumps(line) + "\n"


class TestBadText:
    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        messages = [
            {"role": "user", "content": "a\x00b\ud800c", "x\x00": ["\udfff", {"y": "fine"}]},
            {"role": "assistant", "content": "é😀"},
        ]
        path = tmp_path / "bad.json"
        path.write_text(json.dumps({"id": "c\x00", "title": "t\ud83d", "messages": messages}))
        return str(path)

    def test_unstorable_text_is_refused_with_a_hint(self, cbx: Cbx, file: str, row_counts: RowCounts) -> None:
        before = row_counts()
        result = cbx("card", "import", file)
        assert result.code == 4
        assert result.err == (
            f"error: {file}: id: holds a NUL character at offset 1\n"
            "hint: pass --on-bad-text replace, which writes U+FFFD instead; nothing was imported\n"
        )
        assert row_counts() == before

    def test_unstorable_characters_are_replaced_and_counted(self, cbx: Cbx, file: str) -> None:
        imported = cbx("card", "import", file, "--on-bad-text", "replace", "-o", "id")
        box = succeed(imported).strip()
        assert imported.err == (
            "recognized as openai: no evidence of another format\n1 conversation, 2 cards, 2 new\n5 characters replaced by U+FFFD\n"
        )
        messages = cbx("card", "export", "--box", box).json()["messages"]
        assert messages == [
            {"role": "user", "content": "a�b�c", "x�": ["�", {"y": "fine"}]},
            {"role": "assistant", "content": "é😀"},
        ]
        assert cbx("box", "show", box, "-o", "json").json()["title"] == "t�"
        again = cbx("card", "import", file, "--on-bad-text", "replace")
        assert "2 cards, 0 new" in again.err

    def test_equal_replaced_keys_are_refused_and_equal_ids_stay_distinct(
        self, cbx: Cbx, tmp_path: Path
    ) -> None:
        file = tmp_path / "alike.json"
        file.write_text('[{"role": "user", "content": "x", "a\\u0000": 1, "a\\ud800": 2}]')
        result = cbx("card", "import", str(file), "--on-bad-text", "replace")
        assert result.code == 4
        assert "has two keys that differ only in characters that JSONB cannot store" in result.err
        file.write_text(
            json.dumps(
                [{"id": f"n{bad}", "messages": [{"role": "user", "content": "x"}]} for bad in "\0\ud800"]
            )
        )
        assert len(set(lines(cbx("card", "import", str(file), "--on-bad-text", "replace", "-o", "id")))) == 2

    def test_nan_is_still_refused_when_text_is_replaced(self, cbx: Cbx, tmp_path: Path) -> None:
        (tmp_path / "nan.json").write_text('[{"role": "user", "content": "x", "n": NaN}]')
        result = cbx("card", "import", str(tmp_path / "nan.json"), "--on-bad-text", "replace")
        assert (result.code, result.err.splitlines()[1]) == (
            4,
            "hint: remove or replace that value; nothing was imported",
        )

    def test_an_unknown_value_of_on_bad_text_is_refused(self, cbx: Cbx, file: str) -> None:
        result = cbx("card", "import", file, "--on-bad-text", "drop")
        assert (result.code, result.err) == (
            2,
            "error: --on-bad-text: unknown value 'drop'\nhint: values are fail, replace\n",
        )


class TestFollowing:
    @pytest.fixture
    def file(self, shell: Shell) -> Path:
        path = shell.folder / "session.jsonl"
        path.write_text(session_line(0))
        return path

    def test_appended_lines_are_imported(self, shell: Shell, cbx: Cbx, file: Path) -> None:
        with shell.started("card", "import", file.name, "--follow", "-o", "jsonl") as process:
            assert process.stdout is not None
            [first] = json.loads(process.stdout.readline())["boxes"]
            assert (first["cards"], first["new_cards"]) == (1, 1)
            with file.open("a") as writer:
                half, rest = session_line(2)[:30], session_line(2)[30:]
                writer.write(session_line(1) + half)
                writer.flush()
                [second] = json.loads(process.stdout.readline())["boxes"]
                assert (second["box_id"], second["cards"], second["new_cards"]) == (first["box_id"], 2, 1)
                writer.write(rest)
                writer.flush()
                [third] = json.loads(process.stdout.readline())["boxes"]
                assert (third["box_id"], third["cards"], third["new_cards"]) == (first["box_id"], 3, 1)
            code, out, err = interrupted(process)
        assert (code, out) == (130, "")
        assert err.startswith(
            "recognized as claude-code: a line has a type and 'sessionId'\n1 conversation, 1 card, 1 new\n"
        )
        assert err.endswith("\ninterrupted: work done before the interrupt is committed\n")
        shown = lines(cbx("card", "export", "--box", first["box_id"], "--to", "claude-code"))
        assert list(map(json.loads, shown)) == list(map(json.loads, file.read_text().splitlines()))

    def test_follow_waits_until_a_line_names_the_session(self, shell: Shell, file: Path) -> None:
        file.write_text("\n" + json.dumps({"type": "file-history-snapshot", "messageId": "a"}) + "\n")
        with shell.started("card", "import", file.name, "--follow", "-o", "jsonl") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stderr.readline() == b"waiting for a line that names the session\n"
            with file.open("a") as writer:
                writer.write(session_line(1))
            [box] = json.loads(process.stdout.readline())["boxes"]
            assert (box["cards"], box["new_cards"]) == (2, 2)
            assert interrupted(process)[0] == 130

    def test_an_emptied_file_and_an_incomplete_last_line_are_reported(self, shell: Shell, file: Path) -> None:
        with shell.started("card", "import", file.name, "--follow", "-o", "jsonl") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            file.write_text("\n\n")
            said = [process.stderr.readline() for _ in range(3)]
            assert said[-1] == b"session.jsonl is empty so far\n"
            file.write_text(session_line(0) + session_line(1) + session_line(2).strip())
            [box] = json.loads(process.stdout.readline())["boxes"]
            assert (box["cards"], box["new_cards"]) == (2, 1)
            said = [process.stderr.readline() for _ in range(3)]
            assert said[-1] == b"the last line is incomplete (no line break): waiting for the rest\n"
            assert interrupted(process)[0] == 130

    def test_a_named_pipe_cannot_be_followed(self, shell: Shell) -> None:
        os.mkfifo(shell.folder / "pipe")
        result = shell.run("card", "import", "pipe", "--follow")
        assert (result.code, result.err) == (
            2,
            "error: --follow requires a file that can grow, not 'pipe'\nhint: pass the path of a JSONL file\n",
        )

    def test_an_unreachable_database_fails_immediately(self, shell: Shell, file: Path) -> None:
        file.write_text("")
        result = shell.run("card", "import", file.name, "--follow", CBX_DATABASE_URL="host=127.0.0.1 port=1")
        assert result.code == 7

    def test_follow_waits_for_the_first_complete_line(self, shell: Shell, file: Path) -> None:
        file.write_text(session_line(0)[:20])
        with shell.started("card", "import", file.name, "--follow", "-o", "id") as process:
            with file.open("a") as writer:
                writer.write(session_line(0)[20:])
            assert process.stdout is not None
            assert len(process.stdout.readline().strip()) == 36
            assert interrupted(process)[0] == 130

    def test_a_deleted_file_ends_the_import(self, shell: Shell, file: Path) -> None:
        with shell.started("card", "import", file.name, "--follow", "-o", "id") as process:
            assert process.stdout is not None
            process.stdout.readline()
            file.unlink()
            assert process.wait(PATIENCE) == 3
            assert process.stderr is not None
            assert b"error: no file 'session.jsonl'" in process.stderr.read()

    @pytest.mark.parametrize(
        ("arguments", "code", "message", "hint"),
        [
            (
                ("-", "--follow"),
                2,
                "--follow requires a file that can grow, not standard input",
                "pass the path of a JSONL file",
            ),
            (
                ("chat.jsonl", "--follow", "-o", "json"),
                2,
                "--follow and -o json cannot be combined",
                "use -o jsonl",
            ),
            (
                ("chat.jsonl", "--follow"),
                4,
                "chat.jsonl: --follow requires a conversation with an id",
                "add a conversation_id next to its messages, or import the complete file without --follow",
            ),
        ],
    )
    def test_inputs_that_cannot_be_followed_are_refused(
        self, shell: Shell, arguments: tuple[str, ...], code: int, message: str, hint: str
    ) -> None:
        (shell.folder / "chat.jsonl").write_text('{"role": "user", "content": "hi"}\n' * 2)
        result = shell.run("card", "import", *arguments)
        assert (result.code, result.out) == (code, "")
        last = result.err.strip().splitlines()[-1]
        if "-o" in arguments:
            assert json.loads(last)["error"]["message"] == message
        else:
            assert result.err == f"error: {message}\nhint: {hint}\n"


class TestPipes:
    def test_a_process_substitution_is_imported(self, shell: Shell) -> None:
        (shell.folder / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
        result = shell.line("cbx card import <(cat chat.json) -o id | xargs cbx box show -o jsonl")
        assert json.loads(succeed(result))["content"]["text"] == "hi"

    def test_a_file_redirected_to_standard_input_is_imported(self, shell: Shell) -> None:
        (shell.folder / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
        assert "1 card, 1 new" in shell.line("cbx card import - < chat.json").err


class TestGivingUp:
    def test_an_interrupted_export_keeps_the_old_file(
        self, shell: Shell, cbx: Cbx, database: Database
    ) -> None:
        (shell.folder / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
        box = succeed(shell.run("card", "import", "chat.json", "-o", "id")).strip()
        (shell.folder / "old.json").write_text("old")
        with psycopg.connect(database.target.conninfo or "") as other:
            other.execute("LOCK TABLE cards")
            with shell.started("card", "export", "--box", box, "--out", "old.json") as process:
                wait_until(lambda: waiting_for_a_lock(database) == 1)
                assert interrupted(process)[0] == 130
        assert (shell.folder / "old.json").read_text() == "old"
        assert sorted(path.name for path in shell.folder.iterdir()) == ["chat.json", "old.json"]
        succeed(shell.run("card", "export", "--box", box, "--out", "old.json"))
        assert json.loads((shell.folder / "old.json").read_text())["messages"][0]["content"] == "hi"

    def test_an_interrupted_import_writes_nothing(
        self, shell: Shell, target: Target, database: Database, row_counts: RowCounts
    ) -> None:
        (shell.folder / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
        before = row_counts()
        with psycopg.connect(target.conninfo or "") as other:
            other.execute("LOCK TABLE card_boxes")
            with shell.started("card", "import", "chat.json") as process:
                wait_until(lambda: waiting_for_a_lock(database) == 1)
                code, out, err = interrupted(process)
        assert (code, out) == (130, "")
        assert err == "\ninterrupted: nothing was imported; run the same command again\n"
        assert row_counts() == before


class TestProgress:
    @pytest.fixture
    def file(self, shell: Shell) -> Path:
        path = shell.folder / "long.jsonl"
        path.write_text("".join(session_line(number, "word " * 20) for number in range(25_000)))
        return path

    def test_a_terminal_shows_a_progress_bar(self, shell: Shell, file: Path) -> None:
        command = [sys.executable, "-m", "cardbox_cli", "card", "import", file.name]
        with Typist(command, shell.environment, shell.folder) as person:
            bar = person.see(r"importing [━╸╺ ]+ *[\d.]+/[\d.]+ MB 0:00:0\d")
            assert bar is not None
            person.see("1 conversation, 25000 cards, 25000 new")
            assert person.end() == 0

    @pytest.mark.parametrize("where", ["a pipe", "a dumb terminal"])
    def test_a_pipe_and_a_dumb_terminal_show_no_progress_bar(
        self, shell: Shell, file: Path, where: str
    ) -> None:
        if where == "a pipe":
            result = shell.run("card", "import", file.name, "-o", "id")
            assert (
                result.err
                == "recognized as claude-code: line 1: a line has a type and 'sessionId'\n1 conversation, 25000 cards, 25000 new\n"
            )
        else:
            result = shell.on_terminal("card", "import", file.name, TERM="dumb")
            assert "\x1b" not in result.out
            assert "importing" not in result.out


MB = 1_000_000
# How many messages, and how often each says its number again. What is promised for a million is 200 MB. The few would
# take more than their 75 MB if all were held.
FEW, MANY = (10_000, 500, 75 * MB), (1_000_000, 12, 200 * MB)


def message(number: int, repeated: int) -> dict[str, Any]:
    """One of a generated conversation: questions, calls, results and answers in turn."""
    text = f"{number} " + f"{number * 7919 % 1_000_003} " * repeated
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text},
        {"role": "assistant", "content": text},
    ][number % 4]


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells how much memory was used"
)
class TestManyMessages:
    @pytest.mark.parametrize(
        ("layout", "size"),
        [
            pytest.param("one document", FEW, id="one document, few"),
            pytest.param("lines", FEW, id="lines, few", marks=pytest.mark.soak),
            pytest.param("one document", MANY, id="one document, many", marks=pytest.mark.soak),
            pytest.param("lines", MANY, id="lines, many", marks=pytest.mark.soak),
        ],
    )
    def test_a_large_conversation_is_imported_atomically_in_bounded_memory(
        self, shell: Shell, database: Database, row_counts: RowCounts, layout: str, size: Size
    ) -> None:
        count, repeated, limit = size
        file = shell.folder / "many.json"
        with file.open("w") as writer:
            texts = (json.dumps(message(number, repeated)) for number in range(count))
            if layout == "lines":
                writer.writelines(f"{text}\n" for text in texts)
            else:
                writer.write('{"messages": [' + next(texts))
                writer.writelines(f",\n{text}" for text in texts)
                writer.write('], "id": "many"}')
        before = row_counts()
        self._kill_in_the_middle(shell, database, file)
        assert row_counts() == before

        box, used = self._run(shell, "card", "import", file.name, "-o", "id")
        assert used < limit
        assert row_counts()["public.cards"] == count
        again, _ = self._run(shell, "card", "import", file.name, "-o", "id")
        assert (again, row_counts()["public.cards"]) == (box, count)

        _, used = self._run(shell, "card", "export", "--box", box.strip(), "--out", "back.json")
        assert used < limit
        back = json.loads((shell.folder / "back.json").read_text())["messages"]
        assert back == [message(number, repeated) for number in range(count)]
        shown, used = self._run(shell, "box", "show", box.strip(), "-o", "jsonl")
        assert used < limit
        assert len(shown.splitlines()) == count

    @staticmethod
    def _kill_in_the_middle(shell: Shell, database: Database, file: Path) -> None:
        """Kill the import when rows have come in that nobody else can see yet."""
        with shell.started("card", "import", file.name) as process:
            wait_until(lambda: _bytes_of_cards(database) > 1_000_000)
            process.kill()
            assert process.wait() == -signal.SIGKILL
        wait_until(lambda: _importing(database) == 0)

    @staticmethod
    def _run(shell: Shell, *arguments: str) -> tuple[str, int]:
        """What a command that must succeed printed, and the most memory that it had, in bytes."""
        # Not from wait4: that counts the memory of this process, of which the command was a fork.
        code = (
            "import sys; from cardbox_cli.entry import main\n"
            "code = main(); open('status', 'w').write(open('/proc/self/status').read()); sys.exit(code)"
        )
        with (shell.folder / "printed").open("w+b") as printed:
            subprocess.run(
                [sys.executable, "-c", code, *arguments],
                stdout=printed,
                stderr=subprocess.DEVNULL,
                env=dict(shell.environment),
                cwd=shell.folder,
                check=True,
            )
            printed.seek(0)
            peak = re.search(r"VmHWM:\s+(\d+) kB", (shell.folder / "status").read_text())
            assert peak is not None
            return printed.read().decode(), int(peak[1]) * 1024


def _bytes_of_cards(database: Database) -> int:
    [(size,)] = database.connection.execute("SELECT pg_relation_size('public.cards')").fetchall()
    return int(size)


def _importing(database: Database) -> int:
    [(others,)] = database.connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND state <> 'idle'"
    ).fetchall()
    return int(others)


def test_a_folder_with_too_many_files_is_refused(
    cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_files, "FOLDER_FILES", Limit(2, "files", ""))
    for number in range(3):
        (tmp_path / "within").mkdir(exist_ok=True)
        (tmp_path / "within" / f"{number}.txt").touch()
    refused = cbx("card", "import", str(tmp_path))
    assert refused.code == 4
    assert f"the folder {str(tmp_path)!r} contains more than 2 files" in refused.err


def test_a_folder_that_disappears_during_an_import_is_skipped(
    cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As processes are from /proc, and what others clean up."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
    scan = os.scandir

    def scandir(path: str) -> Any:
        if os.fspath(path).endswith("gone"):
            raise FileNotFoundError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert len(lines(cbx("card", "import", str(tmp_path), "-o", "id"))) == 1


def test_a_negative_zero_is_exported_as_zero(cbx: Cbx, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    text = (
        '{"model": "m", "temperature": -0.0, "messages": [{"role": "user", "content": "-0.0", "n": [-0.0, 0.0, -1.5, -0]}, '
        '{"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", '
        '"function": {"name": "f", "arguments": "{\\"x\\":-0.0}"}}]}]}'
    )
    file.write_text(text)
    box = cbx("card", "import", str(file), "-o", "id").out.strip()
    exported = exact_json.read(cbx("card", "export", "--box", box, "--to", "openai").out)
    assert exact_json.are_equal(exported, exact_json.read(text))
    user, assistant = exported["messages"]
    assert (user["content"], repr(user["n"])) == ("-0.0", "[0.0, 0.0, -1.5, 0]")
    assert assistant["tool_calls"][0]["function"]["arguments"] == '{"x":-0.0}'
    rendered = exact_json.read(cbx("render", "--box", box, "--format", "openai").out)
    assert str(rendered["temperature"]) == "0.0"
    assert ", 0 new" in cbx("card", "import", str(file), "-o", "table").err


def test_messages_that_differ_only_in_the_sign_of_zero_are_equal(cbx: Cbx, tmp_path: Path) -> None:
    file, boxes = tmp_path / "f.json", set()
    for zero, plain in (("0", "0"), ("-0", "0"), ("0.0", "0.0"), ("-0.0", "0.0")):
        parts = f'[{{"functionCall": {{"name": "f", "args": {{"x": {zero}}}}}}}]'
        file.write_text(f'{{"contents": [{{"role": "model", "parts": {parts}}}]}}')
        box = cbx("card", "import", str(file), "-o", "id").out.strip()
        assert f'"x": {plain}\n' in cbx("card", "export", "--box", box, "--to", "gemini").out
        [message] = exact_json.read(cbx("card", "export", "--box", box, "--to", "openai").out)["messages"]
        assert message["tool_calls"][0]["function"]["arguments"] == f'{{"x":{plain}}}'
        boxes.add(box)
    assert len(boxes) == 2
