"""Printed commands, read as a shell and as cbx read them."""

import subprocess

import pytest

from cardbox_cli.model.text.command_lines import argument, command_line, quoted

ODD = [
    "turn_1",
    "a b",
    "it's",
    "-x",
    "--force",
    "a\nb",
    "$(id)",
    "`id`",
    "\x1b[2J\\",
    "\u3164",
    "\U000e0041'",
    "*",
    "#a",
]


@pytest.mark.parametrize("name", ODD)
def test_a_shell_reads_the_same_words(name: str) -> None:
    stop = command_line(("turn", "stop", name, "--reason", name), "--project", name)
    lines = [f"cbx turn show {argument(name)}", f"cbx render --turn {quoted(name)}", stop]
    expected = [["turn", "show", name], ["render", "--turn", name], ["turn", "stop", name, "--reason", name]]
    expected[2] += ["--project", name]
    if name.startswith("-"):
        expected[0] = ["turn", "show", "--", name]
        expected[2] = ["turn", "stop", "--reason", name, "--project", name, "--", name]
    for line, words in zip(lines, expected, strict=True):
        assert line.isprintable()
        script = f"cbx() {{ printf '%s\\0' \"$@\"; }}; {line}"
        read = subprocess.run(
            ["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
        )
        assert read.stdout.decode().split("\0")[:-1] == words
