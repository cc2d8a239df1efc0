"""What hardly happens, and ends in one clear line all the same: broken files, odd bytes, an interrupt at any time."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cardbox_cli.home import default_home
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx

DEEP = "[" * 100_000


class TestFiles:
    def test_an_unreadable_file_is_an_error(self, cbx: Cbx) -> None:
        refused = cbx("card", "add", "--type", "t", "--file", "/proc/self/mem")
        assert (refused.code, refused.err.splitlines()[0]) == (
            4,
            "error: cannot read '/proc/self/mem': Input/output error",
        )

    def test_deeply_nested_files_do_not_crash_a_command(
        self, cbx: Cbx, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home.mkdir(mode=0o700)
        for name in ("last.json", "embedded.json"):
            (home / name).write_text(DEEP)
        assert cbx("card", "show", "@last").code == 3
        succeed(cbx("card", "add", "--type", "t", "--text", "x"))
        succeed(cbx("card", "show", "@last"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        (tmp_path / "cbx").mkdir()
        (tmp_path / "cbx" / "config.toml").write_text(f"project = {DEEP}")
        refused = cbx("card", "list")
        assert (refused.code, "nested too deeply" in refused.err) == (2, True)
        # That of an embedded server is looked for where no other database is named.
        monkeypatch.delenv("XDG_CONFIG_HOME")
        monkeypatch.delenv("CBX_DATABASE_URL")
        assert default_home(os.environ) == home
        assert cbx("db", "url").code not in (1, 4)


class TestArguments:
    def test_numbers_with_too_many_digits_are_refused(self, cbx: Cbx, add: Callable[..., str]) -> None:
        add()
        for digits in (19, 29, 5000):
            for words in (("card", "list"), ("box", "list"), ("turn", "list", "--status", "ended")):
                refused = cbx(*words, "--limit", "9" * digits)
                assert (refused.code, "Invalid value for '--limit'" in refused.err) == (2, True)
            refused = cbx("turn", "fail", "turn_1", "--expect-epoch", "9" * digits, "--reason", "r")
            assert refused.code in (2, 3, 4, 5)

    @pytest.mark.parametrize(
        "words", [("card", "show"), ("turn", "show"), ("box", "show"), ("why",), ("pack", "-H")]
    )
    def test_arguments_that_are_not_utf_8_are_refused(self, words: tuple[str, ...], cbx: Cbx) -> None:
        refused = cbx(*words, os.fsdecode(b"caf\xe9"))
        assert (refused.code in (2, 3, 4), "Traceback" in refused.err) == (True, False), refused.err


class TestYaml:
    def test_yaml_output_keeps_every_character(self, cbx: Cbx, add: Callable[..., str]) -> None:
        for text in (
            "a\x85b",
            "\x85",
            "\u2028x\u2029",
            "\ufeff",
            "\r\n\t ",
            "a\x7f\x9f\xa0\xad",
            "- \x85: " * 50,
        ):
            card = add(text)
            shown = yaml.safe_load(succeed(cbx("card", "show", card, "-o", "yaml")))
            assert shown["content"]["text"] == text


class TestInterrupts:
    def test_an_interrupt_after_the_commit_reports_the_commit(self, shell: Shell, cbx: Cbx) -> None:
        struck = replace(shell, environment={**shell.environment, "CBX_TEST_FAULT": "SIGINT:committed:1"})
        with struck.started("card", "add", "--type", "t", "--text", "x", "--id", "k-1") as process:
            out, err = process.communicate()
        assert (process.returncode, out) == (130, b"")
        assert err == b"\ninterrupted: work done before the interrupt is committed\n"
        succeed(cbx("card", "show", "k-1"))

    def test_an_interrupt_during_imports_prints_no_traceback(self, shell: Shell) -> None:
        """As soon as its own code runs, whatever is imported just then."""
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "class Strike:\n"
            "    def find_spec(self, name, *rest):\n"
            "        if name == sys.argv[1]: signal.raise_signal(signal.SIGINT)\n"
            "sys.meta_path.insert(0, Strike())\n"
            "from cardbox_cli.entry import script\n"
            "script()"
        )
        for module in ("cardbox_cli.cli.command_table", "click", "cardbox_cli.cli.session"):
            ran = shell.line(f"python -c '{code}' {module}", PATH=f"{Path(sys.executable).parent}:/bin")
            assert (ran.code, ran.out, ran.err) == (130, "", "\ninterrupted\n"), module


class TestRecipes:
    def test_a_local_recipe_that_overrides_a_shipped_one_causes_a_note(
        self, cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        [name, *_] = lines(cbx("handover", "list", "-o", "id"))
        shipped = succeed(cbx("handover", "show", name))
        assert "overrides the recipe built into cbx" not in cbx("handover", "show", name).err
        Path("handovers").mkdir()
        Path("handovers", f"{name}.yaml").write_text(shipped)
        Path("handovers", "own.yaml").write_text(shipped)
        told = f"note: recipe {name!r} is handovers/{name}.yaml, which overrides the recipe built into cbx\n"
        assert cbx("handover", "show", name).err.startswith(told)
        for other in (f"handovers/{name}.yaml", "own"):
            assert "overrides the recipe built into cbx" not in cbx("handover", "show", other).err
