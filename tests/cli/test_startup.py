"""The modules that short commands import. Each command runs in a process of its own."""

import json

import pytest

from tests.cli.conftest import Shell, succeed

HEAVY = {"psycopg", "pydantic", "rich", "yaml", "uuid6"}
COMMANDS = "cardbox_cli.cli.commands."
# For a command line: which modules of commands it imports, and how many own modules at most. A few more than today, so
# that a module that is split need not change this; far fewer than a package of another layer brings.
LINES = {
    ("--version",): (set(), 20),
    ("--help",): (set(), 20),
    ("turn", "--help"): (set(), 20),
    ("agent", "--help"): (set(), 20),
    ("turn", "list", "--help"): ({"turn", "turn.turn_views"}, 62),
    ("box", "show", "--help"): ({"box", "box.box_show"}, 60),
    ("agent", "list", "--help"): ({"agent"}, 60),
}


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_help_imports_only_one_command_module(line: tuple[str, ...], shell: Shell) -> None:
    commands, most = LINES[line]
    imported = modules_of(shell, line)
    own = {name for name in imported if name.startswith("cardbox_cli")}
    assert {name.removeprefix(COMMANDS) for name in own if name.startswith(COMMANDS)} == commands
    assert imported & HEAVY == set()
    assert len(own) <= most, sorted(own)


@pytest.mark.parametrize(
    "line", [line for line, (commands, _) in LINES.items() if not commands], ids=" ".join
)
def test_lists_of_names_do_not_import_typer(line: tuple[str, ...], shell: Shell) -> None:
    assert "typer" not in modules_of(shell, line)


def modules_of(shell: Shell, line: tuple[str, ...]) -> set[str]:
    """Run a command line, and return the names of all modules that are imported then."""
    code = (
        "import contextlib, io, json, sys\n"
        "from cardbox_cli.entry import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): code = main({list(line)!r})\n"
        "print(json.dumps([code, *sys.modules]))"
    )
    code, *names = json.loads(succeed(shell.python(code)))
    assert code == 0
    return set(names)
