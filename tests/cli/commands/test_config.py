"""`cbx config`: the settings in force, and where each comes from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.settings import SETTINGS
from tests.cli.conftest import succeed
from tests.cli.test_secrets import MALFORMED, UNREACHABLE, reveals
from tests.conftest import PROJECT, Cbx

ENVIRONMENT = [variable for setting in SETTINGS for variable in (setting.name, *setting.instead)]


@pytest.fixture
def bare(offline: Cbx, monkeypatch: pytest.MonkeyPatch) -> Cbx:
    """Run `cbx` with none of the settings set, and no database."""
    for variable in (*ENVIRONMENT, "PGHOST", "PGSERVICE", "PGPORT", "PGDATABASE", "PGHOSTADDR"):
        monkeypatch.delenv(variable, raising=False)
    return offline


def told(cbx: Cbx, name: str, *options: str) -> tuple[Any, str]:
    """The value and the source of a setting."""
    setting = cbx("config", name, "-o", "json", *options).json()
    return setting["value"], setting["source"]


class TestTheList:
    def test_every_setting_is_listed_in_every_format(self, bare: Cbx) -> None:
        names = [variable.name for variable in SETTINGS]
        header, *rows = succeed(bare("config")).splitlines()
        assert header.split() == ["NAME", "VALUE", "UNIT", "SOURCE", "HELP"]
        assert [row.split()[0] for row in rows] == names
        assert [each["name"] for each in bare("config", "-o", "json").json()] == names
        assert succeed(bare("config", "-o", "id")).splitlines() == names

    def test_all_settings_are_defaults_without_variables(self, bare: Cbx) -> None:
        assert {each["source"] for each in bare("config", "-o", "json").json()} == {"default"}

    def test_json_output_has_every_attribute_of_a_setting(self, bare: Cbx) -> None:
        [lease] = [each for each in bare("config", "-o", "json").json() if each["name"] == "CBX_LEASE"]
        assert lease == {
            "name": "CBX_LEASE",
            "value": 60,
            "unit": "s",
            "source": "default",
            "default": 60,
            "kind": "seconds",
            "lower": 1,
            "upper": 86400,
            "option": None,
            "secret": False,
            "help": "How long a claim lasts without a heartbeat.",
        }

    def test_invalid_values_are_shown_and_refused(self, bare: Cbx, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CBX_POLL", "often")
        refused = bare("config")
        assert refused.code == 2
        assert refused.err.startswith(
            "error: CBX_POLL is 'often'; it must be a number of seconds from 0.05 to 3600\n"
        )
        assert ["CBX_POLL", "often"] in [line.split()[:2] for line in refused.out.splitlines()]
        assert ["CBX_TOOL_WAIT", "300"] in [line.split()[:2] for line in refused.out.splitlines()]

    def test_contradictory_values_are_shown_and_refused(
        self, bare: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CBX_LEASE", "3")
        refused = bare("config")
        assert (refused.code, refused.err.split(" cannot be combined with ")[0]) == (
            2,
            "error: CBX_HEARTBEAT of 20 s (the default)",
        )
        assert ["CBX_LEASE", "3"] in [line.split()[:2] for line in refused.out.splitlines()]


class TestOne:
    @pytest.mark.parametrize("name", ["CBX_LEASE", "cbx_lease", "lease"])
    def test_only_the_value_of_the_named_setting_is_printed(
        self, bare: Cbx, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert succeed(bare("config", name)) == "60\n"
        monkeypatch.setenv("CBX_LEASE", "1e2")
        assert succeed(bare("config", name)) == "100\n"
        assert told(bare, name) == (100, "CBX_LEASE")

    def test_an_unknown_setting_is_not_found(self, bare: Cbx) -> None:
        refused = bare("config", "leas")
        assert (refused.code, refused.err) == (
            3,
            "error: unknown setting 'leas'\nhint: list the settings with `cbx config`\n",
        )

    def test_the_project_option_overrides_the_variable(
        self, bare: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert told(bare, "project") == ("default", "default")
        monkeypatch.setenv("CBX_PROJECT", PROJECT)
        assert told(bare, "project") == (PROJECT, "CBX_PROJECT")
        assert told(bare, "project", "--project", PROJECT) == (PROJECT, "--project")

    def test_the_database_comes_from_an_option_or_a_variable_or_libpq(
        self, bare: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert told(bare, "database-url") == (None, "default")
        monkeypatch.setenv("PGHOST", "db")
        assert told(bare, "database-url") == ("libpq's environment", "PGHOST")
        monkeypatch.setenv("CBX_DATABASE_URL", "postgresql://h/d")
        assert told(bare, "database-url") == ("dbname=d host=h", "CBX_DATABASE_URL")
        assert told(bare, "database-url", "--database-url", "host=o") == ("host=o", "--database-url")

    def test_the_pager_and_editor_fall_back_to_the_usual_variables(
        self, bare: Cbx, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PAGER", "most")
        monkeypatch.setenv("EDITOR", "nano")
        assert (told(bare, "pager"), told(bare, "visual")) == (("most", "PAGER"), ("nano", "EDITOR"))
        monkeypatch.setenv("CBX_PAGER", "")
        monkeypatch.setenv("VISUAL", " ")
        assert (told(bare, "pager"), told(bare, "visual")) == (("", "CBX_PAGER"), ("nano", "EDITOR"))


class TestPasswords:
    @pytest.mark.parametrize("name", ["CBX_DATABASE_URL", "CBX_LISTEN_URL", "CBX_NATS_URL"])
    @pytest.mark.parametrize("options", [(), ("-o", "json"), ("--debug",)], ids=["text", "json", "debug"])
    def test_no_url_reveals_its_password(
        self, bare: Cbx, name: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if name == "CBX_NATS_URL":
            addresses = [
                "nats://u:hunter2@h",
                "tls://hunter2@h:4222,u:hunter2@g",
                "nats://u:hunter2@h/@",
                "u:hunter2@[h",
            ]
        else:
            addresses = [*UNREACHABLE, *MALFORMED]
        for address in addresses:
            monkeypatch.setenv(name, address)
            for result in (bare("config", *options), bare("config", name, *options)):
                assert result.code in (0, 2)
                assert not reveals(result), address


class TestTheFile:
    @pytest.fixture
    def file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """Where the config file may lie."""
        (tmp_path / "cbx").mkdir()
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        return tmp_path / "cbx" / "config.toml"

    def test_options_and_variables_override_the_config_file(
        self, bare: Cbx, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.write_text('# mine\nproject = "of-the-file"\noutput = "yaml"\n')
        assert told(bare, "project") == ("of-the-file", f"{file}:2")
        assert told(bare, "output") == ("yaml", f"{file}:3")
        assert told(bare, "config") == (str(file), "default")
        assert succeed(bare("config", "project")).startswith("name: CBX_PROJECT\nvalue: of-the-file\n")
        monkeypatch.setenv("CBX_PROJECT", "of-the-environment")
        monkeypatch.setenv("CBX_OUTPUT", "id")
        assert told(bare, "project") == ("of-the-environment", "CBX_PROJECT")
        assert succeed(bare("config", "output")) == "CBX_OUTPUT\n"
        assert told(bare, "project", "-p", "of-the-line") == ("of-the-line", "--project")
        monkeypatch.setenv("CBX_CONFIG", str(file.with_name("other.toml")))
        refused = bare("config")
        assert (refused.code, refused.err.splitlines()[0]) == (
            2,
            f"error: no config file '{file.with_name('other.toml')}'",
        )
        assert bare("--help").code == bare("config", "--help").code == 0

    @pytest.mark.parametrize("address", [*UNREACHABLE[:2], *MALFORMED[:2]])
    def test_a_database_url_in_the_config_file_is_never_shown(
        self, address: str, bare: Cbx, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CBX_DATABASE_URL", raising=False)
        file.write_text(f"database_url = '{address}'\n")
        for command in (("config",), ("config", "-o", "json"), ("card", "list")):
            answer = bare(*command)
            assert not reveals(answer)
            assert str(file) + ":1" in answer.out + answer.err
        monkeypatch.setenv("PGHOST", "127.0.0.1")
        assert told(bare, "database-url")[1] == "PGHOST"

    def test_the_config_file_sets_columns_and_output_of_lists(
        self, cbx: Cbx, file: Path, monkeypatch: pytest.MonkeyPatch, add: Callable[..., str]
    ) -> None:
        card = add("some words")
        file.write_text('output = "csv"\n[columns]\n"card list" = ["full-id", "type"]\n')
        assert succeed(cbx("card", "list", "-o", "table")).splitlines()[1].split() == [
            card,
            "task.instruction",
        ]
        assert succeed(cbx("card", "ls")).splitlines()[0].startswith("id,full_id,type")
        assert succeed(cbx("card", "list", "--columns", "role")) == "role\nuser\n"
        assert succeed(cbx("card", "show", card)).startswith("card ")
        file.write_text('[columns]\n"card list" = "full-id,typ"\n')
        refused = cbx("card", "list")
        assert (refused.code, refused.err.splitlines()[0]) == (
            2,
            f"error: {file}:2: unknown column 'typ'; did you mean 'type'?",
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('projct = "x"', "FILE:1: unknown setting 'projct'; did you mean 'project'?"),
            ("\nproject = 5", "FILE:2: 'project' must be a string that is not empty"),
            ('database_url = ["secret"]', "FILE:1: 'database_url' must be a string that is not empty"),
            ('output = "jsn"', "FILE:1: unknown format 'jsn'; did you mean 'json'?"),
            (
                '[columns]\n"card lst" = "id"',
                "FILE:2: unknown list 'card lst'; did you mean 'card list'?",
            ),
            ('[columns]\n"card list" = []', "FILE:2: 'card list' must name columns"),
            ('columns = "id"', "FILE:1: 'columns' must be a table"),
            ('project = "x', "FILE: "),
        ],
    )
    def test_an_invalid_config_file_is_refused_with_the_line(
        self, text: str, message: str, bare: Cbx, file: Path
    ) -> None:
        file.write_text(text + "\n")
        refused = bare("config", "lease")
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith("error: " + message.replace("FILE", str(file)))
        assert "secret" not in refused.err
