"""Which command lines certainly lack their program."""

import os
from pathlib import Path

import pytest

from cardbox_cli.execution.worker.worker_program import missing_program


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("no-such-program -m 'a; b'", "no-such-program"),
        ("  no-such-program", "no-such-program"),
        ("no-such-program 2>&1 | cat", "no-such-program"),
        ("no-such-program && true", "no-such-program"),
        ("'/no such/program' x", "/no such/program"),
        ("./no-such-file", "./no-such-file"),
        ("/etc", "/etc"),
        # What the shell knows, or what it may yet find.
        ("cat", None),
        ("cd /tmp && ls", None),
        ("test -e x", None),
        ("[ -e x ]", None),
        (". ./no-such-file", None),
        ("exec no-such-program", None),
        ("if no-such-program; then cat; fi", None),
        ("no-such-program || cat", None),
        ("no-such-program; cat", None),
        ("no-such-program\ncat", None),
        ("{ no-such-program; }", None),
        ("(no-such-program)", None),
        ("f() { cat; }; f", None),
        ("A=1 no-such-program", None),
        ("$PROGRAM x", None),
        ("~/no-such-program", None),
        ("2>/dev/null cat", None),
        ("> out cat", None),
        ("`echo cat`", None),
        ("'unclosed", None),
        ("# nothing", None),
    ],
)
def test_only_a_program_that_is_certainly_missing_is_reported(command: str, missing: str | None) -> None:
    assert missing_program(command, {}) == missing


def test_a_program_is_looked_up_in_the_path_of_the_command(tmp_path: Path) -> None:
    program = tmp_path / "answer"
    program.write_text("#!/bin/sh\necho yes\n")
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert missing_program("answer", path) == "answer"
    assert missing_program(str(program), {}) == str(program)
    program.chmod(0o755)
    assert missing_program("answer", path) is None
    assert missing_program("answer", {}) == "answer"
    assert missing_program(str(program), {}) is None
