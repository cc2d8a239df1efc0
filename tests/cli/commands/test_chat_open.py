"""`cbx chat open`: lines from a script and from a terminal."""

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Shell, succeed
from tests.cli.typist import Typist

# Tells what it is asked, a word at a time; and waits before the end where that is asked for.
ECHO = """
import json, sys, time
said = json.load(sys.stdin)["messages"][-1]["content"]
for word in f"you said: {said}".split():
    print(word, end=" ", flush=True)
if "wait" in said:
    time.sleep(60)
print()
"""


@pytest.fixture
def ask(tmp_path: Path) -> str:
    script = tmp_path / "ask.py"
    script.write_text(ECHO)
    return f"{sys.executable} {script}"


def texts(shell: Shell, key: str = "me") -> list[str]:
    shown = shell.run("chat", "transcript", key, "-o", "jsonl")
    return [json.loads(each)["text"] for each in succeed(shown).splitlines()]


def carried(shell: Shell) -> list[str]:
    """What the next run carries with it."""
    return [each["content"] for each in shell.run("chat", "show", "me", "-o", "json").json()["messages"]]


class TestAScript:
    def test_each_line_is_a_message_or_a_slash_command(self, shell: Shell, ask: str) -> None:
        lines = "Hello\n\n/new First try\n/list\n/load first\n//etc is a folder\n/exit\nnever said\n"
        result = shell.run("chat", "open", "me", "--exec", ask, stdin=lines.encode())
        out = succeed(result)
        assert out.startswith("you said: Hello \n")
        assert "First try" in out
        assert out.endswith("you said: /etc is a folder \n")
        assert texts(shell) == [
            "Hello",
            "you said: Hello",
            "/etc is a folder",
            "you said: /etc is a folder",
        ]
        assert carried(shell) == texts(shell)

    def test_special_characters_in_a_message_have_no_effect(self, shell: Shell, ask: str) -> None:
        said = ["--help", "-", "@/etc/passwd", "'quotes\" and \\ more", "# 中文 🎉"]
        succeed(shell.run("chat", "open", "me", "--exec", ask, stdin="\n".join([*said, ""]).encode()))
        assert texts(shell)[::2] == said

    def test_load_accepts_an_id_and_refuses_no_argument(self, shell: Shell, ask: str) -> None:
        lines = "Hello\n/new a\n"
        succeed(shell.run("chat", "open", "me", "--exec", ask, stdin=lines.encode()))
        [context] = shell.run("chat", "list", "me", "-o", "json").json()
        loading = f"/load {context['context_id']}\n/load\n"
        result = shell.run("chat", "open", "me", "--exec", ask, stdin=loading.encode())
        assert (result.code, result.out.count(context["context_id"])) == (4, 1)

    def test_the_first_failure_ends_the_session(self, shell: Shell, ask: str) -> None:
        result = shell.run("chat", "open", "me", "--exec", ask, stdin=b"/nwe\nHello\n")
        assert result.code == 2
        assert "unknown command '/nwe'; did you mean '/new'?" in result.err
        assert result.out == ""

    def test_a_line_that_is_not_utf_8_is_refused_with_its_number(self, shell: Shell, ask: str) -> None:
        result = shell.run("chat", "open", "me", "--exec", ask, stdin=b"a\n\xff\n")
        assert result.code == 4
        assert "standard input:2 is not UTF-8" in result.err
        assert texts(shell) == ["a", "you said: a"]

    def test_json_lines_output_has_one_object_for_each_answer(self, shell: Shell, ask: str) -> None:
        result = shell.run("chat", "open", "me", "--exec", ask, "-o", "jsonl", stdin=b"a\nb\n")
        told = [json.loads(each)["text"] for each in succeed(result).splitlines()]
        assert told == ["you said: a", "you said: b"]

    def test_the_text_of_a_json_answer_is_shown(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "answer.json").write_text('{"role": "assistant", "content": "in words \\u001b[2J"}')
        words = ["chat", "open", "me", "--exec", f"cat {tmp_path}/answer.json"]
        assert succeed(shell.run(*words, stdin=b"Hello\n")) == "in words \\x1b[2J\n"

    def test_control_characters_in_a_streamed_answer_are_escaped(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "answer.txt").write_text("\x1b]0;title\x07中文 🎉")
        words = ["chat", "open", "me", "--exec", f"cat {tmp_path}/answer.txt"]
        assert succeed(shell.run(*words, stdin=b"Hello\n")) == "\\x1b]0;title\\x07中文 🎉\n"

    def test_the_options_of_a_run_are_accepted(self, shell: Shell, tmp_path: Path) -> None:
        words = ["chat", "open", "me", "--exec", "cat", "--format", "text", "--answers", "text"]
        out = succeed(shell.run(*words, "--layer", "framework__context=Be brief", stdin=b"Hello\n"))
        assert "Be brief" in out
        assert "Hello" in out

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (["me", "--exec", " "], 2),
            (["a\x1bb", "--exec", "cat"], 4),
            (["me", "--exec", "no-such-program"], 2),
        ],
    )
    def test_invalid_arguments_are_refused(self, shell: Shell, words: list[str], code: int) -> None:
        result = shell.run("chat", "open", *words, stdin=b"Hello\n")
        assert result.code == code
        assert "\x1b" not in result.err

    def test_chat_open_is_refused_inside_the_shell(self, shell: Shell) -> None:
        result = shell.run("shell", stdin=b"chat open me --exec cat\n")
        assert result.code == 2
        assert "cbx chat open cannot be used inside cbx shell" in result.err


class TestATerminal:
    @pytest.fixture
    def typist(self, shell: Shell, tmp_path: Path, ask: str) -> Iterator[Typist]:
        # No inputrc of whoever runs the tests, no bracketed paste.
        (tmp_path / "inputrc").write_text("set enable-bracketed-paste off\nset bell-style none\n")
        environment = {
            **shell.environment,
            "CBX_HOME": str(tmp_path / "home"),
            "INPUTRC": str(tmp_path / "inputrc"),
        }
        command = [sys.executable, "-m", "cardbox_cli", "chat", "open", "me", "--exec", ask]
        with Typist(command, environment, shell.folder) as typist:
            typist.see(r"me> $")
            yield typist

    def test_a_session_answers_messages_and_writes_a_private_history(
        self, typist: Typist, shell: Shell, tmp_path: Path
    ) -> None:
        typist.type("Hello\r")
        typist.see(r"you said: Hello \nme> $")
        typist.type("/new The first\r")
        typist.see(r"archived +ctx_.*\n[^>]*me> $")
        typist.type("Again\r")
        typist.see(r"you said: Again \nme> $")
        typist.type("/load hello\r")
        typist.see(r"found by  1 of 1 word: 'hello' in its messages\nme> $")
        typist.type("/show\r")
        typist.see(r"you said: Hello")
        typist.see(r"me> $")
        # The history has messages and commands.
        typist.type("\x1b[A")
        typist.see("/show$")
        typist.type("\x1b[A")
        typist.see("load hello$")
        typist.type("\x15/n\t")
        typist.see("/new $")
        typist.type("\x15/nothing\r")
        typist.see(r"error: unknown command '/nothing'[^>]*me> $")
        typist.type("\x04")
        assert typist.end() == 0
        file = tmp_path / "home" / "chat_history"
        assert file.read_text().splitlines()[:2] == ["Hello", "/new The first"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_ctrl_c_during_an_answer_keeps_the_message(self, typist: Typist, shell: Shell) -> None:
        typist.type("Hello\r")
        typist.see(r"you said: Hello \nme> $")
        typist.type("Please wait\r")
        typist.see(r"you said: Please wait")  # it shows what comes as it comes
        typist.type("\x03")
        typist.see(r"its message is unanswered\nme> $")
        assert texts(shell) == ["Hello", "you said: Hello", "Please wait"]
        assert carried(shell) == ["Hello", "you said: Hello"]
        typist.type("Go on\r")
        typist.see(r"you said: .*Go on \nme> $")
        typist.type("\x04")
        assert typist.end() == 0
        said = ["Hello", "you said: Hello", "Please wait", "Go on", "you said: Go on"]
        assert texts(shell) == said
        assert carried(shell) == said

    def test_ctrl_c_abandons_a_line(self, typist: Typist) -> None:
        typist.type("half a mess")
        typist.see("half a mess$")
        typist.press_until("\x03", r"\nme> $")
        typist.type("/clear\r")
        typist.see(r"\nme> $")
        typist.type("/quit\r")
        assert typist.end() == 0
