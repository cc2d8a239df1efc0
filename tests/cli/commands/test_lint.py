"""What `render --check`, `card lint`, `pack --check` and `dispatch --check` say, where they say it, and how they end."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.providers.registry import provider_named
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx, Result

Feed = Callable[[str | bytes], None]

KEYS = ["rule", "severity", "provider", "card_id", "box_id", "position", "message", "source", "remedy"]

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKED = {"role": "user", "content": "How late is it?"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "9"}
TWICE = [ASKED, CALLED, ANSWERED, CALLED, ANSWERED]

TORN = "the tool call 'c1' has no result"


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """A conversation file of these messages, and what stands beside them; its path."""

    def write(*messages: Any, **beside: Any) -> str:
        path = tmp_path / "chat.json"
        path.write_text(json.dumps({**beside, "messages": messages}))
        return str(path)

    return write


@pytest.fixture
def box(cbx: Cbx, file: Callable[..., str]) -> Callable[..., str]:
    """The box of a conversation of these messages."""
    return lambda *messages: lines(cbx("card", "import", file(*messages), "--from", "openai", "-o", "id"))[0]


class TestCardLint:
    def test_a_valid_file_has_no_findings(self, offline: Cbx, file: Callable[..., str]) -> None:
        sound = file(ASKED, CALLED, ANSWERED)
        assert offline("card", "lint", sound, "-o", "json") == Result(
            0, "[]\n", "recognized as openai: a message has 'tool_calls'\n"
        )
        assert offline("card", "lint", sound, "--from", "openai") == Result(0, "", "nothing found\n")

    @pytest.mark.parametrize("columns", [80, 140])
    def test_a_terminal_shows_the_whole_text_of_a_finding(
        self, shell: Shell, file: Callable[..., str], columns: int
    ) -> None:
        shown = shell.on_terminal("card", "lint", file(ASKED, CALLED), columns=columns, NO_COLOR="1")
        assert max(map(len, shown.out.splitlines()[1:-1])) <= columns
        said = " ".join(shown.out.split())
        assert TORN in said
        assert "or a result that says that the call failed, or drop the call" in said

    def test_findings_are_printed_as_json_and_exit_8(self, offline: Cbx, file: Callable[..., str]) -> None:
        torn = file(ASKED, CALLED)
        result = offline("card", "lint", torn, "-o", "json")
        assert result.code == 8
        [finding] = result.json()
        assert list(finding) == [*KEYS, "file"]
        assert finding["file"] == torn
        assert (finding["rule"], finding["severity"], finding["provider"]) == (
            "call-without-result",
            "error",
            "openai",
        )
        assert (finding["box_id"], finding["position"]) == (None, 1)
        assert finding["message"] == f"{torn}: message 1: {TORN}"
        assert result.error["message"] == "the lint found 1 error"

    def test_findings_have_the_card_ids_that_an_import_would_give(
        self, cbx: Cbx, file: Callable[..., str], box: Callable[..., str]
    ) -> None:
        [finding] = cbx("card", "lint", file(ASKED, CALLED), "-o", "json").json()
        imported = cbx("box", "show", box(ASKED, CALLED), "-o", "json").json()["cards"]
        assert finding["card_id"] == imported[1]["card_id"]

    def test_the_table_shows_findings_and_remedies(self, offline: Cbx, file: Callable[..., str]) -> None:
        header, finding, blank, _, remedy = lines_of(offline("card", "lint", file(ASKED, CALLED)), code=8)
        assert header.split() == ["#", "CARD", "SEVERITY", "RULE", "MESSAGE"]
        assert finding.split()[0:1] + finding.split()[2:4] == ["1", "error", "call-without-result"]
        assert finding.endswith(f"message 1: {TORN}")
        assert blank == ""
        assert remedy.split("  ")[0] == "call-without-result"

    def test_the_format_option_selects_the_rules_of_a_provider(
        self, offline: Cbx, file: Callable[..., str]
    ) -> None:
        result = offline("card", "lint", file(*TWICE), "--format", "anthropic", "-o", "json")
        assert result.code == 0
        assert [each["rule"] for each in result.json()] == ["tool-id-repeated"]
        assert offline("card", "lint", file(*TWICE), "-o", "json").json() == []

    def test_findings_name_the_conversation_in_standard_input(self, offline: Cbx, feed: Feed) -> None:
        feed(json.dumps([{"messages": [ASKED]}, {"messages": [ASKED, CALLED]}]))
        result = offline("card", "lint", "-", "-o", "json")
        assert [each["message"] for each in result.json()] == [f"standard input[1]: message 1: {TORN}"]

    def test_each_of_several_files_and_folders_is_checked(self, offline: Cbx, tmp_path: Path) -> None:
        (tmp_path / "logs" / "deep").mkdir(parents=True)
        for name, messages in (("a.json", [ASKED, CALLED]), ("deep/b.json", [ASKED]), ("notes.txt", [])):
            (tmp_path / "logs" / name).write_text(json.dumps({"messages": messages}))
        more = tmp_path / "more.jsonl.gz"
        more.write_bytes(gzip.compress(json.dumps([ASKED, CALLED]).encode()))
        folder, found = str(tmp_path / "logs"), f"message 1: {TORN}"
        result = offline("card", "lint", folder, str(more), "-o", "json")
        assert result.code == 8
        assert [each["message"] for each in result.json()] == [
            f"{folder}/a.json: {found}",
            f"{more}: {found}",
        ]
        for name in ("a.json", "deep/b.json"):
            assert f"{folder}/{name}: recognized as openai: " in result.err
        assert result.error["message"] == "the lint found 2 errors"
        sound = offline("card", "lint", f"{folder}/deep", f"{folder}/deep/b.json")
        assert (sound.code, sound.out, sound.err.splitlines()[-1]) == (0, "", "nothing found")

    def test_an_unreadable_file_does_not_stop_the_check_of_others(self, offline: Cbx, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text('{"oops')
        (tmp_path / "b.json").write_text(json.dumps([ASKED, CALLED]))
        files = [str(tmp_path / name) for name in ("a.json", "gone.json", "b.json")]
        result = offline("card", "lint", *files, "-o", "json")
        assert (result.code, [each["rule"] for each in result.json()]) == (4, ["call-without-result"])
        assert result.err.startswith(f"error: {files[0]}:1:2: not JSON: ")
        assert f"\nerror: no file {files[1]!r}\n" in result.err
        assert result.error["message"] == "2 of 3 files could not be read and were not checked"
        assert [(each["file"], each["code"]) for each in result.error["details"]["failed"]] == [
            (files[0], "invalid-conversation"),
            (files[1], "not-found"),
        ]
        assert offline("card", "lint", *files[1:]).code == 3
        empty = tmp_path / "empty"
        empty.mkdir()
        result = offline("card", "lint", str(empty), files[2], "-o", "json")
        assert (result.code, [each["file"] for each in result.json()]) == (4, [files[2]])
        assert f"error: the folder {str(empty)!r} has no file that ends in .json, " in result.err
        assert [each["file"] for each in result.error["details"]["failed"]] == [str(empty)]
        assert offline("card", "lint", str(empty)).code == 4

    def test_unreadable_files_are_not_reported_as_clean(self, offline: Cbx, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text(json.dumps([ASKED]))
        (tmp_path / "b.json").write_text(json.dumps(TWICE))
        gone, sound, twice = (str(tmp_path / name) for name in ("gone.json", "a.json", "b.json"))
        none = offline("card", "lint", gone, f"{gone}.gz")
        assert (none.code, none.out) == (3, "")
        assert none.err.splitlines() == [
            f"error: no file {gone!r}",
            f"error: no file {gone + '.gz'!r}",
            "error: 2 of 2 files could not be read and were not checked",
        ]
        some = offline("card", "lint", gone, sound)
        assert (some.code, some.err.splitlines()[-2]) == (3, "nothing found in the 1 file that could be read")
        warned = offline("card", "lint", gone, sound, twice, "--format", "anthropic")
        assert warned.err.splitlines()[-2] == (
            "1 warning, no errors in the 2 files that could be read: a provider would accept this"
        )

    def test_unusual_file_names_are_escaped_on_one_line(self, offline: Cbx, tmp_path: Path) -> None:
        names = [os.fsencode(tmp_path) + name for name in (b"/a\nb.json", b"/c\xff.json", b"/d\xff\n.json")]
        for name, text in zip(names, [json.dumps([ASKED, CALLED])] * 2 + ["{oops"], strict=True):
            Path(os.fsdecode(name)).write_text(text)
        result = offline("card", "lint", *map(os.fsdecode, names), "-o", "json")
        assert [each["file"] for each in result.json()] == [
            f"{tmp_path}/a\nb.json",
            f"{tmp_path}/c\\xff.json",
        ]
        assert [each["message"] for each in result.json()] == [
            f"{tmp_path}/a\\nb.json: message 1: {TORN}",
            f"{tmp_path}/c\\xff.json: message 1: {TORN}",
        ]
        [failed] = result.error["details"]["failed"]
        assert failed["file"] == f"{tmp_path}/d\\xff\n.json"
        first, *_, last = (line for line in result.err.splitlines() if not line.startswith("{"))
        assert first.startswith(f"{tmp_path}/a\\nb.json: recognized as ")
        assert last.startswith(f"error: {tmp_path}/d\\xff\\n.json:1:2: not JSON: ")
        alone = offline("card", "lint", os.fsdecode(names[1]), "-o", "json")
        assert [each["file"] for each in alone.json()] == [f"{tmp_path}/c\\xff.json"]

    def test_conversations_without_messages_are_skipped_as_in_an_import(
        self, offline: Cbx, tmp_path: Path
    ) -> None:
        file = tmp_path / "f.jsonl"
        left_out = f"skipped 1 conversation without messages: {file}"
        # The second is of a session in another file, and would be imported: there is nothing to check in it.
        for named in ("sessionId", "leafUuid"):
            file.write_text(json.dumps({"type": "summary", "summary": "Shop", named: "u"}))
            result = offline("card", "lint", str(file))
            assert (result.code, result.err.splitlines()[1:]) == (0, [left_out, "nothing found"])
        file.write_text(json.dumps({"samples": [{"id": 1}, {"messages": [ASKED, CALLED]}]}))
        result = offline("card", "lint", str(file), "--at", "samples.messages", "-o", "json")
        assert [each["rule"] for each in result.json()] == ["call-without-result"]
        assert f"{left_out}: samples[0]\n" in result.err

    @pytest.mark.parametrize(
        ("line", "is_request"),
        [
            ({"messages": []}, False),
            ({"title": "x", "messages": []}, False),
            ({"title": "x"}, False),
            ({"model": "gpt-4o", "messages": []}, True),
            ({"model": "gpt-4o", "messages": None}, True),
            ({"model": "gpt-4o"}, True),
            ({"temperature": 0.5}, True),
        ],
    )
    def test_only_a_request_without_messages_is_a_finding(
        self, offline: Cbx, tmp_path: Path, line: dict[str, Any], is_request: bool
    ) -> None:
        file = tmp_path / "f.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in ({"messages": [ASKED]}, line)))
        result = offline("card", "lint", str(file), "--at", "messages", "-o", "json")
        rules = {each["rule"]: each for each in result.json()}
        assert (f"skipped 1 conversation without messages: {file}:2\n" in result.err) is not is_request
        assert (result.code, "no-messages" in rules) == ((8, True) if is_request else (0, False))
        if is_request:
            assert rules["no-messages"]["message"] == f"{file}:2: the request has no message"
            assert "to a request in a file its messages" in rules["no-messages"]["remedy"]
        file.write_text(json.dumps(line))
        alone = offline("card", "lint", str(file), "--at", "messages", "-o", "json")
        if is_request:
            assert (alone.code, "no-messages" in {each["rule"] for each in alone.json()}) == (8, True)
        else:
            assert alone.code == (0 if "messages" in line else 4)

    def test_keys_above_missing_messages_do_not_make_a_request(self, offline: Cbx, tmp_path: Path) -> None:
        file = tmp_path / "f.jsonl"
        logged = {"body": {"model": "gpt-4o", "messages": [ASKED]}}
        file.write_text(
            "".join(json.dumps(each) + "\n" for each in (logged, {"model": "gpt-4o"}, {"body": {}}))
        )
        result = offline("card", "lint", str(file), "--at", "body.messages", "-o", "json")
        assert (result.code, result.json()) == (0, [])
        assert f"skipped 2 conversations without messages, the first at {file}:2\n" in result.err

    def test_a_sample_without_messages_is_not_a_request(self, offline: Cbx, tmp_path: Path) -> None:
        file = tmp_path / "f.json"
        samples = [{"id": 1, "messages": []}, {"messages": [ASKED]}]
        file.write_text(json.dumps({"eval": {"model": "openai/gpt-4o"}, "samples": samples}))
        result = offline("card", "lint", str(file), "-o", "json")
        assert (result.code, "without messages" in result.err) == (0, True)

    def test_a_lint_hint_does_not_mention_an_import(self, offline: Cbx, cbx: Cbx, tmp_path: Path) -> None:
        file = tmp_path / "f.json"
        file.write_text(json.dumps([{"contents": [{"parts": [{"text": "x"}]}]}, {"messages": [CALLED]}]))
        assert offline("card", "lint", str(file)).err.endswith("hint: split the file by format\n")
        alone = cbx("card", "import", str(file)).err
        assert alone.endswith("hint: split the file by format; nothing was imported\n")
        of_several = cbx("card", "import", str(file), str(file)).err
        assert of_several.endswith("hint: split the file by format; nothing of this file was imported\n")

    def test_a_message_without_a_role_is_a_finding(self, offline: Cbx, file: Callable[..., str]) -> None:
        strange = file({"content": "hi"}, ASKED)
        [finding] = offline("card", "lint", strange, "-o", "json").json()
        assert (finding["rule"], finding["position"]) == ("role-unknown", 0)

    def test_a_message_that_cannot_be_imported_is_a_finding(
        self, offline: Cbx, file: Callable[..., str]
    ) -> None:
        strange = file({"role": "human", "content": "hi"}, {"role": "tool", "content": "a"}, system="s")
        result = offline("card", "lint", strange, "--from", "anthropic", "-o", "json")
        assert result.code == 8
        assert [(each["rule"], each["card_id"], each["position"]) for each in result.json()] == [
            ("role-unknown", None, 1),
            ("message-unreadable", None, 2),
        ]
        assert (
            result.json()[1]["message"] == f"{strange}: message 1: unknown role 'tool' for format anthropic"
        )

    def test_parameters_of_the_request_are_checked(self, offline: Cbx, file: Callable[..., str]) -> None:
        body = file(
            ASKED,
            CALLED,
            ANSWERED,
            {"role": "assistant", "content": "It is"},
            model="claude-opus-4-6",
            tools=[{"name": "g", "input_schema": {"type": "object"}}],
            temperature=1.5,
        )
        result = offline("card", "lint", body, "--format", "anthropic", "-o", "json")
        assert [each["rule"] for each in result.json()] == [
            "tool-not-offered",
            "prefill-refused",
            "temperature-out-of-range",
        ]

    @pytest.mark.parametrize(
        ("beside", "options", "provider"),
        [
            ({"model": "claude-sonnet-4-5"}, (), "anthropic"),
            ({"thinking": {"type": "adaptive"}}, (), "anthropic"),
            ({"system": "Be brief."}, (), "anthropic"),
            ({"model": "gpt-4o"}, (), "openai"),
            ({"max_tokens": 9}, (), "openai"),
            ({"model": "claude-sonnet-4-5"}, ("--from", "openai"), "openai"),
            ({"model": "claude-sonnet-4-5"}, ("--format", "openai"), "openai"),
        ],
    )
    def test_parameters_of_the_request_identify_the_provider(
        self,
        offline: Cbx,
        file: Callable[..., str],
        beside: dict[str, Any],
        options: tuple[str, ...],
        provider: str,
    ) -> None:
        result = offline("card", "lint", file(ASKED, CALLED, **beside), *options, "-o", "json")
        assert {each["provider"] for each in result.json()} == {provider}
        taken = "recognized as openai: a message has 'tool_calls'"
        told = {"anthropic": f"{taken}, checked for anthropic\n", "openai": f"{taken}\n"}
        assert result.err.startswith("" if "--from" in options else told[provider])

    def test_invalid_tools_are_a_finding(self, offline: Cbx, file: Callable[..., str]) -> None:
        for tools in ("x", [5]):
            result = offline("card", "lint", file(ASKED, tools=tools), "-o", "json")
            assert [each["rule"] for each in result.json()] == ["value-invalid"]

    def test_input_without_a_conversation_is_refused(self, offline: Cbx, feed: Feed) -> None:
        feed("{}")
        assert offline("card", "lint", "-").code == 4
        assert offline("card", "lint", "absent").code == 3
        result = offline("card", "lint", "-", "--format", "text")
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: --format: unknown format 'text'\n")


USE = {"type": "tool_use", "id": "a.b", "name": "f", "input": {}}
OUTCOME = {"type": "tool_result", "tool_use_id": "a.b", "content": "9"}
LOGGED = [
    {"role": "user", "content": [{"type": "text", "text": " "}, {"type": "text", "text": "How late is it?"}]},
    {"role": "assistant", "content": [USE]},
    {"role": "user", "content": [{"type": "text", "text": "Here:"}, OUTCOME]},
]


class TestAsLogged:
    def test_problems_that_rendering_repairs_are_errors_in_a_logged_request(
        self, cbx: Cbx, file: Callable[..., str]
    ) -> None:
        logged = file(*LOGGED, model="claude-sonnet-4-5", max_tokens=64)
        result = cbx("card", "lint", logged, "-o", "json")
        assert {(each["rule"], each["severity"], each["position"]) for each in result.json()} == {
            ("content-blank", "error", 0),
            ("tool-id-characters", "error", 1),
            ("result-not-first", "error", 2),
        }
        box = lines(cbx("card", "import", logged, "-o", "id"))[0]
        rendered = cbx("render", "--box", box, "--format", "anthropic", "--check", "-o", "json")
        assert (rendered.code, [each["severity"] for each in rendered.json()]) == (0, ["warning"])

    def test_unknown_keys_are_errors_that_name_the_sdk_version(
        self, offline: Cbx, file: Callable[..., str]
    ) -> None:
        body = file({**ASKED, "id": "m"}, model="gpt-4o", foo=1, service_tier="fastest")
        result = offline("card", "lint", body, "-o", "json")
        assert [(each["rule"], each["position"]) for each in result.json()] == [
            ("key-unknown", 0),
            ("parameter-unknown", None),
            ("value-unknown", None),
        ]
        schema = provider_named("openai").schema
        assert schema is not None
        assert f"foo is unknown to {schema.sdk}" in result.json()[1]["message"]
        allowed = offline("card", "lint", body, "--allow-unknown", "-o", "json")
        assert (allowed.code, {each["severity"] for each in allowed.json()}) == (0, {"warning"})

    def test_other_keys_of_a_plain_conversation_are_not_checked(
        self, offline: Cbx, file: Callable[..., str]
    ) -> None:
        chat = file(ASKED, title="A chat", metadata={"stars": 5}, user={"name": "ann"})
        assert offline("card", "lint", chat, "-o", "json").json() == []

    def test_an_input_string_is_an_unknown_parameter_for_openai(
        self, offline: Cbx, file: Callable[..., str]
    ) -> None:
        both = offline("card", "lint", file(ASKED, model="gpt-4o", input="And?"), "-o", "json")
        [finding] = both.json()
        assert (finding["rule"], finding["provider"], both.code) == ("parameter-unknown", "openai", 8)
        # Beside messages that are no request it is nobody's business.
        assert offline("card", "lint", file(ASKED, input="And?"), "-o", "json").json() == []

    def test_each_provider_has_its_own_rules(self, cbx: Cbx, file: Callable[..., str]) -> None:
        long = [{**CALL, "id": "c" * 50}]
        asked = [ASKED, {**CALLED, "tool_calls": long}, {**ANSWERED, "tool_call_id": "c" * 50}]
        body = file(*asked, model="mistral-large", safe_prompt=True)
        host = ("--provider", "openai-compatible", "-o", "json")
        assert cbx("card", "lint", body, "--from", "openai", *host).json() == []
        assert {
            each["rule"] for each in cbx("card", "lint", body, "--from", "openai", "-o", "json").json()
        } == {
            "tool-id-too-long",
            "parameter-unknown",
        }
        [torn] = cbx("card", "lint", file(ASKED, CALLED), "--from", "openai", *host).json()
        assert (torn["rule"], torn["provider"]) == ("call-without-result", "openai-compatible")
        box = lines(cbx("card", "import", file(*asked), "--from", "openai", "-o", "id"))[0]
        assert cbx("render", "--box", box, "--check", *host).json() == []
        assert [each["rule"] for each in cbx("render", "--box", box, "--check", "-o", "json").json()] == [
            "tool-id-too-long"
        ]

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ((), "--provider requires --check"),
            (("--check", "--format", "anthropic"), "openai-compatible does not accept the format anthropic"),
            (("--check", "--provider", "mistral"), "--provider: unknown provider 'mistral'"),
        ],
    )
    def test_invalid_uses_of_the_provider_option_are_refused(
        self, offline: Cbx, options: tuple[str, ...], error: str
    ) -> None:
        result = offline("render", "--box", "x", "--provider", "openai-compatible", *options)
        assert result.code == 2
        assert result.err.startswith(f"error: {error}\n")


def lines_of(result: Result, *, code: int) -> list[str]:
    assert result.code == code
    return result.out.splitlines()


class TestRenderCheck:
    def test_a_valid_box_has_no_findings(self, cbx: Cbx, box: Callable[..., str]) -> None:
        sound = box(ASKED, CALLED, ANSWERED)
        for format_ in ("openai", "anthropic", "text"):
            result = cbx("render", "--box", sound, "--format", format_, "--check", "-o", "json")
            assert result == Result(0, "[]\n", "")

    def test_findings_are_printed_instead_of_the_request(self, cbx: Cbx, box: Callable[..., str]) -> None:
        torn = box(ASKED, CALLED)
        result = cbx("render", "--box", torn, "--format", "anthropic", "--check", "-o", "json")
        assert result.code == 8
        [finding] = result.json()
        assert list(finding) == KEYS
        assert (finding["box_id"], finding["position"], finding["message"]) == (torn, 1, TORN)
        assert result.error["code"] == "findings"

    def test_a_deleted_card_is_a_finding_that_exits_0(self, cbx: Cbx, box: Callable[..., str]) -> None:
        held = box(ASKED, {**ASKED, "content": "b"})
        asked = cbx("box", "show", held, "-o", "json").json()["cards"][0]["card_id"]
        succeed(cbx("card", "delete", asked, "--yes"))
        result = cbx("render", "--box", held, "--check", "-o", "json")
        assert result.code == 0
        assert [(each["rule"], each["card_id"]) for each in result.json()] == [("card-deleted", asked)]

    def test_the_model_option_selects_the_rules(self, cbx: Cbx, box: Callable[..., str]) -> None:
        prefilled = box(ASKED, {"role": "assistant", "content": "{"})
        check = ("render", "--box", prefilled, "--format", "anthropic", "--check", "-o", "json")
        assert [each["rule"] for each in cbx(*check, "--model", "claude-opus-4-7").json()] == [
            "prefill-refused"
        ]
        assert cbx(*check, "--model", "claude-sonnet-4-5").json() == []

    def test_check_and_explain_cannot_be_combined(self, cbx: Cbx) -> None:
        result = cbx("render", "--box", "x", "--check", "--explain")
        assert (result.code, result.err) == (
            2,
            "error: --check and --explain cannot be combined\nhint: remove one of them\n",
        )

    def test_renamed_tool_calls_cause_a_warning(self, cbx: Cbx, box: Callable[..., str]) -> None:
        result = cbx("render", "--box", box(*TWICE), "--format", "anthropic", "--model", "m")
        ids = [block["id"] for each in result.json()["messages"][1::2] for block in each["content"]]
        assert ids == ["c1", "c1_2"]
        assert (
            result.err
            == "warning: 1 tool call got a new id, for example 'c1_2' instead of 'c1'; --check lists all of them\n"
        )


RECIPE = """\
target_profile_config: {profile_name: clerk}
context_packing_config:
  inherit_context: {include_boxes_from_args: [work]}
"""


class TestPackCheck:
    @pytest.fixture
    def pack(self, cbx: Cbx, feed: Feed, tmp_path: Path) -> Callable[..., Result]:
        """Pack the cards of a box for a clerk."""
        recipe = tmp_path / "clerk.yaml"
        recipe.write_text(RECIPE)
        feed("name: clerk\nllm_config: {model: claude-opus-4-6}\n")
        succeed(cbx("profile", "import", "-"))
        return lambda box, *options: cbx("pack", "-H", str(recipe), "-a", f"work={box}", "--check", *options)

    def test_a_valid_context_is_packed(self, pack: Callable[..., Result], box: Callable[..., str]) -> None:
        sound = box(ASKED, CALLED, ANSWERED)
        result = pack(sound, "-o", "id")
        assert (result.code, result.err, len(lines(result))) == (0, "", 1)
        assert pack(sound, "-o", "json").err == "[]\n"

    def test_errors_prevent_a_pack(
        self, pack: Callable[..., Result], box: Callable[..., str], row_counts: Callable[[], dict[str, int]]
    ) -> None:
        torn = box(ASKED, CALLED)
        before = row_counts()
        result = pack(torn)
        assert (result.code, result.out) == (8, "")
        found, error, hint = result.err.splitlines()
        assert found.startswith("error: exchange-split at card ")
        assert "position 1: the call 'c1' was inherited without its result" in found
        assert (error, hint) == (
            "error: the lint found 1 error",
            "hint: nothing was written; --force packs it anyway",
        )
        assert row_counts() == before
        assert pack(torn, "--dry-run").code == 8

    def test_force_packs_in_spite_of_errors_and_is_audited(
        self, cbx: Cbx, pack: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        result = pack(box(ASKED, CALLED), "--force", "-o", "json")
        assert result.code == 0
        [finding] = json.loads(result.err)
        assert (finding["rule"], finding["provider"], finding["box_id"], finding["position"]) == (
            "exchange-split",
            "anthropic",
            None,
            1,
        )
        box_id = result.json()["context_box_id"]
        assert len(cbx("box", "show", box_id, "-o", "json").json()["cards"]) == 2
        [audited] = cbx("audit", "--action", "pack --force", "-o", "json").json()
        assert audited["action"] == "pack --force"
        assert audited["detail"] == {"context_box_id": box_id, "overruled": ["exchange-split"]}

    def test_warnings_do_not_prevent_a_pack(
        self, pack: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        result = pack(box(*TWICE), "-o", "id")
        assert result.code == 0
        assert result.err.startswith("warning: tool-id-repeated at card ")

    def test_a_deleted_card_is_a_finding_that_exits_0(
        self, cbx: Cbx, pack: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        held = box(ASKED, {**ASKED, "content": "b"})
        first = cbx("box", "show", held, "-o", "json").json()["cards"][0]["card_id"]
        succeed(cbx("card", "delete", first, "--yes"))
        result = pack(held, "--allow-dangling", "-o", "json")
        assert result.code == 0
        assert [(each["rule"], each["card_id"]) for each in json.loads(result.err)] == [
            ("card-deleted", first)
        ]

    def test_force_without_check_is_refused(self, cbx: Cbx) -> None:
        result = cbx("pack", "-H", "delegate", "--force")
        assert (result.code, result.err) == (
            2,
            "error: --force requires --check\nhint: add --check, or remove --force\n",
        )


def cards_of(cbx: Cbx, box: str) -> list[str]:
    return [card["card_id"] for card in cbx("box", "show", box, "-o", "json").json()["cards"]]


class TestDispatchCheck:
    @pytest.fixture
    def dispatch(self, cbx: Cbx, feed: Feed) -> Callable[..., Result]:
        """Dispatch a turn of a clerk, who may call the tool `g`."""
        feed("name: clerk\nworker_target: clerks\nallowed_tools: [g]\n")
        succeed(cbx("profile", "import", "-"))
        succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
        return lambda *options: cbx("dispatch", "--agent", "clerk", *options, "--check")

    def test_a_valid_context_is_dispatched(
        self, dispatch: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        result = dispatch("-c", box(ASKED, CALLED, ANSWERED), "-o", "json")
        assert (result.code, result.err, result.json()["status"]) == (0, "[]\n", "accepted")

    def test_errors_prevent_a_dispatch_unless_force_is_given(
        self,
        cbx: Cbx,
        dispatch: Callable[..., Result],
        box: Callable[..., str],
        row_counts: Callable[[], dict[str, int]],
    ) -> None:
        torn = box(ASKED, CALLED)
        before = row_counts()
        result = dispatch("-c", torn)
        assert (result.code, result.out) == (8, "")
        found, error, hint = result.err.splitlines()
        assert found.startswith("error: call-without-result at card ")
        assert f"position 1: {TORN}" in found
        assert (error, hint) == (
            "error: the lint found 1 error",
            "hint: nothing was written; --force dispatches it anyway",
        )
        assert dispatch("-c", torn, "--dry-run").code == 8
        assert dispatch("-c", torn, "--wait").code == 8
        assert dispatch("-c", torn, "--force", "--dry-run", "-o", "id").code == 0
        assert row_counts() == before

        forced = dispatch("-c", torn, "--force", "-o", "json")
        assert (forced.code, forced.json()["status"]) == (0, "accepted")
        [finding] = json.loads(forced.err)
        assert (finding["rule"], finding["box_id"]) == ("call-without-result", torn)
        [audited] = cbx("audit", "--action", "dispatch --force", "-o", "json").json()
        assert (audited["action"], audited["agent_turn_id"]) == (
            "dispatch --force",
            forced.json()["agent_turn_id"],
        )
        assert audited["detail"] == {"overruled": ["call-without-result"]}

    def test_the_context_packed_by_a_recipe_is_checked(
        self,
        dispatch: Callable[..., Result],
        box: Callable[..., str],
        row_counts: Callable[[], dict[str, int]],
        tmp_path: Path,
    ) -> None:
        recipe = tmp_path / "clerk.yaml"
        recipe.write_text(RECIPE)
        request = ("-H", str(recipe), "-a", f"work={box(ASKED, CALLED)}", "-o", "json")
        before = row_counts()
        refused = dispatch(*request)
        assert (refused.code, refused.out, row_counts()) == (8, "", before)
        [finding] = json.loads(refused.err.splitlines()[0])
        assert (finding["rule"], finding["box_id"], finding["position"]) == ("exchange-split", None, 1)
        assert dispatch(*request, "--force").json()["created"]

    def test_the_output_box_is_checked_except_cards_of_a_running_turn(
        self, cbx: Cbx, dispatch: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        asked, called, answered = cards_of(cbx, box(ASKED, CALLED, ANSWERED))
        [output] = lines(cbx("box", "create", asked, called, "-o", "id"))
        [context] = lines(cbx("box", "create", answered, "-o", "id"))
        first = dispatch("-c", context, "--output-box", output, "-o", "json")
        assert (first.code, first.err) == (0, "[]\n")
        turn = {
            "CBX_AGENT": "clerk",
            "CBX_TURN_ID": first.json()["agent_turn_id"],
            "CBX_TURN_EPOCH": "1",
            "CBX_OUTPUT_BOX": output,
        }
        unanswered = cards_of(cbx, box(ASKED, ASKED, CALLED))[-1]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in turn.items():
                patch.setenv(name, value)
            succeed(cbx("box", "append", output, unanswered))
        assert dispatch("-c", context, "--output-box", output).code == 0

    def test_the_check_uses_the_tools_of_the_profile_and_the_dispatched_model(
        self, cbx: Cbx, dispatch: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        for name in ("f", "g"):
            succeed(cbx("tool", "add", name, "--description", "d"))
        request = ("-c", box(ASKED, CALLED, ANSWERED), "-o", "json")
        wished = ("--runtime-config", '{"model": "claude-opus-4-6"}')
        for options, provider in (((), "openai"), (wished, "anthropic")):
            [finding] = json.loads(dispatch(*request, *options).err)
            assert (finding["rule"], finding["provider"]) == ("tool-not-offered", provider)

    def test_a_repeated_request_is_not_checked_again(
        self, cbx: Cbx, dispatch: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        request = ("-c", box(ASKED, CALLED), "--correlation-id", "once", "-o", "json")
        assert dispatch(*request).code == 8
        first = dispatch(*request, "--force").json()
        again = dispatch(*request)
        assert (again.code, again.err, again.json()) == (0, "", {**first, "created": False})

    def test_a_request_that_is_not_accepted_is_not_checked(
        self, cbx: Cbx, dispatch: Callable[..., Result], box: Callable[..., str]
    ) -> None:
        result = dispatch("-c", box(ASKED, CALLED), "--source-agent", "nobody")
        assert (result.code, result.err.startswith("error: not accepted")) == (6, True)

    def test_force_without_check_is_refused(self, cbx: Cbx) -> None:
        result = cbx("dispatch", "--agent", "clerk", "-c", "x", "--force")
        assert (result.code, result.err) == (
            2,
            "error: --force requires --check\nhint: add --check, or remove --force\n",
        )
