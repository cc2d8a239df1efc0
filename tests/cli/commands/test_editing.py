"""`cbx card edit` and `cbx box edit`, with real editors: small programs that EDITOR names."""

import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.model.boxes import Provenance, ProvenanceRule
from cardbox_cli.model.ids import hash_ids
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.target import Target, hide_password
from tests.cli.conftest import PATIENCE, Shell, lines, succeed
from tests.conftest import Cbx, Result

Add = Callable[..., str]
BoxOf = Callable[..., str]
Feed = Callable[[str | bytes], None]
Editor = Callable[[str], None]
Counts = Callable[[], dict[str, int]]

# How a test's editor runs cbx itself: what another person does meanwhile.
CBX = f"{shlex.quote(sys.executable)} -m cardbox_cli"


@pytest.fixture
def drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files that are edited, empty at first."""
    folder = tmp_path / "drafts"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def editor(tmp_path: Path, drafts: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    """Make a shell script the editor; it gets the file as $1."""
    monkeypatch.delenv("VISUAL", raising=False)

    def make(script: str) -> None:
        program = tmp_path / "editor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("EDITOR", str(program))

    return make


def card(cbx: Cbx, card_id: str) -> Any:
    return cbx("card", "show", card_id, "-o", "json").json()


def box(cbx: Cbx, box_id: str) -> Any:
    return cbx("box", "show", box_id, "-o", "json").json()


def refusal(result: Result) -> tuple[int, str]:
    """The exit code of a failed command, and its error without the rest of stderr."""
    assert result.out == ""
    [error] = [line for line in result.err.splitlines() if line.startswith("error: ")]
    return result.code, error.removeprefix("error: ")


class TestEditCard:
    def test_an_edit_makes_a_new_card_that_differs_only_in_its_text(
        self, cbx: Cbx, add: Add, editor: Editor, drafts: Path
    ) -> None:
        calls = '[{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]'
        options = ("--tool-calls", calls, "--ttl", "900", "--metadata", '{"step_id": "s"}', "--role", "user")
        old = add("Refund order 118", *options, type="agent.thought")
        editor('sed -i s/118/119/ "$1"')
        [new] = lines(cbx("card", "edit", old[-8:], "--author", "ann"))
        before, after = card(cbx, old), card(cbx, new)
        assert before["content"]["text"] == "Refund order 118"
        assert after["content"] == {"__type__": "TextContent", "text": "Refund order 119"}
        for key in ("type", "role", "tool_calls", "tool_call_id", "ttl_seconds"):
            assert after[key] == before[key], key
        assert after["author_id"] == "ann"
        assert after["metadata"] == {
            **before["metadata"],
            "author_id": "ann",
            "edited_from": old,
            "created_at": after["metadata"]["created_at"],
        }
        assert list(drafts.iterdir()) == []

    def test_the_editor_gets_the_text_in_a_private_file(
        self, cbx: Cbx, add: Add, editor: Editor, tmp_path: Path
    ) -> None:
        editor(f'cp "$1" {tmp_path}/seen; stat -c "%a %n" "$1" > {tmp_path}/file')
        succeed(cbx("card", "edit", add("no line break")))
        assert (tmp_path / "seen").read_bytes() == b"no line break\n"
        mode, name = (tmp_path / "file").read_text().split()
        assert (mode, Path(name).suffix) == ("600", ".md")
        succeed(cbx("card", "edit", add('{"a": 1}', type="x")))
        made = cbx("card", "add", "--type", "x", "--json", '{"a": [1.10]}', "-o", "id")
        succeed(cbx("card", "edit", made.out.strip()))
        seen = '{\n  "__type__": "JsonContent",\n  "data": {\n    "a": [\n      1.10\n    ]\n  }\n}\n'
        assert (tmp_path / "seen").read_text() == seen
        assert (tmp_path / "file").read_text().strip().endswith(".json")

    @pytest.mark.parametrize(
        ("text", "script", "edited"),
        [
            ("a", 'printf "b\\n" > "$1"', "b"),
            ("a", 'printf "b" > "$1"', "b"),
            ("a", 'printf "b\\n\\n" > "$1"', "b\n"),
            ("a\n", 'printf "b\\n" > "$1"', "b\n"),
            ("a\n", 'printf "b" > "$1"', "b"),
            ("", 'printf "b\\n" > "$1"', "b"),
            ("a\r\nb", 'sed -i s/b/c/ "$1"', "a\r\nc"),
            ("\ufeffa 退款", 'sed -i s/退款/付款/ "$1"', "a 付款"),
        ],
    )
    def test_a_final_line_break_is_removed_unless_the_old_text_had_one(
        self, text: str, script: str, edited: str, cbx: Cbx, add: Add, editor: Editor
    ) -> None:
        editor(script)
        [new] = lines(cbx("card", "edit", add(text)))
        assert card(cbx, new)["content"]["text"] == edited

    @pytest.mark.parametrize("script", ["true", 'touch "$1"', 'cp "$1" "$1.new" && mv "$1.new" "$1"'])
    def test_unchanged_text_writes_nothing(
        self, script: str, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, drafts: Path, row_counts: Counts
    ) -> None:
        for text in ("no line break", "a line break\n", "", "\ufeffmarked"):
            old = add(text)
            holder = box_of(old)
            before = row_counts()
            editor(script)
            result = cbx("card", "edit", old)
            assert (result.code, result.out, result.err) == (0, f"{old}\n", f"unchanged: {old}\n")
            assert lines(cbx("card", "edit", old, "--box", holder, "-o", "id")) == [holder]
            assert row_counts() == before
        assert list(drafts.iterdir()) == []

    def test_json_with_only_new_formatting_is_unchanged(
        self, cbx: Cbx, editor: Editor, row_counts: Counts
    ) -> None:
        old = cbx("card", "add", "--type", "x", "--json", '{"b": 1.10, "a": "é"}', "-o", "id").out.strip()
        before = row_counts()
        editor('printf %s \'{"data":{"a":"\\u00e9","b":1.10},"__type__":"JsonContent"}\' > "$1"')
        assert cbx("card", "edit", old).err == f"unchanged: {old}\n"
        editor('sed -i s/1.10/1.20/ "$1"')
        assert card(cbx, cbx("card", "edit", old).out.strip())["content"]["data"]["b"] == 1.2
        assert row_counts() != before

    def test_the_boxes_that_still_hold_the_old_card_are_counted(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor
    ) -> None:
        old = add("a")
        editor('echo b > "$1"')
        assert cbx("card", "edit", old).err == ""
        box_of(old)
        box_of(old, old)
        told = f"note: 2 boxes still contain the old card (`cbx card refs {old}`); --box copies a box with the new card\n"
        assert cbx("card", "edit", old).err == told

    def test_json_output_has_the_new_card_and_boxes(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor
    ) -> None:
        old = add("a")
        holder = box_of(old)
        editor('echo b > "$1"')
        answer = cbx("card", "edit", old, "--box", holder, "-o", "json").json()
        assert set(answer) == {"card", "edited_card_id", "boxes"}
        assert (answer["card"]["content"]["text"], answer["edited_card_id"]) == ("b", old)
        [made] = answer["boxes"]
        assert (made["card_ids"], made["parent_ids"]) == ([answer["card"]["card_id"]], [holder])


class TestBoxesOfAnEditedCard:
    def test_each_copied_box_has_the_new_card_at_the_old_positions(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor
    ) -> None:
        old, other = add("a"), add("other")
        one, two = box_of(old, other, old, "dangles", title="one"), box_of(other, old)
        editor('echo b > "$1"')
        new, of_one, of_two = lines(cbx("card", "edit", old, "--box", one[-8:], "--box", two, "--box", one))
        made = box(cbx, of_one)
        assert made["card_ids"] == [new, other, new, "dangles"]
        assert (made["title"], made["parent_ids"]) == ("one", [one])
        assert (box(cbx, of_two)["card_ids"], box(cbx, of_two)["parent_ids"]) == ([other, new], [two])
        assert box(cbx, one)["card_ids"] == [old, other, old, "dangles"]

    def test_id_output_prints_the_new_boxes(self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor) -> None:
        old = add("a")
        holder = box_of(old)
        editor('echo b > "$1"')
        [made] = lines(cbx("card", "edit", old, "--box", holder, "-o", "id"))
        assert box(cbx, made)["parent_ids"] == [holder]

    def test_a_copied_box_keeps_its_packing_rules(
        self, cbx: Cbx, add: Add, boxes: BoxStore, editor: Editor
    ) -> None:
        old, other = add("a"), add("other")
        packed = Provenance(recipe="r", recipe_digest="", digest="0" * 64, rules=[ProvenanceRule("one", 2)])
        holder = boxes.create([old, other], provenance=packed).box_id
        editor('echo b > "$1"')
        [made] = lines(cbx("card", "edit", old, "--box", holder, "-o", "id"))
        kept = boxes.provenance(made)
        assert kept is not None
        assert (kept.recipe, kept.rules) == (
            "r",
            [ProvenanceRule("box replace", 1), ProvenanceRule("one", 1)],
        )

    def test_a_box_without_the_card_is_refused_before_the_editor_starts(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, tmp_path: Path
    ) -> None:
        old, holder = add("a"), box_of(add("other"))
        editor(f"touch {tmp_path}/ran")
        result = cbx("card", "edit", old, "--box", holder)
        assert refusal(result) == (4, f"box {holder} does not contain card '{old}'")
        assert not (tmp_path / "ran").exists()

    def test_a_concurrent_change_of_the_box_causes_a_warning(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor
    ) -> None:
        old, later = add("a"), add("later")
        holder = box_of(old)
        editor(f'{CBX} box append {holder} {later} >/dev/null && echo b > "$1"')
        result = cbx("card", "edit", old, "--box", holder)
        new, made = lines(result)
        assert result.err == (
            f"warning: box {holder} has changed since it was read, so the new box may lack cards: "
            f"`cbx box diff {made} {holder}`\n"
        )
        assert box(cbx, holder)["card_ids"] == [old, later]
        assert box(cbx, made)["card_ids"] == [new]


class TestImportedCards:
    def test_an_edited_imported_card_is_rendered_with_the_new_text(
        self, cbx: Cbx, tmp_path: Path, editor: Editor
    ) -> None:
        message = {"role": "user", "content": [{"type": "text", "text": "Refund 118"}], "name": "ann"}
        chat = tmp_path / "chat.json"
        chat.write_text(json.dumps({"messages": [message]}))
        imported = cbx("card", "import", str(chat), "--from", "openai", "-o", "id").out.strip()
        [old] = box(cbx, imported)["card_ids"]
        assert "source_message" in card(cbx, old)["metadata"]
        editor('sed -i s/118/119/ "$1"')
        result = cbx("card", "edit", old, "--box", imported, "-o", "id")
        assert result.err == (
            "note: the new card lacks the imported original (source_format, source_message)\n"
        )
        rendered = cbx("render", "--box", result.out.strip(), "-o", "json").json()
        assert rendered["messages"] == [{"role": "user", "content": "Refund 119"}]

    def test_edited_reasoning_loses_its_signature(self, cbx: Cbx, add: Add, editor: Editor) -> None:
        old = add("hm", "--metadata", '{"signature": "s", "note": "n"}', type="agent.reasoning")
        editor('echo ha > "$1"')
        metadata = card(cbx, cbx("card", "edit", old).out.strip())["metadata"]
        assert ("signature" in metadata, metadata["note"]) == (False, "n")


class TestWithoutAnEditor:
    def test_the_new_text_comes_from_an_option_or_a_file(
        self, cbx: Cbx, add: Add, feed: Feed, tmp_path: Path
    ) -> None:
        old = add("a")
        new = cbx("card", "edit", old, "--text", "b\n", "-o", "id").out.strip()
        assert card(cbx, new)["content"]["text"] == "b\n"
        (tmp_path / "text").write_text("from a file\n")
        new = cbx("card", "edit", old, "--file", str(tmp_path / "text")).out.strip()
        assert card(cbx, new)["content"]["text"] == "from a file"
        feed("from stdin")
        new = cbx("card", "edit", old, "--file", "-").out.strip()
        assert card(cbx, new)["content"]["text"] == "from stdin"
        assert cbx("card", "edit", old, "--text", "a").err == f"unchanged: {old}\n"
        both = cbx("card", "edit", old, "--text", "a", "--file", "-")
        assert refusal(both) == (2, "--text and --file cannot be combined")

    def test_invalid_json_is_refused_with_its_position(self, cbx: Cbx, tmp_path: Path) -> None:
        old = cbx("card", "add", "--type", "x", "--json", "[1]", "-o", "id").out.strip()
        assert refusal(cbx("card", "edit", old, "--text", "[1")) == (
            4,
            "--text:1:3: not JSON: Expecting ',' delimiter",
        )
        path = tmp_path / "text"
        path.write_text('{"__type__": "JsonContent", "data": 7}')
        code, message = refusal(cbx("card", "edit", old, "-f", str(path)))
        assert (code, message.split(" invalid: ")[0]) == (4, f"{path}: content of class 'JsonContent' is")
        nul = cbx("card", "edit", old, "--text", '{"__type__": "TextContent", "text": "\\u0000"}')
        assert (nul.code, "holds a NUL character at offset 0" in nul.err) == (4, True)


class TestWhatCannotBeEdited:
    def test_an_unknown_or_deleted_card_cannot_be_edited(self, cbx: Cbx, add: Add, editor: Editor) -> None:
        editor("true")
        assert refusal(cbx("card", "edit", "nope")) == (3, "no card 'nope' in project 'p'")
        gone = add("a")
        succeed(cbx("card", "delete", gone, "--yes"))
        assert refusal(cbx("card", "edit", gone)) == (3, f"no card '{gone}' in project 'p'")

    def test_content_of_an_unknown_class_cannot_be_edited(
        self, cbx: Cbx, add: Add, boxes: BoxStore, editor: Editor
    ) -> None:
        card_id = add("a")
        boxes.database.connection.execute(
            """UPDATE cards SET content = '{"__type__": "Hologram"}' WHERE card_id = %s""", [card_id]
        )
        editor("true")
        expected = f"card '{card_id}' holds content of class 'Hologram', which cbx cannot write"
        assert refusal(cbx("card", "edit", card_id)) == (4, expected)


class TestTheEditor:
    @pytest.mark.parametrize(
        ("script", "fate"),
        [("exit 3", "failed with exit code 3"), ("kill -TERM $$", "was killed by signal 15")],
    )
    def test_a_failed_editor_changes_nothing_and_the_text_is_saved(
        self, script: str, fate: str, cbx: Cbx, add: Add, editor: Editor, drafts: Path, row_counts: Counts
    ) -> None:
        old = add("a")
        before = row_counts()
        editor(script)
        result = cbx("card", "edit", old)
        program = str(drafts.parent / "editor")
        assert refusal(result) == (4, f"the editor {program!r} {fate}; nothing was written")
        assert list(drafts.iterdir()) == []
        editor(f'echo precious > "$1"; {script}')
        result = cbx("card", "edit", old)
        [kept] = drafts.iterdir()
        assert result.code == 4
        assert kept.read_text() == "precious\n"
        remedy = f"cbx card edit {old} --file {kept}"
        assert result.err.splitlines()[0] == f"your text is saved in {kept}; continue with `{remedy}`"
        assert row_counts() == before

    @pytest.mark.parametrize("script", [': > "$1"', 'printf " \\n\\n" > "$1"'])
    @pytest.mark.parametrize("kind", [("--text", "a"), ("--json", '{"a": 1}')])
    def test_an_empty_file_cancels_the_edit(
        self, kind: tuple[str, str], script: str, cbx: Cbx, editor: Editor, drafts: Path, row_counts: Counts
    ) -> None:
        old = succeed(cbx("card", "add", "--type", "x", *kind, "-o", "id")).strip()
        before = row_counts()
        editor(script)
        result = cbx("card", "edit", old)
        assert (result.code, result.out, result.err) == (
            130,
            "",
            "canceled: the text is empty; --text '' writes an empty text\n",
        )
        assert row_counts() == before
        assert list(drafts.iterdir()) == []

    def test_a_card_can_be_emptied_by_option_or_file(
        self, cbx: Cbx, add: Add, feed: Feed, tmp_path: Path
    ) -> None:
        feed("")
        for options in (("--text", ""), ("--file", "-")):
            [new] = lines(cbx("card", "edit", add("a"), *options))
            assert card(cbx, new)["content"]["text"] == ""

    def test_an_editor_that_deletes_the_file_is_an_error(
        self, cbx: Cbx, add: Add, box_of: BoxOf, drafts: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VISUAL", "rm")
        old = add("a")
        expected = (4, "the editor 'rm' deleted the file; nothing was written")
        assert refusal(cbx("card", "edit", old)) == expected
        assert refusal(cbx("box", "edit", box_of(old))) == expected
        assert list(drafts.iterdir()) == []

    def test_an_unknown_editor_is_an_error(
        self, cbx: Cbx, add: Add, editor: Editor, drafts: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VISUAL", "no-such-editor --wait")
        result = cbx("card", "edit", add("a"))
        expected = "the editor 'no-such-editor --wait' was not found; nothing was written"
        assert refusal(result) == (4, expected)
        assert result.err.endswith("hint: set VISUAL or EDITOR to another editor\n")
        assert list(drafts.iterdir()) == []

    def test_visual_is_preferred_to_editor_and_both_can_have_options(
        self, cbx: Cbx, add: Add, drafts: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VISUAL", "sed -i -e 's/a b/c d/'")
        monkeypatch.setenv("EDITOR", "false")
        assert card(cbx, cbx("card", "edit", add("a b")).out.strip())["content"]["text"] == "c d"
        monkeypatch.setenv("VISUAL", "")
        monkeypatch.setenv("EDITOR", "sed -i -e 's/a b/e f/'")
        assert card(cbx, cbx("card", "edit", add("a b")).out.strip())["content"]["text"] == "e f"

    def test_an_edit_without_a_terminal_requires_an_editor_variable(
        self, cbx: Cbx, add: Add, monkeypatch: pytest.MonkeyPatch, feed: Feed
    ) -> None:
        for variable in ("VISUAL", "EDITOR"):
            monkeypatch.delenv(variable, raising=False)
        feed("")
        result = cbx("card", "edit", add("a"))
        expected = "cannot start an editor without a terminal, and neither VISUAL nor EDITOR is set"
        assert refusal(result) == (2, expected)
        assert result.err.endswith("hint: pass the text with --file, or set EDITOR\n")

    def test_refused_content_is_saved_and_the_hinted_command_resumes_it(
        self, cbx: Cbx, editor: Editor, drafts: Path, box_of: BoxOf
    ) -> None:
        old = cbx("card", "add", "--type", "x", "--json", '{"a": 1}', "-o", "id").out.strip()
        holder = box_of(old)
        editor('sed -i s/1/oops/ "$1"')
        result = cbx("card", "edit", old, "--box", holder)
        [kept] = drafts.iterdir()
        assert refusal(result) == (4, f"{kept}:4:10: not JSON: Expecting value")
        kept.write_text(kept.read_text().replace("oops", "2"))
        remedy = result.err.split("`")[1]
        assert remedy == f"cbx card edit {old} --box {holder} --file {kept}"
        new, _ = lines(cbx(*shlex.split(remedy)[1:]))
        assert card(cbx, new)["content"]["data"] == {"a": 2}

    def test_the_hinted_command_keeps_the_project_and_author(
        self, cbx: Cbx, editor: Editor, drafts: Path
    ) -> None:
        there = ("-p", "two words", "card", "add", "--type", "x", "--text", "a", "-o", "id")
        old = succeed(cbx(*there)).strip()
        editor('echo b > "$1"; exit 1')
        result = cbx("card", "edit", old, "-p", "two words", "--author", "ann")
        [kept] = drafts.iterdir()
        remedy = result.err.split("`")[1]
        assert remedy == f"cbx -p 'two words' card edit {old} --author ann --file {kept}"
        new = succeed(cbx(*shlex.split(remedy)[1:])).strip()
        made = cbx("-p", "two words", "card", "show", new, "-o", "json").json()
        assert (made["author_id"], made["content"]["text"]) == ("ann", "b")

    @pytest.mark.parametrize(
        ("secret", "note"), [("", ""), ("password=hunter2", ", with the password in --database-url")]
    )
    def test_the_hinted_command_keeps_the_database_and_hides_the_password(
        self, secret: str, note: str, cbx: Cbx, add: Add, editor: Editor, drafts: Path, target: Target
    ) -> None:
        old = add("a")
        editor('echo b > "$1"; exit 1')
        address = hide_password(target.conninfo or "")
        result = cbx("card", "edit", old, "--database-url", f"{address} {secret}")
        [kept] = drafts.iterdir()
        told = next(line for line in result.err.splitlines() if "`" in line)
        _, remedy, end = told.split("`")
        words = shlex.split(remedy)
        assert words[:2] + words[3:] == ["cbx", "--database-url", "card", "edit", old, "--file", str(kept)]
        assert words[2] == address
        assert end == note
        assert "hunter2" not in result.err
        new = succeed(cbx(*words[1:])).strip()
        assert card(cbx, new)["content"]["text"] == "b"

    def test_the_editor_uses_the_terminal(self, add: Add, shell: Shell, cbx: Cbx) -> None:
        old = add("a")
        program = shell.programs / "asking"
        program.write_text('#!/bin/sh\ntest -t 0 && test -t 1 && read line && echo "$line" > "$1"\n')
        program.chmod(0o755)
        shown = shell.on_terminal("card", "edit", old, typed="typed here\n", EDITOR="asking")
        assert shown.code == 0, shown.out
        new = shown.out.splitlines()[-1]
        assert card(cbx, new)["content"]["text"] == "typed here"

    def test_editor_output_never_reaches_standard_output(self, add: Add, shell: Shell) -> None:
        program = shell.programs / "loud"
        program.write_text('#!/bin/sh\necho chatter; cat; echo b > "$1"\n')
        program.chmod(0o755)
        result = shell.run("card", "edit", add("a"), "-o", "id", stdin=b"not for the editor", EDITOR="loud")
        assert (result.code, len(result.out.splitlines())) == (0, 1)
        assert "chatter" not in result.out
        assert "not for the editor" not in result.out + result.err

    def test_ctrl_c_during_an_edit_does_not_stop_cbx(self, add: Add, shell: Shell, cbx: Cbx) -> None:
        program = shell.programs / "slow"
        program.write_text('#!/bin/sh\n: > opened; while ! test -e go; do sleep 0.05; done; echo b > "$1"\n')
        program.chmod(0o755)
        shell_environment = {**shell.environment, "EDITOR": "slow"}
        patient = Shell(shell_environment, shell.folder, shell.programs)
        with patient.started("card", "edit", add("a"), "-o", "id") as process:
            while not (shell.folder / "opened").exists():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            (shell.folder / "go").touch()
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, b"")
        assert card(cbx, out.decode().strip())["content"]["text"] == "b"


class TestEditBox:
    def test_cards_of_a_box_can_be_moved_deleted_and_added(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, drafts: Path
    ) -> None:
        one, two, three = add("one"), add("two"), add("three")
        add("four", "--id", "four-0004")
        old = box_of(one, two, three, "dangles", title="kept")
        editor(
            f"""grep -v '^#' "$1" > list; mv list "$1"
sed -i -e '/^{two}/d' -e '/^{one}/d' "$1"
printf '{one} moved here\\n   four # by its beginning\\n\\n{one}\\n' >> "$1" """
        )
        [made] = lines(cbx("box", "edit", old[-8:]))
        answer = box(cbx, made)
        assert answer["card_ids"] == [three, "dangles", one, "four-0004", one]
        assert (answer["title"], answer["parent_ids"]) == ("kept", [old])
        assert box(cbx, old)["card_ids"] == [one, two, three, "dangles"]
        assert list(drafts.iterdir()) == []

    def test_each_line_describes_its_card(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, tmp_path: Path
    ) -> None:
        one = add("Say \x1b[2J\nit", "--id", "card-1")
        gone = add("gone", "--id", "card-2")
        odd = ["# odd id", 'a "b"']
        old = box_of(one, gone, *odd, title="all\nsorts")
        succeed(cbx("card", "delete", gone, "--yes"))
        editor(f'cp "$1" {tmp_path}/seen')
        assert cbx("box", "edit", old).err == f"unchanged: {old}\n"
        seen = (tmp_path / "seen").read_text().splitlines()
        assert seen[:5] == [
            "card-1  task.instruction  user  Say \\x1b[2J it",
            "card-2  task.instruction  user  (deleted) gone",
            '"# odd id"  (dangling: no such card)',
            r'"a \"b\""  (dangling: no such card)',
            "",
        ]
        assert seen[5] == f"# Box {old}: all sorts, 4 cards"
        assert seen[6] == f"# ids_sha256 {hash_ids([one, gone, *odd])}"
        assert all(line.startswith("#") for line in seen[5:])

    def test_unusual_ids_survive_an_edit(self, cbx: Cbx, box_of: BoxOf, editor: Editor, add: Add) -> None:
        odd = ["# odd id", 'a "b"', '"quoted"', "two words", "\u202eturned", "tab\tid", "ü", " led"]
        old = box_of(*odd)
        editor('printf "%s\\n" last-0001 >> "$1"')
        add("last", "--id", "last-0001")
        made = lines(cbx("box", "edit", old))[0]
        assert box(cbx, made)["card_ids"] == [*odd, "last-0001"]

    def test_an_unchanged_list_writes_nothing(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, drafts: Path, row_counts: Counts
    ) -> None:
        for old in (box_of(add("a"), "dangles"), box_of()):
            before = row_counts()
            editor('echo "# a note" >> "$1"')
            for options in ((), ("--in-place",)):
                result = cbx("box", "edit", old, *options, "-o", "id")
                assert (result.code, result.out, result.err) == (0, f"{old}\n", f"unchanged: {old}\n")
            assert row_counts() == before
        assert list(drafts.iterdir()) == []

    @pytest.mark.parametrize("script", [': > "$1"', 'sed -i "/^[^#]/d" "$1"'])
    def test_an_empty_list_cancels_the_edit(
        self, script: str, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, drafts: Path
    ) -> None:
        old = box_of(add("a"))
        editor(script)
        result = cbx("box", "edit", old, "--in-place")
        assert (result.code, result.out) == (130, "")
        assert result.err == "canceled: the list is empty\n"
        assert lines(cbx("box", "list", "-o", "id")) == [old]
        assert len(box(cbx, old)["card_ids"]) == 1
        assert list(drafts.iterdir()) == []

    def test_an_unknown_id_is_refused_with_its_line(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, drafts: Path
    ) -> None:
        add("x", "--id", "twin-1")
        add("x", "--id", "twin-2")
        old = box_of(add("a"))
        for typed, code, message in (
            ("nope", 3, "no card 'nope' in project 'p'"),
            ("twin", 5, "'twin' is ambiguous; it matches 2 cards: twin-1, twin-2"),
            ('"open', 4, "Unterminated string starting at"),
        ):
            editor(f'sed -i "1i\\\\\n{typed.replace(chr(34), chr(92) + chr(34))}" "$1"')
            result = cbx("box", "edit", old)
            [kept] = drafts.iterdir()
            place = f"{kept}:1:1" if code == 4 else f"{kept}:1"
            assert refusal(result) == (code, f"{place}: {message}")
            assert result.err.startswith(
                f"your text is saved in {kept}; continue with `cbx box edit {old} --file {kept}`\n"
            )
            kept.unlink()
        assert lines(cbx("box", "list", "-o", "id")) == [old]

    def test_an_invalid_id_is_refused_with_its_line(
        self, cbx: Cbx, add: Add, box_of: BoxOf, feed: Feed
    ) -> None:
        one = add("one")
        old = box_of(one)
        for typed, shown in (
            ("abcd\0efg", "'abcd\\x00efg' holds a NUL character at offset 4"),
            (r'"abcd\u0000efg"', "'abcd\\x00efg' holds a NUL character at offset 4"),
            (r'"ab\ud800cd"', "'ab\\ud800cd' holds a lone surrogate at offset 2"),
        ):
            for options in ((), ("--in-place",)):
                feed(f"{one}\n{typed}\n")
                result = cbx("box", "edit", old, "--file", "-", *options)
                assert refusal(result) == (4, f"standard input:2: the id {shown}")
                assert result.err.endswith("hint: no card can have this id: remove the line\n")
        assert lines(cbx("box", "list", "-o", "id")) == [old]

    def test_a_deleted_card_cannot_be_added(self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor) -> None:
        gone = add("gone")
        old = box_of(add("a"))
        succeed(cbx("card", "delete", gone, "--yes"))
        editor(f'echo {gone} >> "$1"')
        assert refusal(cbx("box", "edit", old)) == (3, f"no card '{gone}' in project 'p'")

    def test_the_list_of_cards_can_come_from_standard_input(
        self, cbx: Cbx, add: Add, box_of: BoxOf, feed: Feed
    ) -> None:
        one, two = add("one"), add("two")
        old = box_of(one, two)
        feed(f"{two}\n{one}\n")
        [made] = lines(cbx("box", "edit", old, "--file", "-", "-o", "id"))
        assert box(cbx, made)["card_ids"] == [two, one]

    def test_a_concurrent_change_causes_a_warning(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor
    ) -> None:
        one, two, later = add("one"), add("two"), add("later")
        old = box_of(one, two)
        editor(f'{CBX} box append {old} {later} >/dev/null && sed -i 1d "$1"')
        result = cbx("box", "edit", old)
        [made] = lines(result)
        assert result.err == (
            f"warning: box {old} has changed since it was read, so the new box may lack cards: "
            f"`cbx box diff {made} {old}`\n"
        )
        assert (box(cbx, made)["card_ids"], box(cbx, old)["card_ids"]) == ([two], [one, two, later])


class TestInPlace:
    def test_an_edit_in_place_changes_the_box_itself(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor
    ) -> None:
        one, two = add("one"), add("two")
        old = box_of(one, two, "dangles", title="kept")
        editor('sed -i 1d "$1"')
        assert lines(cbx("box", "edit", old, "--in-place")) == [old]
        assert (box(cbx, old)["card_ids"], box(cbx, old)["title"]) == ([two, "dangles"], "kept")
        assert lines(cbx("box", "list", "-o", "id")) == [old]

    def test_a_concurrent_change_is_a_conflict_and_loses_no_cards(
        self, cbx: Cbx, add: Add, box_of: BoxOf, editor: Editor, drafts: Path
    ) -> None:
        one, two, later = add("one"), add("two"), add("later")
        old = box_of(one, two)
        editor(f'{CBX} box append {old} {later} >/dev/null && sed -i 1d "$1"')
        result = cbx("box", "edit", old, "--in-place")
        hashes = f"its ids hash to {hash_ids([one, two, later])}, not {hash_ids([one, two])}"
        assert refusal(result) == (5, f"box {old} has changed: {hashes}")
        assert box(cbx, old)["card_ids"] == [one, two, later]
        [kept] = drafts.iterdir()
        # What was read is known from the file, so that it overwrites nothing later either.
        assert cbx("box", "edit", old, "--in-place", "--file", str(kept)).code == 5
        remedy = shlex.split(result.err.split("`")[1])
        taken_up = cbx(*remedy[1:])
        [made] = lines(taken_up)
        assert taken_up.err == (
            f"warning: box {old} has changed since it was read, so the new box may lack cards: "
            f"`cbx box diff {made} {old}`\n"
        )
        assert (box(cbx, made)["card_ids"], box(cbx, made)["parent_ids"]) == ([two], [old])

    def test_the_box_of_a_profile_is_refused_before_the_editor_starts(
        self, cbx: Cbx, feed: Feed, editor: Editor, tmp_path: Path
    ) -> None:
        feed("name: clerk\nsystem_prompt: You are a clerk.\n")
        old = cbx("profile", "import", "-", "-o", "id").out.strip()
        editor(f"touch {tmp_path}/ran")
        result = cbx("box", "edit", old, "--in-place")
        assert refusal(result) == (5, f"box {old} holds the profile 'clerk'")
        assert not (tmp_path / "ran").exists()
