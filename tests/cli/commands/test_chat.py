"""`cbx chat` as people and scripts call it: what is printed, in which shape, and with which exit code."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import conninfo

from cardbox_cli.cli.options import model_program
from cardbox_cli.errors import UsageError
from cardbox_cli.model.chats import CHAT_AGENT
from cardbox_cli.settings import CHAT_EPOCH, CHAT_KEY, CHAT_RUN, DATABASE_URL, HOME, TURN_ID
from tests.cli.conftest import Shell, succeed
from tests.conftest import Cbx

KEY = "telegram-chat-42"
ECHO = ("--exec", "echo hello", "--answers", "text")


@pytest.fixture
def talked(cbx: Cbx) -> None:
    """A chat with one round."""
    succeed(cbx("chat", "run", KEY, "--text", "Where is it?", *ECHO))


def test_show_prints_the_active_context_and_the_transcript(cbx: Cbx, talked: None) -> None:
    shown = cbx("chat", "show", KEY, "-o", "json").json()
    assert shown["chat_key"] == KEY
    assert shown["context_id"].startswith("ctx_")
    assert [(each["role"], each["content"]) for each in shown["messages"]] == [
        ("user", "Where is it?"),
        ("assistant", "hello"),
    ]
    assert shown["transcript"]["entries"] == 2
    assert shown["transcript"]["window"] == {"first": 0, "last": 2, "most": 30, "start": 0}
    assert [each["status"] for each in shown["runs"]] == ["success"]
    assert succeed(cbx("chat", "show", KEY, "-o", "id")).strip() == shown["context_id"]


def test_new_list_and_load_use_the_same_context_id(cbx: Cbx, talked: None) -> None:
    context = succeed(cbx("chat", "new", KEY, "--title", "T", "--reason", "R", "-o", "id")).strip()
    [listed] = cbx("chat", "list", KEY, "-o", "json").json()
    assert (listed["context_id"], listed["title"], listed["reason"]) == (context, "T", "R")
    assert listed["checkpoint_preview"] == "hello"
    assert succeed(cbx("chat", "list", KEY, "-o", "id")).strip() == context
    loaded = cbx("chat", "load", KEY, context, "-o", "json").json()
    assert (loaded["loaded"], loaded["messages"], loaded["archived"]) == (context, 2, None)


def test_an_unused_title_causes_a_note(cbx: Cbx, talked: None) -> None:
    assert "title" not in cbx("chat", "new", KEY, "--title", "T").err
    context = succeed(cbx("chat", "load", KEY, "--query", "T", "-o", "id")).strip()
    again = cbx("chat", "new", KEY, "--title", "U")
    assert f"{context} did not change since it was loaded, and keeps its title and reason" in again.err
    empty = cbx("chat", "new", KEY, "--reason", "V", "-o", "json")
    assert (empty.code, empty.json()["archived"]) == (0, None)
    assert "nothing was archived: the chat had no active context" in empty.err
    assert [each["title"] for each in cbx("chat", "list", KEY, "-o", "json").json()] == ["T"]


def test_list_without_a_key_lists_all_chats(cbx: Cbx, talked: None) -> None:
    succeed(cbx("chat", "send", "web-chat-1", "hi"))
    assert succeed(cbx("chat", "list", "-o", "id")).split() == [KEY, "web-chat-1"]


def test_show_prints_step_ids_that_render_accepts(cbx: Cbx, talked: None) -> None:
    succeed(cbx("chat", "run", KEY, "--text", "And now?", *ECHO))
    shown = cbx("chat", "show", KEY, "-o", "json").json()
    newest, first = shown["steps"]
    assert [each["run_id"] for each in (newest, first)] == [each["run_id"] for each in shown["runs"]]
    assert (newest["number"], first["number"], first["status"]) == (1, 1, "completed")
    assert first["step_id"] in cbx("chat", "show", KEY).out
    asked = cbx("render", "--chat", KEY, "--at", first["step_id"]).json()["messages"]
    assert [each["content"] for each in asked[1:]] == ["Where is it?"]


def test_a_message_is_stored_unchanged(cbx: Cbx, feed: Callable[[str], None]) -> None:
    succeed(cbx("chat", "send", KEY, "@someone look"))
    feed("two\nlines\n")
    succeed(cbx("chat", "send", KEY, "--file", "-"))
    said = cbx("chat", "transcript", KEY, "-o", "json").json()
    assert [(each["position"], each["text"]) for each in said] == [(0, "@someone look"), (1, "two\nlines")]


def test_control_characters_in_messages_never_reach_the_terminal(cbx: Cbx) -> None:
    succeed(cbx("chat", "send", KEY, "red \x1b[31m alert\x07"))
    succeed(cbx("chat", "run", KEY, "--exec", "printf 'an\\033[2Jswer'", "--answers", "text"))
    succeed(cbx("chat", "new", KEY, "--title", "a\x1b]0;title\x07"))
    for words in (("transcript", KEY), ("list", KEY), ("show", KEY), ("list",), ("why", KEY)):
        assert "\x1b" not in cbx("chat", *words).out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "nobody"), 3, "no chat 'nobody' in project 'p'"),
        (("new", "nobody"), 3, "no chat 'nobody' in project 'p'"),
        (("list", "nobody"), 3, "no chat 'nobody' in project 'p'"),
        (("run", "nobody", *ECHO), 3, "no chat 'nobody' in project 'p'"),
        (("why", "nobody"), 3, "no chat 'nobody' in project 'p', and none with a similar key"),
        (("run", KEY, *ECHO), 3, f"chat '{KEY}' has no unanswered message"),
        (("load", KEY), 2, "pass either CONTEXT or --query"),
        (("load", KEY, "ctx_no"), 3, f"chat '{KEY}' has no archived context 'ctx_no'"),
        (("load", KEY, "--query", "zzz"), 3, f"no archived context of chat '{KEY}' matches 'zzz'"),
        (
            ("clear", KEY),
            2,
            f"Forget 2 messages of chat {KEY}? Cannot ask for confirmation without a terminal",
        ),
        (("send", KEY), 2, "pass either TEXT or --file"),
        (("send", KEY, ""), 4, "the message is blank"),
        (
            ("send", "a\x1bb", "hello"),
            4,
            "the chat's key: 'a\\x1bb' contains the invisible character '\\x1b'",
        ),
        (("reply", "hello"), 2, "the key of the chat is missing; pass a key and a message"),
        (("persona", "Nobody"), 3, "no persona 'Nobody' in project 'p'"),
        (("run", KEY, "--exec", " "), 2, "--exec is empty"),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, tuple) else None,
)
def test_invalid_commands_fail_and_write_nothing(
    cbx: Cbx,
    talked: None,
    row_counts: Callable[[], dict[str, int]],
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    before = row_counts()
    result = cbx("chat", *words, "-o", "json")
    assert (result.code, result.error["message"]) == (code, message)
    assert row_counts() == before


def test_a_failed_run_reports_the_cause_and_keeps_the_message_unanswered(cbx: Cbx) -> None:
    result = cbx("chat", "run", KEY, "--text", "a", "--exec", "exit 3", "-o", "json")
    assert result.code == 8
    assert result.error["message"].endswith("failed: the command ended with exit code 3")
    assert cbx("chat", "show", KEY, "-o", "json").json()["transcript"]["unanswered"] == 1
    assert cbx("chat", "run", KEY, "--exec", "exit 3").out == ""


def test_a_run_in_a_busy_chat_is_refused(cbx: Cbx, talked: None, database: Any) -> None:
    succeed(cbx("chat", "send", KEY, "b"))
    database.connection.execute(
        "UPDATE cbx.chats SET run_id = 'run_x', owner = 'host-1', epoch = 9,"
        " lease_expires_at = now() + interval '1 hour'"
    )
    result = cbx("chat", "run", KEY, "--no-wait", *ECHO, "-o", "json")
    assert (result.code, result.error["code"]) == (6, "busy")
    assert result.error["details"] == {"chat_key": KEY, "run_id": "run_x", "owner": "host-1"}
    shown = cbx("chat", "show", KEY, "-o", "json").json()
    assert (shown["running"], shown["owner"]) == ("run_x", "host-1")
    assert "running     run_x, by host-1, lease until 2" in cbx("chat", "show", KEY).out


def test_the_hint_of_a_busy_chat_prevents_a_second_send(cbx: Cbx, talked: None, database: Any) -> None:
    database.connection.execute(
        "UPDATE cbx.chats SET run_id = 'run_x', epoch = 9, lease_expires_at = now() + interval '1 hour'"
    )
    result = cbx("chat", "run", KEY, "--text", "b", "--no-wait", *ECHO, "-o", "json")
    assert (result.code, result.error["code"]) == (6, "busy")
    assert result.error["hint"] == (
        "the message was sent; to answer it later, run the command without --text"
    )
    assert cbx("chat", "show", KEY, "-o", "json").json()["transcript"]["unanswered"] == 1


def test_a_stopped_run_reports_the_state_of_its_message_and_replies(cbx: Cbx) -> None:
    stop = f"kill -INT {os.getpid()}; sleep 9"
    plain = cbx("chat", "run", KEY, "--text", "a", "--exec", stop)
    assert (plain.code, "the run was stopped; its message is unanswered\n" in plain.err) == (130, True)
    reply = f"{sys.executable} -c 'from cardbox_cli.entry import script; script()' chat reply on-its-way"
    words = ("--exec", f"{reply}; {stop}", "--env", DATABASE_URL.name)
    sent = cbx("chat", "run", KEY, *words)
    assert (sent.code, "the run was stopped; its replies stay in the chat\n" in sent.err) == (130, True)
    assert [each["text"] for each in cbx("chat", "transcript", KEY, "-o", "json").json()] == [
        "a",
        "on-its-way",
    ]


def test_a_read_only_role_is_refused_without_retries(cbx: Cbx, talked: None, database: Any) -> None:
    role = f"reads_{os.getpid()}"
    succeed(cbx("chat", "send", KEY, "b"))
    database.connection.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA public, resource, state, cbx TO {role};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public, resource, state, cbx TO {role}"
    )
    own = ("--database-url", conninfo.make_conninfo(os.environ[DATABASE_URL.name], user=role))
    try:
        succeed(cbx("chat", "show", KEY, *own))
        result = cbx("chat", "run", KEY, *ECHO, *own)
        assert (result.code, "permission denied for table" in result.err) == (7, True)
        assert "trying again" not in result.err
    finally:
        database.connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_why_exits_8_if_the_chat_starts_without_its_history(cbx: Cbx, talked: None) -> None:
    assert cbx("chat", "why", KEY).code == 0
    found = cbx("chat", "why", f"{KEY}-topic-1", "-o", "json")
    assert (found.code, [each["cause"] for each in found.json()["causes"]]) == (8, ["another-key"])
    assert cbx("chat", "why", f"{KEY}-topic-1", "-o", "id").out.split() == [KEY]
    succeed(cbx("chat", "clear", KEY, "--yes"))
    assert [each["cause"] for each in cbx("chat", "why", KEY, "-o", "json").json()["causes"]] == ["cleared"]


def test_memory_and_personas_are_stored_and_read_back(cbx: Cbx, tmp_path: Path) -> None:
    (tmp_path / "m.md").write_text("likes tea\n")
    card = succeed(cbx("chat", "memory", KEY, f"@{tmp_path}/m.md", "-o", "id")).strip()
    assert cbx("card", "show", card, "-o", "json").json()["type"] == "chat.memory"
    assert succeed(cbx("chat", "memory", KEY)) == "likes tea\n"
    succeed(cbx("chat", "persona", "Primary", "Be kind."))
    [persona] = cbx("chat", "persona", "-o", "json").json()
    assert (persona["name"], persona["text"]) == ("Primary", "Be kind.")
    succeed(cbx("chat", "persona", "Primary", ""))
    assert cbx("chat", "persona", "-o", "json").json() == []


def test_a_reply_of_a_run_requires_all_variables_of_the_run(
    cbx: Cbx, talked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHAT_RUN.name, "run_x")
    result = cbx("chat", "reply", KEY, "hello")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error: CBX_CHAT_RUN is set, but CBX_CHAT_KEY and CBX_CHAT_EPOCH do not name a run",
    )
    monkeypatch.setenv(CHAT_KEY.name, KEY)
    monkeypatch.setenv(CHAT_EPOCH.name, "9" * 5000)
    assert cbx("chat", "reply", KEY, "hello").code == 2
    monkeypatch.setenv(CHAT_EPOCH.name, "1")
    result = cbx("chat", "reply", "hello")
    assert result.code == 5
    assert len(cbx("chat", "transcript", KEY, "-o", "json").json()) == 2


def test_messages_of_a_run_to_another_chat_have_the_id_of_the_run(
    cbx: Cbx, talked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in ((CHAT_RUN, "run_x"), (CHAT_KEY, "another"), (CHAT_EPOCH, "1")):
        monkeypatch.setenv(variable.name, value)
    for words in (["reply", KEY, "said"], ["send", KEY, "asked"], ["correct", KEY, "mended"]):
        card = succeed(cbx("chat", *words, "-o", "id")).strip()
        told = cbx("card", "show", card, "-o", "json").json()["metadata"]
        assert (told["agent_turn_id"], told["author_id"]) == ("run_x", CHAT_AGENT)


def test_a_run_cannot_write_system_text(
    cbx: Cbx, talked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeed(cbx("chat", "memory", KEY, "likes tea"))
    for variable in (CHAT_RUN, TURN_ID):
        with monkeypatch.context() as patch:
            patch.setenv(variable.name, "run_x")
            for words in (["memory", KEY, "x"], ["persona", "Primary", "x"], ["import", str(tmp_path)]):
                refused = cbx("chat", *words)
                assert (refused.code, "system text" in refused.err) == (5, True), refused
            assert succeed(cbx("chat", "memory", KEY)) == "likes tea\n"


def test_commands_of_a_run_get_the_database_only_with_env(
    cbx: Cbx, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ("--exec", "cbx chat reply hello 2>&1; echo", "--answers", "text")
    told = shell.run("chat", "run", KEY, "--text", "a", *said).out
    assert "error: this command runs for a chat, but the run passes it no database" in told
    assert shell.run("chat", "run", KEY, "--text", "a", *said, "--env", DATABASE_URL.name).out == "hello\n"
    given: dict[str, str] = {}

    def program_of(*_: object, environment: dict[str, str], **__: object) -> None:
        given.update(environment)
        raise UsageError("that is all")

    monkeypatch.setattr(model_program, "make_program", program_of)
    monkeypatch.delenv(DATABASE_URL.name)
    assert cbx("chat", "run", KEY, *said).code == 2
    assert HOME.name not in given
    assert cbx("chat", "run", KEY, *said, "--env", HOME.name).code == 2
    assert HOME.name in given


def test_chats_of_different_projects_are_separate(cbx: Cbx, talked: None) -> None:
    assert cbx("chat", "show", KEY, "-p", "other").code == 3
    assert succeed(cbx("chat", "list", "-p", "other")) == ""
    succeed(cbx("chat", "send", KEY, "hi", "-p", "other"))
    assert len(cbx("chat", "transcript", KEY, "-p", "other", "-o", "json").json()) == 1


def test_render_shows_the_last_step_or_previews_the_next(cbx: Cbx, talked: None) -> None:
    last = cbx("render", "--chat", KEY)
    assert (last.code, "as cbx would compose it" in last.err) == (0, False)
    assert [each["content"] for each in last.json()["messages"][1:]] == ["Where is it?"]
    succeed(cbx("render", "--chat", KEY, "--at", "1", "--verify"))
    succeed(cbx("chat", "send", KEY, "And now?"))
    following = cbx("render", "--chat", KEY)
    assert "as cbx would compose it" in following.err
    assert [each["content"] for each in following.json()["messages"][1:]] == [
        "Where is it?",
        "hello",
        "And now?",
    ]
    assert cbx("render", "--chat", KEY, "--at", "9").code == 3
    assert cbx("render", "--chat", "nobody").code == 3
    assert cbx("render", "--chat", KEY, "--turn", "x").code == 2


def test_an_old_database_reports_the_missing_table(cbx: Cbx, database: Any) -> None:
    database.connection.execute("DROP TABLE cbx.chat_runs")
    result = cbx("chat", "list")
    assert (result.code, result.err.splitlines()[0]) == (7, "error: the database has no table cbx.chat_runs")


def test_a_correction_to_an_unknown_chat_is_refused(cbx: Cbx) -> None:
    refused = cbx("chat", "correct", "chat-tpyo", "I mean order 7")
    assert (refused.code, refused.err.splitlines()[0]) == (3, "error: no chat 'chat-tpyo' in project 'p'")
    assert cbx("chat", "list", "-o", "json").json() == []
